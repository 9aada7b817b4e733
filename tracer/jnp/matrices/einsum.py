"""einsum: sums of products by index names, one dot_general for each pair of operands.

opt_einsum chooses the order of contractions. Of a pair, names in both that the result keeps are
batch dimensions, the others in both are contracted; a name repeated in one operand is a diagonal.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.ops.communication.sharding import reshard_p
from ....ir.ops.elementwise.bitwise import and_p
from ....ir.ops.elementwise.comparison import eq_p
from ....ir.ops.elementwise.select import select_n_p
from ....ir.ops.movement.creation import iota_p
from ....ir.ops.reductions.reduction import reduce_or_p, reduce_sum_p
from ....ir.support.caches import cached
from ....ir.support.lazy import lazy_import
from ... import lax, sharding_notes
from ...lax.contraction import dot_general
from ...operands.dtype_promotion import check_arraylike, convert, dtype_name
from ...operands.rank_promotion import shape_of
from ...shardings.auto_mode import in_auto_mode
from ...shardings.out_sharding import output_sharding
from ...staging.constants import as_array, unwrapped
from ...staging.memoized import memoized
from .contraction import contraction_dtype, reordered

__all__ = ["einsum", "einsum_path"]
opt_einsum = lazy_import("opt_einsum")


class _Shaped:
    """What opt_einsum needs to know of an operand."""

    __slots__ = ("dtype", "shape")

    def __init__(self, x: Any) -> None:
        self.shape = shape_of(x)
        self.dtype = dtype_name(x)


def _path(subscripts: Any, operands: Sequence[Any], optimize: Any) -> tuple[list[Any], list[Any]]:
    """Operands, and the contractions (operand positions, names summed, "ab,bc->ac")."""
    kind = "optimal" if optimize is True else optimize
    if isinstance(subscripts, str) and isinstance(kind, str):
        check_arraylike("einsum", *operands)
        shapes = tuple([shape_of(x) for x in operands])
        return [unwrapped(x) for x in operands], _contractions(subscripts, shapes, kind)
    if isinstance(subscripts, str):
        arrays, rest = list(operands), [_Shaped(x) for x in operands]
        call: list[Any] = [subscripts, *rest]
    else:
        # einsum(x, [0, 1], y, [1, 2], [0, 2]): operands and lists of integers alternate.
        flat = [subscripts, *operands]
        arrays = flat[0:len(flat) - len(flat) % 2:2]
        call = [_Shaped(x) if i % 2 == 0 and i < 2 * len(arrays) else x
                for i, x in enumerate(flat)]
    check_arraylike("einsum", *arrays)
    return [unwrapped(x) for x in arrays], _planned(call, kind)


class _OfShape:
    """An operand of which only the shape is known."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


@cached(1024)
def _contractions(subscripts: str, shapes: tuple[tuple[int, ...], ...], kind: str) -> list[Any]:
    """The contractions of operands of these shapes: programs repeat them a lot."""
    if len(shapes) <= 2:
        only = _only_contraction(subscripts, shapes)
        if only is not None:
            return [only]
    return _planned([subscripts, *map(_OfShape, shapes)], kind)


def _planned(call: Sequence[Any], kind: Any) -> list[Any]:
    """The contractions that opt_einsum plans for the arguments of an einsum."""
    try:
        _, found = opt_einsum.contract_path(*call, einsum_call=True, use_blas=True, optimize=kind)
    except ValueError as error:
        raise ValueError(*error.args) from error
    return [c[:3] for c in found]


