"""An op by its name: the types that it infers, and the values that it evaluates to."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardtrace.ir.inference.infer import infer
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.ops.dialect import OPS, Op
from shardtrace.ir.settings.context import interpreter_context
from shardtrace.ir.text.parse import parse_type
from shardtrace.ir.types import ArrayType


def inferred(mesh: AbstractMesh, name: str, operands: str | Sequence[ArrayType],
             **params: Any) -> str:
    """Result types as text. operands: types, or their text: `f32[4@x] f32[4]`."""
    if isinstance(operands, str):
        operands = [parse_type(t, mesh) for t in operands.split()]
    return " ".join(t.str_short(True) for t in infer(OPS[name], tuple(operands), params, mesh))


def evaluate(name: str, *arrays: Any, **params: Any) -> Any:
    with np.errstate(all="ignore"):
        return OPS[name].evaluate(0, *(np.asarray(a) for a in arrays), **params)


class Evaluating:
    """An interpreter that computes with evaluators, on numpy arrays."""

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        arrays = [np.asarray(x) for x in operands]
        if op.rule == "... -> ...":
            rank = max(x.ndim for x in arrays)
            arrays = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays]
        out = evaluate(op.name, *arrays, **params)
        return list(out) if op.multiple_results else [out]


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """Within it ops compute at once: rules of derivatives give numbers."""
    with interpreter_context(Evaluating()):
        yield
