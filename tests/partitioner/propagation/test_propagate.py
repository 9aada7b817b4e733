"""What propagation finds: the specs that JAX 0.10.2 (Shardy) gives the same programs.

The mesh is a=4, b=2, all Auto; the expected specs were printed by `jax.jit(f)(...).sharding.spec`.
"""
from __future__ import annotations

import warnings

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.diagnostics.errors import IndivisibleError
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.pipeline import partition
from shardtrace.partitioner.propagation.origins import vetoes

from ...python_calls import python_calls
from ...rows import rows
from .. import lockstep
from ..building import Build, auto, explicit, literal

MESH = auto(4, 2, names="ab")
AB, A, B, NB, NA, R = P("a", "b"), P("a"), P("b"), P(None, "b"), P(None, "a"), P()
F32 = np.float32


def where(b, x, y):
    return b.op("select_n", b.op("gt", x, literal_f(0.0)), y, x)


def literal_f(value):
    found = literal(0)
    return type(found)(np.float32(value), found.aval.update(dtype=np.dtype(F32)))


def relu(b, x):
    return b.op("max", x, literal_f(0.0))


def pad_columns(b, x):
    return b.op("pad", x, literal_f(0.0), padding_config=((0, 0, 0), (1, 1, 0)))


def outer(b, x, y):
    row = b.reshape(b.slice(x, (0, 0), (1, 8)), 8)
    other = b.reshape(b.slice(y, (0, 0), (1, 8)), 8)
    return b.op("mul", b.broadcast(row, (8, 8), 0), b.broadcast(other, (8, 8), 1))


def softmax(b, x, axis):
    other = 1 - axis
    m = b.broadcast(b.op("reduce_max", x, axes=(axis,)), (8, 8), other)
    e = b.op("exp", b.op("sub", x, m), accuracy=None)
    return b.op("div", e, b.broadcast(b.sum(e, axis), (8, 8), other))


def pairs(b, x):
    """Both broadcasts take the axis from their operand before the difference has it of one."""
    sums = b.sum(x, 1)
    columns, rows = b.broadcast(sums, (8, 8), 0), b.broadcast(sums, (8, 8), 1)
    return rows, b.op("sub", columns, rows)


def add_one(b, x):
    return b.op("add", x, literal_f(1.0))


