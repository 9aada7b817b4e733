"""The functions one level below numpy, and the collectives, as in `jax.lax`.

Loops and branches: `scan`, `fori_loop`, `while_loop`, `cond`, `switch`, `map`, `associative_scan`.
Collectives, for use inside `shard_map`: `psum`, `pmean`, `pmax`, `all_gather`, `psum_scatter`,
`all_to_all`, `ppermute`; `axis_index`, `axis_size` and `pcast` beside them.
Sharding: `with_sharding_constraint` over Auto axes.
Ops: `dot_general`, `conv_general_dilated`, `dynamic_slice`, `gather`, `scatter`, `reduce_window`,
`sort`, `top_k` and the elementwise ones. They promote nothing: operands have one dtype and rank.

>>> from shardtrace import lax
>>> lax.fori_loop(0, 4, lambda i, total: total + i, 0)
Array(6, dtype=int32, weak_type=True)
"""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer import lax as _lax
from shardtrace.tracer.autodiff.solves import custom_linear_solve, custom_root
from shardtrace.tracer.lax import *  # noqa: F403
from shardtrace.tracer.lax.communication.manual_axes import axis_index, axis_size, pcast
from shardtrace.tracer.lax.communication.parallel import (
    all_gather,
    all_to_all,
    pbroadcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from shardtrace.tracer.lax.communication.ragged_exchange import ragged_all_to_all
from shardtrace.tracer.lax.conversion import converted as _convert_element_type  # noqa: F401
from shardtrace.tracer.primitives import primitives_of as _primitives_of

from shardtrace.lax import linalg  # isort: skip - in place of the module that it is made of

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "custom_linear_solve",
    "custom_root",
    "linalg",
    "pbroadcast",
    "pcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
    "ragged_all_to_all",
]
__all__ += _lax.__all__
__getattr__ = _primitives_of("shardtrace.lax")
_bound_names(globals())
