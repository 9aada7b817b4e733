"""Errors: their classes, where in the user's source they belong, and what they say.

`errors.py` has the classes, `diagnostic.py` the one form of all messages (`fail`); `extras.py`,
`tracer_errors.py` and `usual_mistakes.py` raise the errors that many places share. Locations and
the wording of messages are in ir/source/.
"""
