"""Topics of texts by BERTopic at its defaults, from given embeddings: `python loop_bertopic.py ROWS.npz TOPICS.npz`.

`loop.py` runs it in an environment of its own, which has `loop_requirements.txt` and not this package.
"""

import sys
import time

import numpy as np


def main() -> None:
    from bertopic import BERTopic  # type: ignore[import-not-found]

    with np.load(sys.argv[1]) as rows:
        X, texts = rows["X"], rows["texts"].tolist()
    start = time.perf_counter()
    topics, _ = BERTopic().fit_transform(texts, embeddings=X)
    np.savez(sys.argv[2], labels=np.array(topics), seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
