"""The arrows between packages: each imports only what stands before it, and only some of them torch."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import openauc

ROOT = Path(openauc.__file__).parent

LAYERS = [
    *("_validation", "_files", "_trial_files", "_columns", "environment", "executors", "plotting", "predictions"),
    *("intervals", "metrics", "comparison", "audit", "evaluation", "verdict", "scoring"),
    *("streaming", "shards", "sql"),
    *("torch", "features", "recipe", "protocols", "losses", "models", "methods", "encoders", "training"),
    *("bench", "report", "commands", "cli", "__main__"),
]
"""Packages and modules below ``openauc``; the package itself re-exports what comes up to ``evaluation``."""

TORCH = (
    *("torch", "losses", "models", "methods", "training"),
    *("bench.runner", "bench.cost"),
)
"""Who may need torch to be imported."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> set[str]:
    """Packages below openauc that a file imports at run time; "" is openauc itself."""
    tree = ast.parse(path.read_text())
    typing_only = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and node not in typing_only:
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node not in typing_only:
            assert node.level == 0, f"{path}: relative import"
            below = node.module == "openauc"
            names += [f"openauc.{alias.name}" for alias in node.names] if below else [node.module or ""]
    ours = [name.split(".") for name in names if name.split(".")[0] == "openauc"]
    return {parts[1] if len(parts) > 1 and parts[1] in LAYERS else "" for parts in ours}


def may_import(source: str, target: str) -> bool:
    if target == "":
        return LAYERS.index(source) > LAYERS.index("evaluation")
    return LAYERS.index(target) <= LAYERS.index(source)


@pytest.mark.parametrize("module", [m for m in modules() if m])
def test_imports_go_down(module: str) -> None:
    package = module.partition(".")[0]
    assert [target for target in imported(modules()[module]) if not may_import(package, target)] == []


def test_the_picture_of_the_house_lists_the_layers_in_order() -> None:
    page = (ROOT.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"```text\nsrc/openauc/\n(.*?)```", page, re.DOTALL)
    assert re.findall(r"^ {4}(\w+)", picture, re.MULTILINE) == LAYERS
    starred = re.findall(r"^ {4}(\w+) +\*", picture, re.MULTILINE)
    assert sorted(starred) == sorted(name for name in TORCH if "." not in name)


def test_a_wrong_arrow_is_found() -> None:
    assert not may_import("metrics", "evaluation")
    assert not may_import("protocols", "training")
    assert not may_import("evaluation", "")
    assert may_import("methods", "losses")
    assert may_import("bench", "bench")


BLOCK = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""Makes what is in ``absent`` impossible to import; None in sys.modules would also look like a module to scipy."""


def run_without(absent: tuple[str, ...], code: str) -> str:
    """Output of code where some packages cannot be had."""
    run = [sys.executable, "-c", f"absent = {absent!r}\n{BLOCK}\n{code}"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_some_packages_need_torch() -> None:
    """All others are imported where torch cannot be had."""
    light = [module for module in modules() if not module.startswith(TORCH) and module != "__main__"]
    run_without(
        ("torch", "accelerate", "torchvision", "timm", "ray"),
        f"for name in {light!r}: importlib.import_module(f'openauc.{{name}}'.rstrip('.'))",
    )


def test_scores_need_numpy_alone_and_the_classifier_says_what_it_needs() -> None:
    out = run_without(
        ("sklearn", "scipy", "joblib", "torch"),
        "from openauc.features.scores.registry import SCORES\n"
        "from openauc.features import make_score\n"
        "print(make_score('max_logit')([[0.0]], [[1.0, 2.0]]))\n"
        "for name in ('OpenSetClassifier', 'HeldOutSplit', 'openauc_scorer'):\n"
        "    try: exec(f'from openauc.features import {name}')\n"
        "    except ImportError as error: print(error)\n",
    )
    command = "pip install 'openauc[sklearn]'."
    lines = out.splitlines()
    assert lines[0] == "[-2.]"
    assert [
        line.startswith(f"{name} needs sklearn") and line.endswith(command)
        for name, line in zip(("OpenSetClassifier", "HeldOutSplit", "openauc_scorer"), lines[1:], strict=True)
    ] == [True] * 3


@pytest.mark.parametrize("heavy", ["torch", "numba", "pyarrow", "matplotlib", "pandas", "sklearn", "typer"])
def test_importing_openauc_loads_nothing_heavy(heavy: str) -> None:
    code = f"import sys, openauc; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_classifier_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, openauc\n"
        "light = 'sklearn' not in sys.modules\n"
        "from openauc import OpenSetClassifier\n"
        "from openauc.features import OpenSetClassifier as same\n"
        "sys.exit(not (light and OpenSetClassifier is same))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_works_where_torch_cannot_be_had() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'torchvision', 'timm', 'numba', 'pyarrow', 'matplotlib'): sys.modules[name] = None\n"
        "import openauc\n"
        "print(openauc.evaluate([0, 1, -1, -1], [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], n_replicates=20).openauc)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "1.0\n", result.stderr
