"""numpy's functions over traced and concrete arrays, with JAX's names, signatures and promotion.

Every function is a composition of lax ops; nothing here runs anything. The files are by subject,
and `__all__` of each has the names that it adds here; `LAZY` has those of modules that load late,
too.
"""
from __future__ import annotations

from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

import numpy as _np

from ...ir.support.lazy import lazy_names
from ...ir.values.array import Array as _Array
from ..operands.dtype_promotion import ComplexWarning as ComplexWarning
from . import creation, elementwise, indexing, manipulation, matrices, reductions
from .creation.arrays import *  # noqa: F403
from .creation.dtypes import *  # noqa: F403
from .creation.dtypes import bool_ as _bool
from .creation.filled import *  # noqa: F403
from .creation.ranges import *  # noqa: F403
from .elementwise.arithmetic import *  # noqa: F403
from .elementwise.bits import *  # noqa: F403
from .elementwise.clipping import *  # noqa: F403
from .elementwise.complex_numbers import *  # noqa: F403
from .elementwise.division import *  # noqa: F403
from .elementwise.logic import *  # noqa: F403
from .elementwise.powers import *  # noqa: F403
from .elementwise.rounding import *  # noqa: F403
from .elementwise.two_operands import *  # noqa: F403
from .elementwise.ufunc import *  # noqa: F403
from .elementwise.ufuncs import *  # noqa: F403
from .indexing.searching import *  # noqa: F403
from .indexing.sorted_search import *  # noqa: F403
from .indexing.sorting import *  # noqa: F403
from .indexing.take import *  # noqa: F403
from .manipulation.diagonals import *  # noqa: F403
from .manipulation.joining import *  # noqa: F403
from .manipulation.rearrange import *  # noqa: F403
from .manipulation.shaping import *  # noqa: F403
from .matrices.contraction import *  # noqa: F403
from .matrices.einsum import *  # noqa: F403
from .reductions.cumulative import *  # noqa: F403
from .reductions.moments import *  # noqa: F403
from .reductions.reduce import *  # noqa: F403
from .vectorize import vectorize as vectorize

if TYPE_CHECKING:
    from . import fft as fft
    from . import linalg as linalg
    from .creation.grids import *  # noqa: F403
    from .elementwise.number_theory import *  # noqa: F403
    from .indexing.sets import *  # noqa: F403
    from .manipulation.padding import *  # noqa: F403
    from .reductions.histograms import *  # noqa: F403
    from .reductions.nan_reductions import *  # noqa: F403
    from .reductions.quantiles import *  # noqa: F403
    from .reductions.statistics import *  # noqa: F403
    from .signals.polynomial import *  # noqa: F403
    from .signals.signal import *  # noqa: F403
    from .signals.windows import *  # noqa: F403

LAZY: dict[str, tuple[str, ...]] = {
    "fft": (),
    ".creation.grids": (
        "apply_along_axis", "apply_over_axes", "c_", "frompyfunc", "index_exp", "mgrid", "ogrid",
        "r_", "s_"),
    ".reductions.histograms": (
        "bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"),
    "linalg": (),
    ".reductions.nan_reductions": (
        "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum",
        "nanvar"),
    ".elementwise.number_theory": ("gcd", "lcm"),
    ".manipulation.padding": ("pad",),
    ".signals.polynomial": (
        "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
        "polyval", "roots"),
    ".reductions.quantiles": (
        "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"),
    ".indexing.sets": (
        "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
        "unique_counts", "unique_inverse", "unique_values"),
    ".signals.signal": ("convolve", "correlate", "gradient", "interp", "unwrap"),
    ".reductions.statistics": ("corrcoef", "cov"),
    ".signals.windows": ("bartlett", "blackman", "hamming", "hanning", "kaiser"),
}
"""Modules that load when one of these names of theirs is asked for."""
LAZY_NAMES = tuple(name for names in LAZY.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, LAZY)

e, pi, inf, nan, euler_gamma = _np.e, _np.pi, _np.inf, _np.nan, _np.euler_gamma
ndarray = _Array
newaxis = None
printoptions = _np.printoptions
get_printoptions = _np.get_printoptions
bool = _bool

# What `import *` asks for: the names of what is loaded. Type checkers read the lines above.
globals()["__all__"] = sorted({
    "ComplexWarning", "bool", "e", "euler_gamma", "get_printoptions", "inf", "nan", "ndarray",
    "newaxis", "pi", "printoptions", "vectorize",
    *[name for folder in (creation, elementwise, indexing, manipulation, matrices, reductions)
      for module in vars(folder).values() if isinstance(module, _ModuleType)
      for name in getattr(module, "__all__", ())]}.difference(LAZY_NAMES))
