"""numpy's functions over traced and concrete arrays, with JAX's names, signatures and promotion.

Every function is a composition of lax ops; nothing here runs anything. The files are by subject;
this one is the index of their names. Names of modules that load late are listed twice, and
`__all__` is written out, since type checkers read neither tables nor computed lists.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as _np

from ...ir.support.lazy import lazy_names
from ...ir.values.array import Array as ndarray
from ..operands.dtype_promotion import ComplexWarning
from .creation.arrays import (
    array,
    array_repr,
    array_str,
    asarray,
    astype,
    copy,
    frombuffer,
    fromfile,
    fromiter,
    fromstring,
    load,
    save,
    savez,
    set_printoptions,
)
from .creation.dtypes import (
    bfloat16,
    bool_,
    can_cast,
    cdouble,
    character,
    complex64,
    complex128,
    complex_,
    complexfloating,
    csingle,
    double,
    dtype,
    finfo,
    flexible,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    float_,
    floating,
    generic,
    iinfo,
    inexact,
    int1,
    int2,
    int4,
    int8,
    int16,
    int32,
    int64,
    int_,
    integer,
    isdtype,
    issubdtype,
    number,
    object_,
    promote_types,
    result_type,
    signedinteger,
    single,
    uint,
    uint1,
    uint2,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
    unsignedinteger,
)
from .creation.filled import (
    empty,
    empty_like,
    eye,
    full,
    full_like,
    identity,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    vander,
    zeros,
    zeros_like,
)
from .creation.ranges import arange, geomspace, linspace, logspace
from .elementwise.arithmetic import (
    abs,
    absolute,
    acos,
    acosh,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctanh,
    asin,
    asinh,
    atan,
    atanh,
    cbrt,
    cos,
    cosh,
    deg2rad,
    degrees,
    exp,
    exp2,
    expm1,
    fabs,
    i0,
    log,
    log1p,
    positive,
    rad2deg,
    radians,
    sign,
    sin,
    sinc,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
)
from .elementwise.bits import (
    bitwise_count,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_right_shift,
    copysign,
    frexp,
    invert,
    ldexp,
    left_shift,
    modf,
    packbits,
    right_shift,
    signbit,
    spacing,
    unpackbits,
)
from .elementwise.clipping import clip, nan_to_num
from .elementwise.complex_numbers import angle, conj, conjugate, imag, iscomplex, isreal, real
from .elementwise.division import divmod, floor_divide, fmod, mod, remainder
from .elementwise.logic import (
    allclose,
    array_equal,
    array_equiv,
    equal,
    greater,
    greater_equal,
    isclose,
    iscomplexobj,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    isrealobj,
    isscalar,
    iterable,
    less,
    less_equal,
    logical_not,
    not_equal,
)
from .elementwise.powers import float_power, hypot, log2, log10, pow, power, reciprocal
from .elementwise.rounding import around, ceil, floor, rint, round, trunc
from .elementwise.two_operands import arctan2, atan2, divide, heaviside, nextafter, true_divide
from .elementwise.ufunc import ufunc
from .elementwise.ufuncs import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    fmax,
    fmin,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    subtract,
)
from .indexing.searching import (
    argwhere,
    choose,
    compress,
    extract,
    flatnonzero,
    nonzero,
    piecewise,
    select,
    where,
)
from .indexing.sorted_search import digitize, searchsorted
from .indexing.sorting import argpartition, argsort, lexsort, partition, sort, sort_complex
from .indexing.take import (
    fromfunction,
    indices,
    ix_,
    meshgrid,
    place,
    put,
    put_along_axis,
    ravel_multi_index,
    take,
    take_along_axis,
    unravel_index,
)
from .manipulation.diagonals import (
    diag,
    diag_indices,
    diag_indices_from,
    diagflat,
    diagonal,
    fill_diagonal,
    mask_indices,
    trace,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
)
from .manipulation.joining import (
    append,
    array_split,
    block,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    split,
    stack,
    unstack,
    vsplit,
    vstack,
)
from .manipulation.rearrange import (
    delete,
    flip,
    fliplr,
    flipud,
    insert,
    repeat,
    resize,
    roll,
    rot90,
    tile,
    trim_zeros,
)
from .manipulation.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    ndim,
    permute_dims,
    ravel,
    reshape,
    rollaxis,
    shape,
    size,
    squeeze,
    swapaxes,
    transpose,
)
from .matrices.contraction import (
    cross,
    dot,
    inner,
    kron,
    matmul,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from .matrices.einsum import einsum, einsum_path
from .reductions.cumulative import (
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    diff,
    ediff1d,
    nancumprod,
    nancumsum,
    trapezoid,
)
from .reductions.moments import average, mean, std, var
from .reductions.reduce import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    max,
    min,
    prod,
    ptp,
    sum,
)
from .vectorize import vectorize

e, pi, inf, nan, euler_gamma = _np.e, _np.pi, _np.inf, _np.nan, _np.euler_gamma
if TYPE_CHECKING:
    from . import fft as fft
    from . import linalg as linalg
    from .creation.grids import (
        apply_along_axis,
        apply_over_axes,
        c_,
        frompyfunc,
        index_exp,
        mgrid,
        ogrid,
        r_,
        s_,
    )
    from .elementwise.number_theory import gcd, lcm
    from .indexing.sets import (
        intersect1d,
        isin,
        setdiff1d,
        setxor1d,
        union1d,
        unique,
        unique_all,
        unique_counts,
        unique_inverse,
        unique_values,
    )
    from .manipulation.padding import pad
    from .reductions.histograms import (
        bincount,
        histogram,
        histogram2d,
        histogram_bin_edges,
        histogramdd,
    )
    from .reductions.nan_reductions import (
        nanargmax,
        nanargmin,
        nanmax,
        nanmean,
        nanmin,
        nanprod,
        nanstd,
        nansum,
        nanvar,
    )
    from .reductions.quantiles import (
        median,
        nanmedian,
        nanpercentile,
        nanquantile,
        percentile,
        quantile,
    )
    from .reductions.statistics import corrcoef, cov
    from .signals.polynomial import (
        poly,
        polyadd,
        polyder,
        polydiv,
        polyfit,
        polyint,
        polymul,
        polysub,
        polyval,
        roots,
    )
    from .signals.signal import convolve, correlate, gradient, interp, unwrap
    from .signals.windows import bartlett, blackman, hamming, hanning, kaiser

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

newaxis = None
printoptions = _np.printoptions
get_printoptions = _np.get_printoptions
bool = bool_

__all__ = [
    "ComplexWarning", "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin",
    "angle", "any", "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr",
    "array_split", "array_str", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "bfloat16", "bincount",
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool", "bool_",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt", "cdouble",
    "ceil", "character", "choose", "clip", "column_stack", "complex64", "complex128", "complex_",
    "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete",
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff", "digitize",
    "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum",
    "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims",
    "expm1", "extract", "eye", "fabs", "fill_diagonal", "finfo", "flatnonzero", "flexible",
    "flip", "fliplr", "flipud", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4",
    "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "float32", "float64", "float_", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp",
    "frombuffer", "fromfile", "fromfunction", "fromiter", "frompyfunc", "fromstring", "full",
    "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient", "greater",
    "greater_equal", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo",
    "imag", "index_exp", "indices", "inexact", "inf", "inner", "insert", "int1",
    "int2", "int4", "int8",
    "int16", "int32", "int64", "int_", "integer", "interp", "intersect1d", "invert", "isclose",
    "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf",
    "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser",
    "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linspace",
    "load", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logspace", "mask_indices", "matmul",
    "matrix_transpose", "matvec", "max", "maximum", "mean", "median", "meshgrid", "mgrid", "min",
    "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndim", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "number", "object_", "ogrid", "ones",
    "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "pi",
    "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul",
    "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod", "promote_types",
    "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians", "ravel",
    "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_",
    "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d", "shape",
    "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort",
    "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace",
    "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros",
    "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "ufunc", "uint", "uint1",
    "uint2",
    "uint4", "uint8", "uint16", "uint32", "uint64", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index",
    "unsignedinteger", "unstack", "unwrap", "vander", "var", "vdot", "vecdot", "vecmat",
    "vectorize", "vsplit", "vstack", "where", "zeros", "zeros_like",
]
# What `import *` asks for: what is here.
globals()["__all__"] = sorted({*__all__}.difference(LAZY_NAMES))
