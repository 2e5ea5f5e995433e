"""openauc embed, as typed: folders, tables, protocols and trainings; stopped runs; bad input."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_encoders import image_network, text_network
from typer.testing import CliRunner

import openauc
from commands.application import SMALL
from openauc._trial_files import features_file
from openauc.cli import app
from openauc.encoders import Encoder, get_encoder, output
from openauc.encoders.output import open_finished, parts_file
from openauc.features import OpenSetClassifier
from openauc.predictions import read_columns
from openauc.protocols import PROTOCOLS
from openauc.training.predict import Embedded

TEXTS = [f"{'long ' * (row % 7)}sentence number {row}" for row in range(50)]


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def embedded(path):
    """The columns of a Parquet file, embeddings as an array."""
    table = pq.read_table(path)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return {**columns, "embedding": np.array(columns["embedding"], np.float32)}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A text encoder by name."""
    return f"onnx:{text_network(tmp_path_factory.mktemp('words'))[0]}"


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """An image encoder by name."""
    return f"onnx:{image_network(tmp_path_factory.mktemp('colours') / 'colours.onnx')}"


@pytest.fixture
def pictures(tmp_path):
    """Nine images of different size in folders of three classes."""
    rng = np.random.default_rng(0)
    for row in range(9):
        folder = tmp_path / "pictures" / ("cat", "dog", "fox")[row % 3] / "some"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20 + row, 30, 3), dtype=np.uint8)).save(folder / f"{row}.png")
    return tmp_path / "pictures"


@pytest.fixture
def table(tmp_path):
    """Texts with labels and a column that is empty in places."""
    path = tmp_path / "texts.parquet"
    notes = [None if row % 3 else "seen" for row in range(50)]
    pq.write_table(pa.table({"text": TEXTS, "label": [row % 4 for row in range(50)], "note": notes}), path)
    return path


def test_texts_of_a_table(table, words, tmp_path):
    out = tmp_path / "features.parquet"
    assert "50 embeddings of 5 features in" in run("embed", table, "--encoder", words, "-o", out)
    found = pq.read_table(out)
    assert found.drop_columns("embedding") == pq.read_table(table)
    assert found.schema.field("embedding").type == pa.list_(pa.float32(), 5)
    assert found.schema.metadata == {
        b"openauc.encoder": words.encode(),
        b"openauc.width": b"5",
        b"openauc.version": openauc.__version__.encode(),
    }
    np.testing.assert_allclose(embedded(out)["embedding"], get_encoder(words)(TEXTS), atol=1e-6)
    assert sorted(os.listdir(tmp_path)) == ["features.parquet", "texts.parquet"]


def test_minilm_from_csv_to_npz(tmp_path):
    (tmp_path / "texts.csv").write_text('id,utterance,intent\n007,"Hello, world",greet\n008,Is my card lost?,\n')
    run("embed", tmp_path / "texts.csv", "-e", "minilm", "--device", "cpu", "-o", tmp_path / "features.npz")
    found = read_columns(tmp_path / "features.npz")
    assert list(found) == ["id", "utterance", "intent", "embedding"]
    assert found["id"].tolist() == ["007", "008"]
    assert found["intent"].tolist() == ["greet", ""]
    expected = get_encoder("minilm", "cpu")(["Hello, world", "Is my card lost?"])
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-6)


def test_the_text_column_is_named_or_the_obvious_one(table, words, tmp_path):
    out = ("-e", words, "-o", tmp_path / "out.parquet")
    renamed = pq.read_table(table).rename_columns(["said", "label", "note"])
    pq.write_table(renamed, table)
    run("embed", table, *out)
    guessed = embedded(tmp_path / "out.parquet")["embedding"]
    run("embed", table, *out, "--text-column", "said")
    np.testing.assert_array_equal(embedded(tmp_path / "out.parquet")["embedding"], guessed)
    said = run("embed", table, *out, "--text-column", "sad", code=2)
    assert "expected one of 'said', 'label', 'note'. Did you mean 'said'?" in said
    assert "column 'note': row 1 is empty" in run("embed", table, *out, "--text-column", "note", code=2)
    assert "column 'label': row 0 is int" in run("embed", table, *out, "--text-column", "label", code=2)
    pq.write_table(renamed.append_column("answer", renamed["said"]), table)
    said = run("embed", table, *out, code=2)
    assert "has the columns 'said', 'label', 'note', 'answer', none of which is surely its text; name it" in said
    assert "with --text-column" in said
    for name in ("Sentence", "utterance", "message", "body"):
        pq.write_table(renamed.append_column(name, renamed["said"]), table)
        run("embed", table, *out)
        assert list(embedded(tmp_path / "out.parquet")) == ["said", "label", "note", name, "embedding"]
        np.testing.assert_array_equal(embedded(tmp_path / "out.parquet")["embedding"], guessed)


