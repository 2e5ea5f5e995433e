"""Benchmarks by name: one file each, named as on the command line, with ``trials(...) -> list[TrialSpec]``.

The options of a benchmark are the keyword arguments of its ``trials``; the first line of its docstring describes it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from openauc._validation import check_choice
from openauc.bench.trial import TrialSpec

__all__ = ["Suite", "load_suite", "suite_names"]


@dataclass(frozen=True)
class Suite:
    """A benchmark: its name, what it is in one line, and the function that lists its trials."""

    name: str
    description: str
    build: Callable[..., list[TrialSpec]]

    @property
    def options(self) -> dict[str, Any]:
        """Options and their defaults.

        >>> load_suite("digits").options
        {'seeds': 1}
        """
        return {option.name: option.default for option in inspect.signature(self.build).parameters.values()}

    def trials(self, **options: Any) -> list[TrialSpec]:
        """Trials in the order they are to be run, each once.

        Raises
        ------
        ValueError
            For an option the benchmark does not take, and for a list that is empty or names a trial twice.
        TypeError
            If the benchmark returns something else than a list of trials.
        """
        for option in options:
            if not self.options:
                raise ValueError(f"benchmark {self.name!r} takes no options, so not {option!r} either; leave it out.")
            check_choice(f"an option of benchmark {self.name!r}", option, self.options)
        specs = self.build(**options)
        if not isinstance(specs, list) or not all(isinstance(spec, TrialSpec) for spec in specs):
            strangers = [spec for spec in specs if not isinstance(spec, TrialSpec)] if isinstance(specs, list) else []
            found = f"a list with {strangers[0]!r}" if strangers else repr(type(specs).__name__)
            raise TypeError(f"trials() of benchmark {self.name!r} returned {found}; return a list of TrialSpec.")
        if not specs:
            raise ValueError(f"benchmark {self.name!r} has no trials with {options or 'its defaults'}.")
        twice = [key for key, count in Counter(spec.id for spec in specs).items() if count > 1]
        if twice:
            raise ValueError(f"benchmark {self.name!r} lists {twice[0]} more than once; list each trial once.")
        return specs


def suite_names() -> list[str]:
    """Names of the benchmarks in this folder, sorted.

    >>> "table2" in suite_names()
    True
    """
    return sorted(file.name for file in pkgutil.iter_modules(__path__))


def load_suite(name: str | Path) -> Suite:
    """Benchmark called ``name``: a file in this folder, or ``FILE.py`` anywhere.

    Raises
    ------
    ValueError
        If there is no such benchmark, if its file cannot be imported, or if it has no function ``trials``.

    Examples
    --------
    >>> len(load_suite("digits").trials(seeds=3))
    135
    """
    if str(name).endswith(".py"):
        module = _from_file(Path(name))
    else:
        module = importlib.import_module(f"{__name__}.{check_choice('benchmark', str(name), suite_names())}")
    build = getattr(module, "trials", None)
    if not callable(build):
        raise ValueError(f"{name} has no function trials; define trials() -> list[TrialSpec].")
    description = (inspect.getdoc(module) or "").partition("\n")[0]
    return Suite(Path(name).stem, description, build)


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise ValueError(f"there is no file {file}; pass a Python file, or one of {', '.join(suite_names())}.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{file} cannot be imported ({type(error).__name__}: {error}); correct it first.") from error
    return module
