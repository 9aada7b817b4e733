"""Operations that hold regions: calls, loops, branches, reductions, scatters, sorts."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.dialect import OPS
from ...ir.ops.gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from ...ir.support.lazy import lazy_import
from ...tracer import lax
from ...tracer.batching.vmap import vmap
from ...tracer.lax.control.branches import switch
from ...tracer.lax.control.loops import scan, while_loop
from ...tracer.lax.indexed import scatter_apply
from ...tracer.lax.on_demand.window_reductions import reduce_window
from ...tracer.lax.reduction import reduce
from .attributes import constant_of, python_of, shape_and_dtype, word_of
from .ops import with_last
from .replay import Replay, rule

hlo = lazy_import("jaxlib.mlir.dialects.stablehlo")

_KNOWN: dict[str, Callable[..., Any]] = {
    "stablehlo.add": lax.add, "stablehlo.multiply": lax.mul, "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min, "stablehlo.and": lax.bitwise_and,
    "stablehlo.or": lax.bitwise_or, "stablehlo.xor": lax.bitwise_xor,
    "stablehlo.subtract": lax.sub}


def _source(value: Any) -> Any:
    """The value under constraints that restate it with a sharding."""
    while not _is_argument(value) and value.owner.name == "sdy.sharding_constraint":
        value = value.owner.operands[0]
    return value


def _is_argument(value: Any) -> bool:
    return hasattr(value, "arg_number")


def _results(region: Any) -> list[Any]:
    *_, last = region.blocks[0].operations
    return [_source(v) for v in last.operation.operands]


def binary_function(region: Any) -> Callable[..., Any] | None:
    """The function of two operands that a region is, if it is one operation applied to both."""
    (left, right), (found,) = list(region.blocks[0].arguments)[:2], _results(region)[:1]
    if len(_results(region)) != 1 or _is_argument(found) or len(region.blocks[0].arguments) != 2:
        return None
    operands = [_source(v) for v in found.owner.operands]
    function = _KNOWN.get(found.owner.name)
    if operands == [left, right] or (operands == [right, left] and function is not lax.sub):
        return function
    return None


@rule("func.call")
def _call(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return replay.call(python_of(op.attributes["callee"]), x)


@rule("stablehlo.composite")
def _composite(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return replay.call(python_of(op.attributes["decomposition"]), x)


# -- loops and branches ----------------------------------------------------------------------------

@rule("stablehlo.while")
def _while(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """A loop that counts up to a constant is a `scan`, whose number of steps is known."""
    test, body = (replay.function(r) for r in op.regions)
    steps = _count(op, x)
    if steps is None:
        return while_loop(lambda carry: test(*carry)[0], lambda carry: body(*carry), list(x))
    return scan(lambda carry, _: (body(*carry), None), list(x), None, length=steps)[0]


def _count(op: Any, x: Sequence[Any]) -> int | None:
    """How often a loop runs: one operand is compared with a constant, and grows by a constant."""
    test, body = op.regions
    (found,) = _results(test)
    if _is_argument(found) or found.owner.name != "stablehlo.compare" or word_of(
            found.owner.attributes["comparison_direction"]) != "LT":
        return None
    counter, end = map(_source, found.owner.operands)
    limit = _constant(end)
    if not _is_argument(counter) or counter.owner != test.blocks[0] or limit is None:
        return None
    k = counter.arg_number
    grown = _results(body)[k]
    if _is_argument(grown) or grown.owner.name != "stablehlo.add":
        return None
    before, step = map(_source, grown.owner.operands)
    by = _constant(step)
    first = x[k]
    if before != body.blocks[0].arguments[k] or not by or by < 0 or not isinstance(
            first, np.ndarray):
        return None
    return max(0, -(-(limit - int(first)) // by))


def _constant(value: Any) -> int | None:
    if _is_argument(value) or value.owner.name != "stablehlo.constant":
        return None
    found = constant_of(value.owner)
    return int(found) if found.ndim == 0 and found.dtype.kind in "iu" else None


@rule("stablehlo.case")
def _case(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """An index without a branch selects the last one."""
    branches = [replay.function(r) for r in op.regions]
    index, last = x[0], np.int32(len(branches) - 1)
    if not _is_in_range(op.operands[0]):
        outside = lax.bitwise_or(lax.lt(index, np.int32(0)), lax.gt(index, last))
        index = lax.select(outside, lax.full_like(index, last), index)
    return switch(index, branches)


def _is_in_range(index: Any) -> bool:
    """Is it a truth value, or clamped? Then it is the number of a branch."""
    if _is_argument(index):
        return False
    owner = index.owner
    return owner.name == "stablehlo.clamp" or (
        owner.name == "stablehlo.convert"
        and shape_and_dtype(owner.operands[0].type)[1] == np.bool_)


@rule("stablehlo.if")
def _if(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    true, false = (replay.function(r) for r in op.regions)
    return switch(lax.convert_element_type(x[0], np.int32), [false, true])


@rule("stablehlo.map")
def _map(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return _elementwise(replay.function(op.regions[0]))(*x)


def _elementwise(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function of scalars, for arrays of one shape."""
    def apply(*arrays: Any) -> Any:
        function = run
        for _ in np.shape(arrays[0]):
            function = vmap(function)
        return function(*arrays)
    return apply


