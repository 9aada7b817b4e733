"""Groups of calls that are evaluated block by block, so that what passes between them stays in the
cache.

`fusion.py` chooses the groups, `blocked.py` evaluates one, with the blocks that `frames.py` cuts.
"""
