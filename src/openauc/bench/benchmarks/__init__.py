"""Benchmarks by name: one file each, named as on the command line, with ``trials(...) -> list[TrialSpec]``.

The options of a benchmark are the keyword arguments of its ``trials``; the first line of its docstring describes it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import reprlib
import runpy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openauc._validation import check_choice
from openauc.bench.trial import TrialSpec

__all__ = ["Benchmark", "benchmark_names", "load_benchmark"]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name, what it is in one line, and the function that lists its trials."""

    name: str
    description: str
    build: Callable[..., list[TrialSpec]]

    @property
    def options(self) -> dict[str, Any]:
        """Options and their defaults.

        >>> load_benchmark("digits").options
        {'seeds': 1}
        """
        return {option.name: option.default for option in inspect.signature(self.build).parameters.values()}

    def trials(self, **options: Any) -> list[TrialSpec]:
        """Trials in the order they are to be run, each once; a faulty list is refused."""
        for option in options:
            if not self.options:
                raise ValueError(f"benchmark {self.name!r} takes no options, so not {option!r} either; leave it out.")
            check_choice(f"an option of benchmark {self.name!r}", option, self.options)
        specs = self.build(**options)
        others = [spec for spec in specs if not isinstance(spec, TrialSpec)] if isinstance(specs, list) else [specs]
        if others:
            raise TypeError(
                f"trials() of benchmark {self.name!r} returned {reprlib.repr(others[0])}; return a list of TrialSpec."
            )
        if not specs:
            raise ValueError(f"benchmark {self.name!r} has no trials with {options or 'its defaults'}.")
        twice = [key for key, count in Counter(spec.id for spec in specs).items() if count > 1]
        if twice:
            raise ValueError(f"benchmark {self.name!r} lists {twice[0]} more than once; list each trial once.")
        return specs


def benchmark_names() -> list[str]:
    """Names of the benchmarks in this folder, sorted.

    >>> "table2" in benchmark_names()
    True
    """
    return sorted(file.name for file in pkgutil.iter_modules(__path__))


def load_benchmark(name: str | Path) -> Benchmark:
    """Benchmark called ``name``: a file in this folder, or ``FILE.py`` anywhere.

    >>> len(load_benchmark("digits").trials(seeds=3))
    135
    """
    file = Path(name)
    if file.suffix == ".py":
        if not file.is_file():
            names = ", ".join(benchmark_names())
            raise ValueError(f"there is no file {file}; pass a Python file, or one of {names}.")
        try:
            found = runpy.run_path(str(file), run_name=file.stem)
        except Exception as error:
            raise ValueError(f"{file} cannot be imported ({type(error).__name__}: {error}); correct it.") from error
    else:
        found = vars(importlib.import_module(f"{__name__}.{check_choice('benchmark', str(name), benchmark_names())}"))
    build = found.get("trials")
    if not callable(build):
        raise ValueError(f"{name} has no function trials; define trials() -> list[TrialSpec].")
    return Benchmark(file.stem, inspect.cleandoc(found.get("__doc__") or "").partition("\n")[0], build)
