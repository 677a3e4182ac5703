"""Configuration of the site: `sphinx-build -W --keep-going docs docs/_build/html`.

Nothing is fetched, neither while the site is built nor while it is read.
"""

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "extensions")]

project = "invertbench"
author = copyright = "The invertbench authors"
release = version = installed_version("invertbench")
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "repository",
    "reference",
    "gallery",
]
exclude_patterns = ["_build", "_static", "extensions", "generated/*.inc.md"]
highlight_language = "none"
smartquotes = False  # tables of reports have commands with --options
html_theme = "furo"
html_title = f"invertbench {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

nitpicky = True
# Links to other libraries would need their inventories, which would have to be fetched. Of our own names, these types
# in signatures are not in the reference.
nitpick_ignore_regex = [
    ("py:.*", r"(?!layers\.|flows\.|harness\.).*"),
    ("py:class", r"(layers\.(adapters|butterfly)\..*|flows\.(preprocess\..*|protocol\.Bijection))"),
    ("py:class", r"harness\.(checking|pipeline|kinds|core\.(settings|records)|datasets\.(_store|base))\..*"),
    ("py:class", r"harness\.(execution\.agenda|planning\.plan|core\.arguments|interface\.plan)\..*"),
    ("py:class", r"harness\.reporting\.(frame|compare\.(measure|comparison))\..*"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 4

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # tables of a report
