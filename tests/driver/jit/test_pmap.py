"""pmap: values, shardings of results, axes, static and donated arguments, errors; JAX's too."""

import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.sharding import Mesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

A4 = np.arange(4, dtype=np.float32)
A24 = np.arange(8, dtype=np.float32).reshape(2, 4)

# name -> (what is mapped, options, arguments); run here and by JAX with their names for `lax`
CASES = {
    "elementwise": (lambda lax: lambda x: x * 2, {}, (A4,)),
    "all devices": (lambda lax: lambda x: x * 2, {}, (np.arange(8),)),
    "psum": (lambda lax: lambda x: x / lax.psum(x, "i"), {"axis_name": "i"}, (A4,)),
    "axis index": (lambda lax: lambda x: x + lax.axis_index("i"), {"axis_name": "i"}, (A4,)),
    "pmean and pmax": (lambda lax: lambda x: (lax.pmean(x, "i"), {"m": lax.pmax(x, "i")}),
                       {"axis_name": "i"}, (A4,)),
    "ppermute": (lambda lax: lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]),
                 {"axis_name": "i"}, (A24,)),
    "all_gather": (lambda lax: lambda x: lax.all_gather(x, "i"), {"axis_name": "i"}, (A24,)),
    "in_axes 1": (lambda lax: lambda x: x + 1, {"in_axes": 1, "axis_name": "x"}, (A24,)),
    "out_axes 1": (lambda lax: lambda x: x * 1, {"out_axes": 1}, (A24,)),
    "out_axes None": (lambda lax: lambda x: lax.psum(x, "i"),
                      {"axis_name": "i", "out_axes": None}, (A4,)),
    "out_axes tree": (lambda lax: lambda x: (x, lax.psum(x, "i")),
                      {"axis_name": "i", "out_axes": (0, None)}, (A4,)),
    "None takes the first": (lambda lax: lambda x: x, {"out_axes": None}, (A4,)),
    "in_axes None": (lambda lax: lambda x, y: (x + y, y * 2.0), {"in_axes": (0, None)}, (A4, 4.0)),
    "pytrees": (lambda lax: lambda d: {"s": d["a"] + d["b"][0]}, {}, ({"a": A4, "b": [A4]},)),
    "prefix of a tree": (lambda lax: lambda d, y: d["a"] + d["b"] + y,
                         {"in_axes": ({"a": 0, "b": None}, None)}, ({"a": A4, "b": 1.0}, 2.0)),
    "static": (lambda lax: lambda x, n: x * n, {"static_broadcasted_argnums": 1}, (A4, 3)),
    "static in the middle": (lambda lax: lambda x, n, y: x * n + y,
                             {"in_axes": (0, None, None), "static_broadcasted_argnums": (1,)},
                             (A4, 3, 2.0)),
    "axis_size": (lambda lax: lambda x: x, {"axis_size": 4}, (A4,)),
    "constant": (lambda lax: lambda x: 1.0, {}, (A4,)),
    "scan": (lambda lax: lambda x: lax.scan(lambda c, _: (c + lax.psum(c, "i"), None), x, None,
                                            length=3)[0], {"axis_name": "i"}, (A24[:, 0],)),
    "rank 2": (lambda lax: lambda x, y: x @ y, {},
               (np.ones((3, 2, 2), np.float32), np.ones((3, 2, 2), np.float32))),
}
ERRORS = {
    "more than devices": ({}, (np.arange(16.0),), "cannot select an axis to squeeze out"),
    "not a multiple of devices": ({}, (np.arange(9.0),), "array axis 0 is partitioned 8 times"),
    "sizes differ": ({}, (A4, np.arange(8.0)), "cannot select an axis to squeeze out"),
    "sizes differ, no multiple": ({}, (A4, np.arange(3.0)), "array axis 0 is partitioned 4 times"),
    "nothing mapped": ({"in_axes": None}, (A4,), "requires at least one argument with a mapped"),
    "no arguments": ({}, (), "requires at least one argument with a mapped axis"),
    "axis_size": ({"axis_size": 3}, (A4,),
                  "Specified axis_size 3 doesn't match received axis_size 4"),
    "prefix": ({"in_axes": (0,)}, (A4, A4), "pytree structure error: different lengths of tuple"),
    "too few for static": ({"static_broadcasted_argnums": 1}, (A4,),
                           "but was called with only 1 positional argument"),
    "static not hashable": ({"static_broadcasted_argnums": 1}, (A4, [3]),
                            "Non-hashable static arguments are not supported"),
    "no devices": ({"devices": []}, (A4,), "must be non-empty"),
    "out_axes": ({"out_axes": (0, 1)}, (A4,), "pytree structure error"),
}