def _only_contraction(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> Any:
    """The contraction of one or two operands, which needs no choice of order. None where the
    subscripts are not plain names, or do not fit: opt_einsum reads or refuses them.
    """
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    found = "".join(terms)
    if not arrow:
        result = "".join(sorted([n for n in found if found.count(n) == 1]))
    if len(terms) != len(shapes) or not (found + result).isalpha() or not found.isascii():
        return None
    if len({*result}) != len(result) or not {*result} <= {*found}:
        return None
    sizes: dict[str, int] = {}
    for names, shape in zip(terms, shapes, strict=True):
        if len(names) != len(shape):
            return None
        for name, size in zip(names, shape, strict=True):
            if size != 1:
                if name not in sizes:
                    sizes[name] = size
                elif sizes[name] != size:
                    return None
    positions = tuple(range(len(terms)))[::-1]
    return positions, frozenset(found).difference(result), f"{','.join(terms[::-1])}->{result}"


@sharding_notes.product
@memoized
def einsum(subscripts, /, *operands, out=None, optimize="auto", precision=None,
           preferred_element_type=None, _dot_general=dot_general, out_sharding=None):
    """The sum of products of the operands, with a letter for each dimension.

    subscripts: "ij,jk->ik" names the dimensions of the operands, and of the result; what the result
    lacks is summed over. "..." stands for dimensions that broadcast. optimize: how the order of
    contractions is chosen (opt_einsum's names, or a path). out_sharding: a PartitionSpec of the
    result, over Explicit axes. precision, preferred_element_type: as in `matmul`.
    Raises ValueError where subscripts and operands do not fit.

    >>> jnp.einsum("bij,jk->bik", jnp.ones((5, 2, 3)), jnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.einsum is not supported.")
    arrays, contractions = _path(subscripts, operands, optimize)
    if out_sharding is not None and len(contractions) > 1:
        # What lies between has no spec of its own: the partitioner decides it.
        def again(*xs: Any) -> Any:
            call = ((subscripts, *xs) if isinstance(subscripts, str) else
                    [xs[i // 2] if i % 2 == 0 and i < 2 * len(xs) else part
                     for i, part in enumerate([subscripts, *operands])])
            return einsum(*call, optimize=optimize, precision=precision,
                          preferred_element_type=preferred_element_type,
                          _dot_general=_dot_general)

        rank = len(contractions[-1][2].split("->")[1])
        return in_auto_mode(again, output_sharding(out_sharding, "einsum", rank), *arrays)
    dtype, weak = contraction_dtype(preferred_element_type, *arrays)
    for number, (positions, removed, text) in enumerate(contractions):
        inputs, result = text.split("->")
        names = inputs.split(",")
        last = number == len(contractions) - 1
        taken = [arrays.pop(p) for p in positions]
        if len(taken) == 1:
            x, have = _single(as_array(taken[0]), names[0], sorted(removed), result)
        else:
            sharding = output_sharding(out_sharding, "einsum", len(result)) if last else None
            x, have = _pair(taken, names, sorted(removed), result, precision, dtype, sharding,
                            _dot_general)
        if have != result:
            x = lax.transpose(x, tuple(have.index(n) for n in result))
        if len(taken) == 1 and last and out_sharding is not None:
            x = reshard_p.bind(x, dst_sharding=output_sharding(
                out_sharding, "einsum", len(result)))
        arrays.append(x)
    return convert(arrays[0], dtype, weak)


def einsum_path(subscripts, /, *operands, optimize="auto"):
    """The order of contractions that einsum would take, and opt_einsum's account of it."""
    if isinstance(optimize, bool):
        optimize = "optimal" if optimize else "auto"
    if isinstance(subscripts, str):
        return opt_einsum.contract_path(subscripts, *map(_Shaped, operands), optimize=optimize)
    flat = [subscripts, *operands]
    n = len(flat) - len(flat) % 2
    call = [_Shaped(x) if i % 2 == 0 and i < n else x for i, x in enumerate(flat)]
    return opt_einsum.contract_path(*call, optimize=optimize)


def _without(names: str, gone: Sequence[str]) -> str:
    return "".join(n for n in names if n not in gone)


def _sum(x: Any, axes: Sequence[int]) -> Any:
    if axes and dtype_name(x) == np.bool_:
        return reduce_or_p.bind(x, axes=tuple(axes))
    return reduce_sum_p.bind(x, axes=tuple(axes), out_sharding=None) if axes else x


def _sum_unique(x: Any, names: str, unique: Sequence[str]) -> tuple[Any, str]:
    """Sum over names that occur once and are not needed any more."""
    if not unique:
        return x, names
    return _sum(x, [names.index(n) for n in unique]), _without(names, unique)


def _sum_repeated(x: Any, names: str, counts: Counter[str], keep: str) -> tuple[Any, str]:
    """Diagonals of names that occur several times, summed over unless they are kept."""
    for name, count in counts.items():
        if count < 2:
            continue
        axes = [d for d, n in enumerate(names) if n == name]
        x = _on_diagonal(x, axes)
        if name in keep:
            x = _sum(x, axes[:-1])
            names = names.replace(name, "", count - 1)
        else:
            x = _sum(x, axes)
            names = names.replace(name, "")
    return x, names


def _on_diagonal(x: Any, axes: Sequence[int]) -> Any:
    """x where the positions along these dimensions are equal, zero elsewhere."""
    shape = shape_of(x)
    sizes = tuple(shape[d] for d in axes)
    index = np.dtype("uint32")
    places = [iota_p.bind(dtype=index, shape=sizes, dimension=i, sharding=None)
              for i in range(len(axes))]
    mask = eq_p.bind(places[0], places[1])
    for a, b in zip(places[1:-1], places[2:], strict=True):
        mask = and_p.bind(mask, eq_p.bind(a, b))
    mask = lax.broadcast_in_dim(mask, shape, tuple(axes))
    return select_n_p.bind(mask, lax.full_like(x, 0), x)


def _single(x: Any, names: str, removed: list[str], result: str) -> tuple[Any, str]:
    counts = Counter(names)
    x, names = _sum_unique(x, names, [n for n in removed if counts[n] == 1])
    return _sum_repeated(x, names, counts, result)


def _drop_ones(x: Any, names: str, other: Any, other_names: str) -> tuple[Any, str]:
    """Without dimensions of size 1 that meet a larger one of the other operand: they broadcast."""
    shape, other_shape = shape_of(x), shape_of(other)
    drop = [d for d, n in enumerate(names)
            if shape[d] == 1 and n in other_names and other_shape[other_names.index(n)] != 1]
    if not drop:
        return x, names
    return lax.squeeze(as_array(x), drop), "".join(
        n for d, n in enumerate(names) if d not in drop)


def _pair(taken: list[Any], names: list[str], removed: list[str], result: str, precision: Any,
          dtype: Any, sharding: Any, dot: Any) -> tuple[Any, str]:
    """The contraction of two operands, in the order that spares a transpose if there is one."""
    (lhs, rhs), (ln, rn) = taken, names
    if sharding is None:
        plan = _plain_pair(ln, rn, tuple(removed), result, shape_of(lhs), shape_of(rhs))
        if plan is not None:
            swapped, numbers, have = plan
            if swapped:
                lhs, rhs = rhs, lhs
            return dot(lhs, rhs, numbers, precision, preferred_element_type=dtype), have
    lhs, ln = _drop_ones(lhs, ln, rhs, rn)
    rhs, rn = _drop_ones(rhs, rn, lhs, ln)
    lc, rc = Counter(ln), Counter(rn)
    lhs, ln = _sum_unique(lhs, ln, [n for n in removed if lc[n] == 1 and rc[n] == 0])
    rhs, rn = _sum_unique(rhs, rn, [n for n in removed if rc[n] == 1 and lc[n] == 0])
    lhs, ln = _sum_repeated(lhs, ln, lc, result + rn)
    rhs, rn = _sum_repeated(rhs, rn, rc, result + ln)
    swapped, numbers, have = _pair_numbers(ln, rn, removed, result)
    if swapped:
        lhs, rhs = rhs, lhs
    extra = {}
    if sharding is not None:
        extra["out_sharding"] = sharding if have == result else reordered(
            sharding, [result.index(n) for n in have])
    return dot(lhs, rhs, numbers, precision, preferred_element_type=dtype, **extra), have


def _pair_numbers(ln: str, rn: str, removed: Sequence[str], result: str
                  ) -> tuple[bool, Any, str]:
    """Whether the operands change places, their dimension numbers then, and the result's names."""
    both = set(ln) & set(rn)
    contracted = [n for n in removed if n in both]
    batch = [n for n in result if n in both]
    gone = [*contracted, *batch]
    l_rest, r_rest = _without(ln, gone), _without(rn, gone)
    head = "".join(batch)
    swapped = head + r_rest + l_rest == result
    if swapped:
        ln, rn, l_rest, r_rest = rn, ln, r_rest, l_rest
    numbers = ((tuple([ln.index(n) for n in contracted]), tuple([rn.index(n) for n in contracted])),
               (tuple([ln.index(n) for n in batch]), tuple([rn.index(n) for n in batch])))
    return swapped, numbers, head + l_rest + r_rest


@cached(1024)
def _plain_pair(ln: str, rn: str, removed: tuple[str, ...], result: str,
                left: tuple[int, ...], right: tuple[int, ...]) -> tuple[bool, Any, str] | None:
    """`_pair_numbers` of operands that go into the product as they are; None for others.

    left, right: shapes.
    """
    if len(set(ln)) != len(ln) or len(set(rn)) != len(rn):
        return None                                    # a diagonal
    for name in removed:
        if (name in ln) != (name in rn):
            return None                                # a sum over one operand first
    for name, n in zip(ln, left, strict=True):
        if name in rn:
            m = right[rn.index(name)]
            if n != m and (n == 1 or m == 1):
                return None                            # a dimension of size 1 broadcasts
    return _pair_numbers(ln, rn, removed, result)
