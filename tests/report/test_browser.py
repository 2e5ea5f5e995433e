"""Tests in a browser are not skipped where nobody would notice."""

import pytest

from .conftest import without_browser


def test_ci_fails_where_others_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        without_browser("no Chromium")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="cannot run: no Chromium"):
        without_browser("no Chromium")
