"""How the documentation is built: ``sphinx-build -W docs build/docs``, with the extra ``docs`` installed."""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "ddpg"
author = "ddpg-paths contributors"
copyright = author
release = importlib.metadata.version("ddpg-paths")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "ddpg: gradient paths"
html_theme_options = {"navigation_with_keys": True}
html_static_path: list[str] = []
