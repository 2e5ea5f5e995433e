"""openauc watch, through the real command line."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from openauc.cli import app
from openauc.features import Monitor, OpenSetClassifier

NAMES = np.array(["ant", "bee", "cat", "dog", "fox"])


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr + repr(result.exception)
    return " ".join((result.stderr if code == 2 else result.stdout).split())


def samples(n: int, seed: int, unknown: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < unknown, 4, rng.integers(4, size=n))
    return (5 * np.eye(5, 6)[y] + rng.normal(size=(n, 6))).astype(np.float32), NAMES[y]


def table(path: Path, X: np.ndarray, **columns: object) -> Path:
    pq.write_table(pa.table({"embedding": list(X), **columns}), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is calibrated with fresh samples, one that is cross-fitted, and streams."""
    place = tmp_path_factory.mktemp("watch")
    model = OpenSetClassifier(rejector="max_logit", folds=2, random_state=0).fit(*samples(200, 0))
    model.save(place / "cross")
    model.calibrate(samples(400, 1)[0]).save(place / "model")
    table(place / "quiet.parquet", samples(600, 2)[0])
    X, y = samples(600, 3, unknown=0.3)
    table(place / "strange.parquet", X, day=[f"2026-05-{1 + i // 20:02}" for i in range(600)], label=y.tolist())
    return place


def test_a_quiet_stream_raises_no_alarm_and_all_is_said(folder: Path) -> None:
    said = run("watch", folder / "model", folder / "quiet.parquet", "--fail-on-alarm")
    assert "600 samples, " in said
    assert "of 400 in the reference" in said
    assert "Alarm" not in said
    assert "openauc discover" not in said
    assert "ever raised with probability at most 0.01, however long" in said
    assert "cannot be seen without labels" in said


def test_an_alarm_is_told_with_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("watch", folder / "model", folder / "strange.parquet", "--time-column", "day", "-o", page)
    said = run(*words)
    monitor = Monitor(OpenSetClassifier.load(folder / "model"))
    monitor.update(samples(600, 3, unknown=0.3)[0])
    first = monitor.alarms[0]
    assert f"Alarm at sample {first.sample} (2026-05-" in said
    assert re.search(r"distribution of scores < 0\.0001 \d+ \d+", said)
    assert f"wrote {page}" in said
    assert f"openauc discover {folder / 'model'} {folder / 'strange.parquet'} -o groups" in said
    assert (
        f"<code>openauc discover {folder / 'model'} {folder / 'strange.parquet'} -o groups</code>" in page.read_text()
    )
    assert "What <bdi>model</bdi> meets in <bdi>strange.parquet</bdi>" in page.read_text()
    assert "Examples of rejected" not in page.read_text()  # nothing tells what they are
    run(*words, "--fail-on-alarm", code=1)


def test_the_latest_rejected_rows_are_shown_with_what_the_stream_has(folder: Path, tmp_path: Path) -> None:
    X, _ = samples(300, 5, unknown=0.3)
    order = np.random.default_rng(0).permutation(300)
    stream, page = tmp_path / "s.parquet", tmp_path / "page.html"
    table(stream, X[order], at=order.tolist(), text=[f"text {i} <b>" for i in order])
    run("watch", folder / "model", folder / "quiet.parquet", "--state", tmp_path / "state.npz")
    run("watch", folder / "model", stream, "--time-column", "at", "--state", tmp_path / "state.npz", "-o", page)
    rejected = np.flatnonzero(OpenSetClassifier.load(folder / "model").predict(X) == "unknown")[::-1][:12]
    shown = re.findall(r'<li><p dir="auto">(.*?)</p><small>sample (.*?)</small>', page.read_text())
    assert shown == [(f"text {i} &lt;b&gt;", f"{601 + i}") for i in rejected]