def test_a_text_is_not_cut_at_a_nul(words, tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\nold\0 card,a\nold,b\n")
    run("embed", tmp_path / "texts.csv", "-e", words, "-o", tmp_path / "out.parquet")
    found = embedded(tmp_path / "out.parquet")
    assert found["text"] == ["old\0 card", "old"]
    np.testing.assert_allclose(found["embedding"], get_encoder(words)(["old card", "old"]), atol=1e-6)


def test_images_in_class_folders_and_in_one(pictures, colours, tmp_path):
    run("embed", pictures, "-e", colours, "-o", tmp_path / "out.parquet")
    found = embedded(tmp_path / "out.parquet")
    files = sorted(pictures.rglob("*.png"))
    assert list(found) == ["file", "label", "embedding"]
    assert [Path(file) for file in found["file"]] == files
    assert found["label"] == ["cat"] * 3 + ["dog"] * 3 + ["fox"] * 3
    np.testing.assert_allclose(found["embedding"], get_encoder(colours)(files), rtol=1e-6)
    run("embed", pictures / "cat" / "some", "-e", colours, "-o", tmp_path / "flat.parquet", "--batch-size", 2)
    flat = embedded(tmp_path / "flat.parquet")
    assert list(flat) == ["file", "embedding"]
    np.testing.assert_allclose(flat["embedding"], found["embedding"][:3], rtol=1e-6)


def test_names_of_files_need_not_be_utf8(pictures, table, words, colours, tmp_path):
    (pictures / "cat").rename(pictures / "c\udcff")
    run("embed", pictures, "-e", colours, "-o", tmp_path / "images.parquet")
    assert sorted(set(embedded(tmp_path / "images.parquet")["label"])) == ["c\\xff", "dog", "fox"]
    texts = table.rename(tmp_path / "texts\udcff.parquet")
    run("embed", texts, "-e", words, "-o", tmp_path / "out\udcff.parquet")
    assert (tmp_path / "out\udcff.parquet").is_file()


def test_images_of_a_table(pictures, colours, words, tmp_path):
    files = sorted(pictures.rglob("*.png"))
    cells = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    source, out = tmp_path / "images.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"img": cells, "label": range(9), "text": TEXTS[:9]}), source, row_group_size=4)
    run("embed", source, "-e", colours, "-o", out)
    found = embedded(out)
    assert list(found) == ["label", "text", "file", "embedding"]
    assert found["file"] == [file.name for file in files]
    np.testing.assert_allclose(found["embedding"], get_encoder(colours)(files), rtol=1e-6)
    run("embed", source, "-e", words, "--text-column", "text", "-o", out)
    assert embedded(out)["embedding"].shape == (9, 5)
    run("embed", source, "-e", "minilm", "-o", out)
    assert embedded(out)["embedding"].shape == (9, 384)
    cells[5]["bytes"] = None
    pq.write_table(pa.table({"img": cells}), source)
    assert "is for text, but there is image" in run("embed", source, "-e", "minilm", "-o", out, code=2)
    assert "images.parquet, row 5 has no image bytes" in run("embed", source, "-e", colours, "-o", out, code=2)
    cells[5]["bytes"] = b"no image"
    pq.write_table(pa.table({"img": cells}), source)
    said = run("embed", source, "-e", colours, "-o", out, code=2)
    assert "images.parquet, row 5 holds no readable image" in said
    cells[6]["bytes"] = cells[7]["bytes"] = None
    pq.write_table(pa.table({"img": cells}), source)
    said = CliRunner().invoke(app, ["embed", str(source), "-e", colours, "-o", str(out), "--skip-bad"])
    assert said.stderr.count("skipped: ") == 3
    assert all(f"images.parquet, row {row} has no image bytes" in said.stderr for row in (6, 7))
    assert "6 embeddings of 3 features in" in said.stdout
    assert "3 of 9 rows were skipped." in said.stdout
    good = [file for row, file in enumerate(files) if row not in (5, 6, 7)]
    assert embedded(out)["file"] == [file.name for file in good]
    np.testing.assert_allclose(embedded(out)["embedding"], get_encoder(colours)(good), rtol=1e-6)


@pytest.mark.parametrize("column", ["Path", "filename"])
def test_a_table_of_image_paths(pictures, colours, words, tmp_path, column):
    files, source, out = sorted(pictures.rglob("*.png")), tmp_path / "paths.csv", tmp_path / "out.parquet"
    paths = [str(file.relative_to(tmp_path)) for file in files[:-1]] + [str(files[-1])]
    rows = [f"{path},{row % 2},no {row}" for row, path in enumerate(paths)]
    source.write_text("\n".join([f"{column},label,text", *rows]))
    run("embed", source, "-e", colours, "-o", out)
    found = embedded(out)
    assert list(found) == [column, "label", "text", "embedding"]
    assert found[column] == paths
    np.testing.assert_allclose(found["embedding"], get_encoder(colours)(files), rtol=1e-6)
    run("embed", source, "-e", words, "--text-column", "text", "-o", out)
    assert embedded(out)["embedding"].shape == (9, 5)
    rows[2:4] = ["missing.png,1,no 2", ",1,no 3"]
    source.write_text("\n".join([f"{column},label,text", *rows]))
    line = ("embed", source, "-e", colours, "-o", out)
    assert f"column '{column}': row 3 is empty" in run(*line, code=2)
    assert "2 of 9 rows were skipped." in run(*line, "--skip-bad")
    assert embedded(out)["text"] == [f"no {row}" for row in range(9) if row not in (2, 3)]
    source.write_text("\n".join([f"{column},label,text", *rows[2:3]]))
    assert "there is no image" in run(*line, code=2)
    assert "none of the 1 images can be read; the first: there is no image" in run(*line, "--skip-bad", code=2)
    assert not parts_file(out).exists()


def test_other_formats_are_read_or_named(colours, tmp_path):
    folder, out = tmp_path / "photos", tmp_path / "out.parquet"
    folder.mkdir()
    pixels = np.full((20, 30, 3), (200, 100, 50), np.uint8)
    Image.fromarray(pixels).save(folder / "a.webp", lossless=True)
    second = Image.fromarray(255 - pixels)
    Image.fromarray(pixels).save(folder / "b.GIF", save_all=True, append_images=[second])
    (folder / "c.heic").write_bytes(b"of a phone")
    (folder / "notes.txt").write_text("not an image")
    said = CliRunner().invoke(app, ["embed", str(folder), "-e", colours, "-o", str(out)])
    assert f"skipped, 1 of 3: '{folder / 'c.heic'}'. `pip install pillow-heif`" in said.stderr
    found = embedded(out)
    assert [Path(file).name for file in found["file"]] == ["a.webp", "b.GIF"]
    expected = get_encoder(colours)([pixels, pixels])
    np.testing.assert_allclose(found["embedding"], expected, atol=0.03)  # a GIF has a palette


def test_parts_of_a_protocol(own_protocol, colours, tmp_path):
    out, data = tmp_path / "out.parquet", PROTOCOLS["digits"].load(1, validation=0.2)
    classes = np.array([*map(int, data.class_names), -1])
    for part in ("train", "validation", "test"):
        run("embed", "digits", "--split", 1, "--part", part, "--validation", 0.2, "-e", colours, "-o", out)
        found = embedded(out)
        images, labels = getattr(data, part)[:2]
        assert found["label"] == classes[labels].tolist()
        np.testing.assert_allclose(found["embedding"], get_encoder(colours)(list(images)), rtol=1e-5)
    assert "--validation is 0, so that part is empty" in run(
        "embed", "digits", "--part", "validation", "-e", colours, "-o", out, code=2
    )
    for folder in list((tmp_path / "images").iterdir()):
        folder.rename(folder.with_name(f"digit {folder.name}"))
    described = json.loads(own_protocol.read_text())
    split = described["splits"][0]
    known = [f"digit {name}" for name in split["known"]]
    unknown = {group: [f"digit {name}" for name in names] for group, names in split["unknown"].items()}
    own_protocol.write_text(json.dumps({**described, "splits": [{"known": known, "unknown": unknown}]}))
    run("embed", own_protocol, "-e", colours, "-o", out)
    found = embedded(out)
    assert set(found["label"]) == {*known, "unknown"}
    assert set(found["group"]) == {"known", "near", "far"}
    assert all(Path(file).is_file() for file in found["file"])


def test_the_network_of_a_training(tmp_path):
    folder, out = tmp_path / "run", tmp_path / "out.parquet"
    run("train", "digits", "-m", "softmax", *SMALL, "--keep", "features", "-o", folder)
    run("embed", "digits", "-e", folder, "-o", out, "--device", "cpu", "--batch-size", 100)
    kept = Embedded.load(folder / features_file("test"))
    np.testing.assert_allclose(embedded(out)["embedding"], kept.features, rtol=1e-4, atol=1e-5)
    images = tmp_path / "images"
    images.mkdir()
    for row, pixels in enumerate(PROTOCOLS["digits"].load(0).test.images[:5]):
        Image.fromarray(pixels).save(images / f"{row}.png")
    run("embed", images, "-e", folder, "-o", out)
    np.testing.assert_allclose(embedded(out)["embedding"], kept.features[:5], rtol=1e-4, atol=1e-5)
    (tmp_path / "a.csv").write_text("text\nhello\n")
    assert "is for image, but there is text to encode" in run(
        "embed", tmp_path / "a.csv", "-e", folder, "-o", out, code=2
    )
    spec = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps({**spec, "method": "some.module"}))
    assert "from elsewhere; add --method some.module" in run("embed", images, "-e", folder, "-o", out, code=2)
    assert "is not the folder of one training" in run("embed", images, "-e", tmp_path, "-o", out, code=2)


