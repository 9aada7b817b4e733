"""What errors about shardings add to their message: where an axis came from, and what to write.

`advisers.py` is always there and loads the rest with the first such error: `provenance.py` follows
an axis back through the equations so far, `user_code.py` finds the user's expression and edits it,
`advice.py` makes proposals and tries them.
"""
