"""Specs and results: identity, round trips, refusals."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.bench.benchmarks import digits
from openauc.bench.trial import Job, TrialResult, TrialSpec
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
        {"precision": "bf16"},
        {"compile": True},
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
    assert TrialSpec.of("digits", 0, "softmax", recipe="plain", width=None).id == "digits-0-softmax-s0-d2673f47f3"
    table2 = TrialSpec.of("cifar10", 1, "openauc", method_args={"preset": "paper", "lam": 0.1})
    assert table2.id == "cifar10-1-openauc-s0-954b4cdb6e"
    assert digits.trial("arpl_cs", 0, {}).id == "digits-0-arpl_cs-s0-c21e4a8190"


@pytest.mark.parametrize("spelled", [{"preset": "paper"}, {"lam": 0.1}, {"preset": "paper", "lam": 0.1, "alpha": 2}])
def test_defaults_that_are_spelled_out_are_the_same_training(spelled: dict) -> None:
    one, other = (TrialSpec.of("digits", 0, "openauc", method_args=args) for args in (spelled, {}))
    assert one.id != other.id  # as in stores that exist
    assert one.training_id == other.training_id
    assert TrialSpec.of("digits", 0, "openauc", method_args={**spelled, "lam": 0.3}).training_id != other.training_id


def test_an_unknown_preset_is_left_to_the_trial() -> None:
    assert TrialSpec.of("digits", 0, "openauc", method_args={"preset": "papier"}).training_id


@pytest.mark.parametrize("change", [{"score": "energy"}, {"balanced": True}])
def test_score_and_balance_are_no_part_of_the_training(change: dict) -> None:
    changed = replace(SPEC, **change)
    assert changed.id != SPEC.id
    assert changed.training_id == SPEC.training_id


def test_methods_that_differ_in_their_score_share_a_training() -> None:
    for one, other in (("softmax", "ce_plus"), ("arpl", "arpl_plus")):
        first, second = (TrialSpec.of("digits", 0, method) for method in (one, other))
        assert first.training_id == second.training_id
        assert first.id != second.id
        # The published recipes tell them apart.
        published = [TrialSpec.of("cifar10", 0, method).training_id for method in (one, other)]
        assert published[0] != published[1]


class TestProtocolFile:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "mine.json"
        split = {"known": [0, 1, 2], "unknown": [3]}
        file.write_text(json.dumps({"source": "digits", "image_size": 8, "width": 4, "splits": [split]}))
        return file

    def test_is_a_protocol_like_any_other(self, file: Path) -> None:
        spec = TrialSpec.of(str(file), 0, "softmax", epochs=3)
        assert spec.id.startswith("mine-0-softmax-s0-")
        assert (spec.width, spec.recipe.image_size) == (4, 8)
        assert TrialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
        assert spec.open_protocol().splits[0].known == (0, 1, 2)
        with pytest.raises(ValueError, match="has no split 1; it has 0 to 0"):
            TrialSpec.of(str(file), 1, "softmax")

    def test_is_known_by_its_content_and_not_by_its_place(self, file: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        moved = Path(shutil.copy(file, tmp_path / "elsewhere"))
        one, other = (TrialSpec.of(str(place), 0, "softmax", epochs=3) for place in (file, moved))
        assert (one.id, one.training_id) == (other.id, other.training_id)

    def test_a_changed_file_is_refused(self, file: Path) -> None:
        spec = TrialSpec.of(str(file), 0, "softmax", epochs=3)
        file.write_text(file.read_text().replace("[3]", "[3, 4]"))
        with pytest.raises(ValueError, match="has changed since this trial was planned"):
            spec.open_protocol()
        assert TrialSpec.of(str(file), 0, "softmax", epochs=3).id != spec.id
        file.unlink()
        with pytest.raises(FileNotFoundError, match="there is no protocol file"):
            spec.open_protocol()


@pytest.mark.parametrize("change", [{"method": "../x"}, {"seed": 1, "method": "a/b"}])
def test_no_trial_has_a_folder_elsewhere(change: dict) -> None:
    with pytest.raises(ValueError, match=r"(x|a/b).*cannot be the name of a folder"):
        replace(SPEC, **change)


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
        predictions="predictions.parquet",
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
        (("digits", 0, "openauc"), {"score": "max_logits"}, ValueError, "Did you mean 'max_logit'"),
        (("digits", 0, "openauc"), {"precision": "fp8"}, ValueError, "precision is 'fp8'"),
        (("digits", 0, "openauc"), {"recipe": "pluss"}, ValueError, "Did you mean 'plus'"),
        (("digits", 0, "openauc"), {"method_args": {"cut": ["a"]}}, TypeError, "plain data"),
        (("digits", 0, "openauc"), {"recipe": SPEC.recipe, "epochs": 2}, ValueError, "already has its epochs"),
    ],
)
def test_nonsense_is_refused(arguments: tuple, options: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TrialSpec.of(*arguments, **options)


def test_a_failed_job_gives_every_trial_the_error() -> None:
    job = Job((SPEC, replace(SPEC, split=1)))
    outcome = job.failed("the worker died", seconds=2.0)
    assert [result.spec for result in outcome.results] == list(job.specs)
    assert {(result.error, result.seconds) for result in outcome.results} == {("the worker died", 2.0)}