KILLED = """
import os, signal, sys
from openauc.encoders import base, output
output.CHUNK = {"text": 8, "image": 8}
encode, done = base.Encoder.__call__, []

def dying(self, items):
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(items)
    return encode(self, items)

base.Encoder.__call__ = dying
from openauc.cli import main
main()
"""


def counting(monkeypatch):
    """Chunks of eight, and how many items are encoded."""
    monkeypatch.setattr(output, "CHUNK", {"text": 8, "image": 8})
    encode, counts = Encoder.__call__, []

    def counted(self, items):
        counts.append(len(items))
        return encode(self, items)

    monkeypatch.setattr(Encoder, "__call__", counted)
    return counts


def interrupted(monkeypatch, counts, chunks, *line):
    """What a command says when Control-C stops it after some chunks."""
    encode = Encoder.__call__

    def interrupting(self, items):
        if len(counts) == chunks:
            raise KeyboardInterrupt
        return encode(self, items)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "__call__", interrupting)
        return run(*line, code=130)


def finished(out):
    """How many features wait for the others."""
    with closing(sqlite3.connect(parts_file(out))) as parts:
        return parts.execute("SELECT count(*) FROM features").fetchone()[0]


def test_a_killed_run_goes_on(table, words, tmp_path, monkeypatch):
    out, whole = tmp_path / "out.parquet", tmp_path / "whole.parquet"
    line = ["embed", str(table), "-e", words, "-o", str(out)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *line], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    assert finished(out) == 24
    counts = counting(monkeypatch)
    run(*line)
    assert counts == [8, 8, 8, 2]
    run(*line[:-1], whole)
    assert sum(counts) == 26 + 50
    assert out.read_bytes() == whole.read_bytes()
    assert not parts_file(out).exists()


