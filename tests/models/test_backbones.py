import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from openauc.models import BACKBONES, Backbone, clean_statistics, load_weights, make_backbone
from openauc.models.backbones import TimmBackbone, TransformersBackbone
from openauc.models.resnet import ResNet50
from openauc.models.vgg32 import VGG32, VGG32ABN

SHARED = Path(__file__).resolve().parents[2] / "../shared"


class Classifier(nn.Module):
    """A backbone with its head, as methods have them; `points` stands for a method's further parameters."""

    def __init__(self, backbone: Backbone, num_classes: int, *, points: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = backbone.make_head(num_classes)
        if points:
            self.points = nn.Parameter(torch.zeros(num_classes, backbone.feature_dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def images(count: int = 2, size: int = 32) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def check_contract(backbone: Backbone, size: int = 32) -> None:
    """Features from every cut agree, in training mode too, and bfloat16 on channels_last images runs."""
    x = images(size=size)
    for training in (False, True):
        backbone.train(training)
        with torch.no_grad(), clean_statistics(backbone):
            features = backbone(x)
            assert features.shape == (len(x), backbone.feature_dim)
            for cut in backbone.cut_points:
                assert torch.equal(backbone.post(backbone.pre(x, cut), cut), features)
    backbone.eval().to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(backbone(x.contiguous(memory_format=torch.channels_last))).all()


class TestMakeBackbone:
    def test_listing(self):
        assert BACKBONES == ("vgg32", "vgg32_abn", "resnet50", "mlp", "hf:NAME", "timm:NAME")

    @pytest.mark.parametrize(
        ("name", "kind", "published_dim"),
        [("vgg32", VGG32, 128), ("vgg32_abn", VGG32ABN, 128), ("resnet50", ResNet50, 2048)],
    )
    def test_own_architectures(self, name, kind, published_dim):
        assert type(make_backbone(name)) is kind
        assert make_backbone(name).feature_dim == published_dim
        assert make_backbone(name, width=2).feature_dim == published_dim // 32

    def test_generator_decides_the_weights(self):
        first, second = (make_backbone("vgg32", width=2, generator=torch.Generator().manual_seed(7)) for _ in range(2))
        assert torch.equal(first.conv5.weight, second.conv5.weight)

    def test_wrong_names(self):
        with pytest.raises(ValueError, match=r"backbone is 'vgg23'; expected .* Did you mean 'vgg32'\?"):
            make_backbone("vgg23")
        with pytest.raises(ValueError, match=r"backbone is 'qqq'; expected one of 'vgg32', .*'timm:NAME'"):
            make_backbone("qqq")
        with pytest.raises(ValueError, match="backbone is 'hf:'; expected one of"):
            make_backbone("hf:")

    @pytest.mark.parametrize("name", ["vgg32", "resnet50"])
    @pytest.mark.parametrize("width", [0, 10**6])
    def test_a_width_beyond_reason_is_refused_before_it_takes_memory(self, name, width):
        with pytest.raises(ValueError, match=f"width is {width}; expected 1 to 1024 channels"):
            make_backbone(name, width=width)

    def test_pretrained_networks_have_their_width(self):
        with pytest.raises(ValueError, match="width is 8, but 'hf:any' is pretrained"):
            make_backbone("hf:any", width=8)


def tiny_resnet() -> nn.Module:
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    return transformers.ResNetModel(config)


def tiny_vit() -> nn.Module:
    size = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **size, **dropout))


class TestTransformers:
    def test_convolutional_backbone(self, tmp_path):
        model = tiny_resnet()
        model.save_pretrained(tmp_path)
        backbone = make_backbone(f"hf:{tmp_path}")
        assert isinstance(backbone, TransformersBackbone)
        assert "Backbone" in type(backbone.encoder).__name__
        assert backbone.training
        assert backbone.encoder.training
        assert backbone.feature_dim == 12
        assert backbone.cut_points == ("input", "map", "features")
        with torch.no_grad():
            expected = model.eval()(images()).pooler_output.flatten(1)
            assert torch.allclose(backbone.eval()(images()), expected, atol=1e-6)
        check_contract(backbone)

    def test_running_statistics_stay_clean(self, tmp_path):
        tiny_resnet().save_pretrained(tmp_path)
        backbone = make_backbone(f"hf:{tmp_path}")
        before = {key: value.clone() for key, value in backbone.state_dict().items()}
        with clean_statistics(backbone):
            backbone(images())
        assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
        backbone(images())
        assert any(not torch.equal(value, before[key]) for key, value in backbone.state_dict().items())

    @pytest.mark.parametrize("size", [32, 48])
    def test_transformer_takes_any_size(self, tmp_path, size):
        model = tiny_vit()
        model.save_pretrained(tmp_path)
        backbone = make_backbone(f"hf:{tmp_path}", image_size=size)
        assert backbone.feature_dim == 8
        assert backbone.pre(images(size=size), "map").shape == (2, 1 + (size // 8) ** 2, 8)
        with torch.no_grad():
            tokens = model.eval()(images(size=size), interpolate_pos_encoding=True).last_hidden_state
            assert torch.allclose(backbone.eval()(images(size=size)), tokens.mean(1), atol=1e-6)
        check_contract(backbone, size)

    def test_half_precision_files_become_float32(self, tmp_path):
        tiny_resnet().to(torch.bfloat16).save_pretrained(tmp_path)
        backbone = make_backbone(f"hf:{tmp_path}")
        assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}

    def test_head_has_a_bias(self, tmp_path):
        tiny_resnet().save_pretrained(tmp_path)
        head = make_backbone(f"hf:{tmp_path}").make_head(5)
        assert head.weight.shape == (5, 12)
        assert head.bias.shape == (5,)

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(
            ValueError, match=rf"'hf:{tmp_path}' cannot be loaded .*name of an image model.* or a folder"
        ):
            make_backbone(f"hf:{tmp_path}")

    def test_a_model_of_something_else(self, tmp_path):
        size = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        transformers.BertModel(transformers.BertConfig(vocab_size=11, **size)).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="BertModel makes no feature map of 3 x 32 x 32 images"):
            make_backbone(f"hf:{tmp_path}")

    def test_without_the_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(ImportError, match="'hf:any/thing' needs `pip install transformers`"):
            make_backbone("hf:any/thing")


class TimmLike(nn.Module):
    """The part of timm's model interface that a backbone needs."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 3, stride=4)
        self.norm = nn.BatchNorm2d(6)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return x.amax((2, 3)) if pre_logits else x.new_zeros(len(x), 10)


class TestTimm:
    def test_without_the_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(ImportError, match="'timm:resnet18' needs `pip install timm`"):
            make_backbone("timm:resnet18")

    def test_a_name_that_timm_does_not_know(self, monkeypatch):
        def create_model(name: str, **options: object) -> nn.Module:
            raise RuntimeError(f"Unknown model ({name})")

        monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
        with pytest.raises(ValueError, match=r"'timm:resnet19' cannot be loaded \(Unknown model \(resnet19\)\); pass"):
            make_backbone("timm:resnet19")

    def test_network_without_classifier_is_asked_for(self, monkeypatch):
        asked = []

        def create_model(name: str, **options: object) -> nn.Module:
            asked.append((name, options))
            return TimmLike()

        monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
        backbone = make_backbone("timm:resnet18", image_size=16)
        assert asked == [("resnet18", {"pretrained": True, "num_classes": 0})]
        assert isinstance(backbone, TimmBackbone)
        assert backbone.feature_dim == 6
        check_contract(backbone, 16)

    def test_images_that_do_not_fit(self):
        with pytest.raises(ValueError, match=r"TimmLike makes no feature map of 3 x 2 x 2 images .*pass another"):
            TimmBackbone(TimmLike(), 2)


def filled(module: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """Give a module's state new values, so that loading them can be told from not loading them."""
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.rand(value.shape, generator=generator) if value.is_floating_point() else value + 7
        for key, value in module.state_dict().items()
    }


