"""Prediction: the same answer as the plain network, whatever the batches, the source or the folding."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openauc.models import make_backbone
from openauc.protocols import Protocol, get_protocol
from openauc.training.augment import TestTransform as Transform
from openauc.training.loop import build_method
from openauc.training.predict import (
    Pixels,
    _Predictor,
    agreement,
    fold_batch_norms,
    predict,
    predict_logits,
)
from openauc.training.process import native_bfloat16
from openauc.training.recipe import recipe_for

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
    return with_statistics(build_method("softmax", data, RECIPE, width=4))


def plain_logits(method, images):
    method.eval()
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    with torch.no_grad():
        return method.logits(Transform(RECIPE, images.shape[1])(pixels)).numpy()


def test_logits_are_those_of_the_plain_network(method, data):
    expected = plain_logits(method, data.test_images)
    found = predict_logits(method, data.test_images, RECIPE, precision="fp32")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert agreement(found, expected) >= 0.999


@pytest.mark.parametrize("batch_size", [1, 7, 5000])
def test_batches_make_no_difference(method, data, batch_size):
    images = data.test_images[:20]
    found = predict_logits(method, images, RECIPE, batch_size=batch_size)
    np.testing.assert_allclose(found, predict_logits(method, images, RECIPE), rtol=1e-4, atol=1e-5)


def test_predictions_follow_the_order_of_the_data(method, data):
    logits = predict_logits(method, data.test_images, RECIPE)
    predictions = predict(method, data, RECIPE)
    np.testing.assert_array_equal(predictions.y_true, data.test_labels)
    np.testing.assert_array_equal(predictions.y_pred, logits.argmax(1))
    wide = logits.astype(np.float64)
    largest = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(predictions.open_score, -1 / largest.sum(1), rtol=1e-12)
    assert predictions.open_score.dtype == np.float64


def test_the_validation_slice_can_be_predicted(method, data):
    predictions = predict(method, data, RECIPE, part="validation")
    np.testing.assert_array_equal(predictions.y_true, data.validation_labels)


@pytest.mark.parametrize("training", [True, False])
def test_the_method_stays_as_it_was(method, data, training):
    method.train(training)
    backbone, before = method.backbone, {key: value.clone() for key, value in method.state_dict().items()}
    predict_logits(method, data.test_images[:4], RECIPE)
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
    lazy = Protocol.from_folder(tmp_path, known=["a", "b"], unknown=["c"], image_size=8).load(0).train_images
    np.testing.assert_array_equal(
        predict_logits(method, lazy, RECIPE, batch_size=3), predict_logits(method, lazy[:], RECIPE, batch_size=3)
    )
    assert list(Pixels(lazy, torch.device("cpu")).stream([])) == []


def test_bfloat16_on_demand(method, data):
    images = data.test_images[:64]
    half = predict_logits(method, images, RECIPE, precision="bf16")
    full = predict_logits(method, images, RECIPE, precision="fp32")
    assert not np.array_equal(half, full)
    np.testing.assert_allclose(half, full, atol=0.05 * np.abs(full).max())


def test_bfloat16_is_trusted_only_where_it_decides_alike(method, data):
    rows = np.arange(64)
    method.eval()
    with torch.inference_mode():
        predictor = _Predictor(method, data.test_images, RECIPE, 32)
        assert predictor.trusts_half(rows) == (
            agreement(predictor.logits(rows, half=True), predictor.logits(rows, half=False)) >= 0.999
        )
        method.head.weight.copy_(1 + 1e-4 * method.head.weight)  # classes bfloat16 cannot tell apart
        assert not _Predictor(method, data.test_images, RECIPE, 32).trusts_half(rows)


def test_native_bfloat16_is_a_fact_of_the_hardware():
    assert isinstance(native_bfloat16(torch.device("cpu")), bool)
    assert native_bfloat16(torch.device("meta")) is False


def test_errors(method, data):
    with pytest.raises(ValueError, match="pass the recipe it was trained with"):
        predict(method, data)
    with pytest.raises(ValueError, match="there is no image to predict"):
        predict(method, get_protocol("digits").load(0), RECIPE, part="validation")
    with pytest.raises(ValueError, match="part is 'train'"):
        predict(method, data, RECIPE, part="train")
    with pytest.raises(ValueError, match="precision is 'fp8'"):
        predict(method, data, RECIPE, precision="fp8")
    with pytest.raises(ValueError, match="batch_size is -1"):
        predict(method, data, RECIPE, batch_size=-1)