def test_control_c_keeps_what_is_done(pictures, colours, tmp_path, monkeypatch):
    out, whole = tmp_path / "out.npz", tmp_path / "whole.npz"
    line = ("embed", pictures, "-e", colours, "-o")
    counts = counting(monkeypatch)
    assert "the same command goes on with what is done" in interrupted(monkeypatch, counts, 1, *line, out)
    assert not out.exists()
    assert "9 embeddings" in run(*line, out)
    assert counts == [8, 1]
    run(*line, whole)
    for name, column in read_columns(whole).items():
        np.testing.assert_array_equal(read_columns(out)[name], column)
    assert not parts_file(out).exists()


def test_removing_a_bad_file_loses_no_finished_work(pictures, colours, tmp_path, monkeypatch):
    out, counts = tmp_path / "out.parquet", counting(monkeypatch)
    files = sorted(pictures.rglob("*.png"))
    files[-1].write_bytes(b"not an image")
    line = ("embed", pictures, "-o", out, "-e", colours)
    assert f"{files[-1]} holds no readable image" in run(*line, code=2)
    files[-1].unlink()
    files[0].unlink()  # all others move by one
    run(*line)
    assert counts == [8, 1]  # the second is the bad one
    np.testing.assert_allclose(embedded(out)["embedding"], get_encoder(colours)(files[1:-1]), rtol=1e-6)


