"""triangular_solve: x with a x = b (or x a = b) for triangular a.

The dimension of b that the solution does not mix passes through: columns of b are solved each by
themselves, so they may lie on different devices.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...facts import IN_PLACE, DeviceCost, Types
from ...kernels.matrices.blas_threads import by_lapack
from ...kernels.matrices.linalg import triangular_solve
from ...op import LinearOperand, Op, Sample, defop
from ...types import ArrayType, Entries, Shape, short_list
from ..elementwise.declaration import INEXACT, check_accepted, check_same_dtypes
from ..rules import reject, rule_text
from .decomposition_derivatives import triangular_jvp_a

Params = dict[str, Any]


def _infer(a: ArrayType, b: ArrayType, *, left_side: bool, **params: Any) -> tuple:
    """Square a of at least two dimensions, and b with as many rows (or columns); the solution is as
    b.
    """
    types = [a, b]
    for i, t in enumerate(types):
        check_accepted("triangular_solve", t, INEXACT, i)
    check_same_dtypes("triangular_solve", types)
    if a.ndim < 2 or b.ndim < 2:
        reject(TypeError, types, f"triangular_solve requires inputs of rank 2 or more, got shapes "
               f"{a.shape} and {b.shape}.",
               help="`jnp.expand_dims` makes a vector a matrix of one column")
    if a.shape[:-2] != b.shape[:-2]:
        reject(TypeError, types, "triangular_solve requires the leading dimensions of its inputs "
               f"to be equal, got {a.shape[:-2]} and {b.shape[:-2]}.",
               help="`jnp.broadcast_to` gives both the same leading dimensions")
    if a.shape[-2] != a.shape[-1]:
        reject(ValueError, types, "The first input to triangular_solve must be a square matrix. "
               f"Got shape {a.shape[-2:]}.",
               help="slice the square part out of it; `jnp.linalg.lstsq` solves with other "
                    "matrices")
    if a.shape[-1] != b.shape[-2 if left_side else -1]:
        reject(ValueError, types, "Incompatible shapes for arguments to triangular_solve: "
               f"{a.shape[-2:]} and {b.shape[-2:]}.",
               help="the rows of `b`, or with left_side=False its columns, are as many as those "
                    "of `a`")
    return b.shape, b.dtype


def _rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *, left_side: bool,
          **params: Any) -> str:
    batch = [f"b{d}" for d in range(len(operands[0]) - 2)]
    of_b, of_x = (["k", "j"], ["i", "j"]) if left_side else (["j", "k"], ["j", "i"])
    return rule_text([[*batch, "m", "n"], [*batch, *of_b]], [[*batch, *of_x]],
                     [f"{name}!:replicate" for name in "mnki"])


def _explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
              params: Params) -> list[Entries]:
    """Batch dimensions must be split alike, what the solution mixes must be whole; the solution has
    the axes of the others.
    """
    a, b = types
    left, flip = params["left_side"], params["transpose_a"]
    label = f"operands are {short_list(types)}"
    if a.entries[:-2] != b.entries[:-2]:
        batches = [t.spec.partitions[:-2] for t in types]
        fail(ShardingTypeError, "All inputs to triangular_solve must have the same batch sharding, "
             f"but got {batches[0]} and {batches[1]}.", code="sharding-conflict", label=label,
             help="bring both to one spec with `reshard`")
    matrix_axes, rhs_axes = a.entries[-2:], b.entries[-2:]
    for name, t, axes in (("a", a, matrix_axes[left ^ flip]), ("b", b, rhs_axes[not left])):
        if axes:
            fail(ShardingTypeError, f"triangular solve input `{name}` must be unsharded on the "
                 f"contracting axis, but got {t.spec} with left_side={left} and "
                 f"transpose_a={flip}.", code="sharded-matrix", label=label,
                 help=f"gather `{name}` along that dimension first, with `reshard`")
    last = (matrix_axes[flip], rhs_axes[1]) if left else (rhs_axes[0], matrix_axes[not flip])
    return [(*a.entries[:-2], *last)]


def _transpose(ct: Any, a: Any, b: Any, *, transpose_a: bool, **params: Any) -> tuple:
    if not isinstance(b, LinearOperand):
        return None, None
    return None, triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params)


def _flops(operands: Types, results: Types, params: Params) -> float:
    (x,), n = results, operands[0].shape[-1]
    return float(x.size * n)


def _sample(left: bool, lower: bool, flip: bool, unit: bool) -> Sample:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(3, 3)) + 4 * np.eye(3)).astype(np.float32)
    b = rng.normal(size=(3, 2) if left else (2, 3)).astype(np.float32)

    return Sample((a, b), {"left_side": left, "lower": lower, "transpose_a": flip,
                           "conjugate_a": False, "unit_diagonal": unit})


triangular_solve_p = defop(
    "triangular_solve",
    doc="x with a x = b if left_side, else with x a = b; a is triangular, perhaps transposed.",
    infer=_infer, rule=_rule, explicit=_explicit,
    linear=((1,),), passes_sums="never",
    jvp=(triangular_jvp_a, lambda g, out, a, b, **params: triangular_solve_p.bind(a, g, **params)),
    transpose=_transpose,
    evaluate=by_lapack(triangular_solve),
    facts=(IN_PLACE,), cost=DeviceCost(_flops),
    jax="linalg.triangular_solve_p.bind",
    samples=lambda: [_sample(True, True, False, False), _sample(False, False, True, False),
                     _sample(True, False, True, True), _sample(False, True, False, True)])
