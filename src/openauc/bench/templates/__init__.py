"""Templates of the tables and of the sentences around them."""

from __future__ import annotations

import re
from collections.abc import Callable

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def template(name: str, escaped: Callable[[str], str] = str) -> Template:
    """A template of this folder; ``escaped`` makes text harmless in its format."""
    templates = Environment(
        loader=PackageLoader(__name__, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # not HTML: each format escapes what it needs
    )
    # Empty lines keep the details of a row level with each other; at the end they would only add height.
    templates.filters |= {"escaped": escaped, "without_empty_end": lambda text: re.sub("(<br>)+$", "", text)}
    return templates.get_template(name)