def test_bad_rows_and_images_are_skipped_on_demand(pictures, table, colours, words, tmp_path, monkeypatch):
    out, counts = tmp_path / "out.parquet", counting(monkeypatch)
    files = sorted(pictures.rglob("*.png"))
    content = files[4].read_bytes()
    files[2].write_bytes(b"not an image")
    files[4].write_bytes(content[: len(content) // 2])
    said = CliRunner().invoke(app, ["embed", str(pictures), "-e", colours, "-o", str(out), "--skip-bad"])
    assert [line.partition(" holds no")[0] for line in said.stderr.splitlines()] == [
        f"skipped: {files[2]}",
        f"skipped: {files[4]}",
    ]
    assert "7 embeddings of 3 features in" in said.stdout
    assert counts == [8, 6, 1]
    good = [file for row, file in enumerate(files) if row not in (2, 4)]
    assert embedded(out)["file"] == list(map(str, good))
    np.testing.assert_allclose(embedded(out)["embedding"], get_encoder(colours)(good), rtol=1e-6)
    texts = [*TEXTS[:3], " ", None, *TEXTS[5:]]
    pq.write_table(pa.table({"text": texts, "row": range(50)}), table)
    assert "column 'text': row 3 is empty" in run("embed", table, "-e", words, "-o", out, code=2)
    assert "48 embeddings of 5 features" in run("embed", table, "-e", words, "-o", out, "--skip-bad")
    assert embedded(out)["row"] == [0, 1, 2, *range(5, 50)]
    pq.write_table(pa.table({"text": ["", " "]}), table)
    said = run("embed", table, "-e", words, "-o", out, "--skip-bad", code=2)
    assert "there is nothing to embed. " in said
    assert "column 'text': row 0 is empty" in said


def test_parts_of_another_encoder_are_refused(pictures, colours, tmp_path, monkeypatch):
    out, other = tmp_path / "out.parquet", f"onnx:{image_network(tmp_path / 'other.onnx')}"
    counting(monkeypatch)
    files = sorted(pictures.rglob("*.png"))
    files[-1].write_bytes(b"not an image")
    line = ("embed", pictures, "-o", out, "-e")
    run(*line, colours, code=2)
    said = run(*line, other, code=2)
    assert 'out.parquet.parts holds features of another encoder: it was {"encoder": "onnx:' in said
    assert "remove it to start again" in said


def test_damaged_parts_are_named_with_what_to_do(table, words, tmp_path, monkeypatch):
    out, counts = tmp_path / "out.parquet", counting(monkeypatch)
    line = ("embed", table, "-e", words, "-o", out)
    interrupted(monkeypatch, counts, 3, *line)
    content = parts_file(out).read_bytes()
    parts_file(out).write_bytes(content[:100] + bytes(len(content) - 100))
    assert f"{parts_file(out)} would keep finished features, but cannot be used" in (said := run(*line, code=2))
    assert "move it away" in said
    parts_file(out).unlink()
    run(*line)
    assert len(embedded(out)["embedding"]) == 50


def test_one_run_at_a_time(table, words, tmp_path):
    out = tmp_path / "out.parquet"
    with open_finished(out, get_encoder(words)):
        assert "another run is writing" in run("embed", table, "-e", words, "-o", out, code=2)
        assert parts_file(out).is_file()
    assert not parts_file(out).exists()
    run("embed", table, "-e", words, "-o", out)
    assert len(embedded(out)["text"]) == 50


@pytest.mark.parametrize("kind", ["text", "folder", "database"])
def test_parts_that_are_not_ours_stay(table, words, tmp_path, kind):
    out = tmp_path / "out.parquet"
    file = parts_file(out)
    if kind == "folder":
        file.mkdir()
    elif kind == "text":
        file.write_text("of value")
    else:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE features (mine)")
    before = None if kind == "folder" else file.read_bytes()
    assert f"{file} would keep finished features, but cannot be used" in (
        said := run("embed", table, "-e", words, "-o", out, code=2)
    )
    assert "move it away, or write to another file" in said
    assert file.is_dir() if kind == "folder" else file.read_bytes() == before
    assert not out.exists()


def test_bad_input_is_said_in_one_sentence(pictures, table, words, colours, tmp_path):
    out = ("-o", tmp_path / "out.parquet")
    assert "expected .parquet or .npz" in run("embed", table, "-e", words, "-o", "features.csv", code=2)
    assert "expected .parquet or .npz" in run("embed", table, "-e", words, "-o", "features.json", code=2)
    assert "does not exist; create it first" in run("embed", table, "-e", words, "-o", tmp_path / "no/a.npz", code=2)
    assert "it is an input of this command" in run("embed", table, "-e", words, "-o", table, code=2)
    assert "Did you mean 'minilm'?" in run("embed", table, "-e", "minlm", *out, code=2)
    assert "'efficientnet_lite0' is for image, but there is text" in run(
        "embed", table, "-e", "efficientnet_lite0", *out, code=2
    )
    assert "'minilm' is for text, but there is image" in run("embed", pictures, "-e", "minilm", *out, code=2)
    assert "is for image, but there is text" in run("embed", table, "-e", colours, *out, code=2)
    assert "holds images; leave it out" in run("embed", pictures, "-e", colours, "--text-column", "a", *out, code=2)
    assert "Did you mean 'digits'?" in run("embed", "digit", "-e", colours, *out, code=2)
    assert "there is no folder or file" in run("embed", tmp_path / "nothing", "-e", colours, *out, code=2)
    assert "there is no file" in run("embed", tmp_path / "no.csv", "-e", words, *out, code=2)
    assert "column 'note' holds more than text" in run("embed", table, "-e", words, "-o", tmp_path / "a.npz", code=2)
    Image.new("RGB", (9, 9)).save(pictures / "stray.png")
    assert "stray.png lies beside folders of classes" in run("embed", pictures, "-e", colours, *out, code=2)
    (pictures / "train").mkdir()
    assert "embed it and its neighbours one by one" in run("embed", pictures, "-e", colours, *out, code=2)
    assert "holds no image" in run("embed", pictures / "train", "-e", colours, *out, code=2)
    run("embed", table, "-e", words, *out)
    assert "has a column 'embedding' already" in run("embed", out[1], "-e", words, "-o", tmp_path / "b.npz", code=2)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), table)
    assert "has no rows; there is nothing to embed" in run("embed", table, "-e", words, *out, code=2)
    table.write_text("no table")
    assert "is not a readable Parquet file" in run("embed", table, "-e", words, *out, code=2)
    (tmp_path / "a.csv").write_text("text,label\nhello,a\n ,b\n")
    assert "column 'text': row 1 is empty" in run("embed", tmp_path / "a.csv", "-e", words, *out, code=2)


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def intents(tmp_path_factory):
    """A model of the example's sentences."""
    folder = tmp_path_factory.mktemp("intents")
    run("embed", EXAMPLES / "intents.csv", "-e", "minilm", "-o", folder / "intents.parquet")
    run("fit", folder / "intents.parquet", "-o", folder / "model")
    return folder / "model"


