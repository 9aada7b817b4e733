"""Settings of the site, read by Sphinx."""
import shardtrace

project = "shardtrace"
version = release = shardtrace.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"shardtrace {version}"
html_copy_source = html_show_copyright = False
myst_heading_anchors = 4
copybutton_exclude = ".gp, .go"
pygments_style, pygments_dark_style = "friendly", "monokai"
highlight_language = "text"