CASES = {
    "sin": (lambda b, x: add_one(b, b.op("mul", b.sin(x), literal_f(2.0))), [AB], AB),
    "sum over rows": (lambda b, x: b.sum(x, 0), [AB], B),
    "sum over columns": (lambda b, x: b.sum(x, 1), [AB], A),
    "sum of all": (lambda b, x: b.sum(x, 0, 1), [AB], R),
    "transpose": (lambda b, x: b.transpose(x, 1, 0), [AB], P("b", "a")),
    "x @ x.T": (lambda b, x: b.dot(x, b.transpose(x, 1, 0)), [AB], A),
    "x @ x.T, rows": (lambda b, x: b.dot(x, b.transpose(x, 1, 0)), [A], A),
    "conflict": (lambda b, x, y: b.op("add", x, y), [A, B], R),
    "crossed": (lambda b, x, y: b.op("add", x, y), [A, NB], AB),
    "whole operand": (lambda b, x, y: b.op("add", x, y), [A, R], A),
    "two free dims": (lambda b, x, y: b.dot(x, y), [A, NB], AB),
    "contraction": (lambda b, x, y: b.dot(x, y), [NA, A], R),
    "free dims on one axis": (lambda b, x, y: b.dot(x, y), [A, NA], A),
    "2-D blocks": (lambda b, x, y: b.dot(x, y), [AB, AB], AB),
    "one-sided contraction": (lambda b, x, y: b.dot(x, y), [AB, R], A),
    "broadcast": (lambda b, x: b.broadcast(x, (4, 8, 8), 1, 2), [AB], P(None, "a", "b")),
    "merge": (lambda b, x: b.reshape(x, 64), [AB], A),
    "merge of a minor": (lambda b, x: b.reshape(x, 64), [NB], R),
    "split": (lambda b, x: b.reshape(x, 4, 2, 8), [AB], P("a", None, "b")),
    "split that does not fit": (lambda b, x: b.reshape(x, 2, 4, 8), [AB], P(None, None, "b")),
    "concatenate": (lambda b, x, y: b.op("concatenate", x, y, dimension=0), [A, A], A),
    "slice": (lambda b, x: b.slice(x, (0, 0), (4, 8)), [AB], AB),
    "slice of columns": (lambda b, x: b.slice(x, (0, 0), (8, 4)), [AB], AB),
    "uneven slice": (lambda b, x: b.slice(x, (0, 0), (6, 8)), [AB], NB),
    "cumsum": (lambda b, x: b.op("cumsum", x, axis=0, reverse=False), [AB], AB),
    "sort": (lambda b, x: b.op("sort", x, dimension=0, is_stable=True, num_keys=1)[0], [AB], AB),
    "softmax": (lambda b, x: softmax(b, x, 1), [AB], AB),
    "softmax over rows": (lambda b, x: softmax(b, x, 0), [AB], AB),
    "argmax": (lambda b, x: b.op("argmax", x, axes=(0,), index_dtype=np.dtype(np.int32)),
               [AB], B),
    "max": (lambda b, x: b.op("reduce_max", x, axes=(0,)), [AB], B),
    "constraint": (lambda b, x: b.constrain(add_one(b, x), None, "b"), [AB], NB),
    "after a constraint": (lambda b, x: b.op("neg", b.constrain(add_one(b, x), None, "b")),
                           [AB], NB),
    "mlp": (lambda b, x, w, v: b.dot(relu(b, b.dot(x, w)), v), [A, NB, B], A),
    "mlp, data parallel": (lambda b, x, w, v: b.dot(relu(b, b.dot(x, w)), v), [A, R, R], A),
    "mlp, weights in blocks": (lambda b, x, w, v: b.dot(relu(b, b.dot(x, w)), v), [A, A, A], A),
    "where": (where, [A, NB], AB),
    "pad": (pad_columns, [AB], AB),
    "rev": (lambda b, x: b.op("rev", x, dimensions=(0,)), [AB], AB),
    "outer": (outer, [NA, NB], AB),
    "pairs": (pairs, [A], NA),
    "batched": (lambda b, x, y: b.dot(x, y, ((), ()), ((0,), (0,))), [A, AB], P("a", None, "b")),
    "more axes": (lambda b, x, y: b.op("mul", x, y), [P(("a", "b")), A], P(("a", "b"))),
    "iota": (lambda b, x: b.op("add", x, b.op("iota", dtype=np.dtype(F32), shape=(8, 8),
                                               dimension=0, sharding=None)), [AB], AB),
}


def build(f, specs, mesh=MESH, shape=(8, 8)):
    b = Build(mesh)
    args = [b.arg(*shape, dtype=F32, name=name) for name, _ in zip("xyz", specs, strict=False)]
    result = f(b, *args)
    return b.program(*result) if isinstance(result, tuple) else b.program(result)


@rows("name", list(CASES))
def test_open_results_get_the_spec_that_jax_gives(name):
    f, specs, want = CASES[name]
    program = build(f, specs)
    done = partition(program, mesh=MESH, in_shardings=specs)
    ndim = program.outvars[0].aval.ndim
    assert done.out_specs[0].entries == want.padded(ndim).entries
    rng = np.random.default_rng(1)
    args = [rng.standard_normal(v.aval.shape).astype(F32) for v in program.invars]
    for got, whole in zip(lockstep.run_local(done.local, args), lockstep.evaluate(program, args),
                          strict=True):
        lockstep.close(got, whole)


