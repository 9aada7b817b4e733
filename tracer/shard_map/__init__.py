"""shard_map: the program of one device, written by the user, on blocks.

`specs.py` reads what the arguments are split by, `checks.py` refuses what does not fit, and
`region_values.py` answers for values of a body whose arguments are known. `older_names.py` takes
the arguments of earlier versions.
"""
