"""Programs written for `jax`, run on shardtrace under the names that they import.

    python -m shardtrace.as_jax train.py --steps 3      the program as it is

    import shardtrace.as_jax                            or first in one's own, before what uses JAX
    import jax, optax

From then on `import jax`, `from jax import numpy as jnp`, and what libraries such as optax, flax or
equinox import, give shardtrace's functions of these names, on simulated devices. Only public names
of JAX are there; others raise ImportError or AttributeError, which name them. Mesh axes are
Explicit unless `axis_types` says otherwise, as in JAX. Where JAX itself is loaded already this
raises ImportError: two libraries of one name would share nothing but mistakes.
"""
from .standing_in import stand_in

stand_in()
