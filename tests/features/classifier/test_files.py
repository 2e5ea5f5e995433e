"""The folder of a model: what is loaded answers as what was saved, and nothing loads that was not saved whole."""

import json
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pytest
from safetensors import safe_open
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
from openauc._files import sealed
from openauc.features import SCORES, OpenSetClassifier, Score
from openauc.features.classifier.files import FORMAT, VERSION, decode, encode, load
from openauc.features.classifier.tables import MODEL, OLD_MODEL, TableSpec

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


def about(folder):
    """The JSON inside a model."""
    with safe_open(folder / MODEL, "np") as file:
        return json.loads(file.metadata()["model"], parse_constant=pytest.fail)


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
    assert set(load_file(tmp_path / "model" / MODEL)) >= {
        "evidence_scale_.mean",
        "calibration_scores_",
        "held_out_scores_",
    }


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
    assert "outliers" in classifier.head_with_scores_.scores
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
    assert type(head).__name__ in about(tmp_path)["state"]["head"]["described"]
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
        arrays = load_file(tmp_path / MODEL)
        features = {name for name in arrays if ".head." in name or name.endswith((".references", ".root"))}
        assert len(features) >= 4
        assert {arrays[name].dtype for name in features} == {np.dtype(dtype)}


def test_one_file_whose_metadata_tells_a_reader(tmp_path):
    classifier = fit(acceptance=0.999)
    classifier.table_spec_ = TableSpec(features=("vector",), label="kind", encoder="e")
    classifier.save(tmp_path)
    assert os.listdir(tmp_path) == [MODEL]
    found = about(tmp_path)
    assert found["version"] == VERSION
    assert found["environment"]["numpy"] == np.__version__
    state = found["state"]
    assert state["classes_"]["labels"][1] == NAMES.tolist()
    assert (state["unknown_label_"], state["acceptance"]) == ("unknown", 0.999)
    loaded = load(tmp_path)
    assert loaded.table_spec_ == classifier.table_spec_
    loaded.save(tmp_path)
    assert load(tmp_path).table_spec_ == classifier.table_spec_, "a model that is saved again"


def test_encoding():
    for value in (None, True, 3, 0.1, float("inf"), "x", (1, (2.0, None)), {1: "a"}, Costs(), [np.float32(0.1), "b"]):
        found = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert found == value
        assert type(found) is type(value)
    assert np.isnan(decode(encode(np.nan)))
    with pytest.raises(TypeError, match="is a object"):
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
    with pytest.raises(ValueError, match=r"^the rejector '\w+' is your own \(\w+\).* fit with one of ours"):
        fit(rejector=rejector).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_score_that_was_added_is_saved_and_needed_to_load(tmp_path, monkeypatch):
    monkeypatch.setitem(SCORES, "own", Own)
    classifier = fit(rejector="own")
    assert_round_trip(classifier, tmp_path / "model")
    monkeypatch.delitem(SCORES, "own")
    with pytest.raises(ValueError, match=r"a 'score own', which this openauc does not know; upgrade, or"):
        load(tmp_path / "model")


def test_a_score_with_other_state_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(SCORES, "own", Own)
    classifier = fit(rejector="own")
    classifier.head_with_scores_.scores["own"].table = {1, 2}
    with pytest.raises(ValueError, match=r"table is a set.* keep arrays and numbers"):
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


@pytest.mark.parametrize("name", ["notes.txt", OLD_MODEL, "model.safetensors"])
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
    assert sorted(os.listdir(folder)) == [MODEL, "notes.txt"]
    (folder / MODEL).write_text("damaged")
    shared().save(folder)
    load(folder)


# Crashes and other writers


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_leaves_the_old_model_or_the_new_one(tmp_path, before, monkeypatch):
    shared().save(tmp_path)
    real = os.replace

    def die(*arguments):
        if not before:
            real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        fit().save(tmp_path)
    monkeypatch.undo()
    assert_same(answers(load(tmp_path)), answers(shared() if before else fit()))
    assert os.listdir(tmp_path) == [MODEL]


def test_two_writers_of_one_folder_leave_a_whole_model_at_any_time(tmp_path):
    """Each saves and loads in turn, so a load meets saves of the other one."""
    models = {"max_logit": fit(rejector="max_logit"), "energy": fit(rejector="energy")}

    def write(model):
        for _ in range(25):
            model.save(tmp_path)
            found = load(tmp_path)
            assert_same(answers(found), answers(models[found.rejector]))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, models.values())) == [None, None]
    assert os.listdir(tmp_path) == [MODEL]


