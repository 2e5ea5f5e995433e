"""Formulas as MathML, which browsers draw themselves: pages work from disk and load nothing from elsewhere."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

SIZES = re.compile(r"\\[bB]igg?[lr]?(?![a-zA-Z])")
"""Sizes of brackets, which docutils does not translate; the formula reads the same without them."""


def visit_math(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    tex = SIZES.sub("", node.astext())
    try:
        formula = tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("no MathML for %r: %s", node.astext(), error, location=node)
        formula = self.encode(node.astext())
    tag = "div" if block else "span"
    self.body.append(f"{self.starttag(node, tag, '', CLASS='math')}{formula}</{tag}>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
