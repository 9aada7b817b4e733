"""Dtypes: type promotion with weak types; import everything about dtypes from here.

Promotion is JAX's standard promotion (0.10.2), a join in a lattice of dtypes and weak types; see
JEP 9407, "Design of Type Promotion Semantics for JAX", for the lattice and its reasons. Results
are functions of dtypes alone, and cached. Names are in `table.py`, kinds in `kinds.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..diagnostics.errors import TypePromotionError
from ..support.caches import cached
from .kinds import (
    canonicalize_dtype,
    check_user_dtype,
    check_valid_dtype,
    compute_dtype,
    default_dtype,
    dtype_of,
    finfo,
    iinfo,
    is_narrow_float,
    is_python_scalar,
    isdtype,
    issubdtype,
    itemsize_bits,
    loop_dtype,
    python_scalar_dtype,
    scalar_type_of,
    tangent_dtype,
    to_complex_dtype,
    to_floating_dtype,
    to_inexact_dtype,
    to_numeric_dtype,
)
from .table import (
    ALL_DTYPES,
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    FLOAT4,
    FLOAT6,
    FLOAT8,
    KEY_DTYPES,
    KEY_FRY,
    KEY_RBG,
    KEY_URBG,
    ML_FLOATS,
    NARROW_INTS,
    NARROW_UINTS,
    PYTHON_TO_64_BIT,
    SIGNED,
    UNSIGNED,
    DType,
    ExtendedDType,
    KeyDType,
    extended,
    float0,
    is_extended,
    long_name,
    named_key_dtype,
    parse_long,
    parse_short,
    prng_key,
    short_name,
)

__all__ = [
    "ALL_DTYPES", "KEY_DTYPES", "KEY_FRY", "KEY_RBG", "KEY_URBG", "DType", "ExtendedDType",
    "KeyDType", "canonicalize_dtype", "check_user_dtype", "check_valid_dtype", "compute_dtype",
    "default_dtype", "dtype_of", "extended", "finfo", "float0", "iinfo", "is_extended",
    "is_narrow_float", "is_python_scalar", "isdtype", "issubdtype", "itemsize_bits",
    "lattice_result_type", "long_name", "loop_dtype", "named_key_dtype", "parse_long",
    "parse_short", "prng_key", "promote_types",
    "python_scalar_dtype", "result_type", "safe_to_cast", "scalar_type_of", "short_name",
    "tangent_dtype", "to_complex_dtype", "to_floating_dtype", "to_inexact_dtype",
    "to_numeric_dtype",
]


# A node of the lattice is a dtype, or one of the Python types int, float and complex, which stand
# for the weak types.
_Node = Any


def _edges(x64: bool) -> dict[_Node, tuple[_Node, ...]]:
    """Each node with the nodes directly above it.

    Chains of integers and floats, the weak types below all strong types of their kind. Narrow
    integers and floats have nothing above them: they never convert implicitly. uint32 and int32
    meet in int64, which must not arise without x64, where uint32 lies below int32.
    """
    u8, u16, u32, u64 = UNSIGNED[-4:]
    i8, i16, i32, i64 = SIGNED[-4:]
    tiny = (*FLOAT4, *FLOAT6, *FLOAT8)
    return {
        BOOL: (int,),
        int: (*NARROW_UINTS, *NARROW_INTS, u8, i8),
        **dict.fromkeys((*NARROW_UINTS, *NARROW_INTS, *tiny), ()),
        u8: (i16, u16), u16: (i32, u32), u32: (i64 if x64 else i32, u64), u64: (float,),
        i8: (i16,), i16: (i32,), i32: (i64,), i64: (float,),
        float: (*tiny, BF16, F16, complex),
        BF16: (F32,), F16: (F32,), F32: (F64, C64), F64: (C128,),
        complex: (C64,), C64: (C128,), C128: (),
    }


def _at_or_above(x64: bool) -> dict[_Node, frozenset]:
    """For each node of the lattice all that it may be promoted to, itself included."""
    edges = _edges(x64)
    above: dict[_Node, frozenset] = {}

    def visit(node: _Node) -> frozenset:
        if node not in above:
            above[node] = frozenset((node,)).union(*map(visit, edges[node]))
        return above[node]

    for node in edges:
        visit(node)
    return above


_UPPER_BOUNDS = {x64: _at_or_above(x64) for x64 in (False, True)}


@cached(4096)
def _join(nodes: frozenset, x64: bool) -> _Node:
    """Least upper bound of the nodes. Raises TypePromotionError if there is none."""
    above = _UPPER_BOUNDS[x64]
    for node in nodes:
        if node not in above:
            raise ValueError(f"dtype={node!r} is not a valid dtype for JAX type promotion.")
    common = frozenset.intersection(*(above[node] for node in nodes))
    for node in common:
        if common <= above[node]:
            return node
    raise TypePromotionError(_no_promotion(nodes))


def _no_promotion(nodes: frozenset) -> str:
    """The message that these nodes of the lattice have no common dtype; of narrow floats and
    integers it says why.
    """
    order = {node: i for i, node in enumerate((int, float, complex, *ALL_DTYPES))}
    names = tuple(str(node) for node in sorted(nodes, key=order.__getitem__))
    message = f"Input dtypes {names} have no available implicit dtype promotion path. "
    groups = (("8-bit floats", FLOAT8, "float32"), ("6-bit floats", FLOAT6, "float32"),
              ("4-bit floats", FLOAT4, "float32"),
              ("1-bit, 2-bit and 4-bit integers", NARROW_INTS + NARROW_UINTS, "int32"))
    for what, members, example in groups:
        if any(node in members for node in nodes if isinstance(node, np.dtype)):
            return message + (
                f"To avoid unintended promotion, {what} do not support implicit promotion. If "
                "you'd like your inputs to be promoted to another type, you can do so explicitly "
                f"using e.g. x.astype('{example}')"
            )
    return message + "Try explicitly casting inputs to the desired output type."


def _node_of(dtype: np.dtype, weak: bool) -> _Node:
    if not weak or dtype == BOOL:
        return dtype
    if issubdtype(dtype, np.integer):
        return int
    return complex if issubdtype(dtype, np.complexfloating) else float


def promote_types(a: Any, b: Any, x64: bool = False) -> Any:
    """Dtype that operands of dtypes `a` and `b` are converted to.

    Python's int, float and complex stand for the weak types: `promote_types('bfloat16', float)`
    is bfloat16. Raises `TypePromotionError` if the two have no common dtype.
    """
    if isinstance(a, np.dtype) and isinstance(b, np.dtype):
        return _promote(a, b, x64)
    if isinstance(a, ExtendedDType) or isinstance(b, ExtendedDType):
        if a is b:
            return a
        raise TypePromotionError(
            f"Input dtypes {(str(a), str(b))} have no available implicit dtype promotion path. "
            "Random keys do not convert to numbers; see random.key_data."
        )
    return _promote(
        a if a in (int, float, complex) and isinstance(a, type) else np.dtype(a),
        b if b in (int, float, complex) and isinstance(b, type) else np.dtype(b), x64,
    )


@cached(4096, "what two dtypes are promoted to")
def _promote(a: _Node, b: _Node, x64: bool) -> np.dtype:
    return np.dtype(_join(frozenset((a, b)), x64))


def lattice_result_type(
    pairs: Iterable[tuple[Any, bool]], x64: bool = False
) -> tuple[Any, bool]:
    """`(dtype, weak)` of the result of an operation on operands given as `(dtype, weak)`.

    The result is weak if all operands are. Raises `TypePromotionError` if there is no common
    dtype, ValueError for no operands.
    """
    return _lattice_result_type(tuple(pairs), bool(x64))


@cached(4096, "what several dtypes are promoted to")
def _lattice_result_type(pairs: tuple[tuple[Any, bool], ...], x64: bool) -> tuple[Any, bool]:
    """The (dtype, weak) that (dtype, weak) pairs promote to: their join in the lattice."""
    if not pairs:
        raise ValueError("at least one array or dtype is required")
    if len(pairs) == 1:
        dtype, weak = pairs[0]
        return dtype, weak and dtype != BOOL
    dtypes = [dtype for dtype, _ in pairs]
    all_weak = all(weak for _, weak in pairs)
    if not all_weak and all(dtype == dtypes[0] for dtype in dtypes):
        return dtypes[0], False
    if any(isinstance(dtype, ExtendedDType) for dtype in dtypes):
        raise TypePromotionError(
            f"Input dtypes {tuple(str(d) for d in dtypes)} have no available implicit dtype "
            "promotion path. Random keys do not convert to numbers; see random.key_data."
        )
    if all_weak:
        # The bound of the strong counterparts, so that a weak int16 stays one.
        node = _join(frozenset(dtypes), x64)
    else:
        node = _join(frozenset(_node_of(dtype, weak) for dtype, weak in pairs), x64)
    if isinstance(node, type):
        return python_scalar_dtype(node, x64)
    node = canonicalize_dtype(node, x64)
    return node, all_weak and node != BOOL


def _operand(x: Any, x64: bool) -> tuple[Any, bool]:
    """`(dtype, weak)` of an argument of `result_type`: a value, a dtype, its name, or a type."""
    if x is None:
        return default_dtype("f", x64), False
    if isinstance(x, type):
        if x in PYTHON_TO_64_BIT:
            return python_scalar_dtype(x, x64)
        return canonicalize_dtype(x, x64), False
    if isinstance(x, (str, np.dtype, ExtendedDType)):
        dtype = canonicalize_dtype(x, x64)
        check_valid_dtype(dtype)
        return dtype, False
    return dtype_of(x, x64)


def result_type(*args: Any, x64: bool = False) -> tuple[Any, bool]:
    """`(dtype, weak)` of an operation on these values, dtypes, names or types (None: the default).

    The dtype of a weak result is the default one of its kind. Raises as `lattice_result_type`.
    """
    dtype, weak = lattice_result_type([_operand(arg, x64) for arg in args], x64)
    if weak:
        kind = "f" if dtype in ML_FLOATS else "i" if issubdtype(dtype, np.integer) else dtype.kind
        dtype = default_dtype("u" if dtype.kind == "u" else kind, x64)
    return dtype, weak


def safe_to_cast(source: Any, target: Any, x64: bool = False) -> bool:
    """Whether promoting `source` (value or dtype) with `target` gives `target`."""
    target_dtype = _operand(target, x64)[0]
    if _operand(source, x64)[0] == target_dtype:
        return True
    return result_type(source, target_dtype, x64=x64)[0] == target_dtype