def described(out, tree):
    return [(np.asarray(x).tolist(), str(x.dtype), str(x.sharding.spec), str(x.sharding.mesh),
             [d.id for d in x.sharding.mesh.devices.flat]) for x in tree.leaves(out)]


@rows("name", CASES)
@rows("executor", ["simulated", "per_device"])
def test_results_and_their_shardings_are_jaxs(name, executor) -> None:
    make, options, args = CASES[name]
    with config.override(shardtrace_engine=executor):
        out = st.pmap(make(lax), **options)(*args)
    axis = options.get("axis_name", "_internal_pmap_axis_name")
    for leaf in st.tree.leaves(out):
        assert leaf.sharding.mesh.axis_names == (axis,)
        assert leaf.sharding.mesh.axis_types == (st.sharding.AxisType.Auto,)
    try:
        import jax
    except ImportError:
        return
    if jax.device_count() >= 8:
        assert described(out, st.tree) == described(jax.pmap(make(jax.lax), **options)(*args),
                                                    jax.tree)


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name) -> None:
    options, args, text = ERRORS[name]

    def f(x=None, *rest):
        return x

    with pytest.raises(ValueError, match=text.replace("(", r"\(")) as mine:
        st.pmap(f, **options)(*args)
    try:
        import jax
    except ImportError:
        return
    if jax.device_count() >= 8:
        with pytest.raises(ValueError, match=text.replace("(", r"\(")) as theirs:
            jax.pmap(f, **options)(*args)
        assert {c.__name__ for c in type(theirs.value).__mro__} <= {
            c.__name__ for c in type(mine.value).__mro__}


@pytest.mark.parametrize("options", [{"in_axes": "a"}, {"in_axes": (0.5,)}, {"out_axes": "a"}])
def test_axes_are_ints(options) -> None:
    with pytest.raises(TypeError, match="must be an int, None, or .nested. container"):
        st.pmap(lambda x: x, **options)


