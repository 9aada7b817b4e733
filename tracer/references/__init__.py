"""Mutable references: arrays that are read and written in place.

`ref.py` has the class that users hold, `elements.py` the elements that an index selects.
`frames.py` tracks which references a function reads and writes. `control_flow.py` makes loops and
branches handle such functions, `transformations.py` derivatives, batches and `checkpoint`: the
references' values become extra arguments and results. Programs themselves contain no references.
"""
