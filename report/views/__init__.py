"""Views of an explanation: plain data, and one page of HTML.

`data.py` assembles what `sources.py` (values at the user's lines), `costs.py` (collectives, times,
memory) and `stages.py` (programs) give; `page.py` makes the page. Editors and notebooks read the
same data.
"""
