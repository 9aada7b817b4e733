"""Arrays in files: every block once, an index, and an atomic commit.

`record` is what the index says, `folder` how a folder goes from one checkpoint to the next, and
`blocks` reads and writes the parts of arrays. Pytrees are flattened above
(driver/checkpoints/save_restore.py).
"""
