"""Write the embedded 8x8 digits, `src/openauc/protocols/data/digits.npz`, from scikit-learn's copy.

    python examples/make_digits.py [DEST]

The images are the 1,797 of the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, 1998, CC BY 4.0), in scikit-learn's order. Grey values 0..16
become round(255 v / 16), from which round(16 x / 255) gives v back.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

DESTINATION = Path(__file__).resolve().parents[1] / "src/openauc/protocols/data/digits.npz"


def write_digits(destination: Path) -> None:
    """Write `images`, uint8 (1797, 8, 8), and `labels`, uint8 (1797,), to one compressed npz file."""
    digits = load_digits()
    images = np.rint(digits.images * 255 / 16).astype(np.uint8)
    if not np.array_equal(np.rint(images * (16 / 255)), digits.images):
        raise ValueError("the scaled grey values do not give the original ones back; is 16 still the largest?")
    np.savez_compressed(destination, images=images, labels=digits.target.astype(np.uint8))


if __name__ == "__main__":
    write_digits(Path(sys.argv[1]) if len(sys.argv) > 1 else DESTINATION)
