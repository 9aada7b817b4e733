"""Building blocks for declaring structural ops: rule text, typing, batch dimensions.

Ops of other modules are called by name (`call("reduce_sum", x, axes=...)`), because rules need each
other: a broadcast transposes to a sum, a sum to a broadcast. What rules need of elementwise ops is
in derivatives.py.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from ..diagnostics.diagnostic import fail
from ..diagnostics.errors import ShardingTypeError
from ..meshes.manual_state import ManualState
from ..op import LinearOperand, Op
from ..shardings.sharding import NamedSharding, named_sharding_abstract
from ..spec import spec_from_entries
from ..types import ArrayType, Entries, Shape, short_list
from .derivatives import call as call
from .derivatives import cotangent_type, explicit_sharding, type_of, zeros_like

Axes = tuple[str, ...]
Dim = str | tuple[str, ...]     # of a rule: a factor, a tuple of factors, or "1"


def reject(cls: type[Exception], types: Sequence[ArrayType], message: str, help: str = ""
           ) -> NoReturn:
    """Raise JAX's error about operands or params, with the operand types and the user's line.

    help: what would be right.
    """
    label = f"operand{'s are' if len(types) > 1 else ' is'} {short_list(types)}" if types else ""
    fail(cls, message, code="invalid-operands", label=label, help=help or ())


# -- derivatives -----------------------------------------------------------------------------------

def zeros(aval: ArrayType) -> Any:
    """The zero of this type: its sharding and what it varies over included."""
    return zeros_like(LinearOperand(aval))


def cotangent_sharding(aval: ArrayType) -> NamedSharding | None:
    """The out_sharding that gives a cotangent of a value of this type: U and R change places."""
    return explicit_sharding(cotangent_type(aval))


def with_entries(sharding: NamedSharding, entries: Iterable[Axes]) -> NamedSharding:
    """A sharding with other axes for the dimensions; mesh, unreduced and reduced axes stay."""
    spec = sharding.spec
    spec = spec_from_entries(tuple(entries), spec.unreduced, spec.reduced)
    return named_sharding_abstract(sharding.mesh.abstract_mesh, spec)


# -- batching --------------------------------------------------------------------------------------

def batch_axes(operands: Sequence[Any], dims: Sequence[int | None]) -> Axes:
    """The Explicit axes that split the batch dimension of the batched operands."""
    for x, dim in zip(operands, dims, strict=True):
        if dim is not None:
            return type_of(x).entries[dim]
    return ()


def batch_dim(dims: Sequence[int | None]) -> int:
    """The batch dimension of the only operand."""
    (dim,) = dims
    assert dim is not None
    return dim


def insert_axes(sharding: NamedSharding | None, dim: int, axes: Axes,
                ndim: int) -> NamedSharding | None:
    """An out_sharding of an unbatched result of rank `ndim`, with the batch dimension at `dim`."""
    if sharding is None:
        return None
    entries = sharding.spec.entries + ((),) * (ndim - len(sharding.spec.entries))
    return with_entries(sharding, (*entries[:dim], axes, *entries[dim:]))


def shifted(dims: Iterable[int], by: int = 1) -> tuple[int, ...]:
    """Dimension numbers after `by` new dimensions in front."""
    return tuple(d + by for d in dims)


def permutation_inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    inverse = [0] * len(permutation)
    for i, p in enumerate(permutation):
        inverse[p] = i
    return tuple(inverse)


# -- factor rules ----------------------------------------------------------------------------------

def rule_text(operands: Sequence[Sequence[Dim]], results: Sequence[Sequence[Dim]],
              kinds: Iterable[str] = ()) -> str:
    """Rule text of these dimensions; kinds like `"k:sum"`."""
    def side(maps: Sequence[Sequence[Dim]]) -> str:
        return ", ".join(" ".join(d if isinstance(d, str) else "(" + " ".join(d) + ")" if d
                                  else "1" for d in dims) for dims in maps)

    tail = " ".join(kinds)
    return f"{side(operands)} -> {side(results)}" + (f" | {tail}" if tail else "")


def names(prefix: str, count: int) -> list[str]:
    """`[i]` or `[i0, i1, ...]`."""
    return [prefix] if count == 1 else [f"{prefix}{n}" for n in range(count)]


# -- explicit typing -------------------------------------------------------------------------------

def resized_entries(verb: str, t: ArrayType, shape: Shape) -> Entries:
    """The entries of `t` for a result of another size, where they divide it.

    JAX's rule for slices, pads, windows and convolutions: a split dimension whose size changed
    must still be divisible by its axes.
    """
    for n, m, axes in zip(t.shape, shape, t.entries, strict=True):
        if axes and n != m:
            parts = 1
            for axis in axes:
                parts *= t.mesh.axis_size(axis)
            if m % parts:
                entry = axes[0] if len(axes) == 1 else axes
                fail(ShardingTypeError,
                     f"{verb} on sharded dims where out dim ({m}) is not divisible by mesh axes "
                     f"({parts}) with spec ({entry}) is not implemented. Got input "
                     f"type={t.str_short(True)} and output shape={tuple(shape)}",
                     code="indivisible-result",
                     label=f"the result would have {m} elements over {parts} devices",
                     help=f"gather the dimension over {', '.join(axes)} first, with `reshard`")
    return t.entries


# -- ops that hold programs ------------------------------------------------------------------------

def no_rule(why: str) -> Callable[..., NoReturn]:
    """The `rule` of an op that is gone, or passes layouts on to its programs, before one is asked
    for."""
    def rule(operand_shapes: tuple, result_shapes: tuple, **params: Any) -> NoReturn:
        raise TypeError(why)
    return rule


CALL_RULE = no_rule("a call has no factor rule: its program is inlined before partitioning")


def states_of(param: str) -> Callable[..., list[ManualState]]:
    """The `manual` of an op whose results are those of the program, or programs, in a param."""
    def manual(op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> list[ManualState]:
        held = params[param]
        program = held[0] if isinstance(held, tuple) else held
        return [t.manual for t in program.out_avals]
    return manual
