"""The measurements from rejected rows to new classes, on small Gaussian classes, and numbers made by hand."""

import sys

import loop
import loop_data
import loop_extend
import loop_groups
import loop_speed
import loop_streams
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

SMALL = loop_speed.Size(classes=6, rows=20, width=16, others=240)


def made(classes=12, rows=30, outside=10):
    rng = np.random.default_rng(0)
    centres = loop_data.directions(rng, classes, 16)
    pool, test = (loop_data.gaussians(rng, centres, n, 0.5) for n in (rows, 8))
    nowhere = loop_data.gaussians(rng, loop_data.directions(rng, outside, 16), 1, 0.5)
    return loop_data.Data(pool, test, nowhere._replace(y=np.full(outside, loop_data.OUTSIDE)))


@pytest.fixture(scope="module")
def data():
    return made()


def test_a_division_uses_no_row_twice(data):
    cut = loop_data.divide(data, np.random.default_rng(0))
    rows = [x.tobytes() for part in cut[:3] for x in part.X]
    assert len(set(rows)) == len(rows) == len(data.pool.y) + len(data.test.y) + len(data.outside.y)
    assert np.unique(cut.fit.y, return_counts=True)[1].tolist() == [18] * 12
    assert [(part.y == loop_data.OUTSIDE).sum() for part in cut[:3]] == [0, 5, 5]
    without_test = data._replace(test=data.test.take(np.arange(0)))
    cut = loop_data.divide(without_test, np.random.default_rng(0))
    sizes = [np.unique(part.y[part.y != loop_data.OUTSIDE], return_counts=True)[1] for part in cut[:3]]
    assert [size.tolist() for size in sizes] == [[14] * 12, [10] * 12, [6] * 12]


def test_a_large_class_gives_at_most_so_many_rows():
    cut = loop_data.divide(made(classes=2, rows=130), np.random.default_rng(0))
    for part in (cut.fit, cut.stream.take(cut.stream.y != loop_data.OUTSIDE)):
        assert np.unique(part.y, return_counts=True)[1].tolist() == [loop_data.MOST_ROWS] * 2


def test_embeddings_are_read_from_the_data_root(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAUC_DATA", raising=False)
    store = loop_data.Store(tmp_path, tmp_path)
    with pytest.raises(FileNotFoundError, match="train part in banking77/"):
        store.data("banking77")
    (tmp_path / "embeddings").mkdir()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * 384, dtype=np.float32)), 384)
    for part in ("train", "test"):
        table = pa.table({"text": [f"{part} a", "b"], "label": ["x", "y"], "embedding": vectors})
        parquet.write_table(table, tmp_path / "embeddings" / f"banking77_minilm_{part}.parquet")
    found = store.data("banking77")
    assert found.pool.texts.tolist() == ["train a", "b"]
    assert found.test.y.tolist() == ["x", "y"]
    assert found.pool.X[:, 0].tolist() == [0, 384]
    assert not len(found.outside.y)


def test_classes_are_added_and_told(data):
    draw = loop_extend.measure(data, 0, classes=(2,), rows=(5, 10))
    assert [(one["classes"], one["rows"]) for one in draw] == [(2, 5), (2, 10)]
    for one in draw:
        assert one["bytes"][1] > one["bytes"][0] > 0
        assert one["add"]["right_added"] > 0.5
        assert one["add"]["openauc"] > 0.7
    text = "\n".join(loop_extend.page({"made": [draw, draw]}))
    assert "| made | 2 x 5 | 2 |" in text
    assert "| made: OpenAUC, add less whole, worst row |" in text


def test_no_class_comes_before_it_arrives():
    y = np.repeat(["old", "new", "never", loop_data.OUTSIDE], [8, 5, 5, 4])
    stream = loop_data.Rows(np.zeros((len(y), 2)), y, np.full(len(y), "", object))
    batches = loop_streams.deal(stream, {"old": 0, "new": 2}, 4, np.random.default_rng(0))
    counts = [[int((batch.y == label).sum()) for label in ("old", "new", "never", "oos")] for batch in batches]
    assert counts == [[2, 0, 0, 1], [2, 0, 0, 1], [2, 3, 0, 1], [2, 2, 0, 1]]


def test_the_oracle_names_one_thing():
    assert loop_streams.oracle(np.array(["a", "a", "b", "c"])) == "a"
    assert loop_streams.oracle(np.array(["a", "b", "c"])) is None
    assert loop_streams.oracle(np.array([loop_data.OUTSIDE] * 3)) is None


