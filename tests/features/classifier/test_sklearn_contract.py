"""OpenSetClassifier is an estimator of scikit-learn, in its own checks and in its company."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_classifiers_classes, parametrize_with_checks

import openauc
from openauc.features import HeldOutSplit, OpenSetClassifier, openauc_scorer
from openauc.features.classifier import splits
from tests.features.samples import blobs

NEVER = float("inf")
pytestmark = pytest.mark.filterwarnings("ignore:.*known samples are too few")


@pytest.fixture(autouse=True)
def few_folds(monkeypatch):
    """What is asked here does not hang on how often classes are cut anew."""
    monkeypatch.setattr(splits, "FEWEST_FOLDS", 2)


def allowed_to_fail(estimator):
    """Checks whose demand this classifier cannot meet, and why."""
    reasons = {
        "check_sample_weight_equivalence_on_dense_data": (
            "folds and calibration count rows, so one row of weight 2 is not two rows; and a class needs two of them"
        )
    }
    if estimator.unknown_label == -1:
        reasons["check_classifiers_classes"] = (
            "it fits the labels -1 and 1, and -1 marks outliers, so one class remains"
        )
    if estimator.head == "class_mean":
        reasons["check_class_weight_classifiers"] = "the weight of a whole class moves no class mean"
    return reasons


@parametrize_with_checks(
    [OpenSetClassifier(random_state=0), OpenSetClassifier(random_state=0, threshold=NEVER)],
    expected_failed_checks=allowed_to_fail,
    xfail_strict=True,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [OpenSetClassifier(random_state=0, head="class_mean", rejector="average", folds=2)],
    expected_failed_checks=allowed_to_fail,
    xfail_strict=True,
)
def test_with_another_head_and_rejector(estimator, check):
    check(estimator)


def test_the_labels_minus_one_and_one_are_classes_when_nothing_is_labelled_unknown():
    check_classifiers_classes("", OpenSetClassifier(random_state=0, threshold=NEVER, unknown_label=None))


@pytest.fixture(scope="module")
def data():
    return blobs(5, 30)


def test_in_a_pipeline(data):
    X, y = data
    # Columns of very different size, which the scaler brings together.
    sizes = np.array([1.0, 1e3, 1e-3, 1.0, 1.0, 1.0])
    pipe = make_pipeline(StandardScaler(), OpenSetClassifier(random_state=0)).fit(X * sizes, y)
    assert pipe.score(X * sizes, y) > 0.85
    alone = OpenSetClassifier(random_state=0).fit(StandardScaler().fit_transform(X * sizes), y)
    np.testing.assert_array_equal(pipe.predict(X * sizes), alone.predict(StandardScaler().fit_transform(X * sizes)))
    np.testing.assert_array_equal(pipe.score_samples(X * sizes), -alone.open_score(pipe[:-1].transform(X * sizes)))
    assert is_classifier(pipe)


def test_in_a_pipeline_of_data_frames(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcdef"))
    pipe = make_pipeline(StandardScaler(), OpenSetClassifier(random_state=0)).set_output(transform="pandas")
    pipe.fit(frame, y)
    assert pipe[-1].feature_names_in_.tolist() == list("abcdef")
    assert pipe.predict(frame).shape == (150,)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("calibration", ["cross", "split"])
def test_feature_names_are_remembered(data, calibration):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = OpenSetClassifier(random_state=0, calibration=calibration).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == list("abcdef")
    plain = OpenSetClassifier(random_state=0, calibration=calibration).fit(X, y)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
    np.testing.assert_array_equal(model.predict(frame[list("bacdef")]), model.predict(frame), "whatever their order")
    np.testing.assert_array_equal(model.predict(frame.assign(g=1.0)), model.predict(frame), "and what is beside them")
    with pytest.raises(ValueError, match=r"X lacks 2 of the 6 columns the model was fitted on, the first is 'b'; add"):
        model.predict(frame[list("acdf")])
    gappy = frame.astype(object).assign(c=pd.Series([1.0, None] + [1.0] * 148))
    with pytest.raises(ValueError, match=r"X has empty cells in 1 of 6 columns, the first in 'c', row 1; drop these"):
        model.predict(gappy)
    with pytest.raises(ValueError, match=r"X has empty cells in 1 of 6 columns, the first in 'c', row 1; drop these"):
        OpenSetClassifier().fit(gappy, y)


def test_groups_are_routed(data):
    """Groups reach the outer splitter, and fit, whose own folds keep them together."""
    X, y = data
    groups = np.arange(150) // 3
    seen = []

    class Spy(OpenSetClassifier):
        def fit(self, X, y, sample_weight=None, groups=None):
            seen.append(groups)
            return super().fit(X, y, sample_weight, groups)

    with config_context(enable_metadata_routing=True):
        model = Spy(random_state=0, rejector="knn", folds=2).set_fit_request(groups=True, sample_weight=False)
        found = cross_validate(
            model, X, y, params={"groups": groups}, cv=GroupKFold(2), error_score="raise", return_indices=True
        )
    assert len(seen) == 2
    for passed, rows in zip(seen, found["indices"]["train"], strict=True):
        np.testing.assert_array_equal(passed, groups[rows])


def test_a_search_with_held_out_classes(data):
    """No unknown sample is there: classes that a fold holds out are what the scorer takes for unknown."""
    X, y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), OpenSetClassifier(random_state=0, folds=2)),
        {"opensetclassifier__head": ["logistic", "class_mean"], "opensetclassifier__rejector": ["average", "margin"]},
        scoring=openauc_scorer,
        cv=HeldOutSplit(2, random_state=0),
        error_score="raise",
    ).fit(X, y)
    values = search.cv_results_["mean_test_score"]
    assert values.shape == (4,)
    assert np.all((values > 0.5) & (values <= 1.0))
    assert search.best_params_["opensetclassifier__rejector"] == "average", "distances tell more than the margin here"
    assert set(np.unique(search.predict(X))) <= {-1, 0, 1, 2, 3, 4}


def test_cross_validation(data):
    X, y = data
    model = OpenSetClassifier(random_state=0, rejector="average", folds=2)
    values = cross_val_score(model, X, y, scoring=openauc_scorer, cv=HeldOutSplit(3, random_state=0))
    assert len(values) == HeldOutSplit(3).get_n_splits(X, y)
    assert (values > 0.6).all()
    accuracy = cross_val_score(model, X, y, cv=3)
    assert (accuracy > 0.8).all()
    answers = cross_val_predict(model, X, y, cv=StratifiedKFold(3))
    assert set(np.unique(answers)) <= {-1, 0, 1, 2, 3, 4}


def test_a_scorer_of_names(data):
    X, y = data
    names = np.array(["ant", "bee", "cat", "dog", "elk"])[y]
    model = OpenSetClassifier(random_state=0, rejector="average").fit(X[y < 4], names[y < 4])
    expected = openauc.openauc_score(*model.predictions(X, names))
    assert openauc_scorer(model, X, names) == expected
    marked = np.where(names == "elk", "unknown", names)
    assert openauc_scorer(model, X, marked) == expected
    assert openauc_scorer(Pipeline([("only", model)]), X, names) == expected


def test_parameters_round_trip():
    options = {"head": "mlp", "rejector": "knn", "acceptance": 0.9, "per_class": True, "folds": 3, "unknown_label": 7}
    model = OpenSetClassifier(**options)
    assert options.items() <= model.get_params().items()
    assert clone(model).get_params() == model.get_params()
    assert OpenSetClassifier().set_params(**options).get_params() == model.get_params()
    assert repr(OpenSetClassifier(head="mlp")) == "OpenSetClassifier(head='mlp')"
    with pytest.raises(ValueError, match="Invalid parameter 'hed'"):
        model.set_params(hed="mlp")


def test_a_clone_is_not_fitted_and_a_pickle_is(data):
    X, y = data
    model = OpenSetClassifier(random_state=0).fit(X, y)
    assert not hasattr(clone(model), "classes_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).open_score(X), model.open_score(X))


def test_notebooks_show_it_with_its_parameters() -> None:
    X, y = blobs(n_classes=3)
    classifier = OpenSetClassifier(rejector="max_logit", folds=2, random_state=0)
    unfitted = classifier._repr_html_()
    fitted = classifier.fit(X, y)._repr_html_()
    for page in (unfitted, fitted):
        assert all(f">{name}" in page for name in classifier.get_params())
        assert 'href="https://scikit-learn.org' not in page  # it has no page there
    assert "Not fitted" in unfitted
    assert "Not fitted" not in fitted
