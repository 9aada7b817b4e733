"""Programs from elsewhere: JAX functions, and the forms that they are lowered to.

`from_jax` (jaxpr/) makes a jitted function of shardtrace from a function written for real JAX, and
`from_stablehlo` (stablehlo/) from a StableHLO text. `xla_report` says what XLA made of a function,
and `shardtrace hlo` reads a dump of XLA's (hlo/).
JAX is imported on first use, and only by this package and the engines.
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