def test_a_link_is_replaced_and_the_file_it_points_to_stays(tmp_path):
    shared().save(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / MODEL).symlink_to(tmp_path / "a" / MODEL)
    before = (tmp_path / "a" / MODEL).read_bytes()
    fit().save(tmp_path / "b")
    assert (tmp_path / "a" / MODEL).read_bytes() == before
    assert not (tmp_path / "b" / MODEL).is_symlink()
    assert load(tmp_path / "b").head == "class_mean"


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
    """A model whose checksum is right, whatever it says."""
    arrays, found = load_file(folder / MODEL), about(folder)
    for change, content in ((change_arrays, arrays), (change_json, found)):
        if change is not None:
            change(content)
    content = as_safetensors(arrays, {"format": FORMAT, "model": json.dumps(found)})
    (folder / MODEL).write_bytes(sealed(content))


def test_missing_folder(tmp_path):
    refused(tmp_path / "nowhere", "does not exist")
    refused(tmp_path, rf"has no {MODEL}")


def test_a_newer_version(saved):
    rewrite(saved, lambda about: about.update(version=VERSION + 1))
    refused(saved, rf"newer openauc \(format {VERSION + 1}, .* {VERSION}\); upgrade\.$")


@pytest.mark.parametrize("at", [0, 9, 100, -1, -500])
def test_damaged_files(saved, at):
    content = bytearray((saved / MODEL).read_bytes())
    content[at] ^= 1
    (saved / MODEL).write_bytes(content)
    refused(saved, rf"{MODEL} (is damaged|cannot be read)")


@pytest.mark.parametrize("length", [0, 7, 100, 5000])
def test_files_cut_short(saved, length):
    (saved / MODEL).write_bytes((saved / MODEL).read_bytes()[:length])
    refused(saved, rf"{MODEL} (is damaged|cannot be read)")


def test_files_of_others(saved):
    (saved / MODEL).write_bytes(as_safetensors(load_file(saved / MODEL)))
    refused(saved, "save the model again")
    (saved / MODEL).write_bytes(sealed(as_safetensors(load_file(saved / MODEL))))
    refused(saved, "does not hold a model of openauc")


def test_a_header_that_claims_more_than_there_is(saved):
    header = json.dumps({"head.weight": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}).encode()
    (saved / MODEL).write_bytes(sealed(len(header).to_bytes(8, "little") + header))
    refused(saved, rf"{MODEL} cannot be read as safetensors")


@pytest.mark.parametrize(
    "name",
    [
        "head_with_scores_.head.weight",
        "head_with_scores_.scores.knn.references",
        "rejector_.weight",
        "calibration_scores_",
    ],
)
def test_missing_and_misshapen_arrays(saved, name):
    before = load_file(saved / MODEL)[name]
    rewrite(saved, change_arrays=lambda arrays: arrays.update({name: before[:-1].copy()}))
    if "references" not in name:  # a model with fewer references is a model
        refused(saved, "save the model again")
    rewrite(saved, change_arrays=lambda arrays: arrays.pop(name))
    refused(saved, "save the model again")


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("guarantee_"),
        lambda state: state.update(folds=1),
        lambda state: state["report_"]["object"][1].pop("n_samples"),
        lambda state: state.update(thresholds_={"labels": ["<f8", [0.0]]}),
        lambda state: state.update(n_features_in_=10**12),
        lambda state: state.update(dtype_={"dtype": "complex"}),
        lambda state: state.update(classes_={"labels": ["<U3", ["a"] * 5]}),
        lambda state: state.update(classes_={"labels": ["<U3", [1, 2, 3, 4, 5]]}),
        lambda state: state.update(classes_={"labels": ["<U999999999", ["a", "b", "c", "d", "e"]]}),
        lambda state: state.update(classes_={"labels": ["<i8", ["a", "b", "c", "d", "e"]]}),
        lambda state: state["rejector_"]["object"].__setitem__(0, "rejector own"),
        lambda state: state["head_with_scores_"]["object"][1]["head"]["object"].__setitem__(0, "head mlp"),
        lambda state: state["table_spec_"]["object"][1].update(features={"tuple": ["a", "b"]}),
        lambda state: state["table_spec_"]["object"][1].update(features={"tuple": [1]}),
        lambda state: state["table_spec_"]["object"][1].update(medians={"tuple": [0.5]}),
        lambda state: state["table_spec_"]["object"][1].update(missing="guess"),
    ],
)
def test_json_that_says_other_things(saved, change):
    rewrite(saved, lambda about: change(about["state"]))
    refused(saved, "; (save the model again|upgrade)")


