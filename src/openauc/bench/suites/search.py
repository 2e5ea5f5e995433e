"""Is there a form of the OpenAUC loss that beats CE+? Candidates on held-out classes, the best of them on test.

``select`` scores every candidate on known classes held out of training, on three splits of the embedded digits.
``confirm`` trains the one with the best mean there, and CE+, on the two other splits and scores them on the test part,
which no choice has seen.
"""

from __future__ import annotations

from typing import Any, Literal

from openauc._validation import check_choice
from openauc.bench.suites.digits import trial
from openauc.bench.trial import Scalar, TrialSpec

Candidate = tuple[str, dict[str, Scalar], dict[str, Any]]
"""Method, its options, and fields of the recipe that differ from the one of ``digits``."""

AUGMENTED = {"augmentation": "rand_augment", "rand_augment_n": 1, "rand_augment_m": 8, "rand_augment_ops": "digits"}
HALF = 36  # batches: half of a training of these trials

BASELINES: tuple[Candidate, ...] = (
    ("ce_plus", {}, {}),
    ("ce_plus", {"score": "max_probability"}, {}),
    ("ce_plus", {"label_smoothing": 0.1}, {}),
    ("ce_plus", {}, AUGMENTED),
)
FORMS: tuple[dict[str, Scalar], ...] = (
    # weight of the ranking term, at once and with a warm-up
    {"preset": "paper"},
    {"preset": "paper", "lam": 0.02},
    {"preset": "paper", "lam": 0.5},
    {"preset": "paper", "warm_up": HALF},
    {"preset": "paper", "lam": 0.5, "warm_up": HALF},
    # score in the loss and at test
    {"preset": "paper", "score": "max_probability"},
    {"preset": "public_code"},
    {"preset": "public_code", "lam": 0.02},
    {"preset": "public_code", "warm_up": HALF},
    {"preset": "public_code", "score": "max_probability"},
    # surrogate and margin
    {"preset": "paper", "surrogate": "squared_hinge", "margin": 0.5},
    {"preset": "paper", "surrogate": "logistic"},
    {"preset": "public_code", "surrogate": "squared_hinge"},
    {"preset": "public_code", "surrogate": "logistic"},
    # where and what to mix
    {"preset": "paper", "cut": "block2"},
    {"preset": "paper", "cut": "block3"},
    {"preset": "paper", "min_confidence": 0.5},
    {"preset": "paper", "min_confidence": 0.9},
    {"preset": "public_code", "min_confidence": 0.9},
    {"preset": "paper", "mix_weight": "sample"},
    {"preset": "paper", "pairing": "all"},
    # which score receives gradient
    {"preset": "paper", "gradient": "unknown"},
    {"preset": "paper", "gradient": "known"},
    {"preset": "public_code", "surrogate": "logistic", "gradient": "unknown"},
    # what the recipe of the "+" methods adds
    {"preset": "paper", "label_smoothing": 0.1},
)
CANDIDATES: tuple[Candidate, ...] = (
    *(("openauc", form, {}) for form in FORMS),
    ("openauc", {"preset": "paper"}, AUGMENTED),
)
SELECTED: Candidate = ("openauc", {"preset": "public_code", "surrogate": "logistic", "gradient": "unknown"}, {})
"""The candidate with the best mean in ``benchmark/results/search_digits_*``; set before ``confirm`` was first run."""
SELECT_SPLITS, CONFIRM_SPLITS = (0, 1, 2), (3, 4)


def trials(stage: Literal["select", "confirm"] = "select", seeds: int | None = None) -> list[TrialSpec]:
    """Trials of one stage; ``seeds`` is 4 to select, each with other held-out classes, and 20 to confirm."""
    check_choice("stage", stage, ("select", "confirm"))
    selecting = stage == "select"
    variants = (*BASELINES, *CANDIDATES) if selecting else (BASELINES[0], SELECTED)
    return [
        trial(method, split, options, seed=seed, pseudo_unknown=2 if selecting else 0, **fields)
        for seed in range(seeds or (4 if selecting else 20))
        for split in (SELECT_SPLITS if selecting else CONFIRM_SPLITS)
        for method, options, fields in variants
    ]
