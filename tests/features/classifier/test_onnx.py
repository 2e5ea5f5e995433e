"""The ONNX network decides as the classifier does: onnxruntime against numpy."""

import builtins
import json
import os
import sys
import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from openauc import __version__
from openauc.features import OpenSetClassifier
from openauc.features.classifier import onnx as module

pytest.importorskip("ndonnx")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

CLOSE = 1e-5


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """Fits with few folds; and constants of the network computed by numpy, to the same bytes in half the time."""
    value_prop = pytest.importorskip("spox._value_prop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openauc.features.classifier.fitting.MOST_REPEATED", 0)
        patch.setattr(value_prop, "_VALUE_PROP_BACKEND", value_prop.ValuePropBackend.REFERENCE)
        yield


def clusters(classes=12, width=24, count=20, dtype=np.float32, offset=0.0):
    """Training samples of the classes, and 2,000 others, a quarter of them of classes that are not known."""
    rng = np.random.default_rng(0)
    centres = offset + rng.normal(size=(classes * 4 // 3, width))
    y = np.repeat(np.arange(classes), count)
    new = rng.integers(0, len(centres), 2_000)
    X, other = (centres[rows] + 1.2 * rng.normal(size=(len(rows), width)) for rows in (y, new))
    return X.astype(dtype), y, other.astype(dtype)


def fit(X, y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OpenSetClassifier(**{"folds": 2, "random_state": 0, "seen_by_encoder": False, **parameters}).fit(X, y)


def small(labels=("ant", "bee", "cat"), **parameters):
    X, y, new = clusters(3, 5)
    return fit(X, np.asarray(labels)[y], **{"head": "class_mean", "rejector": "max_logit", **parameters}), new


@pytest.fixture(scope="module")
def classifier():
    return small()[0]


def run(path, X):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    names = [output.name for output in session.get_outputs()]
    assert names == ["label", "class", "score", "p_value"]
    return dict(zip(names, session.run(None, {"embedding": X}), strict=True))


def assert_same_decisions(classifier, path, X, close=CLOSE, dtype=None):
    """Labels and classes of all samples; p-values of those whose score is not beside one of calibration."""
    head = classifier.head_with_scores_.head
    classifier.export_onnx(path, dtype=dtype)
    assert classifier.head_with_scores_.head is head
    onnx.checker.check_model(onnx.load(path), full_check=True)
    found = run(path, X)
    score = classifier.open_score(X)
    assert (found["score"].dtype, found["p_value"].dtype) == (np.float64, np.float64)
    assert np.abs(found["score"] - score).max() < close
    np.testing.assert_array_equal(found["label"], classifier.predict(X))
    np.testing.assert_array_equal(found["class"], classifier.classify(X))
    ranked = np.sort(classifier.calibration_scores_)
    apart = np.searchsorted(ranked, score - close) == np.searchsorted(ranked, score + close, "right")
    assert apart.any()
    np.testing.assert_array_equal(found["p_value"][apart], classifier.p_value(X)[apart])
    return found


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"head": "mlp", "rejector": "energy", "calibration": "split", "threshold": "youden"},
        {"rejector": "average", "per_class": True, "acceptance": 0.9},
        {"head": SGDClassifier(random_state=0), "rejector": "selected"},
        {"head": make_pipeline(StandardScaler(), PCA(20), LogisticRegression()), "rejector": "entropy"},
    ],
    ids=str,
)
def test_two_thousand_samples(tmp_path, parameters):
    X, y, new = clusters()
    classifier = fit(X, np.array([f"class {c}" for c in range(12)])[y], **parameters)
    found = assert_same_decisions(classifier, tmp_path / "model.onnx", new)
    assert 0.02 < (found["label"] == "unknown").mean() < 0.7
    for part in (new[:1], new[:7]):
        one = run(tmp_path / "model.onnx", part)
        np.testing.assert_allclose(one["score"], found["score"][: len(part)], rtol=0, atol=CLOSE)
        np.testing.assert_array_equal(one["label"], found["label"][: len(part)])


def test_confident_samples(tmp_path):
    """Logits of a hundred and more: what is left beside a probability of nearly 1 must not be rounding."""
    X, y, new = clusters()
    assert_same_decisions(fit(X, y, head="class_mean", rejector="gen"), tmp_path / "model.onnx", new)


@pytest.mark.parametrize(
    ("head", "rejector", "close"), [("logistic", "max_logit", 3 * CLOSE), ("class_mean", "entropy", CLOSE)]
)
def test_features_far_from_zero(tmp_path, head, rejector, close):
    """A product in float32 with features whose mean is five deviations off is itself known to 1e-5 only."""
    X, y, new = clusters(offset=5.0)
    assert_same_decisions(fit(X, y, head=head, rejector=rejector), tmp_path / "model.onnx", new, close)


def test_outliers_at_hand(tmp_path):
    """They add a score of their own to what is learned."""
    X, y, new = clusters()
    outliers = np.random.default_rng(1).normal(size=(20, X.shape[1])).astype(np.float32)
    classifier = fit(np.concatenate([X, outliers]), np.append(y, [-1] * 20), head="class_mean", per_class=True)
    assert "outliers" in classifier.head_with_scores_.scores
    assert_same_decisions(classifier, tmp_path / "model.onnx", new)


def test_float64(tmp_path):
    X, y, new = clusters(5, 8, dtype=np.float64)
    classifier = fit(X, y, rejector="max_logit")
    found = assert_same_decisions(classifier, tmp_path / "model.onnx", new)
    assert onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    assert np.abs(found["score"] - classifier.open_score(new)).max() < 1e-11


