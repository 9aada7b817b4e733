"""Programs that come from elsewhere: JAX functions, and what they are traced to.

`from_jax` makes a jitted function of shardtrace out of a function that is written for real JAX
(jaxpr/). JAX is imported when it is first used, and by this room and the engines alone.
"""
from typing import TYPE_CHECKING

from ..ir.support.lazy import late_names

if TYPE_CHECKING:
    from .jaxpr.equations import register
    from .jaxpr.imported import Imported, from_jax

__all__ = ["Imported", "from_jax", "register"]

__getattr__, __dir__ = late_names(__name__, {
    f"{__name__}.jaxpr.imported": ("Imported", "from_jax"),
    f"{__name__}.jaxpr.equations": ("register",),
})
