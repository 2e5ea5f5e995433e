"""Intents embedded by other encoders: Gaussian classes as embeddings, and encoders made by hand."""

import encoders_more
import messy_data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from encoders_more import More

from openauc.encoders.base import Encoder
from openauc.protocols import PROTOCOLS

WIDTH = 8


def encoder(far=lambda text: text == encoders_more.UNLIKE):
    """Texts of a class, the first word, are near one another."""

    def encode(texts):
        rows = []
        for text in texts:
            alike = "far" if far(text) else text.partition(" ")[0] if text.startswith("class") else "near"
            centre = np.random.default_rng(list(alike.encode())).normal(size=WIDTH)
            rows.append(centre + 0.4 * np.random.default_rng(list(text.encode())).normal(size=WIDTH))
        return np.array(rows, np.float32)

    return Encoder("made", "text", encode)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Texts of 77 classes, and an encoder that was not used yet."""
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAUC_DATA", raising=False)
    monkeypatch.setitem(encoders_more.ENCODERS, "made", More(WIDTH, lambda store: encoder()))
    (tmp_path / "data/banking77").mkdir(parents=True)
    for part, rows in (("train", 12), ("test", 4)):
        labels = [f"class{c:02}" for c in range(77) for _ in range(rows)]
        texts = [f"{label} {part} {row}" for row, label in enumerate(labels)]
        file = tmp_path / f"data/banking77/{part}-00000-of-00001.parquet"
        parquet.write_table(pa.table({"text": texts, "label": labels}), file)
    return messy_data.Store(tmp_path, tmp_path / "data")


@pytest.mark.filterwarnings("ignore:AUROC is")
def test_texts_are_embedded_once_and_measured(store, tmp_path, monkeypatch):
    name = "banking77_25"
    encoders_more.embed([name], ["made"], store)
    folder = tmp_path / "cache/embeddings"
    made = parquet.read_table(folder / "banking77_made_train.parquet")
    assert made.column_names == ["text", "label", "embedding"]
    assert made.num_rows == 77 * 12
    monkeypatch.setitem(encoders_more.ENCODERS, "made", More(WIDTH, lambda store: pytest.fail("made twice")))
    encoders_more.embed([name], ["made"], store)

    results = encoders_more.run([name], ["made"], 1, store, False)
    (one,) = results[f"{name}-made"]
    assert one["openauc"]["learned"] > 0.7
    assert set(encoders_more.SCORES) < set(one["openauc"])
    assert all(0.5 < one["open_set"][threshold][0] <= 1 for threshold in ("0.95", "0.9", "youden"))
    kept = encoders_more.run([name], ["made"], 1, messy_data.Store(tmp_path, None), False)  # reads no data
    assert kept == {f"{name}-made": [one]}
    text = encoders_more.page(results)
    assert "| banking77 | 25 % | made | 1 |" in text
    assert "| made | 90 % |" in text


def test_texts_that_are_not_there_are_told(store, tmp_path):
    elsewhere = messy_data.Store(tmp_path, tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"banking77_made_train\.parquet nor the texts"):
        encoders_more.embed(["banking77_25"], ["made"], elsewhere)


def test_another_encoder_changes_embeddings_and_no_split():
    before = PROTOCOLS["clinc150_50"]
    after = encoders_more.with_encoder(before, "use")
    assert after.splits == before.splits
    assert after.num_features == 512
    names = [file.path.name for file in after.known_source.files("test", None)]
    assert names == ["clinc150_use_test.parquet", "clinc150_use_oos_test.parquet"]
    assert before.num_features == 384


def test_an_encoder_that_mistakes_wishes_is_refused():
    encoders_more.check_meaning(encoder())
    with pytest.raises(ValueError, match="made takes 'What will"):
        encoders_more.check_meaning(encoder(lambda text: text == encoders_more.ALIKE[1]))


def test_other_weights_are_refused():
    with pytest.raises(ValueError, match="expected 78c0197b"):
        encoders_more.check_weights("mpnet", b"other")


def test_the_best_single_score_is_best_on_average():
    def one(**values):
        return {"openauc": dict.fromkeys(encoders_more.SCORES, 0.5) | {"learned": 0.9} | values}

    assert encoders_more.best_single([one(knn=0.9, vim=0.7), one(knn=0.4, vim=0.7)]) == "vim"