def test_thumbnails_of_rejected_images_are_shown(folder: Path, tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    X = samples(40, 6, unknown=1.0)[0]
    for i in range(40):
        Image.new("RGB", (200, 100), (6 * i, 0, 0)).save(tmp_path / f"{i}.png")
    stream = table(tmp_path / "s.parquet", X, image=[f"{i}.png" for i in range(40)])
    run("watch", folder / "model", stream, "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count('<li><img src="data:image/jpeg;base64,') == 12


def test_rows_are_ordered_by_time(folder: Path, tmp_path: Path) -> None:
    X, y = samples(300, 4, unknown=0.2)
    order = np.random.default_rng(0).permutation(300)
    table(tmp_path / "mixed.parquet", X[order], at=order.tolist(), label=y[order].tolist())
    table(tmp_path / "sorted.parquet", X, label=y.tolist())
    one = run("watch", folder / "model", tmp_path / "mixed.parquet", "--time-column", "at")
    other = run("watch", folder / "model", tmp_path / "sorted.parquet")
    assert re.sub(r" \(\d+\)", "", one).replace("mixed.parquet", "sorted.parquet") == other


def test_a_state_goes_on(folder: Path, tmp_path: Path) -> None:
    state, page = tmp_path / "state.npz", tmp_path / "page.html"
    model = folder / "model"
    begin = ("watch", model, folder / "quiet.parquet", "--state", state, "--alpha", 0.05, "--window", 300)
    assert "600 samples" in run(*begin)
    assert "1,200 samples" in run("watch", model, folder / "strange.parquet", "--state", state)
    assert "1,200 samples" in run("watch", model, "--state", state, "-o", page)
    assert page.is_file()
    loaded = Monitor.load(state, OpenSetClassifier.load(model))
    assert (loaded.alpha, loaded.window, loaded.n) == (0.05, 300, 1200)
    assert "was begun with alpha 0.05, and --alpha is 0.01" in run(*begin[:5], "--alpha", 0.01, code=2)
    assert "was begun with window 300" in run(*begin[:5], "--window", 9, code=2)
    assert "has a reference already" in run(*begin[:5], "--reference", folder / "quiet.parquet", code=2)
    assert "belongs to another model" in run("watch", folder / "cross", *begin[2:5], code=2)


def test_cross_fitted_scores_are_said_and_a_reference_helps(folder: Path) -> None:
    said = run("watch", folder / "cross", folder / "quiet.parquet")
    assert "only rises are looked for" in said
    said = run("watch", folder / "cross", folder / "quiet.parquet", "--reference", folder / "quiet.parquet")
    assert "only rises" not in said
    assert "of 600 in the reference" in said


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_a_day_without_samples_does_not_stop_the_watch(folder: Path, tmp_path: Path, suffix: str) -> None:
    day, state = tmp_path / f"empty{suffix}", tmp_path / "state.npz"
    schema = pa.schema({"embedding": pa.list_(pa.float32())})
    pq.write_table(schema.empty_table(), tmp_path / "empty.parquet")
    (tmp_path / "empty.csv").write_text("embedding\n")
    np.savez(tmp_path / "empty.npz", embedding=np.zeros((0, 6), np.float32))
    for expected, stream in ((0, day), (600, folder / "quiet.parquet"), (600, day)):
        words = ("watch", folder / "model", stream, "--state", state, "-o", tmp_path / "page.html")
        assert f"{expected} samples" in run(*words)
    assert "holds no sample" in CliRunner().invoke(app, [str(word) for word in words]).stderr


def test_two_watches_of_one_state_lose_no_batch(folder: Path, tmp_path: Path) -> None:
    state, entered, save = tmp_path / "state.npz", threading.Event(), Monitor.save
    link = tmp_path / "link.npz"
    link.symlink_to(state)

    def slow_save(monitor: Monitor, path: Path) -> None:
        entered.set()
        time.sleep(0.3)  # without a lock, the other one loads the state now
        save(monitor, path)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(Monitor, "save", slow_save)
        words = ["watch", str(folder / "model"), str(folder / "quiet.parquet"), "--state", str(state)]
        both = [pool.submit(app, words, standalone_mode=False)]
        entered.wait()
        both.append(pool.submit(app, [*words[:-1], str(link)], standalone_mode=False))
        for one in both:
            one.result()
    assert Monitor.load(state, OpenSetClassifier.load(folder / "model")).n == 1200


def test_what_is_wrong_is_said(folder: Path, tmp_path: Path) -> None:
    model, stream = folder / "model", folder / "quiet.parquet"
    assert "is not a model: it has no classifier.safetensors" in run("watch", tmp_path, stream, code=2)
    assert "there is nothing to watch" in run("watch", model, code=2)
    assert "there is nothing to watch" in run("watch", model, "--state", tmp_path / "new.npz", "-o", "p", code=2)
    said = run("watch", model, folder / "strange.parquet", "--time-column", "days", code=2)
    assert "strange.parquet is 'days'; expected one of 'day', 'label'. Did you mean 'day'?" in said
    gaps = table(tmp_path / "gaps.parquet", samples(2, 0)[0], at=["monday", None])
    assert "'at' is missing for some samples" in run("watch", model, gaps, "--time-column", "at", code=2)
    assert not (tmp_path / "new.npz").exists()


def test_a_command_does_not_write_over_its_table(folder: Path, tmp_path: Path) -> None:
    model, stream = folder / "model", table(tmp_path / "stream.parquet", *samples(20, 5)[:1], label=["ant"] * 20)
    before = stream.read_bytes()
    symlink, hard_link = tmp_path / "symlink.parquet", tmp_path / "hard_link.parquet"
    symlink.symlink_to(stream)
    hard_link.hardlink_to(stream)
    for out in (stream, symlink, hard_link):
        for words in (
            ("predict", model, stream, "-o", out),
            ("watch", model, stream, "-o", out),
            ("watch", model, folder / "quiet.parquet", "--reference", stream, "-o", out),
            ("report", model, stream, "-o", out),
            ("report", stream, "-o", out),
            ("embed", stream, "-e", "minilm", "-o", out),
            ("fit", stream, "-o", tmp_path / "new", "--onnx", out),
        ):
            assert f"cannot write {out}: it is an input of this command" in run(*words, code=2)
    assert stream.read_bytes() == before
    assert not (tmp_path / "new").exists()


def test_the_page_does_not_replace_the_state(folder: Path, tmp_path: Path) -> None:
    state, model, stream = tmp_path / "state.npz", folder / "model", folder / "quiet.parquet"
    run("watch", model, stream, "--state", state)
    before = state.read_bytes()
    link = tmp_path / "link.html"
    link.symlink_to(state)
    for page in (state, link):
        assert "name a file for each" in run("watch", model, stream, "--state", state, "-o", page, code=2)
    assert state.read_bytes() == before


def test_names_need_not_be_utf8(folder: Path, tmp_path: Path) -> None:
    model, stream, page = tmp_path / "model\udcff", tmp_path / "day\udcff.parquet", tmp_path / "page\udcff.html"
    model.symlink_to(folder / "model")
    stream.symlink_to(folder / "quiet.parquet")
    run("watch", model, stream, "--state", tmp_path / "state\udcff.npz", "-o", page)
    assert "day\\udcff.parquet" in page.read_text()
    (tmp_path / "mine\udcff.csv").write_text("y_true,y_pred,open_score\n0,0,1\n1,1,2\n-1,0,3\n")
    run("report", tmp_path / "mine\udcff.csv", "-o", page)
    assert "<h2>mine\\udcff</h2>" in page.read_text()
