"""reshape: the same elements in row-major order under another shape.

Two dimensions correspond as far as they have *common factors*: walking both shapes from the major
side, a factor that both sides have next is one factor of the rule, and what has no counterpart is a
private factor, through which no sharding flows. So [8,4] -> [2,16] is `(i j) k -> i (j k)`, and a
split or merged dimension keeps the axes of its major part without moving anything.

Typing of Explicit axes is JAX's, and narrower: one split or one merge.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import BITCAST, CHEAP
from ...inference.unreduced import is_pending, refuse_pending
from ...kernels.merged_repeats import may_repeat, merged
from ...op import Op, Sample, defop
from ...rules.factor import REPLICATE, Kind, Split
from ...rules.rule import FactorRule, Pattern
from ...shardings.sharding import NamedSharding
from ...support.caches import cached
from ...types import ArrayType, Entries, Shape
from ..derivatives import move_first
from ..rules import (
    batch_axes,
    batch_dim,
    call,
    cotangent_sharding,
    insert_axes,
    permutation_inverse,
    reject,
    shifted,
)

Axes = tuple[str, ...]


def _infer(x: ArrayType, *, new_sizes: Shape, dimensions: tuple[int, ...] | None,
           sharding: Any) -> tuple:
    if not all(n >= 0 for n in new_sizes):
        reject(TypeError, [x], f"reshape new_sizes must all be positive, got {new_sizes}.",
               help="give sizes of 0 or more; of `jnp.reshape`, one may be -1")
    if math.prod(new_sizes) != x.size:
        reject(TypeError, [x],
               f"reshape total size must be unchanged, got new_sizes {new_sizes} (size "
               f"{math.prod(new_sizes)}) for shape {x.shape} (size {x.size}).",
               help=f"give sizes whose product is {x.size}; of `jnp.reshape`, one may be -1")
    if dimensions is not None and set(dimensions) != set(range(x.ndim)):
        reject(TypeError, [x],
               "reshape dimensions must be a permutation of operand dimensions, got "
               f"dimensions {dimensions} for shape {x.shape}.",
               help="name each dimension once, or leave dimensions out")
    return tuple(new_sizes), x.dtype


# -- the factor rule -------------------------------------------------------------------------------

@cached(4096)
def common_factors(a: Shape, b: Shape
                   ) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
    """Factors of two shapes of equal size, per dimension, as (identity, size), major to minor.

    Factors of both sides with one identity are the same; private ones have identities below zero.
    """
    if 0 in a:
        return [[(-1 - d, n)] for d, n in enumerate(a)], [
            [(-1 - d, n)] for d, n in enumerate(b, len(a))]
    left: list[list[tuple[int, int]]] = [[] for _ in a]
    right: list[list[tuple[int, int]]] = [[] for _ in b]
    shared, private_count = 0, 0
    p = q = 1                       # products of the factors emitted on either side
    i = j = 0
    rest_a, rest_b = (a[0] if a else 1), (b[0] if b else 1)
    while True:
        while rest_a == 1 and i < len(a):
            i += 1
            rest_a = a[i] if i < len(a) else 1
        while rest_b == 1 and j < len(b):
            j += 1
            rest_b = b[j] if j < len(b) else 1
        if i >= len(a) and j >= len(b):
            return left, right
        if p == q:
            g = math.gcd(rest_a, rest_b)
            if g > 1:
                left[i].append((shared, g))
                right[j].append((shared, g))
                shared += 1
                p, q = p * g, q * g
                rest_a, rest_b = rest_a // g, rest_b // g
                continue
            sides = "ab"            # nothing in common here: both go on privately
        else:
            sides = "a" if p < q else "b"
        for side in sides:
            rest, other = (rest_a, rest_b) if side == "a" else (rest_b, rest_a)
            behind, ahead = (p, q) if side == "a" else (q, p)
            f = rest
            if len(sides) == 1:
                if ahead % behind == 0 and rest % (ahead // behind) == 0:
                    f = ahead // behind
                elif rest // math.gcd(rest, other) > 1:
                    f = rest // math.gcd(rest, other)
            private_count += 1
            if side == "a":
                left[i].append((-private_count, f))
                p, rest_a = p * f, rest_a // f
            else:
                right[j].append((-private_count, f))
                q, rest_b = q * f, rest_b // f


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
          dimensions: tuple[int, ...] | None, **params: Any) -> FactorRule:
    """A factor for each common factor of the two shapes, and a private one for what has no
    counterpart.
    """
    shape = operands[0]
    if dimensions is not None:
        shape = tuple(shape[d] for d in dimensions)
    left, right = common_factors(shape, results[0])
    sizes: dict[str, int] = {}
    kinds: dict[str, Kind] = {}

    def dim(factors: list[tuple[int, int]]) -> Split:
        found = []
        for identity, n in factors:
            name = f"f{identity}" if identity >= 0 else f"p{-identity}"
            if name not in sizes and identity < 0:
                kinds[name] = (REPLICATE, "", True, ())
            sizes[name] = n
            found.append(name)
        return found[0] if len(found) == 1 else tuple(found)

    operand = [dim(f) for f in left]
    if dimensions is not None:
        inverse = permutation_inverse(dimensions)
        operand = [operand[inverse[d]] for d in range(len(operand))]
    return Pattern([operand], [[dim(f) for f in right]], kinds).rule(operands, results, sizes)


# -- Explicit axes ---------------------------------------------------------------------------------

def _unsupported(x: ArrayType, new_sizes: Shape) -> NoReturn:
    fail(ShardingTypeError,
         "This reshape is not supported. Please specify the sharding of the output via the "
         "`out_sharding` argument of jax.lax.reshape. Got operand type: "
         f"{x.str_short()}, new sizes: {tuple(new_sizes)}",
         code="reshape-sharding", label=f"operand is {x.str_short(True)}",
         notes=("only the major part of a split or merged dimension may be split over mesh axes",),
         help="say how the result is split, with `out_sharding`")


def one_group(short: Shape, long: Shape) -> list[list[int]] | None:
    """The dimensions of `long` that make up each dimension of `short`, one of them of several.

    None if `long` is not `short` with a single dimension split up; ones belong to the split
    dimension in front of them. Raises LookupError if more than one dimension is split.
    """
    tail = 0
    while tail < len(short) and short[-1 - tail] == 1 and long[-1 - tail] == 1:
        tail += 1
    groups: list[list[int]] = []
    end = len(long) - tail
    j = splits = 0
    for i, n in enumerate(short[:len(short) - tail]):
        following = short[i + 1] if i + 1 < len(short) - tail else None
        if j < end and long[j] == n:
            groups.append([j])
            j += 1
            continue
        splits += 1
        if splits > 1:
            raise LookupError
        group, product = [], 1
        while j < end and (product != n or (long[j] == 1 and following != 1)):
            product *= long[j]
            group.append(j)
            j += 1
            if product > n:
                return None
        if product != n:
            return None
        groups.append(group)
    while j < end and groups and long[j] == 1:
        groups[-1].append(j)
        j += 1
    if j != end:
        return None
    return groups + [[end + k] for k in range(tail)]


def _distribute(x: ArrayType, axes: Axes, sizes: Sequence[int], new_sizes: Shape) -> list[Axes]:
    """Axes of a dimension dealt out to its parts, major first, each part filled before the next."""
    out: list[Axes] = []
    waiting = list(axes)
    for n in sizes:
        taken = []
        while n > 1 and waiting:
            n, left = divmod(n, x.mesh.axis_size(waiting[0]))
            if left:
                _unsupported(x, new_sizes)
            taken.append(waiting.pop(0))
        out.append(tuple(taken))
    if waiting:
        _unsupported(x, new_sizes)
    return out


def _entries(x: ArrayType, new_sizes: Shape, dimensions: tuple[int, ...] | None) -> Entries:
    """The axes of the result without `out_sharding`, as JAX allows it: dimensions of size one come
    and go, one dimension is split, or one group of dimensions is merged.
    """
    if not any(x.entries):
        if is_pending(x) and len(new_sizes) < x.ndim:
            refuse_pending("reshape", [x])
        return ((),) * len(new_sizes)
    ones_apart = [n for n in x.shape if n != 1] == [n for n in new_sizes if n != 1]
    if is_pending(x) and (ones_apart or len(new_sizes) < x.ndim):
        refuse_pending("reshape", [x], iterated=True)
    if ones_apart:
        kept = iter([e for e, n in zip(x.entries, x.shape, strict=True) if n != 1])
        return tuple(next(kept) if n != 1 else () for n in new_sizes)
    if 0 in x.shape:
        _unsupported(x, new_sizes)
    try:
        if len(new_sizes) > x.ndim:
            groups = one_group(x.shape, new_sizes)
            if groups is not None:
                return _split_entries(x, groups, new_sizes, dimensions)
        elif len(new_sizes) < x.ndim:
            groups = one_group(new_sizes, x.shape)
            if groups is not None:
                return _merged_entries(x, groups, new_sizes, dimensions)
    except LookupError:
        pass
    _unsupported(x, new_sizes)


def _split_entries(x: ArrayType, groups: list[list[int]], new_sizes: Shape,
                   dimensions: tuple[int, ...] | None) -> Entries:
    """The axes of a result in which dimensions of x are split into `groups` of several."""
    out: list[Axes] = [()] * len(new_sizes)
    for group, axes in zip(groups, x.entries, strict=True):
        if len(group) == 1:
            out[group[0]] = axes
        elif axes:
            if dimensions is not None:
                _unsupported(x, new_sizes)
            parts = _distribute(x, axes, [new_sizes[d] for d in group], new_sizes)
            for d, part in zip(group, parts, strict=True):
                out[d] = part
    return tuple(out)


def _merged_entries(x: ArrayType, groups: list[list[int]], new_sizes: Shape,
                    dimensions: tuple[int, ...] | None) -> Entries:
    """The axes of a result in which `groups` of dimensions of x are merged into one each."""
    out: list[Axes] = []
    for n, group in zip(new_sizes, groups, strict=True):
        if len(group) == 1:
            out.append(x.entries[group[0]])
            continue
        parts = [x.entries[d] for d in group]
        while parts and not parts[-1]:
            parts.pop()
        if parts and (dimensions is not None or not all(parts)):
            _unsupported(x, new_sizes)
        out += _distribute(x, tuple(a for axes in parts for a in axes), [n], new_sizes)
    return tuple(out)


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: dict[str, Any]) -> list[Entries | NamedSharding]:
    """The axes of the result: as `sharding` says, whose pending axes must be those of the operand.
    """
    (x,), wanted = types, params["sharding"]
    if wanted is None:
        return [_entries(x, shapes[0], params["dimensions"])]
    for word in ("unreduced", "reduced"):
        have, requested = getattr(x.spec, word), getattr(wanted.spec, word)
        if have and have != requested:
            fail(ValueError,
                 f"out_sharding passed to reshape must be {word} over the same mesh axes as "
                 f"operand. Got out_sharding: {wanted.spec} and operand type: {x.str_short(True)}",
                 code="out-sharding",
                 help=f"write {word}={{{', '.join(map(repr, sorted(have)))}}} in out_sharding")
        if requested and not have:
            fail(ValueError,
                 f"out_sharding passed to `reshape` cannot contain {word} axes. Got {wanted}",
                 code="out-sharding", label=f"the operand is {x.str_short(True)}",
                 help=f"leave `{word}` out: a reshape starts no sum over devices" if
                 word == "unreduced" else f"leave `{word}` out: the operand has no such axes")
    return [wanted]


# -- the op ----------------------------------------------------------------------------------------

def _transpose(ct: Any, x: Any, *, new_sizes: Shape, dimensions: tuple[int, ...] | None,
               sharding: Any) -> tuple:
    """Reshape back; with `dimensions`, to the permuted operand and then permute back."""
    wanted = cotangent_sharding(x.aval)
    if dimensions is None:
        return (reshape_p.bind(ct, new_sizes=x.aval.shape, dimensions=None, sharding=wanted),)
    shape = tuple(x.aval.shape[d] for d in dimensions)
    if wanted is not None:
        spec = wanted.spec
        wanted = wanted.update(spec=spec.update(
            partitions=[spec.partitions[d] for d in dimensions]))
    ct = reshape_p.bind(ct, new_sizes=shape, dimensions=None, sharding=wanted)
    return (call("transpose", ct, permutation=permutation_inverse(dimensions)),)


def _batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *, new_sizes: Shape,
           dimensions: tuple[int, ...] | None, sharding: Any) -> tuple:
    axes = batch_axes(operands, dims)
    return [reshape_p.bind(
        move_first(operands[0], batch_dim(dims)), new_sizes=(size, *new_sizes),
        dimensions=None if dimensions is None else (0, *shifted(dimensions)),
        sharding=insert_axes(sharding, 0, axes, len(new_sizes)))], [0]


def _evaluate(lead: int, x: np.ndarray, *, new_sizes: Shape, dimensions: tuple[int, ...] | None,
              sharding: Any) -> np.ndarray:
    if dimensions is not None:
        x = x.transpose(*range(lead), *(lead + d for d in dimensions))
    shape = x.shape[:lead] + tuple(new_sizes)
    if type(x) is np.ndarray and may_repeat(x.shape, shape):
        return merged(x, shape)
    return x.reshape(shape)


def _sample(shape: Shape, new_sizes: Shape, dimensions: tuple[int, ...] | None = None) -> Sample:
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    return Sample((x,), {"new_sizes": new_sizes, "dimensions": dimensions, "sharding": None})


reshape_p = defop(
    "reshape",
    doc="The elements in row-major order (of the dimensions in the order `dimensions`) as "
        "`new_sizes`.",
    infer=_infer, rule=_rule, explicit=_explicit, pending="keep", sharding_param="sharding",
    linear=((0,),), jvp="linear", transpose=_transpose, batch=_batch,
    evaluate=_evaluate, arithmetic=False, facts=(BITCAST, CHEAP),
    resize=lambda params, operands, results: {**params, "new_sizes": results[0]},
    samples=lambda: [_sample((8, 4), (2, 16)), _sample((2, 4, 3), (8, 3)), _sample((12,), (3, 4)),
                     _sample((4, 1, 6), (4, 6)), _sample((6, 4), (4, 6)),
                     _sample((2, 3), (6,), (1, 0))])
