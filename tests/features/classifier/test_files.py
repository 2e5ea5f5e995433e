"""The folder of a model: what is loaded answers as what was saved, and nothing loads that was not saved whole."""

import json
import os
import re
import warnings
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save as as_safetensors
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from openauc import Costs
from openauc._files import CHECKSUM, sealed
from openauc.features import SCORES, OpenSetClassifier, Score
from openauc.features.classifier import files as module
from openauc.features.classifier.files import ARRAYS, JSON, NEXT, VERSION, decode, encode, load

NAMES = np.array(["ant", "bee", "cat", "dog", "elk"])


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """Classes are held out once, not again and again: here it does not matter what is learned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openauc.features.classifier.fitting.MOST_REPEATED", 0)
        yield


def clusters(classes=5, count=24, width=6, dtype=np.float32, draw=0):
    """Samples around one centre per class; another draw has others."""
    centres = 2 * np.random.default_rng(0).normal(size=(classes, width))
    y = np.repeat(np.arange(classes), count)
    return (centres[y] + np.random.default_rng([1, draw]).normal(size=(len(y), width))).astype(dtype), y


def fit(labels=NAMES, classes=5, dtype=np.float32, **parameters):
    X, y = clusters(classes, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OpenSetClassifier(**{"head": "class_mean", "folds": 2, "random_state": 0, **parameters}).fit(
            X, np.asarray(labels)[y]
        )


@cache
def shared():
    return fit(head="logistic")


def answers(classifier, dtype=np.float32):
    X, y = clusters(draw=1, dtype=dtype)
    X = np.concatenate([X, -2 * X[:40]])
    return {
        "predict": classifier.predict(X),
        "classify": classifier.classify(X),
        "open_score": classifier.open_score(X),
        "p_value": classifier.p_value(X),
        "predict_proba": classifier.predict_proba(X),
        "select_unknown": classifier.select_unknown(X, fdr=0.2),
        "y_true": classifier.predictions(X[: len(y)], classifier.classes_[y % len(classifier.classes_)]).y_true,
        "thresholds": classifier.thresholds_,
        "one row": classifier.open_score(X[:1]),
    }


def assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)


def assert_round_trip(classifier, folder, dtype=np.float32):
    classifier.save(folder)
    loaded = OpenSetClassifier.load(folder)
    assert set(vars(loaded)) == set(vars(classifier)), "a new attribute has to be saved"
    assert_same(answers(loaded, dtype), answers(classifier, dtype))
    assert loaded.guarantee_ == classifier.guarantee_
    assert loaded.report_ == classifier.report_
    assert str(loaded.report_) == str(classifier.report_)
    assert (loaded.unknown_label_, loaded.dtype_) == (classifier.unknown_label_, classifier.dtype_)
    return loaded


@pytest.mark.parametrize("head", ["logistic", "class_mean", "mlp"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_head(tmp_path, head, dtype):
    loaded = assert_round_trip(fit(head=head, dtype=dtype), tmp_path / "model", dtype)
    assert loaded.dtype_ == dtype
    assert set(load_file(tmp_path / "model" / ARRAYS)) >= {"evidence.mean", "samples.score", "held_out.score"}


@pytest.mark.parametrize("rejector", ["learned", "average", "selected", *SCORES])
def test_every_rejector(tmp_path, rejector):
    loaded = assert_round_trip(fit(rejector=rejector, seen_by_encoder=False), tmp_path / "model")
    assert loaded.rejector == rejector


@pytest.mark.parametrize(
    "parameters",
    [
        {"acceptance": 0.8, "per_class": True},
        {"acceptance": 0.8, "calibration": "split"},
        {"acceptance": 0.999},
        {"acceptance": 1.0},
        {"threshold": "youden"},
        {"threshold": "cost", "costs": Costs(unknown_accepted=5.0)},
        {"threshold": "cost", "costs": {"unknown_share": 0.1}},
        {"threshold": 0.25},
        {"threshold": np.float32(0.25)},
        {"threshold": float("inf")},
        {"threshold": -np.inf},
        {"max_ofpr": 0.2},
        {"class_weight": "balanced"},
        {"class_weight": {"ant": 2.0, "bee": 1, "cat": 1, "dog": 1, "elk": 1}},
        {"unknown_label": "none of them"},
        {"unknown_label": None},
        {"seen_by_encoder": True},
        {"random_state": None},
        {"random_state": np.int64(3), "verbose": 0, "n_jobs": 1},
    ],
    ids=str,
)
def test_every_parameter(tmp_path, parameters):
    classifier = fit(**parameters)
    loaded = assert_round_trip(classifier, tmp_path / "model")
    assert loaded.get_params() == classifier.get_params()
    for name, value in classifier.get_params().items():
        assert type(getattr(loaded, name)) is type(value)


@pytest.mark.parametrize(
    "labels",
    [
        ["ä", "學", 'a "b"', "", "\ud800"],
        np.array(["one", "two", "three", "four", "five"], "<U40"),
        np.array(["one", "two", "three", "four", "five"], object),
        np.array([3, 5, 7, 11, 13], np.int32),
        np.array([3, 5, 7, 11, 13], np.uint8),
        np.array([0.0, 1.0, 2.0, 3.0, 4.0], np.float32),
    ],
    ids=repr,
)
def test_labels_keep_their_type(tmp_path, labels):
    classifier = fit(labels)
    loaded = assert_round_trip(classifier, tmp_path / "model")
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert [type(label) for label in loaded.classes_.tolist()] == [
        type(label) for label in classifier.classes_.tolist()
    ]


@pytest.mark.parametrize("unknown", [-7, np.int32(-7), np.nan])
def test_numbers_as_unknown_label_keep_their_type(tmp_path, unknown):
    classifier = fit(np.arange(5, dtype=np.int32), unknown_label=unknown)
    classifier.save(tmp_path)
    loaded = load(tmp_path)
    assert type(loaded.unknown_label_) is type(unknown)
    assert_same(answers(loaded), answers(classifier))


def test_two_classes(tmp_path):
    classifier = fit(classes=2, seen_by_encoder=False)
    assert not len(classifier.held_out_scores_)
    assert_round_trip(classifier, tmp_path / "model")


def test_outliers_at_hand(tmp_path):
    """They add a score of their own to what is learned."""
    X, y = clusters()
    outliers = np.random.default_rng(2).normal(size=(15, X.shape[1])).astype(np.float32)
    classifier = OpenSetClassifier(head="class_mean", folds=2, random_state=0, seen_by_encoder=False)
    classifier.fit(np.concatenate([X, outliers]), np.append(NAMES[y], ["unknown"] * 15))
    assert "outliers" in classifier.observer_.scores
    assert_round_trip(classifier, tmp_path / "model")


def test_names_of_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = clusters()
    table = pandas.DataFrame(X, columns=list("abcdef"))
    classifier = OpenSetClassifier(folds=2, random_state=0, seen_by_encoder=False).fit(table, y)
    classifier.save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.feature_names_in_, classifier.feature_names_in_, strict=True)
    np.testing.assert_array_equal(loaded.predict(table), classifier.predict(table), strict=True)
    np.testing.assert_array_equal(loaded.predict(table[list("fbcdea")]), classifier.predict(table), "by name")
    with pytest.raises(ValueError, match=r"X lacks 1 of the 6 columns the model was fitted on, the first is 'a'"):
        loaded.predict(table.rename(columns={"a": "z"}))


def test_what_is_loaded_goes_on(tmp_path):
    classifier = fit(acceptance=0.8)
    loaded = assert_round_trip(classifier, tmp_path / "model")
    X, y = clusters(draw=2)
    for one in (classifier, loaded):
        one.calibrate(X, NAMES[y]).set_threshold(acceptance=0.7, per_class=True)
    assert_same(answers(loaded), answers(classifier))
    assert loaded.guarantee_ == classifier.guarantee_
    again = assert_round_trip(loaded, tmp_path / "model")
    again.set_threshold("youden")
    assert_same(answers(again), answers(classifier.set_threshold("youden")))
    new = clone(again)
    assert new.get_params() == again.get_params()
    np.testing.assert_array_equal(new.fit(*clusters()).thresholds_, clone(classifier).fit(*clusters()).thresholds_)


def test_thresholds_stay_though_parameters_were_changed(tmp_path):
    classifier = fit(acceptance=0.8).set_params(acceptance=0.5, per_class=True)
    assert_round_trip(classifier, tmp_path / "model")


@pytest.mark.parametrize(
    "head",
    [
        LogisticRegression(),
        RidgeClassifier(),
        SGDClassifier(random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=repr,
)
@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_linear_estimator_is_saved_as_arrays(tmp_path, head, classes, dtype):
    classifier = fit(head=head, classes=classes, dtype=dtype, seen_by_encoder=False)
    classifier.save(tmp_path)
    loaded = load(tmp_path)
    X, _ = clusters(classes, draw=1, dtype=dtype)
    np.testing.assert_allclose(loaded.open_score(X), classifier.open_score(X), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(loaded.classify(X), classifier.classify(X))
    assert loaded.head == "logistic"
    assert loaded.report_ == classifier.report_
    assert type(head).__name__ in json.loads((tmp_path / JSON).read_text())["parameters"]["head"]["described"]
    clone(loaded)


def test_a_fitted_estimator_with_another_order_of_classes(tmp_path):
    X, y = clusters()
    head = LogisticRegression().fit(X, np.array(["20", "3", "100", "1", "4"])[y])
    classifier = OpenSetClassifier(head=head, folds=2, random_state=0, seen_by_encoder=False)
    classifier.fit(X, np.array([20, 3, 100, 1, 4])[y])
    classifier.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).classify(X), classifier.classify(X))


def test_joblib_keeps_a_head_that_is_not_arrays(tmp_path):
    X, y = clusters()
    forest = FrozenEstimator(RandomForestClassifier(5, random_state=0).fit(X, NAMES[y]))
    classifier = fit(head=forest)
    joblib.dump(classifier, tmp_path / "model.joblib")
    assert_same(answers(joblib.load(tmp_path / "model.joblib")), answers(classifier))


def test_a_random_state_is_described(tmp_path):
    classifier = fit(random_state=np.random.RandomState(0))
    classifier.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.random_state is None
    assert_same(answers(loaded), answers(classifier))
    clone(loaded)


@pytest.mark.parametrize("score", [SCORES["knn"], SCORES["knn"]()], ids=["class", "object"])
def test_our_own_scores_as_objects(tmp_path, score):
    loaded = assert_round_trip(fit(rejector=score, seen_by_encoder=False), tmp_path / "model")
    assert loaded.rejector == "knn"


def test_files_are_as_small_as_the_features(tmp_path):
    for dtype in (np.float32, np.float64):
        fit(head="logistic", dtype=dtype).save(tmp_path)
        arrays = load_file(tmp_path / ARRAYS)
        features = {name for name in arrays if name.startswith("head.") or name.endswith((".references", ".root"))}
        assert len(features) >= 4
        assert {arrays[name].dtype for name in features} == {np.dtype(dtype)}


def test_json_tells_a_reader(tmp_path):
    fit(acceptance=0.999).save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [JSON, ARRAYS]
    about = json.loads((tmp_path / JSON).read_text(), parse_constant=pytest.fail)
    assert about["version"] == VERSION
    assert about["classes"]["labels"] == NAMES.tolist()
    assert about["thresholds"] == ["inf"] * 5
    assert about["unknown_label"] == "unknown"
    assert about["parameters"]["acceptance"] == 0.999
    assert about["environment"]["numpy"] == np.__version__


def test_encoding():
    for value in (None, True, 3, 0.1, float("inf"), "x", (1, (2.0, None)), {1: "a"}, Costs(), [np.float32(0.1), "b"]):
        found = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert found == value
        assert type(found) is type(value)
    assert np.isnan(decode(encode(np.nan)))
    with pytest.raises(TypeError, match="no object"):
        encode(object())
    with pytest.raises(ValueError, match="holds a 'new'"):
        decode({"new": 1})


# What cannot be saved


class Own(Score):
    def __call__(self, features, logits):
        return np.asarray(features)[:, 0].astype(np.float64)


def own_function(features, logits):
    return -logits.max(1)


@pytest.mark.parametrize("rejector", [own_function, Own, Own()], ids=["function", "class", "object"])
def test_rejectors_of_ones_own_are_refused(tmp_path, rejector):
    with pytest.raises(
        ValueError, match=r"^the rejector '\w+' is one of your own \(\w+\), whose code no file can hold; "
    ):
        fit(rejector=rejector).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_score_that_was_added_is_saved_and_needed_to_load(tmp_path, monkeypatch):
    monkeypatch.setitem(SCORES, "own", Own)
    classifier = fit(rejector="own")
    assert_round_trip(classifier, tmp_path / "model")
    monkeypatch.delitem(SCORES, "own")
    with pytest.raises(
        ValueError, match=r"model\.json has a score 'own', which this openauc does not know; upgrade, or"
    ):
        load(tmp_path / "model")


def test_a_score_with_other_state_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(SCORES, "own", Own)
    classifier = fit(rejector="own")
    classifier.observer_.scores["own"].table = {1, 2}
    with pytest.raises(ValueError, match=r"Own\.table is a set, which no file can hold; keep arrays and numbers"):
        classifier.save(tmp_path / "model")


class Bent(LogisticRegression):
    def decision_function(self, X):
        return super().decision_function(X) ** 3


@pytest.mark.parametrize("head", [RandomForestClassifier(5), SVC(kernel="linear"), SVC(), Bent()], ids=repr)
def test_heads_that_are_not_linear_are_refused(tmp_path, head):
    with pytest.raises(
        ValueError, match=rf"with a {type(head).__name__} cannot be written as arrays.*; save and .* head='logistic'"
    ):
        fit(head=head).save(tmp_path / "model")


def test_what_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        OpenSetClassifier().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["notes.txt", JSON])
def test_a_folder_with_other_things_is_refused(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=r"it holds files but no model; name a new or empty folder\.$"):
        shared().save(tmp_path)
    assert os.listdir(tmp_path) == [name]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model").write_text("")
    with pytest.raises(ValueError, match="it is a file; a model is a folder"):
        shared().save(tmp_path / "model")
    with pytest.raises(ValueError, match="it is a file; a model is a folder"):
        load(tmp_path / "model")


def test_folders_are_made_and_other_files_beside_a_model_stay(tmp_path):
    folder = tmp_path / "a" / "b"
    shared().save(folder)
    (folder / "notes.txt").write_text("mine")
    shared().save(str(folder))
    assert sorted(os.listdir(folder)) == [JSON, ARRAYS, "notes.txt"]
    (folder / "notes.txt").unlink()
    (folder / JSON).write_text("damaged")
    shared().save(folder)
    load(folder)


# Crashes


class Killed(BaseException):
    """What no `except Exception` catches."""


@pytest.fixture(params=range(5))
def killed_at(request, monkeypatch):
    """The process dies at the n-th of the steps that a save writes with, before it or after it."""
    step, after = divmod(request.param, 2)

    def dying(function, number):
        def run(*arguments, **options):
            if number == step and not after:
                raise Killed
            found = function(*arguments, **options)
            if number == step:
                raise Killed
            return found

        return run

    def die():
        real = os.replace
        calls = iter([dying(real, number) for number in range(3)])
        monkeypatch.setattr(os, "replace", lambda *arguments: next(calls)(*arguments))

    return die


def test_a_crash_leaves_the_old_model_or_the_new_one(tmp_path, killed_at, monkeypatch):
    old, new = shared(), fit()
    expected = {name: answers(one) for name, one in (("old", old), ("new", new))}
    old.save(tmp_path)
    killed_at()
    with pytest.raises(Killed):
        new.save(tmp_path)
    monkeypatch.undo()
    loaded = load(tmp_path)
    which = "new" if loaded.head == "class_mean" else "old"
    assert_same(answers(loaded), expected[which])
    assert_round_trip(new, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [JSON, ARRAYS]


def test_a_crash_of_the_first_save_leaves_nothing_that_loads_wrongly(tmp_path, killed_at, monkeypatch):
    killed_at()
    with pytest.raises(Killed):
        shared().save(tmp_path)
    monkeypatch.undo()
    if (tmp_path / JSON).exists():
        assert_same(answers(load(tmp_path)), answers(shared()))
    else:
        with pytest.raises(
            ValueError, match=r"model\.json does not exist; .* is no model, or its saving was cut short"
        ):
            load(tmp_path)
    assert_round_trip(shared(), tmp_path)


def test_a_failure_of_the_json_keeps_the_old_model_and_nothing_else(tmp_path, monkeypatch):
    shared().save(tmp_path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        fit().save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [JSON, ARRAYS]
    assert_same(answers(load(tmp_path)), answers(shared()))


def test_a_save_goes_on_from_a_crash_that_left_the_last_move_undone(tmp_path, monkeypatch):
    """The arrays in use have the other name; the next save must not write over them before it is done."""
    shared().save(tmp_path)
    os.rename(tmp_path / ARRAYS, tmp_path / NEXT)
    (tmp_path / ARRAYS).write_bytes(b"of an older model")
    assert_same(answers(load(tmp_path)), answers(shared()))

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        fit().save(tmp_path)
    assert_same(answers(load(tmp_path)), answers(shared()))


def test_a_half_written_next_file_is_not_looked_at(tmp_path):
    shared().save(tmp_path)
    (tmp_path / NEXT).write_bytes(b"half")
    assert_same(answers(load(tmp_path)), answers(shared()))


def test_a_model_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    shared().save(tmp_path)
    new = fit()
    real, calls = module.sealed_metadata, []

    def slow(path):
        if not calls:
            calls.append(path)
            monkeypatch.setattr(module, "sealed_metadata", real)
            new.save(tmp_path)
        return real(path)

    monkeypatch.setattr(module, "sealed_metadata", slow)
    loaded = load(tmp_path)
    assert calls
    assert_same(answers(loaded), answers(new))


def test_arrays_replaced_after_their_checksum_was_compared(tmp_path, monkeypatch):
    shared().save(tmp_path)
    new = fit()
    real = module.load_file

    def slow(path):
        monkeypatch.setattr(module, "load_file", real)
        new.save(tmp_path)
        return real(path)

    monkeypatch.setattr(module, "load_file", slow)
    assert_same(answers(load(tmp_path)), answers(new))


# Damage


@pytest.fixture
def saved(tmp_path):
    shared().save(tmp_path)
    return tmp_path


def refused(folder, match):
    with pytest.raises(ValueError, match=match) as caught:
        load(folder)
    sentence = str(caught.value)
    assert str(folder) in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def rewrite(folder, change_json=None, change_arrays=None):
    """A model whose checksums are right, whatever it says."""
    about = json.loads((folder / JSON).read_text())
    arrays = load_file(folder / ARRAYS)
    if change_arrays is not None:
        change_arrays(arrays)
        content = sealed(as_safetensors(arrays))
        (folder / ARRAYS).write_bytes(content)
        about["checksum"] = module._header(content)["__metadata__"][CHECKSUM]
    if change_json is not None:
        change_json(about)
    about.pop("sha256")
    (folder / JSON).write_text(module._sealed_json(about))


def test_missing_folder(tmp_path):
    refused(tmp_path / "nowhere", "does not exist")


def test_missing_files(saved):
    (saved / ARRAYS).unlink()
    refused(saved, r"model\.safetensors does not exist; the model is incomplete")
    (saved / JSON).unlink()
    refused(saved, r"model\.json does not exist; .* is no model")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "is no JSON"),
        (b'{"format": "openauc.OpenSetCl', "is no JSON"),
        (b"\xff\xfe", "it is no text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1]", "does not describe a model of openauc"),
        (b'{"format": "torch"}', "does not describe a model of openauc"),
        (b'{"format": "openauc.OpenSetClassifier"}', "does not describe a model of openauc"),
        (b'{"format": "openauc.OpenSetClassifier", "version": 1}', "does not match its checksum"),
    ],
)
def test_damaged_json(saved, text, match):
    (saved / JSON).write_bytes(text)
    refused(saved, rf"model\.json .*{match}")


def test_a_changed_digit_of_the_json_is_noticed(saved):
    text = (saved / JSON).read_text()
    threshold = json.loads(text)["thresholds"][0]
    (saved / JSON).write_text(text.replace(str(threshold), str(threshold + 1)))
    refused(saved, "is damaged or was edited: it does not match its checksum")


def test_a_newer_version(saved):
    rewrite(saved, lambda about: about.update(version=3))
    refused(saved, r"was written by a newer openauc \(format 3, this one reads up to 2\); upgrade\.$")


OLD = Path(__file__).parent / "model_v1"


def old_samples():
    """The first 60 rows were drawn to fit the old model on."""
    rng = np.random.default_rng(0)
    rng.normal(size=(60, 5))
    return rng.normal(size=(8, 5)) * 4


def test_a_model_of_the_first_format_gives_the_answers_it_gave():
    model, X = load(OLD), old_samples()
    assert model.predict(X).tolist() == ["unknown"] * 8
    recorded = [8.799867, 8.596474, 6.21542, 4.281856, 7.636412, 8.390369, 9.50009, 5.309016]
    np.testing.assert_allclose(model.open_score(X), recorded, atol=6e-7)
    assert set(model.classify(X)) <= set(model.classes_)
    assert str(model.report_)


def test_and_saved_again_it_is_one_of_the_second(tmp_path):
    model, X = load(OLD), old_samples()
    model.save(tmp_path)
    assert json.loads((tmp_path / JSON).read_text())["version"] == 2
    again = load(tmp_path)
    np.testing.assert_array_equal(again.open_score(X), model.open_score(X))
    for one in (model, again):
        one.set_threshold(acceptance=0.5)
    np.testing.assert_array_equal(again.thresholds_, model.thresholds_)


@pytest.mark.parametrize("at", [0, 9, 100, -1, -500])
def test_damaged_arrays(saved, at):
    content = bytearray((saved / ARRAYS).read_bytes())
    content[at] ^= 1
    (saved / ARRAYS).write_bytes(content)
    refused(saved, r"model\.safetensors (is damaged|cannot be read|and model\.json beside it)")


@pytest.mark.parametrize("length", [0, 7, 100, 5000])
def test_arrays_cut_short(saved, length):
    (saved / ARRAYS).write_bytes((saved / ARRAYS).read_bytes()[:length])
    refused(saved, r"model\.safetensors (is damaged|cannot be read)")


def test_a_header_that_claims_more_than_there_is(saved):
    header = json.dumps({"head.weight": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    content = sealed(len(header).to_bytes(8, "little") + header)
    (saved / ARRAYS).write_bytes(content)
    rewritten = json.loads((saved / JSON).read_text())
    rewritten.pop("sha256")
    rewritten["checksum"] = module._header(content)["__metadata__"][CHECKSUM]
    (saved / JSON).write_text(module._sealed_json(rewritten))
    refused(saved, r"model\.safetensors cannot be read as safetensors")


def test_json_and_arrays_of_two_models(saved, tmp_path):
    fit().save(tmp_path / "other")
    os.replace(tmp_path / "other" / ARRAYS, saved / ARRAYS)
    refused(saved, r"model\.safetensors and model\.json beside it belong to two different models")


def test_arrays_without_a_checksum(saved):
    (saved / ARRAYS).write_bytes(as_safetensors(load_file(saved / ARRAYS)))
    refused(saved, "belong to two different models")


@pytest.mark.parametrize("name", ["head.weight", "score.5.references", "rejector.weight", "samples.score"])
def test_missing_and_misshapen_arrays(saved, name):
    before = load_file(saved / ARRAYS)[name]
    rewrite(saved, change_arrays=lambda arrays: arrays.update({name: before[:-1].copy()}))
    shape = re.escape(str(before[:-1].shape))
    refused(saved, rf"has an array '{name}' of \w+ {shape}, but model\.json says \w+ {re.escape(str(before.shape))}")
    rewrite(saved, change_arrays=lambda arrays: arrays.pop(name))
    refused(saved, rf"model\.safetensors lacks the array '{name}'")


def set_form(about, part, name, shape):
    about[part]["arrays"][name]["shape"] = shape


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head.weight", lambda about: set_form(about, "head", "weight", [4, 6])),
        ("rejector.weight", lambda about: set_form(about, "rejector", "weight", [len(shared().rejector_.weight) - 1])),
        ("samples.score", lambda about: about["kept"]["samples.score"].update(shape=[119])),
        (
            "held_out.kind",
            lambda about: about["kept"]["held_out.kind"].update(shape=[len(shared().held_out_kinds_) - 1]),
        ),
    ],
)
def test_arrays_that_do_not_fit_together(saved, name, change):
    rewrite(saved, change, lambda arrays: arrays.update({name: arrays[name][:-1].copy()}))
    refused(saved, r"model\.safetensors has arrays that do not fit together")


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("head"),
        lambda about: about["parameters"].update(new=1),
        lambda about: about["report"]["mapping"].pop(0),
        lambda about: about["head"].update(values=3),
        lambda about: about.update(scores=None),
        lambda about: about.update(unknown_label={}),
        lambda about: about.update(checksum=None),
        lambda about: about.update(thresholds=["nan"] * 5),
        lambda about: about.update(thresholds=[0.0]),
        lambda about: about.update(thresholds=["high"] * 5),
        lambda about: about["features"].update(width=10**12),
        lambda about: about["features"].update(dtype="complex"),
        lambda about: about["classes"].update(labels=["a"] * 5),
        lambda about: about["classes"].update(labels=[1, 2, 3, 4, 5]),
        lambda about: about["classes"].update(dtype="<U999999999"),
        lambda about: about["classes"].update(dtype="<i8"),
        lambda about: about["rejector"].update(kind="own"),
        lambda about: about["head"]["values"].pop("strength") and about["head"].update(kind="mlp"),
    ],
)
def test_json_that_says_other_things(saved, change):
    rewrite(saved, change)
    refused(saved, "; (save the model again|upgrade)")
