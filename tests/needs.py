"""What tests need beside Python packages: a browser, a database, Java."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot_run(tests: str, reason: str) -> NoReturn:
    """Skip; but fail where nobody reads what was skipped."""
    if os.environ.get("CI"):
        pytest.fail(f"{tests} cannot run: {reason}", pytrace=False)
    pytest.skip(reason)
