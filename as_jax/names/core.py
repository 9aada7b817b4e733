"""Names of `jax.core` beyond those of `shardtrace.core`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.program import Atom
from ...ir.values.typeof import typeof
from ...tracer.staging.compile_time import ensure_compile_time_eval

__all__ = ["Atom", "Trace", "ensure_compile_time_eval",
           "pytype_aval_mappings"]
# Classes that a library wants to pass for arrays; here all with `__jax_array__` are such.
pytype_aval_mappings: dict[type, Callable[..., Any]] = {np.ndarray: typeof}


class Trace:
    """The base of a library's own traces, none of which shardtrace runs."""
