"""The effect of collectives on block shapes, and their factor rules along mesh axes that are not
Manual.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...diagnostics.diagnostic import fail
from ...inference.explicit import follow_policy
from ...op import Op
from ...rules.rule import FactorRule, make_rule
from ...types import ArrayType, Entries, Shape
from ..rules import rule_text

Axes = tuple[str, ...]


def same(t: ArrayType, **_: Any) -> tuple:
    return t.shape, t.dtype


def gathered(t: ArrayType, *, all_gather_dimension: int, axis_size: int, tiled: bool, **_: Any
              ) -> tuple:
    d, shape = all_gather_dimension, t.shape
    if tiled:
        if not 0 <= d < len(shape):
            raise ValueError(f"axis {d} is out of bounds for array of dimension {len(shape)}")
        return (*shape[:d], shape[d] * axis_size, *shape[d + 1:]), t.dtype
    return (*shape[:d], axis_size, *shape[d:]), t.dtype


def scattered(t: ArrayType, *, scatter_dimension: int, axis_size: int, tiled: bool, **_: Any
               ) -> tuple:
    """Shape and dtype of a block after a reduce-scatter: `scatter_dimension` is divided by the size
    of the group, or disappears if it has that size and is not tiled.
    """
    d, shape = scatter_dimension, t.shape
    if not 0 <= d < len(shape):
        raise ValueError(f"axis {d} is out of bounds for array of dimension {len(shape)}")
    if tiled:
        if shape[d] % axis_size:
            fail(ValueError, f"tiled reduce_scatter operand scatter dimension size {shape[d]} must "
                 f"be divisible by shard_count {axis_size}", code="indivisible",
                 label=f"the operand is {t.str_short(True)}",
                 help=f"pad the dimension to a multiple of {axis_size}")
        return (*shape[:d], shape[d] // axis_size, *shape[d + 1:]), t.dtype
    if shape[d] != axis_size:
        fail(ValueError, f"reduce_scatter operand scatter dimension size {shape[d]} must match "
             f"shard count {axis_size}", code="indivisible",
             label=f"the operand is {t.str_short(True)}",
             help="give `tiled` to keep the dimension and divide its size")
    return shape[:d] + shape[d + 1:], t.dtype


def exchanged(t: ArrayType, *, split_axis: int, concat_axis: int, axis_size: int, tiled: bool,
              **_: Any) -> tuple:
    """Shape and dtype of a block after an all-to-all: `split_axis` is divided by the size of the
    group and `concat_axis` multiplied; if not tiled, a dimension of that size moves.
    """
    shape = list(t.shape)
    if tiled:
        if shape[split_axis] % axis_size:
            fail(ValueError, f"The size of all_to_all split_axis ({shape[split_axis]}) has to be "
                 f"divisible by the size of the named axis ({axis_size})", code="indivisible",
                 label=f"the operand is {t.str_short(True)}",
                 help=f"pad the dimension to a multiple of {axis_size}")
        shape[split_axis] //= axis_size
        shape[concat_axis] *= axis_size
        return tuple(shape), t.dtype
    if shape[split_axis] != axis_size:
        fail(ValueError, "all_to_all requires the size of the mapped axis axis_name to equal "
             f"x.shape[split_axis], but they are {axis_size} and {shape[split_axis]} respectively.",
             code="indivisible", label=f"the operand is {t.str_short(True)}",
             help="give `tiled` to keep the dimension and divide its size")
    del shape[split_axis]
    shape.insert(concat_axis, axis_size)
    return tuple(shape), t.dtype


def sliced(t: ArrayType, *, axes: Axes, dimension: int, axis_size: int) -> tuple:
    n = t.shape[dimension]
    if n % axis_size:
        fail(ValueError, f"all_slice cannot cut dimension {dimension} of size {n} into {axis_size} "
             "blocks", code="indivisible",
             help=f"pad the dimension with `jnp.pad` to a multiple of {axis_size}")
    return (*t.shape[:dimension], n // axis_size, *t.shape[dimension + 1:]), t.dtype


# -- factor rules, for the axes of the mesh that are not Manual -----------------------------------

def _dims(ops: tuple, letter: str = "d") -> list[str]:
    return [f"{letter}{i}" for i in range(len(ops[0]))]


def _rule(ops: tuple, results: tuple, left: list[str], right: list[str]) -> FactorRule:
    """The rule of these dimensions, of which those that are on one side alone are not split."""
    alone = [d for d in (*left, *right) if (d in left) != (d in right)]
    return make_rule(rule_text([left], [right], [f"{d}!:replicate" for d in alone]), ops, results)


def gather_rule(ops: tuple, results: tuple, *, all_gather_dimension: int, tiled: bool, **_: Any
                 ) -> FactorRule:
    dims = _dims(ops)
    dims[all_gather_dimension:all_gather_dimension + tiled] = ["g"]
    return _rule(ops, results, _dims(ops), dims)


def same_positions(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                   params: dict[str, Any]) -> list[Entries]:
    """Explicit axes of a tiled exchange: each dimension keeps those of the operand, as in JAX.

    What is put together from blocks is another block of the dimension, so values have to move. The
    axes of a dimension that they do not divide any more are dropped, and without tiles each goes
    with its dimension.
    """
    if not params["tiled"]:
        return follow_policy(op, types, shapes, params)
    mesh = types[0].mesh.shape
    return [tuple(e if n % math.prod(mesh[a] for a in e) == 0 else ()
                  for n, e in zip(shapes[0], types[0].entries, strict=True))]


def scatter_rule(ops: tuple, results: tuple, *, scatter_dimension: int, tiled: bool, **_: Any
                  ) -> FactorRule:
    dims = _dims(ops)
    dims[scatter_dimension:scatter_dimension + 1] = ["s"] * tiled
    return _rule(ops, results, _dims(ops), dims)


def exchange_rule(ops: tuple, results: tuple, *, split_axis: int, concat_axis: int, tiled: bool,
                  **_: Any) -> FactorRule:
    dims = _dims(ops)
    dims[split_axis:split_axis + 1] = ["s"] * tiled
    dims[concat_axis:concat_axis + tiled] = ["c"]
    return _rule(ops, results, _dims(ops), dims)


def slice_rule(ops: tuple, results: tuple, *, dimension: int, **_: Any) -> FactorRule:
    dims = _dims(ops)
    dims[dimension] = "s"
    return _rule(ops, results, _dims(ops), dims)


def unrelated(ops: tuple, results: tuple, **_: Any) -> FactorRule:
    """No dimension of the operand goes with one of the result: blocks are cut anew."""
    return _rule(ops, results, _dims(ops, "a"), _dims(results, "b"))
