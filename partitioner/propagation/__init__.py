"""From open types to layouts: every dimension gets the axes that its factors have elsewhere.

`graph.py` states the problem, `fixed_point.py` solves it, `resolve.py` writes the types down;
`origins.py` tells where an axis came from. `decided.py` serves programs whose types are all given.
"""
