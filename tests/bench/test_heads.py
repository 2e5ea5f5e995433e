"""Heads as trials: each score by hand, one fit for all of them, and the whole way through a store."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest

from openauc import openauc_score
from openauc.bench import runner, trial
from openauc.bench.heads import DETECTORS, FittedHead
from openauc.bench.runner import load_data, run
from openauc.bench.trial import TrialSpec
from openauc.features import OpenSetClassifier
from openauc.features.classifier import heads
from openauc.features.classifier.fitting import COMPARED
from openauc.features.scores import base


def spec(score=None, split=0, method="logistic"):
    return TrialSpec.of("digits_pixels", split, method, score=score)


@pytest.fixture(scope="module")
def data():
    return load_data(spec(), None)


@pytest.fixture(scope="module")
def head():
    return FittedHead(spec(), lambda one: load_data(one, None))


def test_the_learned_score_is_the_classifiers_own(head, data):
    found = head.predictions(spec("learned"), data, "test")
    assert found.open_score.tolist() == head.classifier.open_score(data.test.images).tolist()
    assert head.predictions(spec(), data, "test").open_score.tolist() == found.open_score.tolist()
    assert head.seconds > 0


def test_single_scores_look_at_the_final_head(head, data):
    _, logits = head.classifier.observer_(np.asarray(data.test.images))
    found = head.predictions(spec("max_logit"), data, "test")
    assert found.y_pred.tolist() == logits.argmax(1).tolist()
    np.testing.assert_allclose(found.open_score, -logits.max(1), rtol=1e-6)
    embedded = head.embedded(spec(), data, "test")
    np.testing.assert_allclose(embedded.logits, logits, rtol=1e-5)


def by_rule(rule, data):
    return OpenSetClassifier(rejector=rule, random_state=0).fit(np.asarray(data.train.images), data.train.labels)


def test_average_is_the_classifiers_own(head, data):
    found = head.predictions(spec("average"), data, "test")
    expected = by_rule("average", data).predictions(data.test.images, data.test.labels)
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_selected_is_the_classifiers_own_but_for_its_scale(head, data):
    found, classifier = head.predictions(spec("selected"), data, "test"), by_rule("selected", data)
    expected = classifier.predictions(data.test.images, data.test.labels)
    assert found.y_pred.tolist() == expected.y_pred.tolist()
    evidence = classifier.evidence_scale_(found.open_score[:, None], found.y_pred)[:, 0]
    np.testing.assert_allclose(evidence, expected.open_score, rtol=1e-6)
    single = head.predictions(spec(classifier.report_.chosen), data, "test")
    assert found.open_score.tolist() == single.open_score.tolist()


@pytest.mark.parametrize("rule", ["selected", "average"])
def test_two_classes_leave_nothing_to_compare(rule, data):
    rows = np.flatnonzero(data.train.labels < 2)
    two = data.fold(rows, np.arange(50))
    found = FittedHead(spec(), lambda _: two).predictions(spec(rule), two, "validation")
    expected = by_rule(rule, two).predictions(two.validation.images, two.validation.labels)
    assert openauc_score(*found) == openauc_score(*expected)


def test_the_average_of_all_is_of_standardised_scores(head, data):
    found = head.predictions(spec("average_of_all"), data, "test")
    scale = dict(zip(COMPARED, zip(head.scale.mean, head.scale.deviation, strict=True), strict=True))
    evidence = [
        (head.predictions(spec(name), data, "test").open_score - mean) / deviation
        for name, (mean, deviation) in scale.items()
    ]
    np.testing.assert_allclose(found.open_score, np.mean(evidence, axis=0))
    assert openauc_score(*found) > 0.9


def test_a_detector_of_outliers_does_not_look_at_classes(head, data):
    found = head.predictions(spec("isolation_forest"), data, "test").open_score
    forest = IsolationForest(random_state=0)
    rows = np.random.RandomState(0).permutation(len(data.train.images))
    expected = -forest.fit(np.asarray(data.train.images)[rows]).score_samples(data.test.images)
    np.testing.assert_allclose(found, expected)


def test_one_fit_serves_all_scores_of_a_store(tmp_path, monkeypatch):
    fits = []
    monkeypatch.setattr(FittedHead, "train", lambda self: fits.append(self) or self.classifier)
    specs = [spec("learned"), spec("knn"), spec("average_of_all")]
    results = run(specs, out=tmp_path)
    assert [result.error for result in results] == [None, None, None]
    assert len(set(map(id, fits))) == 1
    assert results[0].metrics["openauc"] > 0.9
    assert run(specs, out=tmp_path) == results  # nothing is left to do


def test_a_network_on_embeddings_trains_on_the_usual_path(tmp_path):
    small = TrialSpec.of("digits_pixels", 1, "openauc", epochs=5)
    assert (small.backbone, small.recipe.image_size) == ("mlp", 64)
    result = runner.run_trial(small, out=tmp_path)
    assert result.error is None
    assert result.metrics["closed_set_accuracy"] > 0.8


def test_names_that_need_no_scikit_learn_are_those_it_has():
    assert set(base.HEADS) == set(heads.HEADS)
    assert set(trial.DETECTORS) == {"average_of_all", *DETECTORS}


def test_a_head_is_for_embeddings_and_its_scores_for_it():
    with pytest.raises(ValueError, match="'logistic' classifies embeddings, and has no recipe; 'digits' and it"):
        TrialSpec.of("digits", 0, "logistic")
    with pytest.raises(ValueError, match="has no recipe"):
        TrialSpec.of("digits_pixels", 0, "logistic", epochs=3)
    with pytest.raises(ValueError, match="score is 'isolation_forest'"):
        TrialSpec.of("digits_pixels", 0, "openauc", score="isolation_forest")
