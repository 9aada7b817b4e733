"""scan, while_loop and fori_loop: one equation, whatever the number of iterations.

    carry, ys = scan(f, init, xs)       # carry, y = f(carry, x) for each x along dimension 0

A body is traced once (twice where weakly typed numbers of the initial carry have to take the
dtype that the body gives them). What it hands on unchanged is taken out of the loop. Names,
signatures and messages are JAX's.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from ....ir.diagnostics.diagnostic import Remedy, fail
from ....ir.diagnostics.errors import ConcretizationTypeError
from ....ir.dtypes import issubdtype, lattice_result_type
from ....ir.ops.control.loops_and_branches import item_type, scan_p, while_p
from ....ir.program import Atom
from ....ir.settings.context import jit_disabled, x64_enabled
from ....ir.types import ArrayType, same_type
from ....ir.values.typeof import typeof
from ...operands.dtype_promotion import dtype_and_weak
from ...references import control_flow
from ...shardings.sharding_functions import traced_or_run
from ...staging.tracer import Tracer
from ...trees import tree
from .. import elementwise
from ..conversion import convert_element_type
from .bodies import (
    NONE,
    Body,
    forwarded,
    hands_on,
    in_front,
    needed,
    pruned,
    trace_body,
    vary,
    with_results,
    without_params,
)
from .carry import check_carry
from .in_python import STAGED, scan_in_python, while_in_python

__all__ = ["fori_loop", "scan", "while_loop"]


@control_flow.scans
def scan(f, init, xs=None, length=None, reverse=False, unroll=1, _split_transpose=False):
    """A loop over the items x of `xs`: `carry, y = f(carry, x)`. The last carry, and all y stacked.

    f: a function (carry, x) -> (carry, y), traced once. init: the first carry; f must return a
    carry of the same type. xs: a pytree of arrays with equal dimension 0, along which x is taken;
    or None, with `length`. reverse: from the last item to the first. unroll: items per step, a
    hint.
    Carry, x and y may be any pytrees. It has derivatives of both modes.
    Raises TypeError where the carry changes its type (shape, dtype, sharding, the axes it varies
    over), ValueError where the items of xs do not match.

    Sharding
      Auto: dimension 0 of xs may be split; it is gathered where the loop needs it. The carry has
        one layout throughout.
      Explicit: dimension 0 of xs must be whole, else ValueError. f sees items with the other
        dimensions split as in xs; the carry must keep its sharding.
      Manual: loops over each device's block. A carry that the body makes vary over an axis must
        vary at the start: `lax.pcast(init, 'x', to='varying')`.

    >>> st.lax.scan(lambda total, x: (total + x, total), jnp.zeros(()), jnp.arange(1.0, 4.0))
    (Array(6., dtype=float32), Array([0., 1., 3.], dtype=float32))
    """
    if not callable(f):
        raise TypeError("lax.scan: f argument should be a callable.")
    init_leaves, init_tree = tree.flatten(init)
    xs_leaves, xs_tree = tree.flatten(xs)
    length = _scan_length(xs_leaves, length)
    unroll = _unroll(unroll, length)
    if jit_disabled():
        return scan_in_python(f, init, xs_leaves, xs_tree, length, bool(reverse))
    trees: list[tree.PyTreeDef] = []

    def run(*values: Any) -> list[Any]:
        count = len(init_leaves)
        results, out_tree = _scan(f, list(values[:count]), init_tree, list(values[count:]), xs_tree,
                                  length, bool(reverse), unroll)
        trees.append(out_tree)
        return results

    results = traced_or_run("scan", run, *init_leaves, *xs_leaves)
    return tree.unflatten(trees[-1], results)


def _scan_length(xs: Sequence[Any], length: Any) -> int:
    """The number of iterations, from `xs` and `length`, which must agree; dimension 0 must be
    whole.
    """
    types = [typeof(x) for x in xs if getattr(x, "shape", ())]
    if len(types) < len(xs):
        bad = [x for x in xs if not getattr(x, "shape", ())]
        raise ValueError("scan got value with no leading axis to scan over: "
                         f"{', '.join(map(str, bad))}.")
    sharded = next((t for t in types if t.entries[0]), None)
    if sharded is not None:
        axes = sharded.entries[0]
        fail(ValueError, "0th dimension of all xs should be replicated. Got "
             f"{', '.join(str(t.spec) for t in types)}", code="sharded-scan",
             label=f"xs has type {sharded.str_short(True)}",
             notes=("iterations follow one another, so no two devices can have different ones",),
             help=(Remedy(f"gather it over {', '.join(axes)} first, with `reshard`", "items",
                          (((), "{reshard}(@, $)", sharded.spec.update(
                              partitions=(None, *sharded.spec[1:]))),), sharded.mesh),
                   "or move the sharding to another dimension"))
    lengths = [t.shape[0] for t in types]
    if length is not None:
        if isinstance(length, Tracer):
            fail(ConcretizationTypeError, "The `length` argument to `scan` expects a concrete "
                 "`int` value. For scan-like iteration with a dynamic length, use `while_loop` or "
                 "`fori_loop`.", code="traced-value",
                 help="pass a Python int, or name the argument that it comes from in the "
                      "`static_argnames` of `jit`")
        length = int(length)
        if length < 0:
            raise ValueError(f"scan got a negative `length`, {length}.")
        if lengths.count(length) < len(lengths):
            raise ValueError(f"scan got `length` argument of {length} which disagrees with "
                             f"leading axis sizes {lengths}.")
        return length
    if not lengths:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    if lengths.count(lengths[0]) < len(lengths):
        raise ValueError("scan got values with different leading axis sizes: "
                         f"{', '.join(map(str, lengths))}.")
    return lengths[0]


def _unroll(unroll: Any, length: int) -> int:
    if isinstance(unroll, bool):
        unroll = max(length, 1) if unroll else 1
    unroll = int(unroll)
    if unroll < 0:
        raise ValueError("`unroll` must be a `bool` or a non-negative `int`.")
    return unroll


def _scan(f: Callable[..., Any], init: list[Any], init_tree: tree.PyTreeDef, xs: list[Any],
          xs_tree: tree.PyTreeDef, length: int, reverse: bool, unroll: int
          ) -> tuple[list[Any], tree.PyTreeDef]:
    """(Results, their tree) of a scan. The body is traced again if weakly typed carries take
    another dtype, and what it hands on unchanged is taken out of the loop.
    """
    in_tree = _pair(init_tree, xs_tree)
    items = [item_type(typeof(x)) for x in xs]
    taken = [typeof(x) for x in init]
    body, carry_tree = _scan_body(f, in_tree, taken, items)
    count = carry_tree.num_leaves
    if count == len(init):
        promoted = _promoted(init, taken, body.program.outvars)
        if promoted is not None:
            init, taken = promoted, [typeof(x) for x in promoted]
            body, carry_tree = _scan_body(f, in_tree, taken, items)
    program = body.program
    check_carry("scan body", f, init_tree, taken, carry_tree, program, init)

    # A carry that the body only hands on is a constant of the loop; an item that it only hands on
    # need not be stacked again.
    consts = len(body.captured)
    if not hands_on(program):
        results = scan_p.bind(*body.captured, *init, *xs, jaxpr=program, length=length,
                              reverse=reverse, num_consts=consts, num_carry=count, unroll=unroll)
        return results, body.out_tree
    found = forwarded(program)
    constant = [found[k] == consts + k for k in range(count)]
    first_item = consts + count
    items_kept = [None if i is None or i < first_item else i - first_item for i in found[count:]]
    program = with_results(program, [*(not c for c in constant), *(i is None for i in items_kept)])
    program = in_front(program, [False] * consts + constant + [False] * len(xs))
    fixed = [x for x, c in zip(init, constant, strict=True) if c]
    carried = [x for x, c in zip(init, constant, strict=True) if not c]
    rest = iter(scan_p.bind(*fixed, *body.captured, *carried, *xs, jaxpr=program, length=length,
                            reverse=reverse, num_consts=len(fixed) + consts,
                            num_carry=len(carried), unroll=unroll))
    last = [x if c else next(rest) for x, c in zip(init, constant, strict=True)]
    stacked = [next(rest) if i is None else xs[i] for i in items_kept]
    return [*last, *stacked], body.out_tree


def _scan_body(f: Callable[..., Any], in_tree: tree.PyTreeDef, carry: Sequence[ArrayType],
               items: Sequence[ArrayType]) -> tuple[Body, tree.PyTreeDef]:
    body = trace_body(f, in_tree, [*carry, *items])
    parts = body.out_tree.children() if body.out_tree.type is tuple else []
    if len(parts) != 2:
        result = tree.unflatten(body.out_tree, body.program.out_avals)
        fail(TypeError, f"scan body output must be a pair, got {result}.", code="scan-body",
             help="return the carry and a `y`, which may be None")
    return body, parts[0]


def _pair(*trees: tree.PyTreeDef) -> tree.PyTreeDef:
    """The structure of a tuple of these."""
    return optree.treespec_tuple(trees, namespace=tree.NAMESPACE)


def _promoted(init: Sequence[Any], taken: Sequence[ArrayType], given: Sequence[Atom]
              ) -> list[Any] | None:
    """The initial carry with weakly typed numbers in the dtypes that the body gives back; None
    where all have them."""
    changed = None
    for i, (t, v) in enumerate(zip(taken, given, strict=False)):
        if t.weak_type and not same_type(t, v.aval):
            dtype, _ = lattice_result_type(
                [(t.dtype, True), (v.aval.dtype, v.aval.weak_type)], x64_enabled())
            x = convert_element_type(init[i], dtype)
            if x is not init[i]:
                changed = changed or list(init)
                changed[i] = x
    return changed


# -- while -----------------------------------------------------------------------------------------

@control_flow.while_loops
def while_loop(cond_fun, body_fun, init_val):
    """A loop that does `val = body_fun(val)` as long as `cond_fun(val)` is true, from `init_val`.

    val: any pytree of arrays, whose types body_fun must keep. cond_fun gives one bool. It has
    derivatives of forward mode only: reverse mode raises ValueError (`scan` has it).
    Raises TypeError where the value changes its type, or the test is no truth value.

    Sharding
      Auto: val has one layout throughout, chosen by the partitioner.
      Explicit: body_fun must return val with the sharding it has.
      Manual: devices may run different numbers of iterations, each by its own test; the result then
        varies over all axes that the test varies over. Collectives in it need one common test.

    >>> st.lax.while_loop(lambda v: v < 100, lambda v: 2 * v, 3)
    Array(192, dtype=int32, weak_type=True)
    """
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")
    if jit_disabled():
        found = while_in_python(cond_fun, body_fun, init_val)
        if found is not STAGED:
            return found
    leaves, init_tree = tree.flatten(init_val)
    trees: list[tree.PyTreeDef] = []

    def run(*values: Any) -> list[Any]:
        results, out_tree = _while(cond_fun, body_fun, list(values), init_tree)
        trees.append(out_tree)
        return results

    results = traced_or_run("while_loop", run, *leaves)
    return tree.unflatten(trees[-1], results)


def _while(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init: list[Any],
           init_tree: tree.PyTreeDef) -> tuple[list[Any], tree.PyTreeDef]:
    """Trace both functions until the types of what is carried stay as they are (weak types are
    promoted, values vary over the axes that the test varies over), and bind the equation. Carried
    values that the body hands on unchanged become constants of the loop.
    """
    in_tree = _pair(init_tree)
    taken = [typeof(x) for x in init]

    def traced(varying: frozenset[str] = NONE) -> tuple[Body, Body]:
        test = trace_body(cond_fun, in_tree, taken)
        body = trace_body(body_fun, in_tree, taken, varying)
        _check_test(test)
        return test, body

    test, body = traced()
    if len(body.program.outvars) == len(init):
        promoted = _promoted(init, taken, body.program.outvars)
        if promoted is not None:
            init, taken = promoted, [typeof(x) for x in promoted]
            test, body = traced()
    check_carry("while_loop body", body_fun, init_tree, taken, body.out_tree,
                body.program, init)
    # Devices on which the test is false first keep what they have: all that is carried varies.
    while axes := test.program.outvars[0].aval.varying:
        widened = [vary(x, axes) for x in init]
        if all([a is b for a, b in zip(widened, init, strict=True)]):
            break
        init, taken = widened, [typeof(x) for x in widened]
        test, body = traced(axes)

    going, step = test.program, body.program
    tests, steps = len(test.captured), len(body.captured)
    if not hands_on(step):
        results = while_p.bind(*test.captured, *body.captured, *init, cond_jaxpr=going,
                               body_jaxpr=step, cond_nconsts=tests, body_nconsts=steps)
        return results, body.out_tree
    found = forwarded(step)
    read = needed(going)
    constant = [found[k] == steps + k and var not in read
                for k, var in enumerate(going.invars[tests:])]
    if any(constant):
        going = without_params(pruned(going), [False] * tests + constant)
        step = with_results(step, [not c for c in constant])
        step = in_front(step, [False] * steps + constant)
    fixed = [x for x, c in zip(init, constant, strict=True) if c]
    carried = [x for x, c in zip(init, constant, strict=True) if not c]
    results = iter(while_p.bind(*test.captured, *fixed, *body.captured, *carried, cond_jaxpr=going,
                                body_jaxpr=step, cond_nconsts=tests,
                                body_nconsts=len(fixed) + steps))
    return [x if c else next(results) for x, c in zip(init, constant, strict=True)], body.out_tree


def _check_test(test: Body) -> None:
    types = test.program.out_avals
    if len(types) != 1 or not test.out_tree.is_leaf():
        fail(TypeError, "cond_fun must return a boolean scalar, but got pytree "
             f"{test.out_tree}.", code="loop-test", help="return one truth value")
    if types[0].shape or types[0].dtype != np.bool_:
        fail(TypeError, "cond_fun must return a boolean scalar, but got output type(s) "
             f"{list(types)}.", code="loop-test", label="the test of this loop",
             help="reduce it with `all` or `any`" if types[0].shape else "make it a comparison")


# -- counting --------------------------------------------------------------------------------------

def fori_loop(lower, upper, body_fun, init_val, *, unroll=None):
    """A loop that does `val = body_fun(i, val)` for i from `lower` to `upper - 1`; the last val.

    val: any pytree of arrays, whose types body_fun must keep. With bounds known while tracing it
    is a `scan`, which has derivatives of both modes; otherwise a `while_loop`. unroll: as of
    scan.
    Raises TypeError where the value changes its type.

    Sharding
      Auto: val has one layout throughout, chosen by the partitioner.
      Explicit: body_fun must return val with the sharding it has.
      Manual: loops over each device's block; a val that the body makes vary over an axis must vary
        at the start (`lax.pcast`).

    >>> st.lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    (low, low_weak), (high, high_weak) = dtype_and_weak(lower), dtype_and_weak(upper)
    dtype = low if low == high else None
    if dtype is None and all(issubdtype(d, np.signedinteger) for d in (low, high)):
        if low_weak != high_weak:
            dtype = high if low_weak else low
    if dtype is None:
        raise TypeError("lower and upper arguments to fori_loop must have equal types, got "
                        f"{low.name} and {high.name}")
    first, end = _bound(lower), _bound(upper)
    if first is not None and end is not None:
        if jit_disabled():
            for i in range(first, end):
                init_val = body_fun(i, init_val)
            return init_val

        def scanned(loop_carry: Any, _: Any) -> Any:
            i, x = loop_carry
            return (i + 1, body_fun(i, x)), None

        (_, result), _ = scan(scanned, (first, init_val), None, length=max(end - first, 0),
                              unroll=False if unroll is None else unroll)
        return result
    if unroll is not None and unroll is not False and unroll != 1:
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically "
                         "known.")

    def step(loop_carry: Any) -> Any:
        i, end, x = loop_carry
        return elementwise.add(i, _one(i)), end, body_fun(i, x)

    bounds = [x if d == dtype else convert_element_type(x, dtype)
              for x, d in ((lower, low), (upper, high))]
    _, _, result = while_loop(lambda loop_carry: elementwise.lt(loop_carry[0], loop_carry[1]),
                              step, (*bounds, init_val))
    return result


def _one(i: Any) -> Any:
    return 1 if typeof(i).weak_type else np.ones((), typeof(i).dtype)[()]


def _bound(x: Any) -> int | None:
    """The value of a loop bound where there is one while tracing."""
    if isinstance(x, Tracer):
        x = x._known()
    if x is None or np.shape(x):
        return None
    return int(x)
