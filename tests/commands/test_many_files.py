"""``openauc predict`` and ``openauc embed`` of shards give what they give of single files."""

import os
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_encoders import image_network, text_network
from typer.testing import CliRunner

from openauc.cli import app
from openauc.features import OpenSetClassifier

NAMES = np.array(["ant", "bee", "cat", "dog", "elk"])


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def rows(path: Path, seed: int, *, n: int = 60, **more: list) -> None:
    """Embeddings of five classes, with names, an integer that is missing in places, and a time."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, n)
    columns = {
        "text": [f"=row {row} of {seed}" for row in range(n)],
        "embedding": list((5 * np.eye(6)[y] + rng.normal(size=(n, 6))).astype(np.float32)),
        "visits": [None if row % 3 else row for row in range(n)],
        "at": np.arange(n).astype("datetime64[s]"),
        "intent": NAMES[y].tolist(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns | more).replace_schema_metadata({"openauc.encoder": "minilm"}), path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the first three classes."""
    folder = tmp_path_factory.mktemp("many")
    rows(folder / "all.parquet", 0, n=300)
    known = pq.read_table(folder / "all.parquet").filter(
        pa.compute.is_in(pa.compute.field("intent"), pa.array(NAMES[:3]))
    )
    pq.write_table(known, folder / "train.parquet")
    run("fit", folder / "train.parquet", "-o", folder / "model", "--rejector", "max_logit", "--folds", 2)
    return folder / "model"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed in range(1, 4):
        rows(tmp_path / "log" / f"part {seed}.parquet", seed)
    return tmp_path / "log"


def alone(command: str, file: Path, *words: object) -> pa.Table:
    """What the command makes of a single file."""
    run(command, *words, "-o", "alone.parquet")
    found = pq.read_table("alone.parquet")
    os.unlink("alone.parquet")
    return found


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """The same values; a column of integers with gaps stays one of integers, where a single file makes it of floats."""
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        ours, theirs = found[name].to_pylist(), expected[name].to_pylist()
        if theirs and isinstance(theirs[0], float | list):
            np.testing.assert_allclose(np.array(ours, float), np.array(theirs, float), rtol=1e-6, atol=1e-6)
        else:
            assert ours == theirs


