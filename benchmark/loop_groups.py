"""Part `groups` of `loop.py`: groups among rejected rows, ours and those of usual ways to cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from loop_data import OUTSIDE, Array, Data, Found, Rows, divide, fitted, mean, percent, save_arrays, table, values
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from openauc.features import Groups, OpenSetClassifier

SETTINGS = {
    "banking77-75": ("banking77", 0.75),
    "banking77-50": ("banking77", 0.5),
    "clinc150-75": ("clinc150", 0.75),
    "clinc150-50": ("clinc150", 0.5),
    "cifar100-50": ("cifar100", 0.5),
}
REPEATS = 10
BERTOPIC_REPEATS = 3
FEWEST = 5  # rows of a group, or of a class, that counts
BERTOPIC = Path(__file__).with_name("loop_bertopic.py")
REQUIREMENTS = Path(__file__).with_name("loop_requirements.txt")
PUBLISHED = {"banking77-75": (87.4, 69.5, 78.4), "clinc150-75": (96.4, 86.8, 90.4)}


def measure(data: Data, share: float, seed: int, bertopic: Path | None = None) -> Found:
    """Groups among the rejected rows of a stream, when this share of the classes is known."""
    cut = divide(data, np.random.default_rng(seed))
    known = cut.classes[: round(share * len(cut.classes))]
    model = fitted(cut.fit.of(known), seed)
    stream = cut.stream.take(cut.stream.y != OUTSIDE)
    start = time.perf_counter()
    groups = model.discover(stream.X, texts=stream.texts if stream.texts.any() else None)
    seconds = time.perf_counter() - start
    rejected = stream.take(groups.unknown)
    is_new = ~np.isin(rejected.y, known)
    size = np.unique(rejected.y[is_new], return_counts=True)[1]
    k = max(1, int((size >= FEWEST).sum()))
    ours = groups.labels[groups.unknown]
    found: Found = {"rejected": len(rejected.y), "rejected_unknown": int(is_new.sum()), "classes": k}
    found["of_unknown"] = float(is_new.sum() / np.isin(stream.y, known, invert=True).sum())
    found["ways"] = {"discover": {"seconds": seconds, **figures(ours, rejected.y, is_new)}}
    found["told"] = told(groups, stream, model)
    X = rejected.X / np.linalg.norm(rejected.X, axis=1, keepdims=True)
    for name, way in usual_ways(k, max(1, len(groups.groups)), seed).items():
        start = time.perf_counter()
        labels = way(X)
        found["ways"][name] = {"seconds": time.perf_counter() - start, **figures(labels, rejected.y, is_new)}
    if bertopic is not None and stream.texts.any():
        seconds, labels = by_bertopic(bertopic, rejected)
        found["ways"]["BERTopic"] = {"seconds": seconds, **figures(labels, rejected.y, is_new)}
    return found


def usual_ways(k: int, found: int, seed: int) -> dict[str, Callable[[Array], Array]]:
    return {
        "k-means, true number": KMeans(k, n_init=10, random_state=seed).fit_predict,
        "k-means, number of discover": KMeans(found, n_init=10, random_state=seed).fit_predict,
        "Ward, true number": AgglomerativeClustering(k).fit_predict,
        "HDBSCAN": HDBSCAN(min_cluster_size=FEWEST, copy=True).fit_predict,
    }


def by_bertopic(python: Path, rows: Rows) -> tuple[float, Array]:
    """Seconds, those of its compiler among them, and the topic of each row, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "rows.npz", Path(folder) / "topics.npz"
        save_arrays(given, X=rows.X, texts=rows.texts.astype(str))
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        command = [str(python), str(BERTOPIC), str(given), str(made)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | one_thread)
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{' '.join(command)} failed: {error.stderr[-2000:]}") from error
        with np.load(made) as arrays:
            return float(arrays["seconds"]), arrays["labels"]


def figures(labels: Array, y: Array, is_new: Array) -> dict[str, float]:
    """Groups (-1: in none) of rejected rows against their classes; the measures of agreement are of unknown rows.

    A row in no group is a group of its own for NMI and ARI, and wrong for the accuracy.
    """
    grouped = labels >= 0
    number, size = np.unique(labels[grouped], return_counts=True)
    own = np.where(grouped, labels, labels.max(initial=-1) + 1 + np.arange(len(labels)))
    matched = contingency_matrix(y[is_new & grouped], labels[is_new & grouped]) if (is_new & grouped).any() else None
    return {
        "groups": int((size >= FEWEST).sum()),
        "nmi": float(normalized_mutual_info_score(y[is_new], own[is_new])),
        "ari": float(adjusted_rand_score(y[is_new], own[is_new])),
        "accuracy": 0.0 if matched is None else float(best_match(matched) / is_new.sum()),
        "in_groups": float(grouped[is_new].mean()),
        "purity": float(sum(most_frequent(y[labels == one])[1] for one in number) / max(1, grouped.sum())),
    }


