"""Where the user's code is: source locations, and the words in which messages name things there.

`location.py` has the location of an equation, `call_location.py` that of a request made through a
helper function, `names.py` the names of a value that has several; `wording.py` has the words that
messages share, and `prose.py` wraps text and lays out tables.
"""