def equal(state: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return state.keys() == expected.keys() and all(torch.equal(state[key], expected[key]) for key in state)


class TestLoadWeights:
    @pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin", ".pth.tar"])
    def test_every_format(self, tmp_path, suffix):
        path = tmp_path / f"weights{suffix}"
        expected = filled(VGG32(width=2))
        save_file(expected, path) if suffix == ".safetensors" else torch.save(expected, path)
        backbone = VGG32(width=2)
        report = load_weights(backbone, path)
        assert equal(backbone.state_dict(), expected)
        assert set(report.loaded) == set(expected)
        assert report.missing == report.unexpected == report.mismatched == report.ignored == ()

    @pytest.mark.parametrize("prefix", ["module.", "backbone.", "module.backbone.", "encoder_q.", "module.encoder_q."])
    def test_prefixes_and_wrapping(self, tmp_path, prefix):
        expected = filled(VGG32(width=2))
        wrapped = {"epoch": 3, "state_dict": {prefix + key: value for key, value in expected.items()}}
        torch.save(wrapped, tmp_path / "wrapped.pth")
        backbone = VGG32(width=2)
        load_weights(backbone, str(tmp_path / "wrapped.pth"))
        assert equal(backbone.state_dict(), expected)

    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_own_files_of_a_method(self, tmp_path, prefix):
        expected = filled(Classifier(VGG32(width=2), 3, points=True))
        save_file({prefix + key: value for key, value in expected.items()}, tmp_path / "own.safetensors")
        method = Classifier(VGG32(width=2), 3, points=True)
        load_weights(method, tmp_path / "own.safetensors")
        assert equal(method.state_dict(), expected)

        backbone = VGG32(width=2)
        report = load_weights(backbone, tmp_path / "own.safetensors")
        assert equal(
            {f"backbone.{k}": v for k, v in backbone.state_dict().items()}
            | {key: expected[key] for key in ("head.weight", "points")},
            expected,
        )
        assert set(report.ignored) == {f"{prefix}head.weight", f"{prefix}points"}

    def test_published_head_becomes_the_methods(self, tmp_path):
        published = filled(VGG32(width=2)) | {"fc.weight": torch.ones(3, 4), "bn10.weight": torch.ones(4)}
        save_file(published, tmp_path / "published.safetensors")
        method = Classifier(VGG32(width=2), 3)
        report = load_weights(method, tmp_path / "published.safetensors")
        assert report.ignored == ("bn10.weight",)
        assert torch.equal(method.head.weight, torch.ones(3, 4))
        assert torch.equal(method.backbone.conv9.weight, published["conv9.weight"])
        bare = load_weights(VGG32(width=2), tmp_path / "published.safetensors")
        assert set(bare.ignored) == {"fc.weight", "bn10.weight"}

    def test_moco(self, tmp_path):
        encoder = filled(ResNet50(width=1))
        projection = {
            "fc.0.weight": torch.ones(32, 32),
            "fc.0.bias": torch.ones(32),
            "fc.2.weight": torch.ones(8, 32),
        }
        state = {f"module.encoder_q.{key}": value for key, value in (encoder | projection).items()}
        state |= {f"module.encoder_k.{key}": value + 1 for key, value in encoder.items()}
        state |= {"module.queue": torch.ones(8, 16)}
        torch.save({"arch": "resnet50", "state_dict": state}, tmp_path / "moco.pth.tar")

        method = Classifier(ResNet50(width=1), 5, points=True)
        head = method.head.weight.clone()
        with pytest.raises(ValueError, match=r"3 missing \(points, head.weight, head.bias\); 3 unexpected \(head.0"):
            load_weights(method, tmp_path / "moco.pth.tar")
        report = load_weights(method, tmp_path / "moco.pth.tar", allow_missing_head=True)
        assert equal(method.backbone.state_dict(), encoder)
        assert torch.equal(method.head.weight, head)
        assert set(report.missing) == {"points", "head.weight", "head.bias"}
        assert set(report.unexpected) == {"head.0.weight", "head.0.bias", "head.2.weight"}
        assert "module.queue" in report.ignored
        assert len(report.ignored) == 1 + len(encoder)

    def test_head_for_another_number_of_classes(self, tmp_path):
        published = filled(ResNet50(width=1)) | {"fc.weight": torch.ones(9, 32), "fc.bias": torch.ones(9)}
        torch.save(published, tmp_path / "places.pth")
        method = Classifier(ResNet50(width=1), 5)
        with pytest.raises(ValueError, match=r"2 of another shape \(head.weight \(9, 32\) for \(5, 32\)"):
            load_weights(method, tmp_path / "places.pth")
        report = load_weights(method, tmp_path / "places.pth", allow_missing_head=True)
        assert report.mismatched == ("head.weight", "head.bias")
        assert torch.equal(method.backbone.conv1.weight, published["conv1.weight"])

    def test_files_without_batch_counters(self, tmp_path):
        state = {key: value for key, value in filled(VGG32(width=2)).items() if "num_batches" not in key}
        save_file(state, tmp_path / "old.safetensors")
        assert load_weights(VGG32(width=2), tmp_path / "old.safetensors").missing == ()

    @pytest.mark.parametrize("allow_missing_head", [False, True])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda state: state.pop("conv3.weight"), r"1 missing \(backbone.conv3.weight\)"),
            (lambda state: state.update({"conv11.weight": torch.ones(1)}), r"1 unexpected \(conv11.weight\)"),
            (
                lambda state: state.update({"conv1.weight": torch.ones(1)}),
                r"1 of another shape \(backbone.conv1.weight \(1,\) for \(2, 3, 3, 3\)\)",
            ),
            (
                lambda state: [state.pop(f"conv{i}.weight") for i in range(1, 6)],
                r"5 missing \(.*conv3.weight, ...\)",
            ),
        ],
    )
    def test_what_does_not_fit_is_named_and_nothing_is_loaded(self, tmp_path, change, message, allow_missing_head):
        state = filled(VGG32(width=2)) | {"fc.weight": torch.ones(3, 4)}
        change(state)
        save_file(state, tmp_path / "odd.safetensors")
        method = Classifier(VGG32(width=2), 3)
        before = {key: value.clone() for key, value in method.state_dict().items()}
        with pytest.raises(ValueError, match=f"odd.safetensors does not fit Classifier: {message}"):
            load_weights(method, tmp_path / "odd.safetensors", allow_missing_head=allow_missing_head)
        assert equal(method.state_dict(), before)

    def test_files_that_hold_no_weights(self, tmp_path):
        with pytest.raises(ValueError, match="there is no weights file"):
            load_weights(VGG32(width=2), tmp_path / "absent.pth")
        (tmp_path / "weights.txt").write_text("0.5")
        with pytest.raises(ValueError, match=r"weights\.txt .*pass a \.safetensors"):
            load_weights(VGG32(width=2), tmp_path / "weights.txt")
        for name, kind in (("broken.safetensors", "safetensors"), ("broken.pth", "tensors")):
            (tmp_path / name).write_bytes(b"no tensors here")
            with pytest.raises(ValueError, match=f"{name} cannot be read as {kind}"):
                load_weights(VGG32(width=2), tmp_path / name)
        torch.save({"conv1.weight": Path("code")}, tmp_path / "object.pth")
        with pytest.raises(ValueError, match=r"object.pth cannot be read as tensors \(UnpicklingError\)"):
            load_weights(VGG32(width=2), tmp_path / "object.pth")
        for content in ({"epoch": 3}, [torch.ones(1)]):
            torch.save(content, tmp_path / "other.pth")
            with pytest.raises(ValueError, match=r"other\.pth holds something else than tensors by name"):
                load_weights(VGG32(width=2), tmp_path / "other.pth")


