"""The page on many files: its examples run as they stand, and decide what ``openauc predict`` decides."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from needs import cannot_run

from openauc import OpenSetClassifier

PAGE = Path(__file__).resolve().parents[1] / "docs" / "many_files.md"
NAMES = np.array(["ant", "bee", "cat", "dog", "elk"])
SPARK = (
    *("spark.ui.enabled=false", "spark.driver.memory=512m", "spark.driver.host=127.0.0.1"),
    *("spark.driver.bindAddress=127.0.0.1", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
)
"""Of a small session on one core, which listens on this machine only."""


def code(heading: str) -> str:
    """The Python code below a heading."""
    (found,) = re.findall(rf"^## {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def embeddings(classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(classes), 30)
    return (5 * np.eye(6)[y] + np.random.default_rng(seed).normal(size=(len(y), 6))).astype(np.float32), NAMES[y]


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The files that the page names, and the decision of each row."""
    monkeypatch.chdir(tmp_path)
    model = OpenSetClassifier(rejector="max_logit", folds=2, random_state=0).fit(*embeddings(3, 0))
    model.save("model")
    model.export_onnx("model.onnx")
    Path("log").mkdir()
    decisions: dict[int, str] = {}
    for shard in (1, 2):
        X = embeddings(5, shard)[0]
        rows = np.arange(len(X)) + 1000 * shard
        pq.write_table(pa.table({"id": rows, "embedding": list(X)}), f"log/{shard}.parquet")
        decisions |= dict(zip(rows.tolist(), model.predict(X).tolist(), strict=True))
    assert set(decisions.values()) == {*NAMES[:3], "unknown"}
    return decisions


def written_by(program: str, **environment: str) -> dict[int, str]:
    """The decisions that a program of its own writes."""
    ended = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    table = pq.read_table("decisions" if Path("decisions").is_dir() else "decisions.parquet")
    return dict(zip(table["id"].to_pylist(), table["prediction"].to_pylist(), strict=True))


@pytest.mark.slow
def test_spark(expected: dict[int, str]) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        cannot_run("the example in Spark", "no Java: apt-get install openjdk-17-jre-headless")
    words = " ".join(["--master local[1]", *(f"--conf {setting}" for setting in SPARK), "pyspark-shell"])
    assert written_by(code("In Spark"), PYSPARK_SUBMIT_ARGS=words, PYSPARK_PYTHON=sys.executable) == expected


def test_duckdb(expected: dict[int, str]) -> None:
    pytest.importorskip("duckdb")
    assert written_by(code("In DuckDB")) == expected


@pytest.mark.slow
def test_ray_data(expected: dict[int, str], ray_home: Path) -> None:
    pytest.importorskip("ray")
    assert written_by(code("In Ray Data")) == expected
