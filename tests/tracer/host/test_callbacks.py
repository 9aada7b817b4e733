"""Functions of the host called from traced code, in both executors and under transformations."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.driver.execution.eager import _run_flat
from shardtrace.experimental import io_callback
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

F32 = np.float32
V = np.arange(3, dtype=F32)


def on(mesh, spec=P("x")):
    return st.device_put(np.arange(4, dtype=F32), NamedSharding(mesh, spec))


def like(x):
    return st.ShapeDtypeStruct(x.shape, x.dtype)


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def show(x):
    st.debug.print("x {}", x)
    return x


# -- printing --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("fmt", "args", "kwargs", "want"), [
    ("x is {}", (V,), {}, "x is [0. 1. 2.]"),
    ("{z} {}", (1,), {"z": V}, "[0. 1. 2.] 1"),
    ("{:.2f} {z:>5}", (V[1],), {"z": V[2]}, "1.00   2.0"),
    ("{} {} {}", (3, True, 2.5), {}, "3 True 2.5"),
    ("{} {}", ("text", {"a": V[0], "b": (1, "q")}), {},
     "text {'a': Array(0., dtype=float32), 'b': (Array(1, dtype=int32), 'q')}"),
    ("no fields", (), {}, "no fields"),
])
@pytest.mark.parametrize("jitted", [False, True])
def test_print_formats_as_str_format_does(fmt, args, kwargs, want, jitted, capsys):
    if jitted:
        st.jit(lambda: st.debug.print(fmt, *args, **kwargs))()
    else:
        st.debug.print(fmt, *args, **kwargs)
        want = want.replace("Array(1, dtype=int32)", "Array(1, dtype=int32, weak_type=True)")
    assert lines(capsys) == [want]


@pytest.mark.parametrize(("transform", "x", "want"), [        # as JAX 0.10.2 has it
    (lambda f: f, 3.0, [True, True, False, False]),
    (st.vmap, jnp.full(1, 3.0), [True, True, False, False]),
    (st.grad, 3.0, [True, True, False, False]),
    (st.grad, F32(3), [False, True, False, False]),
    (st.jit, 3.0, [False, False, False, False]),
])
def test_debug_callbacks_see_weak_types_outside_of_programs(transform, x, want):
    seen = []

    def f(x):
        st.debug.callback(lambda *args: seen.extend(a.weak_type for a in args), x, 2, F32(1), True)
        return x

    transform(f)(x)
    assert seen == want


@pytest.mark.parametrize(("call", "error", "phrase"), [
    (lambda: st.debug.print("{} {}", V), IndexError, "out of range"),
    (lambda: st.debug.print("a", V), ValueError, "Unused positional arguments to `jax.deb"),
    (lambda: st.debug.print("a", z=V), ValueError, "You may be passing an f-string"),
    (lambda: st.debug.print(x=3), TypeError, "unexpected arguments in the two-call form"),
    (lambda: st.debug.callback(3, V), TypeError,
     "first argument to st.debug.callback must be callable"),
    (lambda: st.debug.callback(lambda x: 1 / 0, V), ZeroDivisionError, "division"),
])
def test_bad_debug_calls_raise_what_jax_raises(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


def test_options_may_be_said_first(capsys):
    st.debug.print(ordered=True)("hi {}", 1)
    st.debug.callback(ordered=True)(lambda a, k: print(type(a).__name__, k), 2, k="s")
    assert lines(capsys) == ["hi 1", "ArrayImpl s"]


def test_numpy_print_options_are_those_of_the_trace(capsys):
    with np.printoptions(precision=2):
        f = st.jit(lambda x: st.debug.print("{}", x))
        f(np.array([1 / 3], F32))
    f(np.array([2 / 3], F32))
    assert lines(capsys) == ["[0.33]", "[0.67]"]


def test_whole_values_are_printed_once(executor, mesh, capsys):
    st.jit(show)(on(mesh))
    assert lines(capsys) == ["x [0. 1. 2. 3.]"]


def test_partitioned_prints_the_block_of_every_device(executor, mesh, capsys):
    st.jit(lambda v: st.debug.print("x {}", v, partitioned=True))(on(mesh))
    assert lines(capsys) == ["x [0. 1.]", "x [0. 1.]", "x [2. 3.]", "x [2. 3.]"]


@pytest.mark.parametrize("jitted", [False, True])
def test_every_device_of_a_region_prints_its_block(executor, mesh, jitted, capsys):
    f = st.shard_map(show, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    (st.jit(f) if jitted else f)(on(mesh))
    assert lines(capsys) == ["x [0. 1.]", "x [0. 1.]", "x [2. 3.]", "x [2. 3.]"]


def test_a_partly_manual_region_prints_once_for_each_place(executor, mesh, capsys):
    f = st.shard_map(show, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    st.jit(f)(on(mesh))
    assert lines(capsys) == ["x [0. 1.]", "x [2. 3.]"]


def test_ordered_prints_need_one_device(mesh):
    f = st.jit(lambda v: st.debug.print("{}", v, ordered=True))
    with pytest.raises(ValueError, match="ordered effects are not supported for more than 1 dev"):
        f(on(mesh))


def test_only_devices_that_run_a_branch_print(executor, mesh, capsys):
    def body(v):
        return lax.cond(v[0] > 1, lambda: show(v), lambda: v * 2)
    f = st.jit(st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    np.testing.assert_array_equal(f(on(mesh)), [0, 2, 2, 3])
    assert lines(capsys) == ["x [2. 3.]"] * 2


def test_devices_that_left_a_loop_do_not_print(executor, mesh, capsys):
    def body(v):
        def step(c):
            st.debug.print("{} of {}", c[0], v)
            return c[0] + 1, c[1]
        start = lax.pcast(jnp.float32(0), "x", to="varying")
        return lax.while_loop(lambda c: c[0] < c[1][0], step, (start, v))[1]
    st.jit(st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(on(mesh))
    assert lines(capsys) == ["0.0 of [2. 3.]"] * 2 + ["1.0 of [2. 3.]"] * 2


# -- under transformations -------------------------------------------------------------------------

def scanned(x):
    def step(c, a):
        st.debug.print("{} {}", c, a)
        return c + a * a, c
    return lax.scan(step, 0.0, x)[0]


@pytest.mark.parametrize(("f", "want"), [
    (lambda: st.jit(scanned)(V), ["0.0 0.0", "0.0 1.0", "1.0 2.0"]),
    (lambda: st.jit(st.grad(scanned))(V), ["0.0 0.0", "0.0 1.0", "1.0 2.0"]),
    (lambda: st.jit(lambda x: (scanned(x), 1)[1])(V), ["0.0 0.0", "0.0 1.0", "1.0 2.0"]),
    (lambda: st.vmap(show)(V), ["x 0.0", "x 1.0", "x 2.0"]),
    (lambda: st.jit(st.vmap(show))(V), ["x 0.0", "x 1.0", "x 2.0"]),
    (lambda: st.vmap(lambda x, y: (show(y), x)[1], in_axes=(0, None))(V, 2.0), ["x 2.0"]),
    (lambda: st.jit(lambda x: st.jit(show)(x))(2.0), ["x 2.0"]),
    (lambda: st.grad(lambda x: (show(x) ** 2).sum())(V), ["x [0. 1. 2.]"]),
    (lambda: st.jit(st.grad(lambda x: (show(x) ** 2).sum()))(V), ["x [0. 1. 2.]"]),
    (lambda: st.grad(st.jit(lambda x: (show(x) ** 2).sum()))(V), ["x [0. 1. 2.]"]),
    (lambda: st.jvp(show, (F32(1),), (F32(3),)), ["x 1.0"]),
    (lambda: st.grad(st.checkpoint(lambda x: jnp.sin(show(x))))(F32(1)), ["x 1.0", "x 1.0"]),
    (lambda: st.vmap(lambda x: lax.cond(x > 1, lambda: show(x), lambda: x))(V),
     ["x 0.0", "x 1.0", "x 2.0"]),
    (lambda: st.jit(lambda x: lax.while_loop(lambda c: c < 2, lambda c: show(c) + 1, x))(0.0),
     ["x 0.0", "x 1.0"]),
])
def test_prints_under_transformations_are_those_of_jax(f, want, executor, capsys):
    f()
    assert lines(capsys) == want


def test_prints_of_a_gradient_outside_of_jit_keep_their_place(capsys):
    def f(x):
        print("before")
        show(x)
        print("after")
        return x * x
    assert float(st.grad(f)(F32(2))) == 4
    assert lines(capsys) == ["before", "x 2.0", "after"]


def test_a_rule_prints_tangents_and_cotangents(capsys):
    @st.custom_jvp
    def forward(x):
        return x

    @forward.defjvp
    def _(primals, tangents):
        st.debug.print("tangent {}", tangents[0])
        return primals[0], tangents[0]

    @st.custom_vjp
    def backward(x):
        return x

    def bwd(_, ct):
        st.debug.print("cotangent {}", ct)
        return (ct,)

    backward.defvjp(lambda x: (x, None), bwd)
    st.jvp(lambda x: forward(x * 2), (F32(1),), (F32(3),))
    st.grad(lambda x: backward(x * 2) * 3)(F32(1))
    st.jit(st.grad(lambda x: backward(x * 2) * 3))(F32(1))
    assert lines(capsys) == ["tangent 6.0", "cotangent 3.0", "cotangent 3.0"]


# -- as text ---------------------------------------------------------------------------------------

def host_function(a):
    return np.sin(a)


def traced():
    def f(x):
        st.debug.print("x {} {k}", x, k=x[0])
        st.debug.callback(print, "text", {"a": x})
        y = st.pure_callback(host_function, like(x), x)
        return y + io_callback(host_function, like(x), x)
    return st.jit(f).trace(V).jaxpr


def test_programs_with_callbacks_are_equal_to_their_text():
    program = traced()
    again = st.parse_program(str(program))
    assert st.programs_equal(program, again) and st.programs_equal(again, program)
    assert str(again) == str(program)
    assert "debug_print[fmt='x {} {k}', keywords=('k',)] x %b" in str(program)
    assert 'callback=@python("' in str(program) and ":host_function" in str(program)
    assert program.effects == {"debug", "io"}


def test_a_read_program_refuses_to_call_functions_that_it_only_knows_by_name():
    program = st.jit(lambda x: st.pure_callback(host_function, like(x), x)).trace(V).jaxpr
    with pytest.raises(NameError, match="host_function"):
        _run_flat(st.parse_program(str(program)), [V])
    printing = st.jit(show).trace(V).jaxpr
    np.testing.assert_array_equal(_run_flat(st.parse_program(str(printing)), [V])[0], V)


# -- named scopes ----------------------------------------------------------------------------------

def test_scopes_show_in_texts_and_survive_them(mesh):
    def f(x):
        with st.named_scope("layer"):
            return inner(x)

    @st.jit
    def inner(x):
        @st.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
        def total(v):
            with st.named_scope("a sum"):
                return lax.psum(v.sum(), "x")
        return total(x)

    compiled = st.jit(f).lower(on(mesh)).compile()
    text = compiled.as_text()
    assert 'under "layer/a sum"' in text
    assert str(st.parse_program(text)) == text
    (psum,) = [e for e in st.parse_program(text).eqns if e.op.collective is not None]
    assert psum.location.scope == "layer/a sum"


def test_named_call_is_a_scope_and_names_are_strings():
    jaxpr = st.make_jaxpr(st.named_call(lambda x: x * 2, name="twice"))(1.0)
    assert jaxpr.eqns[0].location.scope == "twice"
    with pytest.raises(TypeError, match="named_scope name argument must be a string."):
        st.named_scope(3)
