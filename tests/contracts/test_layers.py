"""The arrows between modules: N is the numpy side, T the torch side, and imports only go down.

A module imports from lower layers of its own side, T also from N, N never from T; modules of one folder of losses,
models or methods may share their folder's own base.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import openauc

ROOT = Path(openauc.__file__).parent

LAYERS = {
    "_validation": "N0",
    "_files": "N0",
    "environment": "N0",
    "predictions": "N1",
    "metrics": "N0",
    "metrics.curve": "N1",
    "metrics._fast": "N1",
    "metrics._kernel": "N1.5",
    "metrics.counts": "N1.8",
    "metrics.ranking": "N2",
    "metrics.decision": "N2",
    "metrics.operating": "N2.5",
    "metrics.legacy": "N2.5",
    "metrics.influence": "N2.5",
    "metrics.resampling": "N2.5",
    "metrics.table": "N3",
    "metrics.selective": "N3.2",
    "constructions": "N2.8",
    "audit": "N3",
    "intervals": "N3.5",
    "scoring": "N4",
    "uncertainty": "N4",
    "evaluation": "N5",
    "protocols.sources": "N1",
    "protocols.base": "N2",
    "protocols.files": "N2.5",
    "protocols.table": "N3",
    "protocols": "N4",
    "losses": "T1",
    "models": "T1",
    "training.recipe": "N1",
    "training.schedule": "N2",
    "methods.scores": "T1",
    "methods.base": "T2",
    "methods": "T3",
    "training.augment": "T2",
    "training": "T4",
    "bench": "N0",
    "bench.trial": "N5",
    "bench.paper": "N5",
    "bench.student": "N4.5",
    "bench.selection": "N5.5",
    "bench.store": "N5.5",
    "bench.summary": "N5.8",
    "bench.variants": "N5.7",
    "bench.rendering": "N5.9",
    "bench.figures": "N5.9",
    "bench.executors": "T5",
    "bench.runner": "T5.5",
    "bench.cost": "T6",
    "bench.suites": "N5.6",
    "plotting": "N0",
    "report": "N6.5",
    "": "N6",
    "commands": "top",
    "cli": "top",
}
"""The longest matching prefix decides; the package itself ("") re-exports the numpy side."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer(module: str) -> str:
    prefix = module
    while prefix not in LAYERS and "." in prefix:
        prefix = prefix.rpartition(".")[0]
    return LAYERS[prefix]


def is_exact(module: str) -> bool:
    return module in LAYERS


def imported(path: Path) -> list[tuple[str, bool]]:
    """Modules of openauc that a file imports, and whether at its top level (rather than inside a function)."""
    tree = ast.parse(path.read_text())
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    typing_only = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.dump(branch.test)
        for node in ast.walk(branch)
    }
    result = []
    known = modules()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}"
                if f"{node.module}.{alias.name}".removeprefix("openauc.") in known
                else node.module
                for alias in node.names
            ]
        result += [
            (name.removeprefix("openauc").removeprefix("."), node not in inside)
            for name in names
            if name == "openauc" or name.startswith("openauc.")
        ]
    return result


def may_import(source: str, target: str) -> bool:
    one, other = layer(source), layer(target)
    if one == "top":
        return True
    if other == "top":
        return False
    if one[0] == "N" and other[0] == "T":
        return False
    if one[0] == "T" and other[0] == "N":
        return True
    same_folder = source.rpartition(".")[0] == target.rpartition(".")[0] or source == target.rpartition(".")[0]
    return float(other[1:]) < float(one[1:]) or (
        one == other and same_folder and not (is_exact(source) and is_exact(target))
    )


def test_every_module_has_a_layer() -> None:
    missing = [module for module in modules() if module not in LAYERS and module.partition(".")[0] not in LAYERS]
    assert missing == []


@pytest.mark.parametrize("module", [m for m in modules() if m])
def test_imports_go_down(module: str) -> None:
    wrong = [target for target, _ in imported(modules()[module]) if not may_import(module, target)]
    assert wrong == [], f"openauc.{module} ({layer(module)}) imports {[(t, layer(t)) for t in wrong]}"


def test_a_wrong_arrow_is_found() -> None:
    assert not may_import("metrics.ranking", "evaluation")
    assert not may_import("evaluation", "losses.pairwise")
    assert not may_import("metrics.decision", "metrics.ranking")
    assert not may_import("audit", "cli")
    assert may_import("methods.openauc", "losses.mixup")


@pytest.mark.parametrize("heavy", ["torch", "numba", "pyarrow", "matplotlib", "pandas", "sklearn", "typer"])
def test_importing_openauc_loads_nothing_heavy(heavy: str) -> None:
    code = f"import sys, openauc; sys.exit({heavy!r} in sys.modules)"
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


def test_import_takes_less_than_0_3_s_of_cpu_time() -> None:
    code = "import time; start = time.process_time(); import openauc; print(time.process_time() - start)"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-c", code]
    seconds = [float(subprocess.check_output(run, text=True, env=environment)) for _ in range(5)]
    assert min(seconds) < 0.3
