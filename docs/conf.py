"""How Sphinx builds the site: ``make docs``."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS / "_ext")]
os.environ.setdefault("STF_PURE", "1")  # the sources as they are, whether they were built or not

project = "stf"
author = "the stf developers"
project_copyright = "the stf developers"
html_title = "stf: Sequential Task Flow"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "settings_table",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["README.md", "design/README.md", "_*"]

# -- Markdown -------------------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# -- docstrings -----------------------------------------------------------------------------------------------------
default_role = "autolink"  # a link where `name` is a documented name of stf, else emphasis
autosummary_generate = False
autodoc_typehints = "none"  # the types stand in the docstrings
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
add_module_names = False
python_use_unqualified_type_names = True
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

# -- warnings are errors --------------------------------------------------------------------------------------------
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(builtins\.)?[A-Z]\w*(Error|Warning|Group|Interrupt)"),  # Python's own exceptions: no network, no links
    ("py:.*", r"(numpy|np|cupy|torch|cuda|scipy|collections|pathlib|typing)\..*"),  # other libraries' names
    ("py:obj", r"(devices|data|places|partition)"),  # parameters that are called as modules of stf are
    ("py:obj", r"Driver"),  # of stf.testing: for those who write one, in its source
]
suppress_warnings = ["myst.header"]  # pages of docs/design/ start where their titles do

# -- the look -------------------------------------------------------------------------------------------------------
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2f5d8a", "color-brand-content": "#2f5d8a"},
    "dark_css_variables": {"color-brand-primary": "#7fb2e5", "color-brand-content": "#7fb2e5"},
}


def with_figures(app, page: str, text: list[str]) -> None:
    """Put the page of figures among the others, if there is one."""
    if page == "index" and (DOCS / "figures.md").exists():
        text[0] = text[0].replace("\nperformance\n", "\nperformance\nfigures\n", 1)


def without_search(app, page: str, text: list[str]) -> None:
    """Keep the design notes out of the search, whose readers look for what they can use."""
    if page.startswith("design/"):
        text[0] = f"---\nnosearch: true\n---\n\n{text[0]}"


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("source-read", with_figures)
    app.connect("source-read", without_search)
