"""From one layout of a value to another: the cheapest sequence of collectives, and what each does
to a block.
"""