def test_a_stream_is_learned(data):
    one = loop_streams.measure(data, 0, steps=3, refits=(3,))
    assert one["classes"] == [6, 2, 2, 1, 1]
    assert [step["right_new"] for step in one["never"]] == [0, 0, 0]
    assert one["refit"][:2] == [None, None]
    assert one["refit"][2]["right_new"] > 0.5
    for step in one["loop"]:
        assert step["groups"] >= step["joined"] + step["not_one_thing"] + step["new"]
    for way in ("never", "loop", "refit"):
        last = one[way][-1]
        shares = [last[key] for key in ("right_old", "right_new", "right_unknown")]
        assert min(shares) <= last["right"] <= max(shares)
    text = "\n".join(loop_streams.page({"made": [one, one]}))
    assert "made, 2 orders" in text
    assert text.count("| loop |") == 2


def test_groups_are_measured(data):
    named = data._replace(pool=data.pool._replace(texts=np.array([f"about {label}" for label in data.pool.y], object)))
    one = loop_groups.measure(named, 0.5, 0)
    assert 0 < one["rejected_unknown"] <= one["rejected"]
    assert next(iter(one["ways"])) == "discover"
    assert one["ways"]["k-means, true number"]["groups"] <= one["classes"]
    assert len(one["told"]["real"]) == len(one["told"]["inside"]) == len(one["told"]["forecast"])
    text = "\n".join(loop_groups.page({"banking77-75": [one]}))
    assert "| banking77 | 75 % | Ward, true number | 1 |" in text
    assert "| 87.4 | 69.5 | 78.4 |" in text
    assert "BERTopic was left out" in text


def test_agreement_of_groups_made_by_hand():
    y = np.repeat(["a", "b", "old"], [6, 6, 3])
    is_new = y != "old"
    perfect = loop_groups.figures(np.repeat([1, 0, 1], [6, 6, 3]), y, is_new)
    assert (perfect["groups"], perfect["nmi"], perfect["ari"], perfect["accuracy"]) == (2, 1, 1, 1)
    assert perfect["purity"] == pytest.approx(12 / 15)
    half = loop_groups.figures(np.repeat([0, -1], [6, 9]), y, is_new)
    assert (half["groups"], half["accuracy"], half["in_groups"], half["purity"]) == (1, 0.5, 0.5, 1)
    assert 0 < half["ari"] < 1
    split = loop_groups.figures(np.repeat([0, 1, 2, 2], [3, 3, 6, 3]), y, is_new)
    assert split["accuracy"] == 0.75
    nothing = loop_groups.figures(np.full(15, -1), y, is_new)
    assert (nothing["groups"], nothing["accuracy"], nothing["ari"], nothing["purity"]) == (0, 0, 0, 0)


def test_bertopic_is_left_out_or_says_what_failed(tmp_path, capsys):
    assert loop_groups.find_bertopic(tmp_path) is None
    assert "pip install --no-deps -r" in capsys.readouterr().err
    rows = loop_data.Rows(np.zeros((2, 2), np.float32), np.array(["a", "b"]), np.array(["one", "two"], object))
    with pytest.raises(RuntimeError, match="bertopic"):
        loop_groups.by_bertopic(sys.executable, rows)


def test_speed_is_measured(data):
    add = loop_speed.add_to_data(data, 0)
    assert (add["rows"], add["new"]) == (6 * 30, 5 * 30)
    found = loop_speed.discover(0, SMALL)
    assert 0 < found["rows"] <= SMALL.others
    one = loop_speed.pool(0, SMALL)
    assert one["peak"] >= one["before"] > one["X"] == SMALL.others * SMALL.width * 4
    text = "\n".join(loop_speed.page({"add-made": [add], "discover": [found, found], "pool": [one]}))
    assert "| discover | 2 |" in text
    assert "| add-made: add_classes by a whole fit |" in text


def test_what_is_finished_is_not_made_again(tmp_path):
    asked = []

    def measure(seed):
        asked.append(seed)
        return {"seed": seed}

    found = {"made": loop.Setting(None, 3, measure)}
    assert loop.run("speed", found, 2, tmp_path, False) == {"made": [{"seed": 0}, {"seed": 1}]}
    assert len(loop.run("speed", found, None, tmp_path, False)["made"]) == 3
    assert asked == [0, 1, 2]
    loop.run("speed", found, 1, tmp_path, True)
    assert asked == [0, 1, 2, 0]


def test_every_part_has_settings(tmp_path):
    store = loop_data.Store(tmp_path, None)
    assert {part: len(loop.settings(part, store)) for part in loop.PAGES} == {
        "extend": 2,
        "streams": 3,
        "groups": 5,
        "speed": 4,
    }
