"""Every snippet of CONTRIBUTING, pasted as it stands into a copy of the project, passes the contract tests."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from openauc.protocols import PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"(?:#|//|\{#) (?P<end>at the end of )?(?P<file>\S+\.(?:py|html|js))\b.*\n")

CONTRACTS = {
    "tests/contracts/test_metrics.py": "ahead_of_all_known",
    "tests/contracts/test_methods.py": "my_method",
    "tests/features/scores/test_scores.py": "class_cosine",
    "tests/contracts/test_protocols.py": "parity",
}
"""What covers a snippet, and the name it goes by there."""

pytestmark = pytest.mark.slow


def snippets(language: str) -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every snippet at its place."""
    folder = tmp_path_factory.mktemp("scratch") / "project"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    for code in (*snippets("python"), *snippets("html"), *snippets("js")):
        if place := PLACE.match(code):
            file = folder / place["file"]
            assert file.exists() == bool(place["end"]), f"{file} is there, or is not, unlike the snippet says"
            with file.open("a", encoding="utf-8") as text:
                text.write(f"\n\n{code}" if place["end"] else code)
    (described,) = snippets("json")
    (folder / "mine.json").write_text(described, encoding="utf-8")
    digits = PROTOCOLS["digits"].load(0)
    for label, name in enumerate(("cat", "dog", "fox")):
        images = folder / json.loads(described)["folder"] / name
        images.mkdir(parents=True)
        for number, pixels in enumerate(digits.train.images[digits.train.labels == label][:10]):
            Image.fromarray(pixels).save(images / f"{number}.png")
    return folder


def run(project: Path, *words: str) -> str:
    """A Python program in the copy, whose own source wins over the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_snippet_has_a_place_or_runs_by_itself(project: Path) -> None:
    loose = [code for code in snippets("python") if not PLACE.match(code)]
    for code, said in zip(loose, ("rejected", "(2, 26)"), strict=True):
        assert said in run(project, "-c", code)


def test_the_contracts_cover_it(project: Path) -> None:
    chosen = " or ".join(CONTRACTS.values())
    said = run(project, "-m", "pytest", "-p", "no:cacheprovider", "-rp", *CONTRACTS, "-k", chosen)
    for file, name in CONTRACTS.items():
        passed = [line for line in said.splitlines() if line.startswith(f"PASSED {file}") and name in line]
        assert len(passed) >= 2, name


def test_no_other_test_keeps_a_list(project: Path) -> None:
    names = (
        "methods/test_init",
        "protocols/test_registry",
        "test_recipe",
        "commands/test_listing",
        "bench/test_benchmarks",
    )
    files = [f"tests/{name}.py" for name in (*names, "contracts/test_layers")]
    # Neither the docs, which the copy lacks, nor what a fresh interpreter imports is a list of names.
    others = "not torch and not heavy and not need and not picture"
    run(project, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-k", others, *files)


def test_the_benchmark_runs_with_the_file_of_a_protocol(project: Path) -> None:
    words = ("-m", "openauc", "run", "my_benchmark.py", "--jobs", "1")
    assert run(project, *words, "--dry-run").count("to do") == 12
    run(
        project,
        "-m",
        "openauc",
        "train",
        "mine.json",
        "-m",
        "my_method",
        "--epochs",
        "1",
        "--set",
        "width=2",
        "-o",
        "one",
    )
    assert "my_method" in run(project, "-m", "openauc", "table", "one")


TEST_OF_THE_PAGE = """
from openauc.report.accepted import accepted_report

def test_it_opens_with_its_chart_and_calls_nobody(open_page):
    opened = open_page(accepted_report({"cat": 0.9, "dog": 0.5}))
    assert opened.text("table").replace("\\xa0", " ").split() == ["cat", "90.0", "%", "dog", "50.0", "%"]
    assert opened.page.locator("#shares svg [aria-label=bar] rect").count() == 2
    assert opened.complaints == []
    assert [address for address in opened.requests if not address.startswith("file:")] == []
"""


def test_the_page_opens_in_a_browser(project: Path) -> None:
    (project / "tests/report/test_accepted.py").write_text(TEST_OF_THE_PAGE, encoding="utf-8")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-rs", "tests/report/test_accepted.py")
    assert re.search("1 passed|1 skipped", run(project, *words))
