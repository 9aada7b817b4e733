"""Advice in errors: where a mesh axis came from, and changes to the user's code that were tried.

`advisers.py` is always loaded and loads the rest with the first such error: `provenance.py` follows
an axis back through the equations so far, `user_code.py` finds the user's expression and edits it,
`advice.py` searches for changes that make shardings fit, `remedies.py` and `rewrites.py` write
those that an error names, and `rerun.py` tries them on the user's function.
"""
