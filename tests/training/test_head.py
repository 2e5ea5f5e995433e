"""Heads as trials: each score by hand, one fit for all of them, and the whole way through a store."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from openauc import openauc_score
from openauc.bench import runner
from openauc.bench.runner import run
from openauc.bench.trial import TrialSpec
from openauc.cli import app
from openauc.features import OpenSetClassifier
from openauc.features.classifier import heads
from openauc.features.scores import base
from openauc.protocols import Split, get_protocol
from openauc.protocols.sources import Examples
from openauc.training.head import FittedHead
from openauc.training.trained import SavedRun, load_data


def predicted(head, spec, data, part="test"):
    return head.embedded(spec, data, part).predictions(head.score(spec, data))


def spec(score=None, split=0, method="logistic"):
    return TrialSpec.of("digits_pixels", split, method, score=score)


@pytest.fixture(scope="module")
def data():
    return load_data(spec(), None)


@pytest.fixture(scope="module")
def head():
    return FittedHead(spec(), lambda: load_data(spec(), None))


def test_the_learned_score_is_the_classifiers_own(head, data):
    found = predicted(head, spec("learned"), data)
    assert found.open_score.tolist() == head.train().open_score(data.test.images).tolist()
    assert predicted(head, spec(), data).open_score.tolist() == found.open_score.tolist()
    assert head.seconds > 0


def test_single_scores_look_at_the_final_head(head, data):
    _, logits = head.train().head_with_scores_(np.asarray(data.test.images))
    found = predicted(head, spec("max_logit"), data)
    assert found.y_pred.tolist() == logits.argmax(1).tolist()
    np.testing.assert_allclose(found.open_score, -logits.max(1), rtol=1e-6)
    embedded = head.embedded(spec(), data, "test")
    np.testing.assert_allclose(embedded.logits, logits, rtol=1e-5)


def by_rule(rule, data):
    return OpenSetClassifier(rejector=rule, random_state=0).fit(np.asarray(data.train.images), data.train.labels)


def test_average_is_the_classifiers_own(head, data):
    found = predicted(head, spec("average"), data)
    expected = by_rule("average", data).predictions(data.test.images, data.test.labels)
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_selected_is_the_classifiers_own_but_for_its_scale(head, data):
    found, classifier = predicted(head, spec("selected"), data), by_rule("selected", data)
    expected = classifier.predictions(data.test.images, data.test.labels)
    assert found.y_pred.tolist() == expected.y_pred.tolist()
    evidence = classifier.evidence_scale_(found.open_score[:, None], found.y_pred)[:, 0]
    np.testing.assert_allclose(evidence, expected.open_score, rtol=1e-6)
    single = predicted(head, spec(classifier.report_.chosen), data)
    assert found.open_score.tolist() == single.open_score.tolist()


@pytest.mark.parametrize("rule", ["selected", "average"])
def test_two_classes_leave_nothing_to_compare(rule, data):
    rows = np.flatnonzero(data.train.labels < 2)
    images, labels = data.train
    parts = Examples(images[rows], labels[rows]), Examples(images[:50], np.where(labels[:50] < 2, labels[:50], -1))
    two = replace(data, split=Split(data.split.known[:2], data.split.known[2:]), read_train=lambda: parts)
    found = predicted(FittedHead(spec(), lambda: two), spec(rule), two, "validation")
    expected = by_rule(rule, two).predictions(two.validation.images, two.validation.labels)
    assert openauc_score(*found) == openauc_score(*expected)


def test_one_fit_serves_all_scores_of_a_store(tmp_path, monkeypatch):
    fits = []
    fit = OpenSetClassifier.fit
    monkeypatch.setattr(OpenSetClassifier, "fit", lambda self, *arrays: fits.append(self) or fit(self, *arrays))
    specs = [spec("learned"), spec("knn"), replace(spec("knn"), balanced=True)]
    results = run(specs, out=tmp_path)
    assert [result.error for result in results] == [None, None, None]
    assert results[1].n_known > results[2].n_known == results[2].n_unknown  # each has its own test samples
    assert len(fits) == 1
    assert results[0].metrics["openauc"] > 0.9
    assert run(specs, out=tmp_path) == results  # nothing is left to do


def test_a_network_on_embeddings_trains_on_the_usual_path(tmp_path):
    small = TrialSpec.of("digits_pixels", 1, "openauc", epochs=5)
    assert (small.backbone, small.recipe.image_size) == ("mlp", 64)
    result = runner.run_trial(small, out=tmp_path)
    assert result.error is None
    assert result.metrics["closed_set_accuracy"] > 0.8


def test_names_that_need_no_scikit_learn_are_those_it_has():
    assert set(base.HEAD_NAMES) == set(heads.HEADS)


def test_a_head_is_for_embeddings_and_its_scores_for_it():
    with pytest.raises(ValueError, match=r"'logistic' .* 'digits' .* such as 'digits_pixels'"):
        TrialSpec.of("digits", 0, "logistic")
    with pytest.raises(ValueError, match=r"'logistic' .*leave out recipe and epochs"):
        TrialSpec.of("digits_pixels", 0, "logistic", epochs=3)
    with pytest.raises(ValueError, match="score is 'learned'"):
        TrialSpec.of("digits_pixels", 0, "openauc", score="learned")


def test_a_head_is_trained_from_the_command_line_and_is_not_a_network(tmp_path):
    made = CliRunner().invoke(app, ["train", "digits_pixels", "-m", "logistic", "--score", "knn", "-o", str(tmp_path)])
    assert made.exit_code == 0, made.output
    assert "fitted by scikit-learn" in made.output
    with pytest.raises(ValueError, match="openauc fit"):
        SavedRun(tmp_path)


def test_heads_of_older_stores_keep_their_ids():
    old = {**spec("knn").to_dict(), "backbone": "logistic", "recipe": get_protocol("digits_pixels").recipes["head"]}
    assert TrialSpec.from_dict(old) == spec("knn")
    assert spec("knn").id == "digits_pixels-0-logistic-s0-b8b41438e2"
