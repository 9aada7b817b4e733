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
    d, shape = scatter_dimension, t.shape
    if not 0 <= d < len(shape):
        raise ValueError(f"axis {d} is out of bounds for array of dimension {len(shape)}")
    if tiled:
        if shape[d] % axis_size:
            fail(ValueError, f"tiled reduce_scatter operand scatter dimension size {shape[d]} must "
                 f"be divisible by shard_count {axis_size}", code="indivisible",
                 label=f"the operand is {t.str_short(True)}")
        return (*shape[:d], shape[d] // axis_size, *shape[d + 1:]), t.dtype
    if shape[d] != axis_size:
        fail(ValueError, f"reduce_scatter operand scatter dimension size {shape[d]} must match "
             f"shard count {axis_size}", code="indivisible",
             label=f"the operand is {t.str_short(True)}",
             help="give `tiled` to keep the dimension and divide its size")
    return shape[:d] + shape[d + 1:], t.dtype


def exchanged(t: ArrayType, *, split_axis: int, concat_axis: int, axis_size: int, tiled: bool,
              **_: Any) -> tuple:
    shape = list(t.shape)
    if tiled:
        if shape[split_axis] % axis_size:
            fail(ValueError, f"The size of all_to_all split_axis ({shape[split_axis]}) has to be "
                 f"divisible by the size of the named axis ({axis_size})", code="indivisible",
                 label=f"the operand is {t.str_short(True)}")
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
             "blocks", code="indivisible")
    return (*t.shape[:dimension], n // axis_size, *t.shape[dimension + 1:]), t.dtype


# -- factor rules, for the axes of the mesh that are not Manual -----------------------------------

def _names(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


def _rule_text(left: list[str], right: list[str], private: Sequence[str]) -> str:
    kinds = " ".join(f"{p}!:replicate" for p in private)
    return f"{' '.join(left)} -> {' '.join(right)}" + (f" | {kinds}" if kinds else "")


def gather_rule(ops: tuple, results: tuple, *, all_gather_dimension: int, tiled: bool, **_: Any
                 ) -> FactorRule:
    left = _names(len(ops[0]))
    right, private = list(left), ["g"]
    if tiled:
        right[all_gather_dimension] = "g"
        private.append(left[all_gather_dimension])
    else:
        right.insert(all_gather_dimension, "g")
    return make_rule(_rule_text(left, right, private), ops, results)


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
    left = _names(len(ops[0]))
    right, private = list(left), [left[scatter_dimension]]
    if tiled:
        right[scatter_dimension] = "s"
        private.append("s")
    else:
        del right[scatter_dimension]
    return make_rule(_rule_text(left, right, private), ops, results)


def exchange_rule(ops: tuple, results: tuple, *, split_axis: int, concat_axis: int, tiled: bool,
                  **_: Any) -> FactorRule:
    left = _names(len(ops[0]))
    right, private = list(left), [left[split_axis]]
    if tiled:
        right[split_axis] = "s"
        private.append("s")
        if concat_axis != split_axis:
            private.append(left[concat_axis])
        right[concat_axis] = "c"
        private.append("c")
        private = [p for p in private if p in left or p in right]
    else:
        del right[split_axis]
        right.insert(concat_axis, "c")
        private.append("c")
    return make_rule(_rule_text(left, right, private), ops, results)


def slice_rule(ops: tuple, results: tuple, *, dimension: int, **_: Any) -> FactorRule:
    left = _names(len(ops[0]))
    right = list(left)
    right[dimension] = "s"
    return make_rule(_rule_text(left, right, [left[dimension], "s"]), ops, results)


def unrelated(ops: tuple, results: tuple, **_: Any) -> FactorRule:
    """No dimension of the operand goes with one of the result: blocks are cut anew."""
    left = [f"a{d}" for d in range(len(ops[0]))]
    right = [f"b{d}" for d in range(len(results[0]))]
    return make_rule(_rule_text(left, right, [*left, *right]), ops, results)