def tiny_imagenet_validation(classes: list[int], per_class: int) -> tuple[Tensor, Tensor]:
    """The first validation images of each class, normalised as published, and their positions."""
    table = parquet.read_table(SHARED / "data/tiny_imagenet/validation-00000-of-00001.parquet")
    labels = table["label"].to_numpy()
    rows = np.concatenate([np.flatnonzero(labels == label)[:per_class] for label in classes])
    encoded = table["image"].take(rows).to_pylist()
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in encoded])
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
    return (x - mean[:, None, None]) / std[:, None, None], torch.arange(len(classes)).repeat_interleave(per_class)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published checkpoints are not at hand")
@pytest.mark.parametrize("split", [0, 4])
def test_published_checkpoints(split):
    splits = json.loads((SHARED / "reference/splits.json").read_text())
    classes = splits["datasets"]["tinyimagenet"]["splits"][split]["known"]
    method = Classifier(make_backbone("vgg32", image_size=64), len(classes)).eval()
    report = load_weights(method, SHARED / f"pretrained/tinyimagenet_{split}.safetensors")
    assert report.missing == report.unexpected == report.mismatched == ()
    assert {key.split(".")[0] for key in report.ignored} == {"bn10"}
    x, y = tiny_imagenet_validation(classes, per_class=3)
    with torch.no_grad():
        accuracy = (method(x).argmax(1) == y).float().mean().item()
    assert accuracy > 0.7  # 0.842 published over all images and splits; chance is 0.05