def test_arguments_that_are_not_placed_yet_are_placed_by_their_uses():
    program = build(lambda b, x, y: (b.op("add", x, y), b.op("neg", y)), [A, None])
    done = partition(program, mesh=MESH, in_shardings=[A, None])
    assert done.in_specs[1].entries == (("a",), ())
    assert [s.entries for s in done.out_specs] == [(("a",), ())] * 2
    program = build(lambda b, x, y: (b.op("neg", x), b.op("neg", y)), [A, None])
    done = partition(program, mesh=MESH, in_shardings=[A, None])
    assert done.out_specs[1].entries == ((), ())


def test_out_shardings_flow_backwards():
    program = build(lambda b, x: b.op("neg", b.sin(x)), [None])
    done = partition(program, mesh=MESH, in_shardings=[None], out_shardings=[AB])
    assert done.in_specs[0].entries == (("a",), ("b",))


def test_explicit_programs_keep_their_types():
    mesh = explicit(4, 2, names="ab")
    b = Build(mesh)
    x, y = b.arg(8, 8, spec=P("a", None)), b.arg(8, 8, spec=P(None, "b"))
    z = b.op("add", x, y)
    w = b.reshard(z, P("b", None))
    program = b.program(z, w, b.sum(z, 0))
    done = partition(program, mesh=mesh)
    assert [s.entries for s in done.out_specs] == [(("a",), ("b",)), (("b",), ()), (("b",),)]
    for before, after in zip(program.eqns, done.resolved.eqns, strict=True):
        assert before.outvars[0].aval.entries == after.outvars[0].aval.entries


def test_out_shardings_move_explicit_results():
    mesh = explicit(4, 2, names="ab")
    b = Build(mesh)
    x = b.arg(8, 8, spec=P("a", None))
    done = partition(b.program(b.op("neg", x)), mesh=mesh, out_shardings=[P(None, "b")])
    assert done.out_specs[0].entries == ((), ("b",))


def test_a_constraint_that_does_not_divide_is_left_replicated_with_a_warning():
    program = build(lambda b, x: b.constrain(b.slice(x, (0, 0), (6, 8)), ("b", "a"), None), [R])
    with pytest.warns(UserWarning, match="left replicated over a"):
        done = partition(program, mesh=MESH, in_shardings=[R])
    assert done.out_specs[0].entries == (("b",), ())


def test_given_specs_that_do_not_divide_are_errors_that_name_the_value():
    b = Build(MESH)
    x = b.arg(6, 8, name="weights")
    program = b.program(b.op("neg", x))
    with pytest.raises(IndivisibleError, match="argument weights .* dimension 0 of size 6"):
        partition(program, mesh=MESH, in_shardings=[A])
    with pytest.raises(IndivisibleError, match=r"result \[0\]"):
        partition(program, mesh=MESH, out_shardings=[A])


def test_unconstrained_dimensions_stay_open():
    program = build(lambda b, x: b.constrain(add_one(b, x), P.UNCONSTRAINED, None), [AB])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = partition(program, mesh=MESH, in_shardings=[AB])
    assert done.out_specs[0].entries == (("a",), ())


def test_what_held_an_axis_off_is_told_with_who_wanted_it():
    b = Build(MESH)
    x, y, z = (b.arg(8, 8, name=n, dtype=F32) for n in "xyz")
    h = b.op("add", x, y)
    fixed = b.op("mul", b.constrain(h, None, None), z)
    odd = b.dot(b.slice(x, (0, 0), (7, 8)), z)
    done = partition(b.program(fixed, odd), mesh=MESH, in_shardings=[A, NA, B],
                     out_shardings=[None, None])
    resolved = done.resolved
    by_op = {e.op.name: e.outvars[0] for e in resolved.eqns}

    def told(var):
        return {(v.dim, v.axis, v.wanted.text, v.held) for v in vetoes(resolved, var)}

    asked = "`with_sharding_constraint` asks for it so"
    assert told(by_op["add"]) == {
        (0, "a", "`add` would have it from `x`, dimension 0", asked),
        (1, "a", "`add` would have it from `y`, dimension 1", asked)}
    assert (0, "a", "`add` would have it from `x`, dimension 0", "argument `y` asks for it so") \
        not in told(by_op["add"])
    first, second = resolved.invars[:2]
    assert (0, "a", "`add` would have it from `x`, dimension 0",
            "dimension 1 of it is over a") in told(second)
    assert [v.wanted.location.line for v in vetoes(resolved, second)] == [1]
    assert any(v.held == "argument `x` asks for it so" or "over a" in v.held
               for v in vetoes(resolved, first))
    assert any("is not divisible by 4" in held for _, _, _, held in told(by_op["slice"]))


