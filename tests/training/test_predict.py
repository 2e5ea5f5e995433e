"""Prediction: the same answer as the plain network, whatever the batches, the source or the folding."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openauc import Predictions
from openauc.features import SCORES, make_score
from openauc.methods import build_method, recipe_for
from openauc.models import make_backbone
from openauc.protocols import Protocol, get_protocol
from openauc.training.augment import transform
from openauc.training.predict import (
    Embedded,
    embed,
    embed_images,
    fitted_score,
    fold_batch_norms,
    predict,
)

RECIPE = recipe_for("plain", "digits")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data():
    return get_protocol("digits").load(0, validation=0.1)


def with_statistics(module, seed=0):
    """BatchNorms that do something: as after some training."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.copy_(torch.randn(layer.num_features, generator=generator) / 10)
            layer.running_var.copy_(torch.rand(layer.num_features, generator=generator) + 0.5)
    return module


@pytest.fixture
def method(data):
    return with_statistics(build_method("softmax", data.num_classes, image_size=RECIPE.image_size, width=4))


def plain_embedding(method, images):
    method.eval()
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    with torch.no_grad():
        features = method.backbone(transform(pixels, RECIPE))
        return features.numpy(), method.class_scores(features).numpy()


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_features_and_logits_are_those_of_the_plain_network(method, data, part):
    features, logits = plain_embedding(method, getattr(data, part).images)
    found = embed(method, data, RECIPE, part=part)
    np.testing.assert_allclose(found.features, features, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.logits, logits, rtol=1e-4, atol=1e-5)
    assert np.mean(found.logits.argmax(1) == logits.argmax(1)) >= 0.999
    np.testing.assert_array_equal(found.labels, getattr(data, part).labels)
    assert found.features.dtype == found.logits.dtype == np.float32


@pytest.mark.parametrize("batch_size", [1, 7, 5000])
def test_batches_make_no_difference(method, data, batch_size):
    images = data.test.images[:20]
    found = embed_images(method, images, RECIPE, batch_size=batch_size)
    for values, expected in zip(found, embed_images(method, images, RECIPE), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def test_progress_is_told_after_each_batch(method, data):
    told = []
    embed_images(method, data.test.images[:20], RECIPE, batch_size=8, seen=told.append)
    assert told == [8, 16, 20]


def test_embedded_images_survive_a_file(method, data, tmp_path):
    embedded = embed(method, data, RECIPE)
    embedded.save(tmp_path / "features.parquet")
    loaded = Embedded.load(tmp_path / "features.parquet")
    for values, expected in zip(loaded, embedded, strict=True):
        np.testing.assert_array_equal(values, expected)
        assert values.dtype == expected.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["features.parquet"]
    # A file with logits like any other.
    predictions = Predictions.load(tmp_path / "features.parquet")
    expected = embedded.predictions(make_score("max_logit"))
    for values, wanted in zip(predictions, expected, strict=True):
        np.testing.assert_array_equal(values, wanted)


def test_predictions_follow_the_order_of_the_data(method, data):
    logits = embed(method, data, RECIPE).logits
    predictions = predict(method, data, RECIPE)
    np.testing.assert_array_equal(predictions.y_true, data.test.labels)
    np.testing.assert_array_equal(predictions.y_pred, logits.argmax(1))
    wide = logits.astype(np.float64)
    largest = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(predictions.open_score, -1 / largest.sum(1), rtol=1e-12)
    assert predictions.open_score.dtype == np.float64


@pytest.mark.parametrize("score", SCORES)
def test_any_score_of_one_training(method, data, score):
    test, training = (embed(method, data, RECIPE, part=part) for part in ("test", "train"))
    chosen = make_score(score)
    if chosen.fits:
        chosen.fit(training.features, training.logits, data.train.labels)
    expected = chosen(test.features, test.logits)
    predictions = predict(method, data, RECIPE, score=score)
    np.testing.assert_array_equal(predictions.open_score, expected)
    np.testing.assert_array_equal(predictions.y_pred, test.logits.argmax(1))
    assert test.predictions(fitted_score(method, score, lambda: training)).open_score.tolist() == expected.tolist()
    if score == method.score:
        np.testing.assert_array_equal(predict(method, data, RECIPE).open_score, expected)


def test_the_recipe_of_the_training_is_remembered(method, data):
    method.trained_with = RECIPE
    for values, expected in zip(embed(method, data), embed(method, data, RECIPE), strict=True):
        np.testing.assert_array_equal(values, expected)


def test_the_validation_slice_can_be_predicted(method, data):
    predictions = predict(method, data, RECIPE, part="validation")
    np.testing.assert_array_equal(predictions.y_true, data.validation.labels)


@pytest.mark.parametrize("training", [True, False])
def test_the_method_stays_as_it_was(method, data, training):
    method.train(training)
    backbone, before = method.backbone, {key: value.clone() for key, value in method.state_dict().items()}
    embed_images(method, data.test.images[:4], RECIPE)
    assert method.training == method.backbone.training == training
    assert method.backbone is backbone
    assert all(torch.equal(value, method.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize(("name", "width"), [("vgg32", 4), ("vgg32_abn", 4), ("resnet50", 2)])
def test_folding_keeps_the_features(name, width):
    backbone = with_statistics(make_backbone(name, width=width).eval())
    folded = fold_batch_norms(backbone)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = backbone(x)
        torch.testing.assert_close(folded(x), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules())
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in backbone.modules())


def test_compressed_images_are_predicted_like_arrays(method, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for i in range(5):
            pixels = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    lazy = Protocol.from_folder(tmp_path, known=["a", "b"], unknown=["c"], image_size=8).load(0).train.images
    found = embed_images(method, lazy, RECIPE, batch_size=3)
    for values, expected in zip(found, embed_images(method, lazy[:], RECIPE, batch_size=3), strict=True):
        np.testing.assert_array_equal(values, expected)


def test_bfloat16_on_demand(method, data):
    images = data.test.images[:64]
    halves = embed_images(method, images, RECIPE, precision="bf16")
    for half, full in zip(halves, embed_images(method, images, RECIPE, precision="fp32"), strict=True):
        assert half.dtype == np.float32
        assert not np.array_equal(half, full)
        np.testing.assert_allclose(half, full, atol=0.05 * np.abs(full).max())


def test_float32_unless_told(method, data):
    images = data.test.images[:64]
    for found, full in zip(
        embed_images(method, images, RECIPE), embed_images(method, images, RECIPE, precision="fp32"), strict=True
    ):
        np.testing.assert_array_equal(found, full)


def test_errors(method, data):
    with pytest.raises(ValueError, match="pass the recipe it was trained with"):
        predict(method, data)
    with pytest.raises(ValueError, match="there is no image to predict"):
        predict(method, get_protocol("digits").load(0), RECIPE, part="validation")
    with pytest.raises(ValueError, match="part is 'tset'; expected one of 'train', 'validation', 'test'"):
        predict(method, data, RECIPE, part="tset")
    with pytest.raises(ValueError, match=r"score is 'max_logits'.*Did you mean 'max_logit'"):
        predict(method, data, RECIPE, score="max_logits")
    with pytest.raises(ValueError, match="precision is 'auto'"):
        predict(method, data, RECIPE, precision="auto")
    with pytest.raises(ValueError, match="precision is 'fp8'"):
        predict(method, data, RECIPE, precision="fp8")
    with pytest.raises(ValueError, match="batch_size is -1"):
        predict(method, data, RECIPE, batch_size=-1)
