"""Real trials, small enough to train in a second."""

from typing import Any

from openauc.bench.trial import TrialSpec


def tiny(method: str = "softmax", split: int = 0, **more: Any) -> TrialSpec:
    """A trial on the embedded digits with a network of two channels and a hundred images."""
    options = {"recipe": "plain", "epochs": 2, "width": 2, "train_images": 100, **more}
    return TrialSpec.of("digits", split, method, **options)
