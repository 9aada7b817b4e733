"""From a Python function to a program: tracers, and what records the equations between them.

`tracer.py` holds the stand-ins for arrays, `builder.py` records what is done with them, and
`staging.py` runs a function on them; `constants.py` says which Python values become arrays,
`signature.py` what a function's arguments are called.
`memoized.py` remembers what functions of several ops recorded, `steps.py` records it again.
`compile_time.py`, `name_scopes.py`, `leaks.py` and `call_places.py` are contexts around tracing.
"""
