"""Differentiates a function at a point, on flat values: shared by grad, vjp and the like."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import float0
from ...ir.meshes.mesh import Mesh
from ...ir.op import OPS
from ...ir.program import Program, Var
from ...ir.settings.context import STATE
from ...ir.settings.phases import phase
from ...ir.support.immutable import immutable
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from ..staging.builder import Builder
from ..staging.signature import function_name
from ..staging.tracer import Tracer
from ..trees import tree
from .custom import custom_jvp, custom_vjp
from .forward import Linear, Mask, linearize_program, push_program
from .nested import branches, calls, loops, regions, while_loops
from .recording import Recording, record
from .replay import Scalar, as_operand, operand

# Importing them enters their rules.
RULES = (branches, calls, custom_jvp, custom_vjp, loops, regions, while_loops)


@immutable
class Point:
    """A function recorded at a point.

    results: its first ones, `count`, are differentiated, the others are auxiliary.
    out_tree, aux_tree: of the two parts. aux: leaves of the second, results or plain objects.
    """
    program: Program
    recording: Recording
    env: dict[Var, Any]
    count: int
    out_tree: Any
    aux_tree: Any
    aux: list[Any]

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        return tuple(self.recording.meshes)

    def auxiliary(self, outs: Sequence[Any]) -> Any:
        """The auxiliary data, traced leaves replaced by their values."""
        values = iter(outs[self.count:])
        return tree.unflatten(self.aux_tree, [
            finished(next(values)) if isinstance(x, Tracer) else x for x in self.aux])


def differentiable(f: Callable[..., Any], primals: Sequence[Any], in_tree: Any, *,
                   has_aux: bool = False, word: str = "GradTracer") -> Point:
    """Record `f` on flat primals (see `as_operand`); `in_tree` is that of its argument tuple."""
    notes: dict[str, Any] = {}

    def flat(*values: Any) -> list[Any]:
        result = f(*tree.unflatten(in_tree, values))
        aux: Any = ()
        if has_aux:
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(
                    "expected function with aux output to return a two-element tuple, but got "
                    f"type {type(result)} with value {result!r}")
            result, aux = result
        outs, notes["out_tree"] = tree.flatten(result)
        for x in outs:
            typeof(x)                 # raises TypeError for what is no array
        notes["aux"], notes["aux_tree"] = tree.flatten(aux)
        notes["count"] = len(outs)
        return [*outs, *(x for x in notes["aux"] if isinstance(x, Tracer))]

    program, recording = record(flat, [typeof(x) for x in primals], name=function_name(f),
                                values=primals, word=word)
    env = dict(recording.known())
    return Point(program, recording, env, notes["count"], notes["out_tree"], notes["aux_tree"],
                 notes["aux"])


def _mask(point: Point, moving: Sequence[bool]) -> Mask:
    captured = len(point.program.invars) - len(moving)
    return (False,) * captured + tuple(moving)


def linearized(point: Point, moving: Sequence[bool]) -> tuple[list[Any], Linear, Mask]:
    """(results, the linear map from tangents to those of results, which results move)."""
    wanted = [i < point.count for i in range(len(point.program.outvars))]
    with phase("linearize", len(point.program.eqns)), named_meshes(point.meshes):
        return linearize_program(point.program, point.env, _mask(point, moving), wanted)


def pushed(point: Point, tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(results, tangents of the differentiated ones); tangents are None where zero."""
    program, env = point.program, dict(point.env)
    captured = len(program.invars) - len(tangents)
    found = {v: t for v, t in zip(program.invars[captured:], tangents, strict=True)
             if t is not None}
    wanted = program.outvars[:point.count]
    with named_meshes(point.meshes):
        push_program(program, env, found, wanted, STATE.interpreter)
    return ([operand(a, env) for a in program.outvars],
            [found.get(a) if isinstance(a, Var) else None for a in wanted])


class named_meshes:
    """Let constants that a derivative makes outside of jit live on these meshes, within the block.
    """

    __slots__ = ("meshes", "saved")

    def __init__(self, meshes: Sequence[Mesh]) -> None:
        self.meshes = meshes

    def __enter__(self) -> None:
        state, meshes = STATE, self.meshes
        saved = self.saved = state.eager_meshes
        if not meshes:
            return
        interpreter = state.interpreter
        if isinstance(interpreter, Builder):
            interpreter.meshes.extend(m for m in meshes if m not in interpreter.meshes)
        else:
            state.eager_meshes = (*saved, *(m for m in meshes if m not in saved))

    def __exit__(self, *exc: object) -> None:
        STATE.eager_meshes = self.saved


# -- values at the border --------------------------------------------------------------------------

def flat_operands(values: Sequence[Any]) -> list[Any]:
    """Arguments as rules take them; raises TypeError for values that are not arrays."""
    for x in values:
        typeof(x)
    return [as_operand(x) for x in values]


def finished(x: Any) -> Any:
    """A value as the user gets it: an array, or a tracer where something is being traced."""
    if isinstance(x, Array) and not isinstance(x, Scalar):
        return x
    if getattr(x, "dtype", None) == float0:
        return x                              # float0: a numpy array, as in JAX
    interpreter = STATE.interpreter
    if isinstance(interpreter, Builder):
        return Tracer(interpreter, interpreter.atom(x))  # type: ignore[arg-type]
    return OPS["copy"].bind(x)
