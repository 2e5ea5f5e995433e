"""Aim and outcome beside plain peers: small rows from draw to table, and numbers made by hand."""

from dataclasses import replace

import messy
import messy_data
import numpy as np
import pytest


def ours(accepted, forecast=None, openauc=0.8, rejected=0.6):
    told = {"guarantee": "marginal", "warnings": [], "notes": ["few rows"], "n": 40, "forecast": forecast}
    shares = {"accepted": accepted, "accepted_in_proportion": 0.95, "rejected": rejected, "auroc": 0.9}
    return told | shares | {"openauc": openauc, "forecast_rejected": 0.7 if forecast else None}


def draw(one):
    peer = {"accepted": 0.9, "rejected": 0.5, "auroc": 0.75}
    return {messy.OURS: one, **dict.fromkeys(messy.PEERS, peer)}


def blobs(rows=40, classes=4, copies=1):
    """Classes far apart, and one unknown class among them."""
    rng = np.random.default_rng(0)
    centres = np.append(8 * np.eye(classes), np.full((1, classes), 2.0), 0)
    y, y_test = np.repeat(np.arange(classes), rows), np.repeat(np.arange(classes + 1), 200)
    X, X_test = (centres[labels] + rng.normal(size=(len(labels), classes)) for labels in (y, y_test))
    return messy_data.Drawn(np.repeat(X, copies, 0), np.repeat(y, copies), X_test, y_test)


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    store = messy_data.Store(tmp_path_factory.mktemp("work"), None)
    return store, messy.measure("iris-without-0", store, 0)


def test_a_row_is_measured_and_told(iris):
    store, one = iris
    assert list(one) == [messy.OURS, *messy.PEERS]
    assert all(0 <= found["accepted"] <= 1 for found in one.values())
    assert one["LocalOutlierFactor"]["auroc"] > 0.9
    assert messy.measure("iris-without-0", store, 0)["IsolationForest"] == one["IsolationForest"]
    text = messy.page({"iris": [one, one]}, ["penguins was left out: no network"])
    assert "| iris | 60 | 2 of 2 |" in text
    assert text.endswith("penguins was left out: no network")


@pytest.mark.parametrize("peer", messy.PEERS)
def test_a_peer_accepts_about_as_many_as_are_asked_for(peer):
    drawn = blobs()
    score, limit = messy.PEERS[peer](drawn, 0)
    known = drawn.y_test < 4
    assert np.mean(score[known] <= limit) == pytest.approx(messy.AIM, abs=0.06)
    assert np.mean(score[~known]) > np.mean(score[known])


@pytest.mark.filterwarnings("ignore:The least populated", "ignore:Number of classes")
def test_a_class_of_one_row_is_no_obstacle():
    drawn = blobs(rows=3)
    one_row = replace(drawn, X=drawn.X[2:], y=drawn.y[2:])
    score, limit = messy.probability(one_row, 0)
    assert np.isfinite(score).all()
    assert 0 <= limit <= 1


def test_goals_of_numbers_made_by_hand():
    results = {
        "near": [draw(ours(0.93, [0.82, 0.7, 0.9])), draw(ours(0.95, [0.80, 0.7, 0.9]))],
        "far": [draw(ours(0.90)), draw(ours(0.88)), draw({"n": 4, "refused": "too few rows"})],
        "closed": [draw(ours(0.95, [0.9, 0.8, 1.0], openauc=None, rejected=None))],
        "refused": [draw({"n": 4, "refused": "too few rows"})],
    }
    text = messy.page(results, [])
    assert "- OpenSetClassifier: within 2 points of the aim in 2 of 3 rows, at most 6.0 away." in text
    assert "- IsolationForest: within 2 points of the aim in 0 of 4 rows, at most 5.0 away." in text
    assert "OpenAUC: within 2 points of what came in 1 of 1 rows; distance 1.0, difference 1.0," in text
    assert "unknown rejected: within 2 points of what came in 0 of 1 rows; distance 10.0, difference 10.0," in text
    lines = {line.split(" | ")[0].strip("| "): line for line in messy.promises_table(results)}
    assert "| 2 of 3 | 89.0 [" in lines["far"]
    assert "| no | 95.0 |" in lines["far"]
    assert "| yes | 95.0 | 70.0 | 60.0 | 10.0 [10.0, 10.0] | 81.0 | 80.0 |" in lines["near"]
    assert len({line.count("|") for line in lines.values()}) == 1
    assert "| refused | - / - / - | 90.0 / 50.0 / 75.0 |" in "\n".join(messy.peers_table(results))


def test_what_is_finished_is_read_and_what_cannot_be_had_is_left_out(tmp_path, monkeypatch):
    asked = []

    def measure(name, store, seed):
        if name == "penguins-without-0":
            raise FileNotFoundError("no network")
        asked.append((name, seed))
        return draw(ours(0.95))

    monkeypatch.setattr(messy, "measure", measure)
    monkeypatch.setattr(messy, "KINDS", {"tables": ("penguins-without-0", "digits")})
    store = messy_data.Store(tmp_path, None)
    results, remarks = messy.run(["tables"], store, 2, False)
    assert list(results) == ["digits"]
    assert remarks == ["penguins-without-0 was left out: no network"]
    messy.run(["tables"], store, 3, False)
    assert asked == [("digits", seed) for seed in (0, 1, 2)]


def test_every_row_is_known_and_in_one_kind():
    names = [name for kind in messy.KINDS.values() for name in kind]
    assert len(set(names)) == len(names)
    assert set(names) <= set(messy_data.ROWS)


def test_useless_columns_leave_digits_as_they_are(tmp_path):
    store = messy_data.Store(tmp_path, None)
    plain, wide = messy_data.digits(store, 3), messy_data.useless(store, 3)
    assert (wide.X[:, :64] == plain.X).all()
    assert (wide.y_test == plain.y_test).all()
    spread = wide.X[:, 64:].std(0)
    assert wide.X.shape[1] == 94
    assert spread.max() / spread.min() > 1000


def test_shares_of_classes_drift(tmp_path):
    rng = np.random.default_rng(0)
    parts = {
        "train": messy_data.Texts(rng.normal(size=(1200, 4)), np.repeat(np.arange(30), 40), []),
        "test": messy_data.Texts(rng.normal(size=(900, 4)), np.repeat(np.arange(30), 30), []),
    }
    store = messy_data.Store(tmp_path, None)
    store.part = lambda name, part: parts[part]
    drawn = messy_data.drifted(store, 0)
    known, train = np.unique(drawn.y, return_counts=True)
    test = np.array([(drawn.y_test == label).sum() for label in known])
    assert set(train) == {40}
    assert sorted(test)[:: len(test) - 1] == [3, 30]
    assert (~np.isin(drawn.y_test, known)).sum() == 300
    back = messy_data.drifted(store, 0, reverse=True)
    train = np.array([(back.y == label).sum() for label in known])
    assert (back.y_test == drawn.y_test).all()
    assert np.corrcoef(np.log(train), np.log(test))[0, 1] < -0.99
