"""Programs that come from elsewhere: JAX functions, and what they are traced to.

`from_jax` makes a jitted function of shardtrace out of a function that is written for real JAX
(jaxpr/), `from_stablehlo` out of a text of StableHLO (stablehlo/); `xla_report` tells what XLA made
of one, and `shardtrace hlo` reads a dump of it (hlo/).
JAX is imported when it is first used, and by this room and the engines alone.
"""
from typing import TYPE_CHECKING

from ..ir.support.lazy import lazy_names

if TYPE_CHECKING:
    from .hlo.report import XlaReport, xla_report
    from .imported import Imported
    from .jaxpr.from_jax import from_jax
    from .registered import register
    from .stablehlo.module import from_stablehlo

__all__ = ["Imported", "XlaReport", "from_jax", "from_stablehlo", "register", "xla_report"]

__getattr__, __dir__ = lazy_names(__name__, {
    f"{__name__}.imported": ("Imported",),
    f"{__name__}.jaxpr.from_jax": ("from_jax",),
    f"{__name__}.hlo.report": ("XlaReport", "xla_report"),
    f"{__name__}.registered": ("register",),
    f"{__name__}.stablehlo.module": ("from_stablehlo",),
})
