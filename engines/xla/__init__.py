"""The XLA engine: a LOCAL program as a Python program that needs JAX alone.

`source.py` writes it, equation by equation: an op is the function of JAX's of its name, and
`ops.py`, `collectives.py` and `control.py` say what stands for any other.
`literals.py` writes values, `rounds.py` plans the exchanges that `jax.lax` has no function for.
`helpers.py` holds functions that a written program carries along. `engine.py` runs the program,
`transfer.py` brings arrays there and back, `host_calls.py` calls functions of the host. JAX is
imported when a program is first run.
"""
