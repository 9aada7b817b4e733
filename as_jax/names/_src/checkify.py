"""The same as `jax.experimental.checkify`."""
from typing import Any

from ..experimental.checkify import *  # noqa: F403
from ..experimental.checkify import __all__ as _names

__all__ = [*_names, "Out"]
Out = Any
