"""The site that `make docs` builds from these pages, and that `make check` builds to find what is broken.

The pages are the Markdown that GitHub renders. Only those of docs/reference/api/ are of the site alone: there autodoc
reads the docstrings.
"""

import posixpath
import re
from importlib import metadata
from itertools import pairwise
from typing import TYPE_CHECKING

from dagster_ckpt.operators.aggregates.registry import FUNCTIONS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "dagster-ckpt"
release = metadata.version("dagster-ckpt")
version = release
html_title = f"dagster-ckpt {release}"
project_copyright = "the authors of dagster-ckpt, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
# Leads from the addresses that older releases name to the pages of today; nothing of ours leads there.
exclude_patterns = ["operating.md"]

myst_heading_anchors = 4  # with GitHub's slugs
smartquotes = False
highlight_language = "none"
# Readable (contrast 4.5) on Furo's backgrounds, light and dark.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False

# In docstrings `name` is code, and leads to what it names if that is on the site.
default_role = "py:obj"
add_module_names = False
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 88

_AT_ROOT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
"""Pages at the checkout's root, and the pages of the site that show them, or stand for them."""

_SHOWN = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}

_LINK = re.compile(r"(?<=\]\()(?!\w+:)[^)\s#]+(?=[)#])")

_FIRST_BELOW = {
    "decisions/README": (),
    "how-to/clusters/README": ("local", "standalone"),
    "how-to/deploy/README": ("systemd", "docker", "compose", "kubernetes"),
    "how-to/sources/README": ("files", "kafka", "another-stream", "ordinary-asset"),
    "how-to/stores/README": ("local", "s3", "gcs", "azure", "hdfs"),
    "operations/README": ("run", "watch", "read", "check", "recovery", "damage", "errors", "history", "retention"),
    "reference/api/index": (
        "declare",
        "steps",
        "aggregates",
        "over",
        "process",
        "read",
        "operate",
        "resources",
        "checks",
    ),
}
"""Pages that list the pages beside them. The navigation has those below them, in this order, the others after these."""


def _complete_navigation(app: "Sphinx", page: str, source: list[str]) -> None:
    """Give a folder's page the directive that nests its siblings. GitHub would show it as text."""
    if page in _FIRST_BELOW:
        file, first = app.srcdir / page, _FIRST_BELOW[page]
        others = {other.stem for other in file.parent.glob("*.md")} - {file.name, *first}
        pages = "\n".join([*first, *sorted(others)])
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def _list_aggregates(_app: "Sphinx", page: str, source: list[str]) -> None:
    """Give the page of aggregates the functions of the registry."""
    if page == "reference/api/aggregates":
        functions = "\n".join(f".. autofunction:: dagster_ckpt.agg.{name}" for name in FUNCTIONS)
        source[0] += f"\n```{{eval-rst}}\n.. currentmodule:: dagster_ckpt\n\n{functions}\n```\n"


def _show_root_pages(app: "Sphinx", page: str, source: list[str]) -> None:
    """Put a page of the checkout's root in the place of one of ours, and let links to it lead there."""
    folder = posixpath.dirname(f"docs/{page}")
    if page in _SHOWN:
        folder, source[0] = "", (app.srcdir.parent / _SHOWN[page]).read_text()

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[0]))
        if path in _AT_ROOT:
            return f"/{_AT_ROOT[path]}"
        return posixpath.relpath(path, "docs") if page in _SHOWN else link[0]

    source[0] = _LINK.sub(target, source[0])


def _mark_examples(_app: "Sphinx", _what: str, _name: str, _found: object, _options: object, lines: list[str]) -> None:
    """Make Python of what a docstring indents by four after a paragraph, as `help()` shows it."""
    begins = [
        number
        for number, (before, line) in enumerate(pairwise(["", *lines]))
        if line.startswith("    ") and not before and not _belongs_to_a_list(lines[:number])
    ]
    for number in reversed(begins):
        if not _belongs_to_an_example(lines[:number]):
            lines[number:number] = [".. code-block:: python", ""]


def _belongs_to_a_list(lines: list[str]) -> bool:
    return _last(lines).startswith(("- ", "  ")) and not _last(lines).startswith("    ")


def _belongs_to_an_example(lines: list[str]) -> bool:
    return _last(lines).startswith("    ")


def _last(lines: list[str]) -> str:
    """The last line that is not empty."""
    return next((line for line in reversed(lines) if line), "")


def setup(app: "Sphinx") -> None:
    """Called by Sphinx."""
    app.connect("source-read", _show_root_pages)
    app.connect("source-read", _complete_navigation)
    app.connect("source-read", _list_aggregates)
    app.connect("autodoc-process-docstring", _mark_examples)
