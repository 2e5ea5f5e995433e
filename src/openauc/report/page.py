"""Make one HTML file of a template, the style sheet, scripts and data; the file makes no request."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from openauc.environment import environment

LIBRARIES = ("d3.min.js", "plot.umd.min.js")
N_COLORS = 12  # accent colours of the style sheet; with more models and methods, they repeat


def render(template: str, data: Mapping[str, Any], /, *, parts: Sequence[str] = (), **context: Any) -> str:
    """The page of ``TEMPLATE.html`` and its script ``TEMPLATE.js``.

    ``data`` is for the scripts and ``context`` for the template. ``parts`` are other templates that this one includes:
    their scripts come first. The page's policy allows these scripts by their hash, and no request.
    """
    scripts = [_asset(file) for file in (*LIBRARIES, "charts.js", *(f"{name}.js" for name in (*parts, template)))]
    page = _templates().get_template(f"{template}.html")
    return page.render(
        data=data,
        scripts=[Markup(script) for script in scripts],
        script_hashes=[base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts],
        style=Markup(_asset("style.css")),
        licence=Markup(_asset("LICENSE-vendored.txt")),
        environment=environment(),
        **context,
    )


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("openauc.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # NaN is not JSON: the browser would refuse all of the data.
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    functions = (percent, points, signed, interval, number, sentence, breakable)
    templates.filters.update({f.__name__: f for f in functions}, p=p_value, format_count="{:,}".format)
    templates.globals.update(n_colors=N_COLORS, change=change)
    return templates


@cache
def _asset(file: str) -> str:
    return files("openauc.report").joinpath("assets", file).read_text(encoding="utf-8")


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent, with a real minus sign and a space that does not break."""
    return f"{points(value, digits)}\xa0%"


def points(value: float, digits: int = 1) -> str:
    """A fraction times 100."""
    return f"{100 * value:z.{digits}f}".replace("-", "−")


def signed(value: float, digits: int = 1) -> str:
    """A difference of fractions in percentage points, with its sign."""
    return f"{100 * value:+z.{digits}f}".replace("-", "−")


def interval(bounds: tuple[float, float], digits: int = 1) -> str:
    """The ends of an interval in percent, on one line."""
    return "\xa0–\xa0".join(points(bound, digits) for bound in bounds)


def change(before: float, after: float) -> str:
    """Two fractions, with enough digits to show their difference."""
    digits = next((d for d in (1, 2, 3) if percent(before, d) != percent(after, d)), 4)
    return f"from {percent(before, digits)} to {percent(after, digits)}"


def number(value: float) -> str:
    """A threshold, to five digits."""
    return f"{value:.5g}".replace("-", "−").replace("inf", "∞")


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def breakable(name: str) -> Markup:
    """A name that may go on in another line after a mark.

    >>> str(breakable("a_b/c.d"))
    'a_<wbr>b/<wbr>c.<wbr>d'
    """
    return Markup(re.sub(r"(?<=[_/.:@-])(?=\w)", "<wbr>", escape(name)))


def sentence(text: str) -> str:
    """A text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