@pytest.mark.parametrize("first, second, want", [
    (0, 1, A), (1, 0, NA), (0, 0, A), (3, 2, NA)])
def test_constraints_of_lower_priority_spread_to_what_is_left(first, second, want):
    """The product of [8@a, 8] and [8, 8@a] can keep one of them."""
    b = Build(MESH)

    def constrain(x, spec, priority):
        more = {"priority": priority} if priority else {}
        return b.op("sharding_constraint", x, sharding=NamedSharding(MESH, spec), **more)

    x, y = b.arg(8, 8, dtype=F32), b.arg(8, 8, dtype=F32)
    h = b.dot(constrain(b.sin(x), A, first), constrain(b.sin(y), NA, second))
    done = partition(b.program(b.sin(h)), mesh=MESH)
    assert done.out_specs[0].entries == want.padded(2).entries


def test_an_argument_waits_where_a_constraint_of_its_own_sharding_says_so():
    b = Build(MESH)
    x, y = b.arg(8, 8, dtype=F32), b.arg(8, 8, dtype=F32)
    waiting = b.op("sharding_constraint", x, sharding=NamedSharding(MESH, A), priority=1)
    done = partition(b.program(b.sin(b.dot(waiting, y))), mesh=MESH, in_shardings=[A, NA])
    assert done.out_specs[0].entries == ((), ("a",))
    assert done.in_specs[0].entries == (("a",), ())


def test_axes_of_size_one_and_meshes_without_axes():
    one = auto(4, 1, names="ab")
    program = build(lambda b, x: b.sum(b.sin(x), 1), [AB], mesh=one)
    done = partition(program, mesh=one, in_shardings=[AB])
    args = [np.arange(64, dtype=F32).reshape(8, 8)]
    lockstep.close(lockstep.run_local(done.local, args)[0], lockstep.evaluate(program, args)[0])
    none = auto()
    program = build(lambda b, x: b.sum(b.sin(x), 1), [R], mesh=none)
    done = partition(program, mesh=none)
    assert done.out_specs == (P(None),)
    assert len(done.local.eqns) == 2


def test_a_result_that_nobody_asked_for_is_laid_out_as_the_loop_keeps_it():
    """Operands of a loop disagree: it has one layout for what it carries, and its result has that.
    """
    mesh = AbstractMesh((4, 2), ("a", "b"))

    def f(x, speed):
        return lax.fori_loop(0, 3, lambda _, x: x + speed * jnp.roll(x, 1, 0), x)

    given = [st.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, spec))
             for spec in (P("a", "b"), P("b", "a"))]
    found = st.jit(f).lower(*given).compile()
    carried = found.output_shardings.spec
    assert carried in (P("a", "b"), P("b", "a"))
    assert "because the type of this result" not in found.as_text()


@pytest.mark.parametrize("mesh", [MESH, explicit(4, 2, names="ab")])
def test_results_are_moved_in_calls_that_grow_as_their_number(mesh):
    def calls(n):
        x = st.ShapeDtypeStruct((8,), F32, sharding=NamedSharding(mesh, A))
        program = st.jit(lambda *xs: [jnp.sin(x) for x in xs]).lower(*[x] * n).stages["traced"]
        return python_calls(lambda: partition(program, mesh=mesh, in_shardings=[A] * n,
                                              out_shardings=[P()] * n))

    calls(2)
    assert calls(400) < 2.2 * calls(200)
