"""An explanation to look at: as plain data, and as one page of HTML.

`data.py` gathers what `sources.py` (values at the user's lines), `costs.py` (collectives, times,
memory) and `stages.py` (the programs) say; `page.py` makes the page. Editors and notebooks read the
same data.
"""
