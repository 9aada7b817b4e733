"""Loops, branches, reductions by a program, and calls of host functions, as written for JAX."""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.axes import axes_overlap
from ...ir.ops.communication.collective_kinds import each_collective
from ...ir.ops.control.loop_operands import scan_operands, while_operands
from ...ir.program import Atom, Equation, Program
from .literals import dtype_text, plain, tuple_of
from .program_writer import ProgramWriter

Texts = Sequence[str]


def _check_groups(e: Equation, predicate: Atom, programs: Sequence[Program]) -> None:
    """No device may wait for another that is doing something else: it would wait for ever."""
    varying = predicate.aval.varying
    if not varying:
        return
    for program in programs:
        for use in each_collective(program):
            if any(axes_overlap(a, b) for a in use.mesh_axes for b in varying):
                fail(ValueError, f"the predicate of a `{e.op.name}` differs along "
                     f"{', '.join(sorted(varying))}, and the {use.kind} inside of it is over "
                     f"{', '.join(use.mesh_axes)}: devices would wait for others that do not come",
                     code="split-group", location=e.location,
                     help="let the predicate be the same on all devices of a group, by `lax.psum` "
                          "or `lax.pmax` of it, or take the exchange out of the loop or branch")


def scan(s: ProgramWriter, e: Equation, x: Texts) -> str:
    """`lax.scan` of a function that is written before it; constants are closed over."""
    p = e.params
    body: Program = p["jaxpr"]
    parts = scan_operands(p)
    name = s.fresh("body")
    consts, init, xs = parts.split(x)
    closed, carried, rows = parts.split(body.invars)
    carry, items = [s.name(v) for v in carried], [s.name(v) for v in rows]
    s.alias(closed, consts)
    with s.function(name, ["carry", "item"]):
        if carry:
            s.line(f"{tuple_of(carry)} = carry")
        if items:
            s.line(f"{tuple_of(items)} = item")
        last, stacks = parts.results(s.body(body))
        s.line(f"return {tuple_of(last)}, {tuple_of(stacks)}")
    last, stacks = parts.results(s.bind(e.outvars))
    more = ", reverse=True" if p["reverse"] else ""
    more += f", unroll={p['unroll']}" if p.get("unroll", 1) != 1 else ""
    s.line(f"{tuple_of(last)}, {tuple_of(stacks)} = lax.scan({name}, "
           f"{tuple_of(init)}, {tuple_of(xs)}, length={p['length']}{more})", e)
    return ""


def while_loop(s: ProgramWriter, e: Equation, x: Texts) -> str:
    """`lax.while_loop` of two functions that are written before it; constants are closed over."""
    p = e.params
    of_test, of_body, init = while_operands(p).split(x)
    test, body = p["cond_jaxpr"], p["body_jaxpr"]
    _check_groups(e, test.outvars[0], (test, body))
    names = s.fresh("test"), s.fresh("body")
    for name, program, consts in ((names[0], test, of_test), (names[1], body, of_body)):
        skip = len(consts)
        s.alias(program.invars[:skip], consts)
        carry = [s.name(v) for v in program.invars[skip:]]
        with s.function(name, ["carry"]):
            if carry:
                s.line(f"{tuple_of(carry)} = carry")
            found = s.body(program)
            s.line(f"return {found[0] if program is test else tuple_of(found)}")
    s.assign(e, f"lax.while_loop({', '.join(names)}, {tuple_of(init)})")
    return ""


def cond(s: ProgramWriter, e: Equation, x: Texts) -> str:
    """`lax.switch` of functions that are written before it; operands are closed over."""
    branches: tuple[Program, ...] = e.params["branches"]
    _check_groups(e, e.invars[0], branches)
    names = []
    for branch in branches:
        names.append(s.fresh("branch"))
        s.alias(branch.invars, x[1:])
        with s.function(names[-1], []):
            s.line(f"return {tuple_of(s.body(branch))}")
    s.assign(e, f"lax.switch({x[0]}, {tuple_of(names)})")
    return ""


def reduce(s: ProgramWriter, e: Equation, x: Texts) -> str:
    """`lax.reduce` with the program as a function that is written before it."""
    p, half = e.params, len(x) // 2
    body: Program = p["jaxpr"]
    name = s.fresh("combine")
    left, right = ([s.name(v) for v in some] for some in (body.invars[:half], body.invars[half:]))
    with s.function(name, ["left", "right"]):
        s.line(f"{tuple_of(left)} = left")
        s.line(f"{tuple_of(right)} = right")
        s.line(f"return {tuple_of(s.body(body))}")
    s.assign(e, f"lax.reduce({tuple_of(x[:half])}, {tuple_of(x[half:])}, {name}, "
                f"{plain(p['dimensions'])})")
    return ""


def callback(s: ProgramWriter, e: Equation, x: Texts) -> str:
    """A call of the host, after those that stand before it in the same function."""
    results = tuple_of(["jax.ShapeDtypeStruct((), jnp.int32)", *(
        f"jax.ShapeDtypeStruct({plain(v.aval.shape)}, {dtype_text(v.aval.dtype)})"
        for v in e.outvars)])
    token = s.fresh("called")
    operands = ", ".join((s.last_call(), *x))
    s.line(f"{tuple_of([token, *s.bind(e.outvars)])} = call_host({s.callback(e)}, {results}, "
           f"{s.all_axes()}, {s.axes(e.params.get('axes', ()))}, {operands})", e)
    s.called(token)
    return ""


CONTROL = {"scan": scan, "while": while_loop, "cond": cond, "reduce": reduce}
