"""Errors: their classes, where in the user's source they belong, and what they say.

`errors.py` has the classes, `diagnostic.py` the one form of all messages (`fail`), `location.py`
and `call_location.py` the places; `usual_mistakes.py` and `wording.py` are what messages say.
"""
