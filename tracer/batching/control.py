"""Batching of loops and branches: each stays one equation, where that is possible.

A carry is mapped if it starts so or becomes so: which ones is a fixed point over the body. A loop
whose test differs from index to index runs until no index wants to go on, the others keeping their
carries; a `cond` whose index is mapped runs all its branches and selects.
Source: the batching rules of JAX's control flow.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS
from ...ir.ops.control.loop_operands import ScanOperands, WhileOperands
from ...ir.ops.control.loops_and_branches import cond_p, item_type, scan_p, while_p
from ...ir.ops.derivatives import explicit_sharding
from ...ir.program import Program, Var
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from .programs import (
    ANYWHERE,
    batch_program,
    cached_trace,
    mapped_results,
    replay,
)
from .rules import (
    Batched,
    Dims,
    MappedAxis,
    batched_type,
    element_type,
    move_dim,
    rule,
    to_dim,
    typed,
)

Types = Sequence[ArrayType]
ANY_INDEX = "any index"     # in the memo of a loop's test: the loop also runs where it should not
Mapped = list[int | None]


def _carried(values: Sequence[Any], dims: Dims, to: Dims, avals: Types, axis: MappedAxis
             ) -> list[Any]:
    """Carries with their mapped dimension first where `to` says so, of the type they keep."""
    return [typed(to_dim(x, d, 0, axis), 0, t, axis) if place == 0 else x
            for x, d, place, t in zip(values, dims, to, avals, strict=True)]


def _places(dims: Dims) -> list[int]:
    return [ANYWHERE if d is None else 0 for d in dims]


def _mapped_in_either(a: Dims, b: Dims) -> Mapped:
    return [None if x is None and y is None else 0 for x, y in zip(a, b, strict=True)]


def _types(values: Sequence[Any]) -> list[ArrayType]:
    return [typeof(x) for x in values]


def _grown(axis: MappedAxis, body: Program, consts: Mapped, carries: Mapped, items: Mapped
           ) -> Mapped:
    """The carries that are mapped in some iteration, as far as inspection can tell."""
    while True:
        found = mapped_results(axis, body, [d is not None for d in (*consts, *carries, *items)])
        grown: Mapped = [0 if mapped else d for d, mapped in zip(carries, found, strict=False)]
        if grown == carries:
            return carries
        carries = grown


@rule("scan")
def _batch_scan(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                jaxpr: Program, num_consts: int, num_carry: int, **params: Any) -> Batched:
    """The scan of the batched body. The carry's mapped parts are grown until the body gives no more
    of them than it takes.
    """
    parts = ScanOperands(num_consts, num_carry)
    consts, init, arrays = parts.split(operands)
    const_dims, carried, array_dims = map(list, parts.split(dims))
    xs = [x if d is None else move_dim(x, d, 1)
          for x, d in zip(arrays, array_dims, strict=True)]
    item_dims: Mapped = [None if d is None else 0 for d in array_dims]
    items = [item_type(typeof(x)) for x in xs]
    carry_types = parts.split(jaxpr.in_avals)[1]
    carry_dims = _grown(axis, jaxpr, const_dims, _mapped_in_either(carried, carried), item_dims)
    while True:
        carry = _carried(init, carried, carry_dims, carry_types, axis)
        program, captured, out = batch_program(
            axis, jaxpr, [*_types(consts), *_types(carry), *items],
            [*const_dims, *carry_dims, *item_dims],
            [*_places(carry_dims), *[ANYWHERE] * (len(types) - num_carry)])
        grown = _mapped_in_either(carry_dims, out[:num_carry])
        if grown == carry_dims:
            break
        carry_dims = grown
    results = scan_p.bind(*captured, *consts, *carry, *xs, jaxpr=program,
                          num_consts=num_consts + len(captured), num_carry=num_carry, **params)
    return results, [*carry_dims, *(None if d is None else d + 1 for d in out[num_carry:])]


@rule("while")
def _batch_while(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                 cond_jaxpr: Program, body_jaxpr: Program, cond_nconsts: int, body_nconsts: int
                 ) -> Batched:
    """The loop of the batched body, with the carry's mapped parts as for scan. If the test is
    mapped, all carries are, and the loop runs until no index goes on.
    """
    parts = WhileOperands(cond_nconsts, body_nconsts)
    tests, consts, start = parts.split(operands)
    test_dims, const_dims, start_dims = map(list, parts.split(dims))
    carry_dims = _grown(axis, body_jaxpr, const_dims, _mapped_in_either(start_dims, start_dims), [])
    avals = body_jaxpr.in_avals[body_nconsts:]
    if mapped_results(axis, cond_jaxpr, [d is not None for d in (*test_dims, *carry_dims)])[0]:
        carry_dims = [0] * len(carry_dims)
    body, body_captured, out = None, [], []
    while True:
        carry = _carried(start, start_dims, carry_dims, avals, axis)
        test, test_captured, (test_dim,) = batch_program(
            axis, cond_jaxpr, _types([*tests, *carry]), [*test_dims, *carry_dims])
        if test_dim is None:
            body, body_captured, out = batch_program(
                axis, body_jaxpr, _types([*consts, *carry]), [*const_dims, *carry_dims],
                _places(carry_dims))
        grown = _mapped_in_either(carry_dims, out) if test_dim is None else [0] * len(carry_dims)
        if grown == carry_dims:
            break
        carry_dims = grown
    if test_dim is None:
        return while_p.bind(
            *test_captured, *tests, *body_captured, *consts, *carry, cond_jaxpr=test,
            body_jaxpr=body, cond_nconsts=cond_nconsts + len(test_captured),
            body_nconsts=body_nconsts + len(body_captured)), carry_dims
    if _calls_back(cond_jaxpr, body_jaxpr):
        fail(NotImplementedError,
             "Unordered IO effects not supported in while_loop with batched predicate",
             code="effect-in-while", label="the body runs for all, until the last of them is done",
             help="call `io_callback` outside of the loop")
    return _while_any(axis, (cond_jaxpr, body_jaxpr), (tests, test_dims), (consts, const_dims),
                      carry, test.out_avals[0]), carry_dims


def _calls_back(*programs: Program) -> bool:
    return any("io" in e.split() for p in programs for e in p.effects)


def _while_any(axis: MappedAxis, programs: tuple[Program, Program],
               tests: tuple[Sequence[Any], Dims], consts: tuple[Sequence[Any], Dims],
               carry: list[Any], test_type: ArrayType) -> list[Any]:
    """The loop that goes on while any index does; the carries of the others stay."""
    (cond, body), (test_values, test_dims), (values, dims) = programs, tests, consts
    carry = [_vary(x, test_type) for x in carry]
    n, m, zeros = len(test_values), len(values), [0] * len(carry)

    def going(*operands: Any) -> Any:
        ((on, dim),) = replay(axis, cond, operands, [*test_dims, *zeros])
        return to_dim(on, dim, 0, axis)

    def any_going(*operands: Any) -> list[Any]:
        return [OPS["reduce_or"].bind(going(*operands), axes=(0,))]

    def step(*operands: Any) -> list[Any]:
        old = operands[n + m:]
        on = going(*operands[:n], *old)
        results = replay(axis, body, operands[n:], [*dims, *zeros])
        return [_select(on, [was, to_dim(x, d, 0, axis)])
                for was, (x, d) in zip(old, results, strict=True)]

    key = ("batch while", axis, tuple(test_dims), tuple(dims))
    test, captured, _ = cached_trace(cond, key, any_going, _types([*test_values, *carry]), None)
    test.attributes[ANY_INDEX] = True
    run, run_captured, _ = cached_trace(body, (*key, cond), step,
                                        _types([*test_values, *values, *carry]), None)
    return while_p.bind(
        *captured, *test_values, *run_captured, *test_values, *values, *carry, cond_jaxpr=test,
        body_jaxpr=run, cond_nconsts=n + len(captured), body_nconsts=n + m + len(run_captured))


def _vary(x: Any, like: ArrayType) -> Any:
    missing = like.varying - typeof(x).varying
    return OPS["pvary"].bind(x, axes=tuple(sorted(missing))) if missing else x


def _select(which: Any, cases: Sequence[Any]) -> Any:
    """The case that `which` numbers, for each index of the first dimension of all of them."""
    t = typeof(cases[0])
    which = _vary(which, t)
    if t.ndim > 1:
        target = t.update(dtype=typeof(which).dtype, weak_type=False)
        which = OPS["broadcast_in_dim"].bind(which, shape=t.shape, broadcast_dimensions=(0,),
                                             sharding=explicit_sharding(target))
    return OPS["select_n"].bind(which, *cases)


@rule("cond")
def _batch_cond(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Types, *,
                branches: tuple[Program, ...]) -> Batched:
    """The branches batched, with results that any of them maps mapped in all. With a mapped index
    all branches run, and results are selected.
    """
    index, *values = operands
    if dims[0] is not None and len(branches) > 1:
        if _calls_back(*branches):
            fail(NotImplementedError, "IO effect not supported in vmap-of-cond.",
                 code="effect-in-cond", label="the mapped index of this branch makes all branches "
                 "run", help="call `io_callback` outside of the branches")
        return _select_branch(axis, index, dims, values, types, branches)
    if dims[0] is not None:
        index = np.int32(0)
    given, made = _types(values), []
    for branch in branches:
        made.append(batch_program(axis, branch, given, dims[1:]))
    out = [0 if any(m[2][i] is not None for m in made) else None for i in range(len(types))]
    made = [m if list(m[2]) == out else batch_program(axis, b, given, dims[1:], _places(out))
            for b, m in zip(branches, made, strict=True)]
    captured = [x for _, xs, _ in made for x in xs]
    programs, before = [], 0
    for program, own, _ in made:        # all branches take what one of them captures
        taken = [Var(typeof(x)) for x in captured]
        taken[before:before + len(own)] = program.invars[:len(own)]
        if captured:
            program = program.replace(invars=[*taken, *program.invars[len(own):]])
        programs.append(program)
        before += len(own)
    return cond_p.bind(index, *captured, *values, branches=tuple(programs)), out


def _select_branch(axis: MappedAxis, index: Any, dims: Dims, values: Sequence[Any], types: Types,
                   branches: Sequence[Program]) -> Batched:
    """All branches, and a select between their results for each index."""
    results = [[typed(to_dim(x, d, 0, axis), 0, t, axis) for (x, d), t in
                zip(replay(axis, b, values, dims[1:]), types, strict=True)] for b in branches]
    index = to_dim(index, dims[0], 0, axis)
    which = OPS["clamp"].bind(np.int32(0), index, np.int32(len(branches) - 1))
    if len(branches) == 2:
        which = OPS["ne"].bind(which, np.int32(0))
    which = typed(which, 0, element_type(typeof(which), 0), axis)
    out = []
    for cases, t in zip(zip(*results, strict=True), types, strict=True):
        want = batched_type(t, 0, axis)
        out.append(_select(which, [_vary(x, want) for x in cases]))
    return out, [0] * len(out)
