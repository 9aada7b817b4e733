"""Utilities that know no programs.

`lazy.py` imports heavy modules on first use; `immutable.py`, `named_tuple.py` and `interning.py`
make records; `caches.py` bounds and lists all caches; `scopes.py` overrides attributes within a
block; `environment.py` reads environment variables; `collector.py` pauses the garbage collector;
`buffer_pool.py` reuses large arrays; `registry.py` has tables of functions that enter themselves;
`progress.py`, `html.py` and `spelling.py` are for what users see.

Records are not made with attrs: importing it costs 20 ms of user time beside numpy (132.5 and
152.6 ms, minima of 12 alternating runs).
"""
