"""Checkpoints: each distinct block stored once, an index, and an atomic commit.

`record` is the content of the index, `reading` checks one, `folder` replaces one checkpoint by the
next, and `blocks` reads and writes parts of arrays. Pytrees are flattened above
(driver/checkpoints/save_restore.py).
"""
