"""shard_map: the program of one device, written by the user, on blocks.

`specs.py` reads the specs of arguments and results, `checks.py` refuses those that do not fit, and
`region_values.py` computes values of a body whose arguments are known. `older_names.py` accepts the
arguments of earlier versions.
"""
