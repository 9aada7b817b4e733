"""Promotion of operands as jnp does it: dtypes with weak types, then ranks (rank_promotion.py).

Every jnp function brings its operands to one dtype and one rank before it binds an op, so that the
program shows each conversion. Python scalars become literals of the other operand's dtype: no
equation, no loss of speed. The lattice itself is in ir/dtypes/__init__.py; here it meets values.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.errors import TypePromotionError
from ...ir.dtypes import (
    ALL_DTYPES,
    ExtendedDType,
    canonicalize_dtype,
    check_user_dtype,
    dtype_of,
    float0,
    lattice_result_type,
    python_scalar_dtype,
    to_complex_dtype,
    to_inexact_dtype,
)
from ...ir.ops.elementwise.convert import cast, convert_element_type_p
from ...ir.ops.elementwise.declaration import refuse_float0
from ...ir.ops.movement.shape import broadcast_in_dim_p
from ...ir.settings.context import config, x64_enabled
from ...ir.source.wording import warn
from ...ir.values.array import Array
from ...ir.values.typeof import check_int_fits, refuse_masked
from ..staging.constants import is_array_like, unwrapped
from ..staging.tracer import Tracer
from .callers import called_by_user
from .rank_promotion import fits, leading_ones, promote_shapes
from .scalars import (
    BOOL,
    INEXACT,
    LEVEL,
    PYTHON_LEVEL,
    PYTHON_OF_LEVEL,
    WIDE,
    int_default,
    scalar_like,
    scalar_of,
)


class ComplexWarning(RuntimeWarning):
    """The imaginary part is dropped by a conversion to a real dtype."""


_AS_THEY_ARE = frozenset(ALL_DTYPES) - WIDE


def user_dtype(dtype: Any, function: str) -> Any:
    """The dtype of a `dtype=` argument. Where 64 bits are not enabled, `jax_explicit_x64_dtypes`
    says what becomes of them."""
    if isinstance(dtype, np.dtype) and dtype in _AS_THEY_ARE:
        return dtype
    used, cut = check_user_dtype(dtype, x64_enabled(), function)
    if cut:
        mode = config.read("jax_explicit_x64_dtypes")
        if mode == "allow":
            raise NotImplementedError(
                f"{np.dtype(dtype).name} where 64 bits are not enabled: jax_explicit_x64_dtypes is "
                "'allow', and only 'warn' and 'error' work here. Enable them with "
                "jax.enable_x64(True).")
        where = f" requested in {function}" if function else ""
        requested = f"Explicitly requested dtype {np.dtype(dtype).name}{where} is not available"
        if mode == "error":
            raise ValueError(f"{requested}. To enable more dtypes, set the jax_enable_x64 or "
                             "jax_explicit_x64_dtypes configuration options.")
        warn(f"{requested}, and will be truncated to dtype {used.name}. To enable more dtypes, set "
             "the jax_enable_x64 configuration option or the JAX_ENABLE_X64 shell environment "
             "variable.")
    return used


def dtype_and_weak(x: Any) -> tuple[Any, bool]:
    """The dtype that `x` has in programs, and whether it is weak."""
    if isinstance(x, Array):
        return x.aval.dtype, x.aval.weak_type
    return dtype_of(x, x64_enabled())


def dtype_name(x: Any) -> Any:
    return dtype_and_weak(x)[0]


def check_arraylike(function: str, *args: Any) -> None:
    """Raise JAX's TypeError for lists, None and other objects that cannot be operands."""
    for position, arg in enumerate(args):
        if isinstance(arg, Array):
            continue
        if not is_array_like(arg):
            raise TypeError(f"{function} requires ndarray or scalar arguments, got {type(arg)} "
                            f"at position {position}.")
        refuse_masked(arg)


def is_complex(x: Any) -> bool:
    return LEVEL[dtype_name(x)] == 3


# -- dtypes ----------------------------------------------------------------------------------------

def literal_like(value: Any, x: Any) -> Any:
    """A scalar of the dtype (and weak flag) of x."""
    return convert(value, *dtype_and_weak(x))