# -- reductions ------------------------------------------------------------------------------------

def _combined(replay: Replay, region: Any, half: int) -> Callable[..., Any]:
    """A region as a function of two tuples, or of two values."""
    function = binary_function(region)
    if function is not None:
        return function
    run = _elementwise(replay.function(region))
    if half == 1:
        return lambda a, b: run(a, b)[0]
    return lambda a, b: run(*a, *b)


@rule("stablehlo.reduce")
def _reduce(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    half, dims = len(x) // 2, python_of(op.attributes["dimensions"])
    combine = _combined(replay, op.regions[0], half)
    if half == 1:
        return reduce(x[0], x[1], combine, dims)
    return reduce(list(x[:half]), list(x[half:]), combine, dims)


@rule("stablehlo.reduce_window")
def _reduce_window(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """`lax.reduce_window`, by the computation in the region."""
    half = len(x) // 2
    window = python_of(op.attributes["window_dimensions"])
    ones = (1,) * len(window)
    strides, base, dilation = (
        python_of(op.attributes[name]) if name in op.attributes else ones for name in (
            "window_strides", "base_dilations", "window_dilations"))
    combine = _combined(replay, op.regions[0], half)
    given = (x[0], x[1]) if half == 1 else (list(x[:half]), list(x[half:]))
    pads: Any = _padding(op, len(window))
    return reduce_window(*given, combine, window, strides, pads, base, dilation)


def _padding(op: Any, ndim: int) -> list[tuple[int, int]]:
    if "padding" not in op.attributes:
        return [(0, 0)] * ndim
    return [(int(a), int(b)) for a, b in python_of(op.attributes["padding"])]


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """The gradient of pooling by an extreme, which is all that JAX writes as this operation; others
    are refused.
    """
    select, scatter = op.regions
    (found,) = _results(select)
    direction = "" if _is_argument(found) or found.owner.name != "stablehlo.compare" else word_of(
        found.owner.attributes["comparison_direction"]).lower()
    init = x[2]
    if direction not in ("ge", "le") or binary_function(scatter) is not lax.add or not (
            isinstance(init, np.ndarray) and init == 0):
        fail(NotImplementedError, "from_stablehlo: a select_and_scatter that is not the gradient "
             "of pooling by a maximum or minimum", code="unknown-operation", location=replay.place,
             help="select by GE or LE, and add from 0")
    window = python_of(op.attributes["window_dimensions"])
    strides = python_of(op.attributes["window_strides"]) if (
        "window_strides" in op.attributes) else (1,) * len(window)
    return OPS["select_and_scatter_add"].bind(
        x[1], x[0], select_prim=direction, window_dimensions=window, window_strides=strides,
        padding=tuple(_padding(op, len(window))))


# -- scatters and sorts ----------------------------------------------------------------------------

_SCATTERS = {lax.add: lax.scatter_add, lax.sub: lax.scatter_sub, lax.mul: lax.scatter_mul,
             lax.min: lax.scatter_min, lax.max: lax.scatter_max}


@rule("stablehlo.scatter")
def _scatter(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """Updates whose positions leave the operand are left out."""
    region = op.regions[0]
    if len(x) != 3:
        fail(NotImplementedError, f"from_stablehlo: a scatter into {len(x) // 2} arrays at once",
             code="unknown-operation", location=replay.place, help="scatter into each by itself")
    d = hlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    numbers = ScatterDimensionNumbers(*map(tuple, (
        d.update_window_dims, d.inserted_window_dims, d.scattered_dims_to_operand_dims,
        d.input_batching_dims, d.scatter_indices_batching_dims)))
    indices = with_last(x[1], d.index_vector_dim)
    options = {name: python_of(op.attributes[name]) for name in (
        "indices_are_sorted", "unique_indices") if name in op.attributes}
    options["mode"] = GatherScatterMode.FILL_OR_DROP
    (found,) = _results(region)
    if found == region.blocks[0].arguments[1]:
        return lax.scatter(x[0], indices, x[2], numbers, **options)
    write = _SCATTERS.get(binary_function(region))
    if write is not None:
        return write(x[0], indices, x[2], numbers, **options)
    if any(True for _ in region.blocks[0].arguments[1].uses):
        fail(NotImplementedError, "from_stablehlo: a scatter combines old and new elements by a "
             "function other than add, subtract, multiply, minimum, maximum",
             code="unknown-operation", location=replay.place,
             help="write it as several scatters, or as a gather, the function and a scatter")
    run = _elementwise(replay.function(region))
    return scatter_apply(x[0], indices, lambda old: run(old, old)[0], numbers,
                         update_shape=np.shape(x[2]), **options)


@rule("stablehlo.sort")
def _sort(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """By the operands that the comparison compares, in their order; all in one direction."""
    region, dimension = op.regions[0], python_of(op.attributes["dimension"])
    dimension %= len(np.shape(x[0]))
    keys, direction = _keys(region, _results(region)[0])
    if not keys or keys != list(range(len(keys))) and len(keys) > 1:
        fail(NotImplementedError, "from_stablehlo: a sort by another comparison than that of one "
             "operand, or of the first ones in their order", code="unknown-operation",
             location=replay.place, help="sort by keys that are computed before")
    order = [*keys, *(k for k in range(len(x)) if k not in keys)]
    given = [x[k] for k in order]
    if direction == "GT":                  # stable: what is equal keeps its order
        given = [lax.rev(v, (dimension,)) for v in given]
    found = OPS["sort"].bind(*given, dimension=dimension, num_keys=len(keys), is_stable=(
        direction == "GT" or python_of(op.attributes["is_stable"])))
    if direction == "GT":
        found = [lax.rev(v, (dimension,)) for v in found]
    return [found[order.index(k)] for k in range(len(x))]


def _keys(region: Any, value: Any) -> tuple[list[int], str]:
    """The operands by which two elements are compared, and LT or GT; [] where it is not known.

    Later keys are compared where earlier ones are equal: `a < b or (a == b and later)`.
    """
    owner = _owner(value)
    if owner is None:
        return [], ""
    if owner.name == "stablehlo.compare":
        direction = _direction(owner)
        keys = _compared(region, owner)
        return (keys, direction) if direction in ("LT", "GT") else ([], "")
    if owner.name != "stablehlo.or":
        return [], ""
    first, rest = owner.operands
    both = _owner(rest)
    if both is None or both.name != "stablehlo.and":
        return [], ""
    equal = _owner(both.operands[0])
    keys, direction = _keys(region, first)
    later, same = _keys(region, both.operands[1])
    is_known = (keys and later and direction == same and equal is not None
                and equal.name == "stablehlo.compare" and _direction(equal) == "EQ"
                and _compared(region, equal) == keys)
    return (keys + later, direction) if is_known else ([], "")


def _owner(value: Any) -> Any:
    value = _source(value)
    return None if _is_argument(value) else value.owner


def _direction(compare: Any) -> str:
    return word_of(compare.attributes["comparison_direction"])


def _compared(region: Any, compare: Any) -> list[int]:
    """The operand of which both elements are compared."""
    a, b = map(_element, compare.operands)
    if a is None or b is None or b != a + 1 or a % 2 or b >= len(region.blocks[0].arguments):
        return []
    return [a // 2]


def _element(value: Any) -> int | None:
    """The number of the argument that a value is, but for the sign of zero and kinds of NaN:
    `select(x == 0, 0, x)` and `select(x != x, NaN, x)` are x to a sort.
    """
    value = _source(value)
    if _is_argument(value):
        return value.arg_number
    if value.owner.name != "stablehlo.select":
        return None
    test, (instead, otherwise) = _owner(value.owner.operands[0]), (
        value.owner.operands[1], value.owner.operands[2])
    found, filled = _element(otherwise), _owner(instead)
    if test is None or test.name != "stablehlo.compare" or filled is None or (
            filled.name != "stablehlo.constant"):
        return None
    left, right = test.operands
    constant, is_same = constant_of(filled), _element(left) == found
    limit = _owner(right)
    is_zero = (_direction(test) == "EQ" and constant == 0 and limit is not None
               and limit.name == "stablehlo.constant" and constant_of(limit) == 0)
    is_nan = _direction(test) == "NE" and constant != constant and _element(right) == found
    return found if is_same and (is_zero or is_nan) else None
