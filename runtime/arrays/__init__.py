"""The arrays that users hold: how they are made, moved, shown and passed to other libraries.

`array.py` is the array itself; its data is a `Storage` (runtime/storage.py).
"""
