"""Sphinx configuration; `make docs` builds the site into `docs/_build`, without the network."""

import os
import re
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

# The tutorials multiply small matrices: threads gain nothing, and cost much where cores are busy. Read with numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import openauc

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
# The cluster of the Ray tutorial leaves nothing behind, and is given time to start.
ray_folder = tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True)
os.environ |= {
    "RAY_TMPDIR": ray_folder.name,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_agent_register_timeout_ms": "120000",
}

project = "openauc"
author = "the openauc contributors"
project_copyright = f"{author}, Apache-2.0"
version = release = openauc.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_parser",
    "mathml",
    "generated",
]
exclude_patterns = ["_build", "generated/report", "**/GALLERY_HEADER.rst"]
nitpicky = True
# Types of other libraries are named in signatures, and their pages are out of reach without the network; what kinds of
# metrics are made of has none, nor has what passes between workers.
INNER = (
    r"openauc\.(?:metrics\.\w+|intervals)\."
    r"(?:RankTable|RankedSamples|Samples|Influence|WeightedRate|Spread|Measured|_?Resample[sd])"
)
PASSED = r"openauc\.(?:shards\.paths\.Outcome|_columns\.ColumnNames)"
nitpick_ignore_regex = [("py:.*", rf"(?!openauc\b).*|openauc\..*\.T|{INNER}|{PASSED}")]
suppress_warnings = ["config.cache"]  # the gallery's settings hold classes

default_role = "code"  # `name` in docstrings is code, as it is in Markdown
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# The name says more than the union behind it.
autodoc_type_aliases = {name: name for name in ("ArrayLike", "NDArray", "Floats", "Label", "Rng", "Triple", "PathLike")}
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_param = False  # parameters that share a description stay together
napoleon_use_rtype = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": ["tutorials", "concepts"],
    "gallery_dirs": ["generated/tutorials", "generated/concepts"],
    "filename_pattern": r"\.py$",  # every script runs; an error fails the build
    "within_subsection_order": lambda name: int(name.partition("_")[0]),
    "download_all_examples": False,
    "notebook_extensions": set(),
    "show_signature": False,
    "min_reported_time": 3600,
    "write_computation_times": False,
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "openauc"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": False,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {
    page: []
    for page in (
        "index",
        "start",
        "questions",
        "generated/commands",
        "cluster",
        "torch",
        "paper_map",
        "contributing",
        "architecture",
        "changelog",
    )
}
templates_path = ["_templates"]
# A report for people to try, written after Sphinx has looked for its folder.
html_extra_path = ["generated/report"]
(Path(__file__).parent / html_extra_path[0]).mkdir(parents=True, exist_ok=True)


def skip_inherited_words(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: Any) -> bool | None:
    """Leave out "Alias for field number 0", which the signature of a named tuple says, and scikit-learn's routing."""
    routing = re.fullmatch(r"set_\w+_request", name)
    return True if routing or type(thing).__name__ == "_tuplegetter" else None


def name_aliases(
    app: Sphinx, what: str, name: str, thing: object, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write ``Label``, not ``TypeAliasForwardRef('Label')``, where an alias is part of a larger type."""
    plain = (text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (signature, returns))
    return next(plain), next(plain)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", skip_inherited_words)
    app.connect("autodoc-process-signature", name_aliases)