def same_decisions(one, other):
    one, other = read_columns(one), read_columns(other)
    np.testing.assert_array_equal(one["prediction"], other["prediction"])
    np.testing.assert_allclose(one["open_score"], other["open_score"], atol=1e-4)


def test_predict_embeds_texts(intents, tmp_path):
    features, there, here = (tmp_path / name for name in ("q.parquet", "there.csv", "here.csv"))
    run("embed", EXAMPLES / "questions.csv", "-e", "minilm", "-o", features)
    run("predict", intents, features, "-o", there)
    assert "10 rows in" in run("predict", intents, EXAMPLES / "questions.csv", "-o", here)
    same_decisions(there, here)
    # Its other columns are carried along, numbers too, and labels are the truth.
    (tmp_path / "new.csv").write_text(
        "id,message,intent,note\n7,How much money do I have?,balance,\n8,Why is the sky blue?,sky,x y\n"
    )
    said = run("predict", intents, tmp_path / "new.csv", "--label-column", "intent", "-o", tmp_path / "new.parquet")
    assert "Labels of column intent are there as y_true" in said
    found = read_columns(tmp_path / "new.parquet")
    assert list(found)[:5] == ["id", "message", "intent", "note", "y_true"]
    assert found["id"].tolist() == [7, 8]
    assert found["note"].tolist() == ["", "x y"]
    assert found["y_true"].tolist() == ["balance", "-1"]


