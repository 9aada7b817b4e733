"""Neural network functions, as in `jax.nn`.

Activations: `relu`, `gelu`, `silu`, `sigmoid`, `softplus`, ... Over a dimension: `softmax`,
`log_softmax`, `logsumexp`, `standardize`. `one_hot`, `dot_product_attention`, and first values of
parameters in `initializers`.

>>> from shardtrace import nn
>>> nn.relu(-2.0), nn.softmax(nn.one_hot(1, 2) * 0)
(Array(0., dtype=float32, weak_type=True), Array([0.5, 0.5], dtype=float32))
"""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.nn import initializers
from shardtrace.tracer import nn as _nn
from shardtrace.tracer.nn import *  # noqa: F403

__all__: list[str] = ["initializers"]
__all__ += _nn.__all__
_bound_names(globals())
