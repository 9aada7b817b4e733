"""The XLA engine: a LOCAL program as a Python program that only needs JAX.

`source.py` writes it equation by equation. An op becomes the JAX function of the same name;
`ops.py`, `collectives.py` and `control.py` handle the others. `literals.py` writes values, and
`rounds.py` plans exchanges that `jax.lax` has no function for. `helpers.py` holds functions that
are copied into the program. `engine.py` runs it, `transfer.py` converts arrays, and `host_calls.py`
calls functions of the host. JAX is imported when a program first runs.
"""
