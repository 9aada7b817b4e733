"""From global arrays to blocks: the program that every device runs.

`localize.py` walks the program; `recipes.py` says how an equation runs on blocks.
"""