def test_decisions_are_those_of_single_files(model: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    said = run("predict", model, "log/*.parquet", "-o", "decisions")
    unknown = 0
    for file in sorted(log.iterdir()):
        found, expected = pq.read_table(f"decisions/{file.name}"), alone("predict", file, model, file)
        assert_same(found, expected)
        assert found.schema.field("visits").type == pa.int64()
        assert found.schema.metadata[b"openauc.promise"] == expected.schema.metadata[b"openauc.promise"]
        unknown += sum(label == "unknown" for label in found["prediction"].to_pylist())
    counts = f"3 done (180 rows, {unknown} of them unknown), 0 already there, 0 skipped."
    assert said.splitlines()[-1] == f"3 shards, in decisions: {counts}"
    assert 0 < unknown < 180
    assert "0 done (0 rows, 0 of them unknown), 3 already there" in run(
        "predict", model, "log/*.parquet", "-o", "decisions/"
    )
    assert "decisions (3 shards)" in run("evaluate", "decisions", "--replicates", 10)


@pytest.mark.slow
def test_decisions_are_the_same_from_processes_and_a_cluster(
    model: Path, log: Path, ray_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run("predict", model, "log/*.parquet", "-o", "here")
    run("predict", model, "log/*.parquet", "-o", "two", "--jobs", 2)
    run("predict", model, "log/*.parquet", "-o", "cluster", "--ray")
    for file in log.iterdir():
        expected = pq.read_table(f"here/{file.name}")
        assert_same(pq.read_table(f"two/{file.name}"), expected)
        assert_same(pq.read_table(f"cluster/{file.name}"), expected)


def test_shards_of_other_formats(model: Path, log: Path) -> None:
    """Columns of numbers in CSV; npz."""
    folder = Path("mixed")
    folder.mkdir()
    for number, file in enumerate(sorted(log.iterdir())):
        table = pq.read_table(file)
        X = np.array(table["embedding"].to_pylist(), np.float32)
        numbers = {f"x{column}": X[:, column] for column in range(6)}
        pyarrow.csv.write_csv(pa.table({**numbers, "intent": table["intent"]}), folder / f"{number}.csv")
        np.savez(folder / f"{number}a.npz", X=X, intent=np.array(table["intent"].to_pylist()))
    run("fit", folder / "0.csv", "-o", "of_numbers", "--rejector", "max_logit", "--folds", 2)
    run("predict", "of_numbers", "mixed/*.csv", "-o", "of_csv")
    run("predict", model, "mixed/*.npz", "-o", "of_npz")
    for number in range(3):
        file = folder / f"{number}.csv"
        assert_same(pq.read_table(f"of_csv/{number}.parquet"), alone("predict", file, "of_numbers", file))
        file = folder / f"{number}a.npz"
        assert_same(pq.read_table(f"of_npz/{number}a.parquet"), alone("predict", file, model, file))


def test_labels_are_there_only_if_no_row_lacks_one(model: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    rows(log / "part 2.parquet", 2, intent=["ant"] * 59 + [None])
    rows(log / "part 3.parquet", 3, intent=["yak"] * 60)
    run("predict", model, "log/*.parquet", "-o", "decisions")
    assert "y_true" in pq.read_schema("decisions/part 1.parquet").names
    assert "y_true" not in pq.read_schema("decisions/part 2.parquet").names
    assert set(pq.read_table("decisions/part 3.parquet")["y_true"].to_pylist()) == {"-1"}  # names, as in other shards


def test_rows_that_the_model_leaves_out(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    rng = np.random.default_rng(0)
    for name, n in (("train", 90), ("shards/a", 50), ("shards/b", 0)):
        y = np.arange(n) % 3
        columns = {f"x{i}": 4 * np.eye(3)[y][:, i] + rng.normal(size=n) for i in range(3)}
        gaps = pa.array([None if row in (3, 4, 48, 49) else x for row, x in enumerate(columns["x1"])], "float64")
        Path("shards").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns | {"x1": gaps, "label": NAMES[y].tolist()}), f"{name}.parquet")
    run("fit", "train.parquet", "-o", "model", "--missing", "drop", "--rejector", "max_logit", "--folds", 2)
    result = CliRunner().invoke(app, ["predict", "model", "shards/*.parquet", "-o", "decisions"])
    assert "shards/a.parquet: 4 rows have empty cells and are left out" in result.stderr
    assert "2 done (46 rows" in result.stdout
    file = Path("shards/a.parquet")
    assert_same(pq.read_table("decisions/a.parquet"), alone("predict", file, "model", file))
    assert pq.read_schema("decisions/b.parquet").names == pq.read_schema("decisions/a.parquet").names


def test_a_changed_model_decides_again(model: Path, log: Path) -> None:
    shutil.copytree(model, "model")
    run("predict", "model", "log/*.parquet", "-o", "decisions")
    shutil.copytree(model, "copy")
    assert "3 already there" in run("predict", "copy", "log/*.parquet", "-o", "decisions")
    OpenSetClassifier.load("model").set_threshold(acceptance=0.5).save("model")
    said = run("predict", "model", "log/*.parquet", "-o", "decisions")
    assert "3 done (180 rows" in said
    assert "; 3 of these again, as something has changed), 0 already there" in said
    file = log / "part 1.parquet"
    assert_same(pq.read_table("decisions/part 1.parquet"), alone("predict", file, "model", file))


def test_a_url(model: Path, log: Path) -> None:
    system = fsspec.filesystem("memory")
    for file in log.iterdir():
        system.pipe(f"/urls/log/{file.name}", file.read_bytes())
    run("predict", model, "memory://urls/log/*.parquet", "-o", "memory://urls/decisions/")
    with system.open("/urls/decisions/part 2.parquet") as file:
        found = pq.read_table(file)
    assert_same(found, alone("predict", log, model, log / "part 2.parquet"))


def test_bad_shards_are_named_or_skipped(model: Path, log: Path) -> None:
    (log / "part 2.parquet").write_bytes((log / "part 2.parquet").read_bytes()[:500])
    said = run("predict", model, "log/*.parquet", "-o", "decisions", code=2)
    assert f"failed: {log / 'part 2.parquet'} is not a readable Parquet file" in said
    assert "error: 1 of 3 shards could not be done" in said
    assert "With --skip-bad such shards are left out." in said
    said = run("predict", model, "log/*.parquet", "-o", "decisions", "--skip-bad")
    assert "0 done (0 rows, 0 of them unknown), 2 already there, 1 skipped." in said


def test_a_bad_row_is_named_with_its_place(model: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    table = pq.read_table(log / "part 1.parquet")
    X = [row if number != 20 else [np.nan] * 6 for number, row in enumerate(table["embedding"].to_pylist())]
    pq.write_table(table.set_column(1, "embedding", [X]), log / "part 1.parquet")
    said = run("predict", model, "log/*.parquet", "-o", "decisions", code=2)
    assert "part 1.parquet, in the rows from 16 on: " in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none/*.parquet", "-o", "out"), "there is no file at none/*.parquet"),
        (("log/*.parquet", "-o", "log"), "part 1.parquet is an input, and lies in the output folder"),
        (("log/*.parquet",), "predictions.csv is the name of a file, but each shard has a file of its own"),
        (("log/*.parquet", "-o", "out", "--fdr", 0.1), "--fdr needs all rows of a table at once"),
        (("log/*.parquet", "-o", "out", "--explain"), "--explain needs all rows of a table at once"),
        (("log/*.parquet", "-o", "out", "--jobs", 2, "--ray"), "--jobs is for processes of this machine"),
        (("log/part 1.parquet", "--jobs", 2), "--jobs is for shards; name a pattern in quotes"),
        (("log/part 1.parquet", "--skip-bad"), "--skip-bad is for shards"),
    ],
)
def test_what_cannot_be_done_is_said(model: Path, log: Path, words: tuple[object, ...], message: str) -> None:
    before = {file: file.read_bytes() for file in log.iterdir()}
    assert message in run("predict", model, *words, code=2)
    assert {file: file.read_bytes() for file in log.iterdir()} == before
    assert not Path("out").exists()


def test_a_training_takes_no_shards(log: Path) -> None:
    said = run("predict", "log", "log/*.parquet", "-o", "out", code=2)
    assert "log is not a model of `openauc fit`, which shards need" in said


# Texts and images


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"onnx:{text_network(tmp_path_factory.mktemp('words'))[0]}"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(3):
        said = [f"{'long ' * (row % 5)}sentence {row % 9} of {number}" for row in range(40)]
        pq.write_table(pa.table({"text": said, "label": [row % 2 for row in range(40)]}), folder / f"{number}.parquet")
    (folder / "3.csv").write_text("id,text\n007,a card\n008,=another\n")
    return folder


def test_embeddings_are_those_of_single_files(texts: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    said = run("embed", "texts/*", "-e", words, "-o", "embeddings")
    assert said == "4 shards, in embeddings: 4 done (122 rows), 0 already there, 0 skipped.\n"
    for file in texts.iterdir():
        found = pq.read_table(f"embeddings/{file.stem}.parquet")
        expected = alone("embed", file, file, "-e", words)
        assert_same(found, expected)
        assert found.schema.remove_metadata() == expected.schema.remove_metadata()
        about = dict(found.schema.metadata)
        assert about.pop(b"openauc.shard")
        assert about == expected.schema.metadata
    assert "0 done (0 rows), 4 already there" in run("embed", "texts/*", "-e", words, "-o", "embeddings")
    network = Path(words.removeprefix("onnx:"))
    os.utime(network, ns=(0, network.stat().st_mtime_ns + 1))
    assert "4 of these again" in run("embed", "texts/*", "-e", words, "-o", "embeddings")


@pytest.mark.slow
def test_embeddings_are_the_same_from_two_processes(texts: Path, words: str) -> None:
    run("embed", "texts/*.parquet", "-e", words, "-o", "two", "-j", 2)
    for file in texts.glob("*.parquet"):
        assert_same(pq.read_table(f"two/{file.name}"), alone("embed", file, file, "-e", words))


def test_rows_without_a_text_are_named_or_left_out(texts: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 16)
    said = ["a text" if row not in range(20, 34) else "" for row in range(40)]
    pq.write_table(pa.table({"text": said}), texts / "0.parquet")
    line = ("embed", "texts/*.parquet", "-e", words, "-o", "out")
    assert "0.parquet, in the rows from 16 on: column 'text': row 4 is empty" in run(*line, code=2)
    result = CliRunner().invoke(app, [*map(str, line), "--skip-bad"])
    assert result.stderr.count("skipped: ") == 11
    assert "skipped: 4 more rows of " in result.stderr
    assert "1 done (26 rows, 14 more left out), 2 already there, 0 skipped." in result.stdout
    assert pq.read_table("out/0.parquet")["text"].to_pylist() == ["a text"] * 26


def test_images_in_shards(tmp_path: Path) -> None:
    colours = f"onnx:{image_network(tmp_path / 'colours.onnx')}"
    rng = np.random.default_rng(0)
    Path("images").mkdir()
    for row in range(5):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(f"images/{row}.png")
    cells = [{"bytes": Path(f"images/{row}.png").read_bytes(), "path": f"{row}.png"} for row in range(5)]
    pq.write_table(pa.table({"image": cells, "label": range(5)}), "images/a.parquet", row_group_size=2)
    pq.write_table(pa.table({"path": [f"{row}.png" for row in range(5)]}), "images/b.parquet")
    run("embed", "images/*.parquet", "-e", colours, "-o", "out")
    for name in ("a", "b"):
        file = Path(f"images/{name}.parquet")
        assert_same(pq.read_table(f"out/{name}.parquet"), alone("embed", file, file, "-e", colours))
    cells[3]["bytes"] = b"no image"
    pq.write_table(pa.table({"image": cells}), "images/a.parquet")
    said = run("embed", "images/a*.parquet", "-e", colours, "-o", "bad", code=2)
    assert "images/a.parquet, row 3 holds no readable image" in said
    assert "1 done (4 rows, 1 more left out)" in run(
        "embed", "images/a*.parquet", "-e", colours, "-o", "bad", "--skip-bad"
    )


def test_texts_are_embedded_by_the_encoder_of_the_model(texts: Path, words: str) -> None:
    run("embed", "texts/0.parquet", "-e", words, "-o", "train.parquet")
    run("fit", "train.parquet", "-o", "model", "--rejector", "max_logit", "--folds", 2)
    run("predict", "model", "texts/*", "-o", "decisions")
    for file in texts.iterdir():
        assert_same(pq.read_table(f"decisions/{file.stem}.parquet"), alone("predict", file, "model", file))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("texts/*.npz", "-e", "minilm", "-o", "out"), "there is no file at texts/*.npz"),
        (("texts/*.parquet", "-e", "minilm", "-o", "texts"), "is an input, and lies in the output folder"),
        (("texts/*.parquet", "-e", "minilm"), "features.parquet is the name of a file"),
        (("texts/*.parquet", "-e", "mini", "-o", "out"), "Did you mean 'minilm'?"),
        (("texts/0.parquet", "-e", "minilm", "--ray"), "--ray is for shards"),
    ],
)
def test_what_embed_cannot_do_is_said(texts: Path, line: tuple[str, ...], message: str) -> None:
    assert message in run("embed", *line, code=2)


def test_embeddings_and_decisions_do_not_share_a_folder(texts: Path, words: str) -> None:
    run("embed", "texts/0.parquet", "-e", words, "-o", "train.parquet")
    run("fit", "train.parquet", "-o", "model", "--rejector", "max_logit", "--folds", 2)
    run("embed", "texts/*", "-e", words, "-o", "out")
    said = run("predict", "model", "texts/*", "-o", "out", code=2)
    assert "out/0.parquet: it holds embeddings, not decisions; name another folder." in said
