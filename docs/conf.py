"""Sphinx configuration of the documentation site; `tools/docs.py` stages the pages and builds it.

No page loads anything from another server: formulas become MathML at build time, and diagrams are drawn by a copy of
Mermaid in `_static`, if the build was given one.
"""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

project = "Podium"
author = "The Podium authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
exclude_patterns = ["_static"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
html_theme = "furo"
html_title = "Podium"
html_static_path = ["_static"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
MERMAID = (Path(__file__).parent / "_static" / "mermaid.min.js").is_file()
html_js_files = ["mermaid.min.js", "diagrams.js"] if MERMAID else []
pygments_style = "default"


def draw_diagrams(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace each Mermaid block by the element that Mermaid draws in; it shows the source otherwise."""
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            text = html.escape(block.astext())
            block.replace_self(nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html"))


def _math(display: str) -> tuple[Any, None]:
    def visit(self: Any, node: nodes.Element) -> None:
        self.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit, None


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", draw_diagrams)
    app.add_html_math_renderer("mathml", _math("inline"), _math("block"))


assert "PODIUM_DOCS_STAGED" in os.environ, "build the site with `make docs`"