def test_what_is_not_a_function_or_not_an_array() -> None:
    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        st.pmap(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mapped axis"):
        st.pmap(lambda x: x)("abc")
    with pytest.raises(RuntimeError, match="backend"):
        st.pmap(lambda x: x, backend="tpu")(A4)
    with pytest.raises(IndexError, match="tuple index out of range"):
        st.pmap(lambda x: x, in_axes=2)(A24)
    with pytest.raises(NameError, match="unbound axis name: k"):
        st.pmap(lambda x: lax.psum(x, "k"), axis_name="i")(A4)


def test_devices_in_the_order_given() -> None:
    devices = st.devices()[:3:-1]
    out = st.pmap(lambda x: x + lax.axis_index("i"), axis_name="i", devices=devices)(A4)
    assert out.sharding == NamedSharding(Mesh(np.array(devices), "i"), P("i"))
    assert [float(s.data[0]) for s in out.addressable_shards] == [0, 2, 4, 6]
    assert [s.device for s in out.addressable_shards] == devices


def test_keyword_arguments_are_mapped_over_their_first_dimension() -> None:
    out = st.pmap(lambda x, y: x + y, in_axes=(None,))(2.0, y=A4)
    assert np.array_equal(out, A4 + 2)


def test_with_other_transformations() -> None:
    f = st.pmap(lambda x: x * x)
    assert np.array_equal(st.jit(f)(A4), A4 * A4)
    assert np.array_equal(st.jit(lambda v: f(v) + 1)(A4), A4 * A4 + 1)
    assert np.array_equal(st.grad(lambda v: f(v).sum())(A4), 2 * A4)
    assert np.array_equal(st.pmap(st.grad(lambda x: x * x))(A4), 2 * A4)
    assert np.array_equal(st.pmap(st.jit(lambda x: x + 1))(A4), A4 + 1)
    assert np.array_equal(st.vmap(f)(A24.reshape(4, 2)), (A24 * A24).reshape(4, 2))
    assert np.array_equal(st.pmap(st.vmap(lambda x: x + 1))(A24), A24 + 1)
    total = functools.partial(st.pmap, axis_name="i")(lambda x: lax.psum(x, "i"))
    assert np.array_equal(total(A4), [6] * 4)
    assert st.pmap(np.sin).__name__ == "sin"


def test_pmap_in_pmap_is_refused() -> None:
    for names in ((None, None), ("i", "j")):
        inner = st.pmap(lambda x: x, axis_name=names[1])
        with pytest.raises(ValueError, match="should match the mesh passed to shard_map"):
            st.pmap(inner, axis_name=names[0])(np.zeros((2, 2), np.float32))


def test_donated_arguments_are_given_up() -> None:
    x = st.pmap(lambda x: x)(A4)
    y = st.pmap(lambda x, y: x + y, donate_argnums=0)(x, A4)
    assert x.is_deleted() and np.array_equal(y, A4 + A4)


def test_results_are_used_as_any_array_and_traced_once_as_such() -> None:
    count = []

    def f(x):
        count.append(1)
        return x + 1

    g = st.pmap(f)
    x = g(g(g(A4)))
    assert len(count) <= 2 and np.array_equal(x * 2, (A4 + 3) * 2)
    assert (x * 2).sharding == x.sharding
    assert "shard_map" in str(st.make_jaxpr(g)(A4)) and g.lower(A4).compile().as_text()


def test_closures_and_keys() -> None:
    whole = jnp.arange(4.0)
    assert np.array_equal(st.pmap(lambda x: x + whole)(A4), A4[:, None] + A4)
    keys = st.random.split(st.random.key(0), 2)
    drawn = st.pmap(lambda k: st.random.normal(k, ()))(keys)
    assert [float(v) for v in drawn] == [float(st.random.normal(k, ())) for k in keys]


def test_committed_elsewhere_is_refused_and_other_orders_are_moved() -> None:
    with pytest.raises(ValueError, match="does not match the sharding on the respective arg"):
        st.pmap(lambda x: x)(st.device_put(A4, st.devices()[3]))
    other = Mesh(np.array(st.devices()[::-1]), "q")
    x = st.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(other, P("q")))
    out = st.pmap(lambda x: x)(x)
    assert np.array_equal(out, np.arange(8)) and out.sharding.device_assignment[0].id == 0


def test_several_processes_each_give_and_get_their_part() -> None:
    def program(process: int) -> tuple:
        x = np.arange(4, dtype=np.float32) + 4 * process
        y = st.pmap(lambda v: v + lax.psum(v, "i"), axis_name="i")(x)
        total = st.pmap(lambda v: lax.psum(v, "i"), axis_name="i", out_axes=None)(x)
        assert y.is_fully_addressable and y.sharding.num_devices == 4
        return np.asarray(y).tolist(), float(total)

    assert st.distributed.run_processes(program, 2) == [
        ([28, 29, 30, 31], 28), ([32, 33, 34, 35], 28)]


def test_stages_take_arguments_as_the_function_does() -> None:
    f = st.pmap(lambda a, b: (a["k"] + b[0], ()), donate_argnums=1)
    a, b = {"k": np.ones((2, 3), np.float32)}, [jnp.ones((2, 3)), ()]
    lowered = f.lower(a, b)
    assert lowered.in_tree == st.tree.structure(((a, b), {}))
    assert [x.donated for x in st.tree.leaves(lowered.args_info)] == [False, True]
    out, nothing = lowered.compile()(a, b)
    np.testing.assert_array_equal(out, np.full((2, 3), 2))
    assert nothing == () and len(out.sharding.device_set) == 2
    named = st.pmap(lambda a, k: a + k).lower(a["k"], k=a["k"]).compile()
    np.testing.assert_array_equal(named(a["k"], a["k"]), np.full((2, 3), 2))
    with pytest.raises(ValueError, match=r"pmap in_axes\[0\]\[0\]"):
        st.pmap(lambda x, y: x, in_axes=((0, 0, 0), 0))((a["k"], a["k"]), a["k"])
    with pytest.raises(ValueError, match="each argument passed by keyword is mapped"):
        st.pmap(lambda x, y: x, in_axes=((0, 0), 0))(x=(A4, A4), y=A4)
