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

from ...ir.context import jit_disabled, x64_enabled
from ...ir.diagnostic import fail
from ...ir.dtypes import issubdtype, lattice_result_type
from ...ir.errors import ConcretizationTypeError
from ...ir.ops.control import item_type, scan_p, while_p
from ...ir.types import ArrayType, same_type
from .. import tree
from ..dtype_promotion import dtype_and_weak
from ..sharding_functions import traced_or_run
from ..tracer import Tracer, typeof
from . import elementwise
from .bodies import (
    NONE,
    Body,
    forwarded,
    in_front,
    needed,
    pruned,
    trace_body,
    vary,
    with_results,
    without_params,
)
from .carry import check_carry
from .conversion import convert_element_type
from .in_python import STAGED, scan_in_python, while_in_python


def scan(f, init, xs=None, length=None, reverse=False, unroll=1, _split_transpose=False):
    """Fold `carry, y = f(carry, x)` over the items x of `xs`; (last carry, all y stacked).

    init, xs, and what f returns may be any pytrees; xs may be None if `length` is given.
    reverse: from the last item to the first. unroll: a hint, iterations per step.
    Raises TypeError where the carry changes its type (shape, dtype, sharding, what it varies over)
    and ValueError where the items of xs do not match or dimension 0 is sharded.
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
    bad = [x for x in xs if not getattr(x, "shape", ())]
    if bad:
        raise ValueError("scan got value with no leading axis to scan over: "
                         f"{', '.join(map(str, bad))}.")
    types = [typeof(x) for x in xs]
    if any(t.entries[0] for t in types):
        i = next(i for i, t in enumerate(types) if t.entries[0])
        axes = types[i].entries[0]
        whole = (None, *(e if len(e) > 1 else e[0] if e else None for e in types[i].entries[1:]))
        shown = ", ".join(map(repr, whole))
        fail(ValueError, "0th dimension of all xs should be replicated. Got "
             f"{', '.join(str(t.spec) for t in types)}", code="sharded-scan",
             label=f"xs has type {types[i].str_short(True)}",
             notes=("iterations follow one another, so no two devices can have different ones",),
             help=(f"gather it over {', '.join(axes)} first: `reshard(xs, P({shown}))`",
                   "or move the sharding to another dimension"))
    lengths = [t.shape[0] for t in types]
    if length is not None:
        if isinstance(length, Tracer):
            fail(ConcretizationTypeError, "The `length` argument to `scan` expects a concrete "
                 "`int` value. For scan-like iteration with a dynamic length, use `while_loop` or "
                 "`fori_loop`.", code="traced-value")
        length = int(length)
        if length < 0:
            raise ValueError(f"scan got a negative `length`, {length}.")
        if any(n != length for n in lengths):
            raise ValueError(f"scan got `length` argument of {length} which disagrees with "
                             f"leading axis sizes {lengths}.")
        return length
    if len(set(lengths)) > 1:
        raise ValueError("scan got values with different leading axis sizes: "
                         f"{', '.join(map(str, lengths))}.")
    if not lengths:
        raise ValueError("scan got no values to scan over and `length` not provided.")
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
    in_tree = _pair(init_tree, xs_tree)
    items = [item_type(typeof(x)) for x in xs]
    body, carry_tree = _scan_body(f, in_tree, [typeof(x) for x in init], items)
    count = carry_tree.num_leaves
    if count == len(init):
        promoted = [_promoted(x, v.aval) for x, v in
                    zip(init, body.program.outvars[:count], strict=True)]
        if any(a is not b for a, b in zip(promoted, init, strict=True)):
            init = promoted
            body, carry_tree = _scan_body(f, in_tree, [typeof(x) for x in init], items)
    program = body.program
    check_carry("scan body", f, init_tree, [typeof(x) for x in init], carry_tree,
                program.out_avals[:count], program, program.outvars[:count], init)

    # A carry that the body only hands on is a constant of the loop; an item that it only hands on
    # need not be stacked again.
    consts = len(body.captured)
    found = forwarded(program)
    constant = [found[k] == consts + k for k in range(count)]
    first_item = consts + count
    items_kept = [None if i is None or i < first_item else i - first_item for i in found[count:]]
    program = with_results(program, [*(not c for c in constant), *(i is None for i in items_kept)])
    program = in_front(program, [False] * consts + constant + [False] * len(xs))
    fixed = [x for x, c in zip(init, constant, strict=True) if c]
    carried = [x for x, c in zip(init, constant, strict=True) if not c]
    results = iter(scan_p.bind(*fixed, *body.captured, *carried, *xs, jaxpr=program, length=length,
                               reverse=reverse, num_consts=len(fixed) + consts,
                               num_carry=len(carried), unroll=unroll))
    last = [x if c else next(results) for x, c in zip(init, constant, strict=True)]
    stacked = [next(results) if i is None else xs[i] for i in items_kept]
    return [*last, *stacked], body.out_tree


def _scan_body(f: Callable[..., Any], in_tree: tree.PyTreeDef, carry: Sequence[ArrayType],
               items: Sequence[ArrayType]) -> tuple[Body, tree.PyTreeDef]:
    body = trace_body(f, in_tree, [*carry, *items])
    parts = body.out_tree.children() if body.out_tree.type is tuple else []
    if len(parts) != 2:
        result = tree.unflatten(body.out_tree, body.program.out_avals)
        fail(TypeError, f"scan body output must be a pair, got {result}.", code="scan-body",
             help="return `(carry, y)`; y may be None")
    return body, parts[0]


def _pair(*trees: tree.PyTreeDef) -> tree.PyTreeDef:
    """The structure of a tuple of these."""
    return optree.treespec_tuple(trees, namespace=tree.NAMESPACE)


def _promoted(x: Any, wanted: ArrayType) -> Any:
    """A weakly typed number of the initial carry in the dtype that the body gives it."""
    t = typeof(x)
    if not t.weak_type or same_type(t, wanted):
        return x
    dtype, _ = lattice_result_type(
        [(t.dtype, True), (wanted.dtype, wanted.weak_type)], x64_enabled())
    return convert_element_type(x, dtype)


# -- while -----------------------------------------------------------------------------------------

def while_loop(cond_fun, body_fun, init_val):
    """`val = body_fun(val)` as long as `cond_fun(val)` is true, from `init_val`.

    Inside shard_map the devices may run different numbers of iterations; the result then varies
    over all that the test varies over. Raises TypeError where the value changes its type, or the
    test is no truth value.
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
    in_tree = _pair(init_tree)

    def traced(varying: frozenset[str] = NONE) -> tuple[Body, Body]:
        types = [typeof(x) for x in init]
        test = trace_body(cond_fun, in_tree, types)
        body = trace_body(body_fun, in_tree, types, varying)
        _check_test(test)
        return test, body

    test, body = traced()
    if len(body.program.outvars) == len(init):
        promoted = [_promoted(x, v.aval) for x, v in
                    zip(init, body.program.outvars, strict=True)]
        if any(a is not b for a, b in zip(promoted, init, strict=True)):
            init = promoted
            test, body = traced()
    check_carry("while_loop body", body_fun, init_tree, [typeof(x) for x in init], body.out_tree,
                body.program.out_avals, body.program, body.program.outvars, init)
    # Devices on which the test is false first keep what they have: all that is carried varies.
    while True:
        axes = test.program.out_avals[0].varying
        widened = [vary(x, axes) for x in init]
        if all(a is b for a, b in zip(widened, init, strict=True)):
            break
        init = widened
        test, body = traced(axes)

    going, step = test.program, body.program
    tests, steps = len(test.captured), len(body.captured)
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
    if len(types) != 1 or test.out_tree != tree.structure(0):
        fail(TypeError, "cond_fun must return a boolean scalar, but got pytree "
             f"{test.out_tree}.", code="loop-test", help="return one truth value")
    if types[0].shape or types[0].dtype != np.bool_:
        fail(TypeError, "cond_fun must return a boolean scalar, but got output type(s) "
             f"{list(types)}.", code="loop-test", label="the test of this loop",
             help="reduce it with `.all()` or `.any()`" if types[0].shape else "compare: `x > 0`")


# -- counting --------------------------------------------------------------------------------------

def fori_loop(lower, upper, body_fun, init_val, *, unroll=None):
    """`val = body_fun(i, val)` for i from lower to upper - 1.

    With bounds known while tracing it is a `scan`, which has a reverse derivative; else a
    `while_loop`. unroll: as of scan, for known bounds only.
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