def best_match(counts: Array) -> int:
    """Rows in the right group if each class is given another group."""
    return int(counts[linear_sum_assignment(counts, maximize=True)].sum())


def most_frequent(y: Array) -> tuple[str, int]:
    labels, count = np.unique(y, return_counts=True)
    return str(labels[count.argmax()]), int(count.max())


def told(groups: Groups, stream: Rows, model: OpenSetClassifier) -> Found:
    """What the groups say of themselves, and what is true."""
    classes = set(model.classes_.tolist())
    found: Found = {"forecast": [], "real": [], "inside": [], "pieces": 0, "pieces_right": 0, "of_known": 0}
    for group in groups.groups:
        label, count = most_frequent(stream.y[group.rows])
        found["forecast"].append(group.purity)
        found["real"].append(count / group.size)
        found["inside"].append(bool(group.purity_interval.low <= count / group.size <= group.purity_interval.high))
        found["pieces"] += group.piece_of is not None
        found["pieces_right"] += group.piece_of == label
        found["of_known"] += label in classes
    return found


def page(results: dict[str, list[Found]]) -> list[str]:
    lines = [
        "## Groups among rejected rows",
        "",
        "The model rejects rows of a stream with at most 50 rows of each class. Groups: those of at least "
        f"{FEWEST} rows; classes: unknown ones with at least {FEWEST} rejected rows. NMI, ARI and accuracy (groups "
        "matched to classes, one to one) are of the rejected rows of unknown classes, in percent; a row in no group is "
        "a group of its own, and wrong for the accuracy. Purity is of all rejected rows in groups. The usual ways get "
        "the same rows at unit length, k-means the best of 10 beginnings. BERTopic is at its defaults, on the same "
        f"embeddings and texts, in at most {BERTOPIC_REPEATS} splits, without a seed; its seconds hold those of its "
        "compiler. Published: USNID, another task, for comparison: rows of all classes, "
        "an encoder trained on the stream, the true number of classes given.",
        "",
    ]
    heads = ["data", "known", "way", "splits", "groups", "classes"]
    heads += ["NMI", "ARI", "accuracy", "in groups", "purity", "seconds"]
    cells = []
    for setting, ones in results.items():
        data, known = setting.split("-")
        ways = dict.fromkeys(name for one in ones for name in one["ways"])
        for way in ways:
            some = [one for one in ones if way in one["ways"]]
            cells.append(
                [data, f"{known} %", way, str(len(some))]
                + [f"{mean(values(some, 'ways', way, 'groups')):.1f}", f"{mean(values(some, 'classes')):.1f}"]
                + [percent(values(some, "ways", way, "nmi"), interval=way == "discover")]
                + [percent(values(some, "ways", way, "ari"), interval=way == "discover")]
                + [percent(values(some, "ways", way, "accuracy"), interval=way == "discover")]
                + [percent(values(some, "ways", way, key)) for key in ("in_groups", "purity")]
                + [f"{mean(values(some, 'ways', way, 'seconds')):.2f}"]
            )
        if setting in PUBLISHED:
            published = [f"{value:.1f}" for value in PUBLISHED[setting]]
            cells.append([data, f"{known} %", "USNID, published, another task", *[""] * 3, *published, "", "", ""])
    lines += [*table(heads, cells, 3), "", "What `discover` says of its groups", ""]
    heads = ["data", "known", "rejected of unknown", "rejected rows", "of unknown classes", "forecast purity", "real"]
    heads += ["in the 90 % interval", "groups", "of known classes", "marked as a piece", "rightly"]
    cells = []
    for setting, ones in results.items():
        data, known = setting.split("-")
        every = {key: [x for one in ones for x in one["told"][key]] for key in ("forecast", "real", "inside")}
        pieces, right, of_known = (sum(values(ones, "told", key)) for key in ("pieces", "pieces_right", "of_known"))
        cells.append(
            [data, f"{known} %", percent(values(ones, "of_unknown"))]
            + [f"{mean(values(ones, key)):,.0f}" for key in ("rejected", "rejected_unknown")]
            + [percent(every[key]) for key in ("forecast", "real", "inside")]
            + [str(len(every["real"])), f"{of_known:.0f}", f"{pieces:.0f}", f"{right:.0f}"]
        )
    lines += table(heads, cells, 2)
    if not any("BERTopic" in one["ways"] for ones in results.values() for one in ones):
        lines += ["", "BERTopic was left out: its environment was not there."]
    return lines


def find_bertopic(work: Path) -> Path | None:
    """The interpreter of BERTopic's environment, or how to make it."""
    python = work / "bertopic" / "bin" / "python"
    if python.is_file():
        return python
    print(
        f"BERTopic is left out: there is no {python}. To measure it: python -m venv {work / 'bertopic'} && "
        f"{python} -m pip install --no-deps -r {REQUIREMENTS}",
        file=sys.stderr,
    )
    return None
