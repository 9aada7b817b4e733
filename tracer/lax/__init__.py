"""lax: functions that are nearly ops, with JAX's names and signatures.

Nothing is promoted or broadcast here but scalars; jnp does that. The files are by subject, and
`__all__` of each has the names that it adds here; `LAZY` has those of modules that load late, too.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.ops.gather_numbers import ScatterDimensionNumbers as ScatterDimensionNumbers
from ...ir.support.lazy import lazy_names
from . import (
    contraction,
    conversion,
    convolution,
    creation,
    elementwise,
    hooks,
    indexed,
    reduction,
    shape,
    sharding,
    slicing,
)
from .contraction import *  # noqa: F403
from .control import branches, loops, mapping
from .control.branches import *  # noqa: F403
from .control.loops import *  # noqa: F403
from .control.mapping import *  # noqa: F403
from .conversion import *  # noqa: F403
from .convolution import *  # noqa: F403
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .fft import FftType as FftType
from .fft import fft as fft
from .hooks import *  # noqa: F403
from .indexed import *  # noqa: F403
from .reduction import *  # noqa: F403
from .shape import *  # noqa: F403
from .sharding import *  # noqa: F403
from .slicing import *  # noqa: F403

if TYPE_CHECKING:
    from . import linalg as linalg
    from .on_demand.generators import *  # noqa: F403
    from .on_demand.special import *  # noqa: F403
    from .on_demand.window_reductions import *  # noqa: F403

LAZY: dict[str, tuple[str, ...]] = {
    ".on_demand.generators": ("RandomAlgorithm", "rng_bit_generator"),
    "linalg": (),
    ".on_demand.special": (
        "betainc", "igamma", "igamma_grad_a", "igammac", "polygamma", "random_gamma_grad", "zeta"),
    ".on_demand.window_reductions": ("reduce_window", "reduce_window_shape_tuple"),
}
"""Modules that load when one of these names of theirs is asked for."""
LAZY_NAMES = tuple(name for names in LAZY.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, LAZY)

# What `import *` asks for. Type checkers read the lines above.
globals()["__all__"] = sorted([
    "FftType", "ScatterDimensionNumbers", "fft", "linalg", *LAZY_NAMES,
    *[name for module in (contraction, branches, loops, mapping, conversion,
                          convolution, creation, elementwise, hooks, indexed, reduction, shape,
                          sharding, slicing)
      for name in module.__all__]])
