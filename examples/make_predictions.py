"""Write the example predictions, `examples/linear.npz` and `examples/network.npz`: two models on Fashion-MNIST.

    python examples/make_predictions.py DATA

DATA holds `fashion_mnist/{train,test}-*.parquet` in the Hub's schema. Both models learn the six known classes of
MNIST's split 0 (2, 4, 5, 9, 8, 3) from all their 36,000 training images and are tested on the 10,000 test images, of
which those of the other four classes are unknown. The score is minus the largest logit.

Fashion-MNIST: H. Xiao, K. Rasul, R. Vollgraf, 2017, MIT licence.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from openauc import Predictions, openauc_score
from openauc.protocols import PROTOCOLS, Protocol

SPLIT = PROTOCOLS["mnist"].splits[0]
FASHION = Protocol(
    known_source="fashion_mnist", unknown_source="fashion_mnist", splits=(SPLIT,), image_size=28, reference=""
)


def logits(model: LogisticRegression | MLPClassifier, x: np.ndarray) -> np.ndarray:
    """Class scores before the softmax."""
    if isinstance(model, LogisticRegression):
        return model.decision_function(x)
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0.0)
    return x @ model.coefs_[-1] + model.intercepts_[-1]


def grey(images: np.ndarray) -> np.ndarray:
    """One row of grey values in [0, 1] per image."""
    return images[:, :, :, 0].reshape(len(images), -1) / 255.0


def main(root: Path) -> None:
    """Fit both models and save what they predict."""
    data = FASHION.load(0, root=root)
    models = {
        "linear": LogisticRegression(max_iter=100),
        "network": MLPClassifier((64,), max_iter=10, batch_size=128, random_state=0),
    }
    for name, model in models.items():
        model.fit(grey(data.train.images[:]), data.train.labels)
        scores = logits(model, grey(data.test.images[:])).astype(np.float32)
        predictions = Predictions.from_logits(data.test.labels.astype(np.int8), scores)
        small = Predictions(predictions.y_true, predictions.y_pred.astype(np.int8), predictions.open_score)
        small.save(Path(__file__).parent / f"{name}.npz")
        print(f"{name}: OpenAUC {openauc_score(*predictions):.4f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