@pytest.mark.parametrize(("fitted", "rejector"), [("float32", "relative_mahalanobis"), ("float64", "average")])
def test_embeddings_of_either_type(tmp_path, fitted, rejector):
    """The network computes in the precision of the fit, as predict does, whatever it is given."""
    X, y, new = clusters(5, 8, dtype=np.float64)
    classifier = fit(X.astype(fitted), y, acceptance=0.8, rejector=rejector)
    for served in ("float32", "float64"):
        found = assert_same_decisions(classifier, tmp_path / "model.onnx", new.astype(served), dtype=served)
        assert 0.02 < (found["label"] == -1).mean() < 0.6


def test_another_type_of_embeddings_is_refused(tmp_path, classifier):
    with pytest.raises(ValueError, match=r"'float16'.*'float32', 'float64'"):
        classifier.export_onnx(tmp_path / "model.onnx", dtype="float16")


@pytest.mark.parametrize(
    ("labels", "unknown", "dtype"),
    [
        (np.array(["ä", "b", "c"]), "other", np.object_),
        (np.array(["ä", "b", "c"], object), "unknown", np.object_),
        (np.array([3, 1, 7], np.uint8), -9, np.int64),
        (np.array([3.0, 1.0, 7.0], np.float32), -1, np.int64),
    ],
    ids=repr,
)
def test_labels(tmp_path, labels, unknown, dtype):
    classifier, new = small(labels, acceptance=0.8, unknown_label=unknown)
    found = assert_same_decisions(classifier, tmp_path / "model.onnx", new)
    assert found["label"].dtype == found["class"].dtype == dtype
    assert unknown in found["label"]


def test_none_is_exported_as_a_name_and_what_is_not_finite_is_that(tmp_path):
    classifier, new = small(unknown_label=None, acceptance=0.8)
    classifier.export_onnx(tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", new)["label"]
    expected = classifier.predict(new)
    assert (found[expected == None] == "unknown").all()  # noqa: E711
    np.testing.assert_array_equal(found[expected != None], expected[expected != None])  # noqa: E711
    X = new[:4].copy()
    X[1, 0], X[2, 0], X[3] = np.nan, np.inf, np.nan
    broken = run(tmp_path / "model.onnx", X)
    assert broken["label"][1:].tolist() == ["unknown"] * 3
    assert broken["p_value"][1:].max() < 0.02
    assert np.isnan(broken["score"][[1, 3]]).all()
    assert broken["p_value"][[1, 3]].tolist() == [0.0, 0.0]


def test_what_is_loaded_is_exported_alike(tmp_path, classifier):
    classifier.save(tmp_path / "model")
    classifier.export_onnx(tmp_path / "a.onnx")
    OpenSetClassifier.load(tmp_path / "model").export_onnx(tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_metadata(tmp_path):
    classifier, new = small(acceptance=0.999)  # for which samples are too few: nothing is rejected
    assert "unknown" not in assert_same_decisions(classifier, tmp_path / "model.onnx", new)["label"]
    model = onnx.load(tmp_path / "model.onnx")
    props = {prop.key: prop.value for prop in model.metadata_props}
    assert props == {
        "openauc_version": __version__,
        "classes": json.dumps(["ant", "bee", "cat"]),
        "unknown_label": '"unknown"',
        "thresholds": json.dumps(["inf"] * 3),
        "guarantee": classifier.guarantee_,
    }
    assert (model.producer_name, model.producer_version) == ("openauc", __version__)
    assert [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == ["N", 5]
    assert {output.type.tensor_type.shape.dim[0].dim_param for output in model.graph.output} == {"N"}


def test_a_failure_keeps_the_old_file(tmp_path, monkeypatch, classifier):
    monkeypatch.setattr(module, "build", lambda *_: onnx.ModelProto())
    (tmp_path / "model.onnx").write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        classifier.export_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "old"
    assert os.listdir(tmp_path) == ["model.onnx"]


# What cannot be exported


@pytest.mark.parametrize("missing", ["ndonnx", "spox"])
def test_without_ndonnx(tmp_path, monkeypatch, missing, classifier):
    for name in [name for name in sys.modules if name.split(".")[0] in ("ndonnx", "spox")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"ndonnx.*pip install 'openauc\[onnx\]'"):
        classifier.export_onnx(tmp_path / "model.onnx")


def own(features, logits):
    return -logits.max(1)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"rejector": own}, "'own'"),
        ({"head": RandomForestClassifier(5)}, "RandomForestClassifier"),
        ({"labels": ("a", "unknown", "c"), "unknown_label": None}, "'unknown'.*another unknown_label"),
        ({"labels": (1, 2, 3), "unknown_label": np.nan}, "nan.*unknown_label=-1"),
        ({"labels": (1, 2, 3), "unknown_label": -0.5}, "-0.5.*unknown_label=-1"),
    ],
)
def test_refusals(tmp_path, parameters, match):
    classifier, _ = small(**parameters)
    with pytest.raises(ValueError, match=match) as caught:
        classifier.export_onnx(tmp_path / "model.onnx")
    assert str(caught.value).endswith(".")
    assert os.listdir(tmp_path) == []


def test_larger_than_onnx_allows(tmp_path, monkeypatch, classifier):
    monkeypatch.setattr(module, "build", lambda *_: onnx.ModelProto(doc_string="x" * 2000))
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"0\.0 GB.*rejector='max_logit'"):
        classifier.export_onnx(tmp_path / "model.onnx")


def test_what_is_not_fitted(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        OpenSetClassifier().export_onnx(tmp_path / "model.onnx")
