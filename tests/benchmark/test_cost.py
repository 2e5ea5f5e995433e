"""The guide's table of costs is the one the program prints."""

from pathlib import Path

import pytest
from cost import cluster_cost

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_what_the_papers_table_costs():
    text = cluster_cost(rate=1e13)
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in text.splitlines() if line.startswith("|")}
    # 13 trials a split, of which Softmax and CE+ under the recipe plus share a training.
    assert [int(rows[p][0]) for p in ("mnist", "svhn", "cifar10", "cifar+10", "tinyimagenet")] == [60] * 5
    assert int(rows["**all**"][0]) == 300
    assert "cifar+50" not in rows
    # 35 trainings of 600 epochs, 30,000 images and about 1 GFLOP each, those of ARPL+CS several times that.
    exaflops = float(rows["cifar10"][2].split()[0])
    assert 0.5 < exaflops < 2.5
    assert "one image of CIFAR10 costs OpenAUC 0.98 GFLOP" in text
    assert text.strip() in (ROOT / "docs" / "cluster.md").read_text()
