"""Saving pytrees of arrays in a folder, and restoring them onto any mesh.

Each distinct block is stored once, beside an index, and a save is an atomic commit. `record` is the
content of the index, `reading` checks one, `folder` replaces one checkpoint by the next, `blocks`
reads and writes parts of arrays, `trees` describes pytrees, and `save_restore` is what users call.
"""