def test_predict_says_what_to_do_where_it_cannot_embed(intents, tmp_path):
    model, texts, out = tmp_path / "model", tmp_path / "new.csv", ("-o", tmp_path / "out.csv")
    shutil.copytree(intents, model)
    texts.write_text("said,reply,year\nHow are you today?,I am well.,1999\nHello to you.,Hello there.,2000\n")
    said = run("predict", model, texts, *out, code=2)
    assert "none of which is surely its text" in said
    assert f"Or run `openauc embed {texts} -e minilm -o embedded.parquet`" in said
    assert "there is no file" in run("predict", model, tmp_path / "missing.csv", *out, code=2)
    (tmp_path / "bad.parquet").write_text("not a table")
    assert "is not a readable Parquet file" in run("predict", model, tmp_path / "bad.parquet", *out, code=2)
    numbers = tmp_path / "numbers.csv"
    numbers.write_text("a,b\n1,2\n3,4\n")
    assert "lacks 1 of the 1 feature columns" in run("predict", model, numbers, *out, code=2)
    classifier = OpenSetClassifier.load(model)
    for encoder, match in (("hf:/nowhere", "cannot be loaded as an encoder of text"), ("run/1", "encoder is 'run/1'")):
        classifier.table_spec_ = replace(classifier.table_spec_, encoder=encoder)
        classifier.save(model)
        said = run("predict", model, EXAMPLES / "questions.csv", *out, code=2)
        assert match in said
        assert f"-e {encoder} -o embedded.parquet`" in said
    classifier.table_spec_ = replace(classifier.table_spec_, encoder=None)
    classifier.save(model)
    for file in (EXAMPLES / "questions.csv", texts, tmp_path):
        said = run("predict", model, file, *out, code=2)
        assert "does not know which encoder made those it was fitted on" in said
        assert f"`openauc embed {file} -e ENCODER -o embedded.parquet`" in said


def test_predict_embeds_images(colours, tmp_path):
    rng, out = np.random.default_rng(0), tmp_path / "out.csv"
    for row in range(60):
        folder = tmp_path / "images" / ("blue", "green", "red")[row % 3]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 60, (12, 12, 3), dtype=np.uint8)
        pixels[..., 2 - row % 3] += 180
        Image.fromarray(pixels).save(folder / f"{row}.png")
    features = tmp_path / "features.parquet"
    run("embed", tmp_path / "images", "-e", colours, "-o", features)
    run("fit", features, "-o", tmp_path / "model")
    run("predict", tmp_path / "model", features, "-o", tmp_path / "there.csv")
    run("predict", tmp_path / "model", tmp_path / "images", "-o", out)
    same_decisions(tmp_path / "there.csv", out)
    assert read_columns(out)["y_pred"].tolist() == read_columns(out)["label"].tolist()
    files = read_columns(out)["file"].tolist()
    (tmp_path / "paths.csv").write_text("\n".join(["path", *(os.path.relpath(file, tmp_path) for file in files)]))
    run("predict", tmp_path / "model", tmp_path / "paths.csv", "-o", out)
    same_decisions(tmp_path / "there.csv", out)
    run("predict", tmp_path / "model", files[0], "-o", out)
    assert read_columns(out)["y_pred"].tolist() == ["blue"]
