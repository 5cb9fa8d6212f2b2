"""How the documentation is built: ``sphinx-build -W docs build/docs``, with the extra ``docs`` installed."""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "ddpg"
author = "ddpg-paths contributors"
copyright = author
release = importlib.metadata.version("ddpg-paths")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "flags", "mathml", "notebook_pages"]
exclude_patterns = ["extensions", "**/.ipynb_checkpoints"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # ```math, which forges typeset too
nb_execution_mode = "off"  # notebooks show the outputs that are committed with them
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "ddpg: gradient paths"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
