"""Random numbers from keys, as in `jax.random`.

Make a key of a seed (`key`), make new ones of it (`split`, `fold_in`), and use each once: `normal`,
`uniform`, `randint`, `bernoulli`, `categorical`, `permutation`, `choice` and the distributions. The
numbers depend on the key and the shape, not on the mesh or the sharding.

>>> from shardtrace import random
>>> for_weights, for_data = random.split(random.key(0))
>>> random.normal(for_weights, (4, 2)).shape
(4, 2)
"""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer import random as _random
from shardtrace.tracer.primitives import primitives_of as _primitives_of
from shardtrace.tracer.random import *  # noqa: F403

__all__: list[str] = []
__all__ += _random.__all__
__getattr__ = _primitives_of("shardtrace.random")
_bound_names(globals())