def convert(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` with this dtype and weak flag; no equation where only a literal changes."""
    if isinstance(x, Array):
        aval = x.aval
        if aval.dtype == dtype and aval.weak_type == weak:
            return x
        if aval.dtype in LEVEL and LEVEL[aval.dtype] == 3 and LEVEL.get(dtype, 3) < 2:
            pass        # to bool or int: the warning of the callers that allow it
        elif aval.dtype in LEVEL and LEVEL[aval.dtype] == 3 and LEVEL.get(dtype, 3) == 2:
            warn("Casting complex values to real discards the imaginary part",
                 ComplexWarning)
        return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=weak, sharding=None)
    kind = type(x)
    if isinstance(dtype, ExtendedDType):
        return convert_element_type_p.bind(np.asarray(x), new_dtype=dtype, weak_type=False,
                                           sharding=None)
    if dtype in WIDE and not x64_enabled():     # constants of programs are narrower
        narrow = convert(x, canonicalize_dtype(dtype))
        return convert_element_type_p.bind(narrow, new_dtype=dtype, weak_type=weak, sharding=None)
    if kind in PYTHON_LEVEL:
        if not weak:
            return scalar_of(x, dtype)
        if kind is int:
            check_int_fits(x, int_default())
        target = PYTHON_OF_LEVEL[LEVEL[dtype]]
        if python_scalar_dtype(target, x64_enabled())[0] == dtype:
            return target(x)
        return convert_element_type_p.bind(x, new_dtype=dtype, weak_type=True, sharding=None)
    value = np.asarray(x)
    if weak:
        return convert_element_type_p.bind(value, new_dtype=dtype, weak_type=True, sharding=None)
    value = cast(value, dtype)
    return value if value.shape else value[()]


def strong(x: Any) -> Any:
    """`x` with a dtype that is not weak, for functions whose results JAX does not leave weak."""
    return convert(x, x.aval.dtype) if isinstance(x, Array) and x.aval.weak_type else x


def strong_array(x: Any) -> Any:
    """`x`, strong unless it is a scalar: where JAX computes with constants of the dtype of x."""
    return strong(x) if x.aval.shape else x


def result_dtype(*args: Any) -> tuple[Any, bool]:
    """`(dtype, weak)` of an operation on these operands."""
    if len(args) == 2:
        x, y = args
        if isinstance(x, Array) and isinstance(y, Array):
            a, b = x.aval, y.aval
            if a.dtype is b.dtype and not a.weak_type and not b.weak_type:
                return a.dtype, False
    pairs = [dtype_and_weak(a) for a in args]
    if config.jax_numpy_dtype_promotion == "strict":
        _check_strict(pairs)
    dtype, weak = lattice_result_type(pairs, x64_enabled())
    return available(dtype, [d for d, _ in pairs]), weak


def available(dtype: Any, given: Sequence[Any] = ()) -> Any:
    """The dtype of results for operands of dtypes `given` that promote to this one.

    Arrays of 64 bits may be left from where x64 was enabled. Without it they meet others in 32,
    with a warning.
    """
    wide = [d for d in (*given, dtype) if d in WIDE]
    if not wide or x64_enabled() or given and all(d == dtype for d in given):
        return dtype
    user_dtype(wide[0], "dtype")        # warns
    return canonicalize_dtype(dtype)


def narrowed(x: Any) -> Any:
    """An array of 64 bits in 32 where 64 are off, as the functions that JAX writes in terms of
    `asarray` take it."""
    if isinstance(x, Array) and x.aval.dtype in WIDE and not x64_enabled():
        return convert(x, canonicalize_dtype(x.aval.dtype))
    return x


def _check_strict(pairs: list[tuple[Any, bool]]) -> None:
    strong = {d for d, weak in pairs if not weak}
    level = max((LEVEL.get(d, 0) for d in strong), default=4)
    mixed = len(strong) > 1 or any(LEVEL.get(d, 0) > level for d, weak in pairs if weak)
    if mixed and called_by_user():
        raise TypePromotionError(
            f"Input dtypes {tuple(str(d) for d, _ in pairs)} have no available implicit dtype "
            "promotion path when jax_numpy_dtype_promotion=strict. Try explicitly casting inputs "
            "to the desired output type, or set jax_numpy_dtype_promotion=standard.")


def promote_dtypes(*args: Any) -> list[Any]:
    """All operands brought to their common dtype."""
    if len(args) < 2:
        return list(args)
    dtype, weak = result_dtype(*args)
    return [convert(x, dtype, weak) for x in args]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """As `promote_dtypes`, integers and bool becoming floats."""
    dtype, weak = result_dtype(*args)
    target = to_inexact(dtype)
    return [convert(x, target, weak) for x in args]


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """As `promote_dtypes`, bool becoming int32."""
    dtype, weak = result_dtype(*args)
    target = int_default() if dtype == BOOL else dtype
    return [convert(x, target, weak) for x in args]


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """As `promote_dtypes`, everything becoming complex."""
    dtype, weak = result_dtype(*args)
    target = canonicalize_dtype(to_complex_dtype(dtype), x64_enabled())
    return [convert(x, target, weak) for x in args]


def to_inexact(dtype: Any) -> Any:
    """The float dtype for integers and bool; inexact and extended dtypes as they are.

    That of integers of 64 bits has 64 bits, as in JAX also where these are off.
    """
    if dtype in INEXACT or isinstance(dtype, ExtendedDType):
        return dtype
    return to_inexact_dtype(dtype)


# -- both: the operands of an n-ary jnp function ---------------------------------------------------

def promote_pair(function: str, x: Any, y: Any) -> tuple[Any, Any]:
    """The operands of a binary jnp function, brought to one dtype and rank.

    The common cases (two arrays of one dtype, an array and a Python scalar) take under a
    microsecond: they are what user code is made of.
    """
    kx, ky = type(x), type(y)
    level = PYTHON_LEVEL.get(ky)
    if kx is Tracer or isinstance(x, Array):
        ax = x.aval
        if level is not None:
            scalar = scalar_like(y, level, ax)
            if scalar is not None:
                return x, scalar
        elif ky is Tracer or isinstance(y, Array):
            ay = y.aval
            if ax.dtype is ay.dtype and ax.weak_type is ay.weak_type:
                rx, ry = len(ax.shape), len(ay.shape)
                if rx == ry or not rx or not ry:
                    return x, y
                if config.read("jax_numpy_rank_promotion") == "allow":
                    if rx > ry and fits(ay.shape, ax.shape):
                        return x, broadcast_in_dim_p.bind(y, **leading_ones(ay.shape, rx))
                    if rx < ry and fits(ax.shape, ay.shape):
                        return broadcast_in_dim_p.bind(x, **leading_ones(ax.shape, ry)), y
                x, y = promote_shapes(function, x, y)
                return x, y
    elif level is None and isinstance(y, Array):
        level = PYTHON_LEVEL.get(kx)
        if level is not None:
            scalar = scalar_like(x, level, y.aval)
            if scalar is not None:
                return scalar, y
    x, y = promote_args(function, x, y)
    return x, y


def _check_computable(function: str, *args: Any) -> None:
    """Raise JAX's TypeError where a random key meets a number, and for zeros of dtype float0."""
    dtypes = [a.aval.dtype if isinstance(a, Array) else getattr(a, "dtype", None) for a in args]
    if float0 in dtypes:
        refuse_float0(function, "array")
    if any(isinstance(d, ExtendedDType) for d in dtypes):
        dtypes = [dtype_name(a) for a in args]
        if len(set(dtypes)) > 1:
            raise TypeError(f"{function} does not accept dtypes {', '.join(map(str, dtypes))}.")


def promote_args(function: str, *args: Any) -> list[Any]:
    """Operands of an n-ary jnp function brought to one dtype and rank."""
    check_arraylike(function, *args)
    _check_computable(function, *args)
    return promote_shapes(function, *promote_dtypes(*map(unwrapped, args)))


def promote_args_inexact(function: str, *args: Any) -> list[Any]:
    """As `promote_args`, integers becoming floats."""
    check_arraylike(function, *args)
    _check_computable(function, *args)
    return promote_shapes(function, *promote_dtypes_inexact(*map(unwrapped, args)))


def promote_args_numeric(function: str, *args: Any) -> list[Any]:
    """As `promote_args`, bool becoming int32."""
    check_arraylike(function, *args)
    _check_computable(function, *args)
    return promote_shapes(function, *promote_dtypes_numeric(*map(unwrapped, args)))


def promote_pair_inexact(function: str, x: Any, y: Any) -> tuple[Any, Any]:
    """As `promote_pair`, integers becoming floats."""
    dtype = None
    if isinstance(x, Array):
        dtype = x.aval.dtype
    elif isinstance(y, Array):
        dtype = y.aval.dtype
    if dtype in INEXACT:
        return promote_pair(function, x, y)
    x, y = promote_args_inexact(function, x, y)
    return x, y
