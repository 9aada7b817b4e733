"""Types for annotations, as in `jax.typing`: what an array function accepts."""
from typing import TypeAlias

import numpy as np

from shardtrace.ir.values.array import Array

ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike: TypeAlias = np.dtype | type | str

__all__ = ["ArrayLike", "DTypeLike"]