def test_whatever_is_changed_in_the_json_ends_in_a_model_or_a_sentence(saved):
    """Every value of a sealed model, replaced by another one, or left out."""
    original = about(saved)
    places = []

    def walk(value, place):
        places.append(place)
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in list(children)[:3]:
            walk(child, (*place, key))

    walk(original["version"], ("version",))
    for key, value in original["state"].items():
        walk(value, ("state", key))
    arrays = load_file(saved / MODEL)
    for place in places:
        for wrong in (None, -1, "x", [], {}):
            changed = json.loads(json.dumps(original))
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            content = as_safetensors(arrays, {"format": FORMAT, "model": json.dumps(changed)})
            (saved / MODEL).write_bytes(sealed(content))
            sentence = ""
            try:
                answers(load(saved))
            except ValueError as error:
                sentence = str(error)
            assert not sentence or (str(saved) in sentence and "\n" not in sentence), place


# Older formats

OLD = Path(__file__).parent / "model_v1"
SECOND = Path(__file__).parent / "model_v2"


def old_samples():
    """The first 60 rows were drawn to fit the old models on."""
    rng = np.random.default_rng(0)
    rng.normal(size=(60, 5))
    return rng.normal(size=(8, 5)) * 4


RECORDED = {
    OLD: [8.799867, 8.596474, 6.21542, 4.281856, 7.636412, 8.390369, 9.50009, 5.309016],
    SECOND: [24.370605, 3.358865, 1.71498, 5.803589, 2.497458, 0.419746, 2.141991, 13.108025],
}


@pytest.mark.parametrize("folder", [OLD, SECOND], ids=lambda folder: folder.name)
def test_a_model_of_an_older_format_gives_the_answers_it_gave(folder, tmp_path):
    model, X = load(folder), old_samples()
    np.testing.assert_allclose(model.open_score(X), RECORDED[folder], atol=6e-7)
    assert set(model.classify(X)) <= set(model.classes_)
    assert str(model.report_)
    model.save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.open_score(X), model.open_score(X))
    for one in (model, again):
        one.set_threshold(acceptance=0.5)
    np.testing.assert_array_equal(again.thresholds_, model.thresholds_)


def test_saved_again_in_its_folder_it_is_one_file(tmp_path):
    shutil.copytree(SECOND, tmp_path / "m")
    model = load(tmp_path / "m")
    assert model.table_spec_ == TableSpec(features=("embedding",), label="label", encoder="minilm")
    model.save(tmp_path / "m")
    assert os.listdir(tmp_path / "m") == [MODEL]
    assert load(tmp_path / "m").table_spec_ == model.table_spec_


def test_a_link_among_older_files_is_removed_and_the_file_it_points_to_stays(tmp_path):
    shutil.copytree(SECOND, tmp_path / "a")
    shutil.copytree(SECOND, tmp_path / "b")
    before = (tmp_path / "a" / OLD_MODEL).read_bytes()
    (tmp_path / "b" / OLD_MODEL).unlink()
    (tmp_path / "b" / OLD_MODEL).symlink_to(tmp_path / "a" / OLD_MODEL)
    shared().save(tmp_path / "b")
    assert os.listdir(tmp_path / "b") == [MODEL]
    assert (tmp_path / "a" / OLD_MODEL).read_bytes() == before


def test_after_a_crash_of_an_older_save(tmp_path):
    """The arrays in use may still have the other name."""
    shutil.copytree(SECOND, tmp_path / "m")
    os.rename(tmp_path / "m" / "model.safetensors", tmp_path / "m" / "model.next.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "m").thresholds_, load(SECOND).thresholds_)
    shutil.copy(OLD / "model.safetensors", tmp_path / "m" / "model.next.safetensors")
    refused(tmp_path / "m", "lacks the arrays that model.json belongs to; save the model again")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("model.json", b"", "save the model again"),
        ("model.json", b"\xff\xfe", "save the model again"),
        ("model.json", b'{"format": "openauc.OpenSetClassifier", "version": 1}', "save the model again"),
        ("source.json", b"[1]", "fit it again"),
        ("source.json", b"{", "fit it again"),
        ("source.json", b'{"features": 3}', "fit it again"),
        ("source.json", b'{"features": ["a"], "label": 3}', "fit it again"),
        ("source.json", b'{"features": ["a"], "medians": ["x"]}', "fit it again"),
        ("source.json", b'{"features": ["a", "b", "c"]}', "fit it again"),
    ],
)
def test_older_files_that_were_edited(tmp_path, name, text, remedy):
    shutil.copytree(SECOND, tmp_path / "m")
    (tmp_path / "m" / name).write_bytes(text)
    refused(tmp_path / "m", rf"{name} .*; {remedy}")
