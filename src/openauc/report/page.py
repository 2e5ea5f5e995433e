"""Putting a page together: template, style, scripts and data in one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

LIBRARIES = ("d3.min.js", "plot.umd.min.js")
N_COLORS = 12
"""Accent colours of the style sheet; further models and methods begin again."""


def render(template: str, data: Mapping[str, Any], /, *, parts: Sequence[str] = (), **context: Any) -> str:
    """The page of ``TEMPLATE.html`` and its script ``TEMPLATE.js``.

    ``data`` is what the script reads, any names inside being no more than names; ``context`` is what the template says.
    ``parts`` are other templates that this one shows too: their scripts come first.
    The page's policy allows the scripts named here, by their hash, and no request at all.
    """
    scripts = [_asset(file) for file in (*LIBRARIES, "charts.js", *(f"{name}.js" for name in (*parts, template)))]
    return (
        _environment()
        .get_template(f"{template}.html")
        .render(
            data=data,
            scripts=[Markup(script) for script in scripts],
            script_hashes=[_hash(script) for script in scripts],
            style=Markup(_asset("style.css")),
            licence=Markup(_asset("LICENSE-vendored.txt")),
            **context,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("openauc.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A NaN would be no JSON, and the browser would refuse all of the data.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters.update(
        percent=percent, signed=signed, interval=interval, p=p_value, number=number, format_count="{:,}".format
    )
    environment.globals["n_colors"] = N_COLORS
    return environment


@cache
def _asset(file: str) -> str:
    return files("openauc.report").joinpath("assets", file).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent, with a real minus sign and a space that does not break.

    >>> percent(0.8714), percent(-0.02)
    ('87.1\\xa0%', '−2.0\\xa0%')
    """
    return f"{100 * value:z.{digits}f}\xa0%".replace("-", "−")


def signed(value: float, digits: int = 1) -> str:
    """A difference of fractions in percentage points, with its sign.

    >>> signed(0.034), signed(-0.0002)
    ('+3.4', '+0.0')
    """
    return f"{100 * value:+z.{digits}f}".replace("-", "−")


def interval(bounds: tuple[float, float], digits: int = 1) -> str:
    """Bounds in percent.

    >>> interval((0.861, 0.8799))
    '86.1 – 88.0'
    """
    return " – ".join(f"{100 * bound:z.{digits}f}".replace("-", "−") for bound in bounds)


def number(value: float) -> str:
    """A threshold, to five digits.

    >>> number(-10.76764), number(float("-inf"))
    ('−10.768', '−∞')
    """
    return f"{value:.5g}".replace("-", "−").replace("inf", "∞")


def p_value(value: float) -> str:
    """A p-value as one reads it.

    >>> p_value(0.01234), p_value(1e-9)
    ('0.012', '< 0.001')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
