"""The wheel and the sdist as users get them: built, installed where nothing else is, and used."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import openauc

ROOT = Path(__file__).resolve().parents[1]
BIN = "Scripts" if os.name == "nt" else "bin"
pytestmark = pytest.mark.slow

TABLE = """
import numpy as np
rng = np.random.default_rng(0)
y = np.repeat(np.arange(5), 30)
X = 5 * np.eye(8)[y] + rng.normal(size=(150, 8))
head = ",".join(f"x{i}" for i in range(8))
rows = [",".join(map(str, x)) + "," + "abcde"[c] for x, c in zip(X, y)]
open("table.csv", "w").write("\\n".join([head + ",label", *rows]))
"""

SMOKE = {
    "sklearn": [
        "python make_table.py",
        "openauc fit table.csv -o model --quiet",
        "openauc predict model table.csv -o decisions.csv",
    ],
    "parquet": [
        "python -c \"from openauc import Predictions; Predictions.load('network.npz').save('network.parquet')\"",
        "openauc evaluate network.parquet --replicates 20",
    ],
    "plot": [
        "python -c \"import matplotlib; matplotlib.use('agg'); from openauc import Predictions, evaluate;"
        "evaluate(*Predictions.load('network.npz'), level=None).plot().figure.savefig('curve.png')\"",
    ],
    "fast": ['python -c "import numba"', "openauc evaluate network.npz"],
    "hub": ["python -c \"from openauc import OpenSetClassifier as C; C.load('model').save_pretrained('card')\""],
    "onnx": ["openauc fit table.csv -o model --quiet --onnx model.onnx"],
}
"""What is tried once an extra is installed, besides those before it."""

HEAVY = {
    "encode": [
        "openauc embed questions.csv --encoder minilm -o questions.parquet",
    ],
    "train": ["openauc train digits --set epochs=1 -o run"],
    "torchmetrics": ['python -c "from openauc.torch import OpenAUC; OpenAUC()"'],
    "ray": ['python -c "import ray, openauc.executors"'],
}
"""The same for extras with torch or Ray, which are not downloaded once more."""

MISSING = [
    ("openauc fit network.npz -o model", "sklearn"),
    ("openauc train digits -o run", "train"),
    ("openauc embed intents.csv --encoder minilm -o intents.npz", "encode"),
    ("openauc evaluate network.parquet", "parquet"),
    ('python -c "import openauc.torch"', "torchmetrics"),
]


class Environment:
    """A virtual environment, and a folder with the examples in which commands run."""

    def __init__(self, home: Path) -> None:
        self.folder, self.bin = home / "work", home / "venv" / BIN
        shutil.copytree(ROOT / "examples", self.folder)
        (self.folder / "make_table.py").write_text(TABLE)
        run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")])  # pip would take as long as numpy

    def pip(self, *words: object) -> str:
        return run([sys.executable, "-m", "pip", "--python", str(self.bin / "python"), *map(str, words)])

    def install(self, *words: object) -> None:
        self.pip("install", "--no-compile", *words)

    def __call__(self, command: str, code: int = 0) -> str:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return run(command, cwd=self.folder, shell=True, code=code, env={**os.environ, "PATH": path})


def run(command: object, code: int = 0, **options: object) -> str:
    """Output of a command that does not see the sources."""
    env = {**options.pop("env", os.environ), "COLUMNS": "200"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(command, env=env, text=True, capture_output=True, check=False, **options)
    assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    constrained = {**os.environ, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], env=constrained)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (file,) = dist.glob("*.whl")
    return file


def test_the_version_is_stated_in_one_place(dist: Path) -> None:
    assert sorted(file.name for file in dist.iterdir()) == [
        f"openauc-{openauc.__version__}-py3-none-any.whl",
        f"openauc-{openauc.__version__}.tar.gz",
    ]
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == openauc.__version__


def test_every_file_of_the_sources_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("openauc/")}
    sources = ROOT / "src"
    files = (file for file in (sources / "openauc").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert packed == {file.relative_to(sources).as_posix() for file in files}


def test_the_sdist_holds_what_tests_and_documentation_need(dist: Path) -> None:
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run(["git", "ls-files"], cwd=ROOT).splitlines() if (ROOT / ".git").exists() else ["tests/conftest.py"]
    assert set(tracked) - packed == set()


def test_the_metadata_names_licences_versions_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        about = archive.read(name).decode()
        texts = [name for name in archive.namelist() if "dist-info/licenses/" in name]
    assert {Path(text).name for text in texts} == {"LICENSE", "LICENSE-vendored.txt"}
    assert {*SMOKE, *HEAVY, "all", "docs", "dev"} == set(re.findall(r"^Provides-Extra: (\S+)", about, re.MULTILINE))
    assert "Requires-Python: >=3.11" in about


def test_the_lowest_versions_that_are_tried_are_those_that_are_stated() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: words for name, words in project["optional-dependencies"].items() if name not in ("docs", "dev")}
    stated = {Requirement(word) for word in (*project["dependencies"], *chain.from_iterable(extras.values()))}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    tried = {canonicalize_name(name): version for name, version in tried.items()}
    for wanted in stated:
        if wanted.name not in ("openauc", "torch"):
            (bound,) = wanted.specifier
            assert bound.operator == ">="
            assert f"{tried[canonicalize_name(wanted.name)]}.".startswith(f"{bound.version}."), wanted


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and its required dependencies; tests below add one extra after another."""
    environment = Environment(tmp_path_factory.mktemp("light"))
    environment.install("-c", ROOT / "constraints.txt", wheel)
    return environment


def test_the_core_works_alone(empty: Environment) -> None:
    installed = set(re.findall(r"^([\w-]+)==", empty.pip("list", "--format", "freeze"), re.MULTILINE))
    assert not installed & {"torch", "scipy", "scikit-learn", "pyarrow", "numba", "matplotlib", "huggingface_hub"}
    assert empty("openauc --version").strip() == openauc.__version__
    assert re.search(r"OpenAUC +0\.7462 +0\.7366 – 0\.7557", empty("openauc evaluate network.npz"))
    empty("openauc report network.npz linear.npz -o page.html")
    assert "SELECT" in empty("openauc sql log").upper()


@pytest.mark.parametrize(("command", "extra"), MISSING)
def test_what_is_not_installed_is_named(empty: Environment, command: str, extra: str) -> None:
    code = 2 if command.startswith("openauc") else 1
    (empty.folder / "network.parquet").touch()
    assert f"pip install 'openauc[{extra}]'" in empty(command, code=code).splitlines()[-1]


@pytest.mark.parametrize("extra", SMOKE)
def test_an_extra_brings_what_it_needs(empty: Environment, wheel: Path, extra: str) -> None:
    empty.install("-c", ROOT / "constraints.txt", f"{wheel}[{extra}]")
    for command in SMOKE[extra]:
        empty(command)
    empty.pip("check")


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel beside the packages of this environment; pip gets no others."""
    environment = Environment(tmp_path_factory.mktemp("heavy"))
    (packages,) = (environment.bin.parent).rglob("site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    environment.install("--no-index", f"{wheel}[{','.join(HEAVY)}]")
    assert str(packages) in environment('python -c "import openauc; print(openauc.__file__)"')
    return environment


@pytest.mark.parametrize("extra", HEAVY)
def test_a_large_extra_works(full: Environment, extra: str) -> None:
    for command in HEAVY[extra]:
        full(command)
