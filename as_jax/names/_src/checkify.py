"""The same as `jax.experimental.checkify`, with a name for what checked functions return."""
from typing import Any

from ..experimental import checkify as _checkify

__all__ = ["Out", *_checkify.__all__]
globals().update({name: getattr(_checkify, name) for name in _checkify.__all__})
Out = Any
