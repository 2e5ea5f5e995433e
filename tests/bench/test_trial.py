"""Specs and results: identity, round trips, refusals."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec
from openauc.methods import recipe_for

SPEC = TrialSpec.of("digits", 0, "openauc", method_args={"lam": 0.2, "cut": "features"}, epochs=3, width=4)


@given(st.integers(0, 50), st.integers(0, 4), st.booleans())
def test_equal_numbers_have_equal_ids(lam: int, split: int, whole: bool) -> None:
    one = TrialSpec.of("digits", split, "openauc", method_args={"lam": lam})
    other = TrialSpec.of("digits", split, "openauc", method_args={"lam": float(lam)})
    assert one == other
    assert one.id == other.id
    assert one.training_id == other.training_id


def test_truth_values_are_not_numbers() -> None:
    ids = {TrialSpec.of("digits", 0, "openauc", method_args={"gather": value}).id for value in (True, 1)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"split": 1},
        {"method": "ce_plus"},
        {"method_args": {"lam": 0.3, "cut": "features"}},
        {"seed": 1},
        {"width": 8},
        {"train_images": 100},
        {"backbone": "vgg32_abn"},
        {"weights": "file.pth"},
        {"validation": 0.1},
        {"pseudo_unknown": 1},
        {"recipe": recipe_for("plus", "digits", epochs=4)},
    ],
)
def test_every_field_counts(change: dict) -> None:
    changed = replace(SPEC, **change)
    assert changed.id != SPEC.id
    assert changed.training_id != SPEC.training_id


def test_the_id_is_readable_and_stable() -> None:
    assert SPEC.id == "digits-0-openauc-s0-" + SPEC.id.rpartition("-")[2]
    # Ids name folders of old stores: this one must never change.
    assert TrialSpec.of("digits", 0, "softmax").id == "digits-0-softmax-s0-d2673f47f3"


def test_order_of_options_does_not_matter() -> None:
    assert replace(SPEC, method_args={"cut": "features", "lam": 0.2}).id == SPEC.id


def test_cifar_plus_protocols_share_their_training() -> None:
    ten, fifty = (TrialSpec.of(protocol, 3, "openauc") for protocol in ("cifar+10", "cifar+50"))
    assert ten.training_id == fifty.training_id
    assert ten.id != fifty.id
    assert TrialSpec.of("cifar10", 3, "openauc").training_id != ten.training_id


def test_round_trips_through_json() -> None:
    assert TrialSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC
    result = TrialResult(
        spec=SPEC,
        metrics={"openauc": 0.5},
        intervals={"openauc": (0.4, 0.6)},
        groups={"easy": {"openauc": 0.7}},
        n_known=3,
        n_unknown=4,
        predictions="trials/x/predictions.parquet",
        seconds=1.5,
        environment={"python": "3"},
    )
    assert TrialResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_file_from_before_a_field_existed_still_reads() -> None:
    values = SPEC.to_dict()
    del values["pseudo_unknown"]
    del values["recipe"]["normalize"]
    assert TrialSpec.from_dict(values).pseudo_unknown == 0


def test_the_published_recipe_and_backbone_are_filled_in() -> None:
    assert TrialSpec.of("cifar10", 0, "arpl").recipe == recipe_for("plain", "cifar10", "arpl")
    assert TrialSpec.of("cifar10", 0, "openauc").recipe == recipe_for("plus", "cifar10", "openauc")
    assert TrialSpec.of("cifar10", 0, "arpl_cs").backbone == "vgg32_abn"
    own = replace(SPEC.recipe, batch_size=7)
    assert TrialSpec.of("digits", 0, "openauc", recipe=own, backbone="resnet50").recipe == own


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("digitz", 0, "openauc"), {}, ValueError, "digits"),
        (("digits", 5, "openauc"), {}, ValueError, "has 0 to 4"),
        (("digits", 0, "openauc"), {"seed": -1}, ValueError, "seed is -1"),
        (("digits", 0, "openauc"), {"validation": 1.0}, ValueError, "validation"),
        (("digits", 0, "openauc"), {"method_args": {"cut": ["a"]}}, TypeError, "plain data"),
        (("digits", 0, "openauc"), {"recipe": SPEC.recipe, "epochs": 2}, ValueError, "already has its epochs"),
    ],
)
def test_nonsense_is_refused(arguments: tuple, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TrialSpec.of(*arguments, **options)


def test_a_failed_job_gives_every_trial_the_error() -> None:
    job = Job((SPEC, replace(SPEC, split=1)))
    outcome = Outcome.failed(job, "the worker died", seconds=2.0)
    assert [result.spec for result in outcome.results] == list(job.specs)
    assert {(result.error, result.seconds) for result in outcome.results} == {("the worker died", 2.0)}
