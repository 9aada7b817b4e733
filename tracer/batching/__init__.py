"""vmap: what ops, loops, calls and manual regions become for values with a mapped dimension.

`vmap.py` is what users call, `interpreter.py` the interpreter, `rules.py` the rule of an op; the
others serve ops that hold programs, and `rule_memo.py` memoises the rules.
"""
