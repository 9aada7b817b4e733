"""Calls that were made before take a shorter way: it gives what the first call gave."""
import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

Point = collections.namedtuple("Point", "x y")


@st.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


@pytest.fixture
def mesh():
    return st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))


def rows(mesh, start=0.0):
    return st.device_put(np.arange(start, start + 16, dtype=np.float32).reshape(8, 2),
                         NamedSharding(mesh, P("x")))


def same(a, b):
    assert type(a) is type(b) and a.aval == b.aval and a.sharding == b.sharding
    assert a.committed == b.committed
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def known(f):
    return len(f._quick._known)


A = np.arange(6, dtype=np.float32).reshape(2, 3)
TREES = {
    "dict": {"b": A, "a": A + 1},
    "nested": {"z": [A, (A + 1, None)], "a": {"d": A + 2, "c": A + 3}},
    "other order": {"a": {"c": A + 3, "d": A + 2}, "z": [A, (A + 1, None)]},
    "named": Point(A, {"q": A + 1, "p": A + 2}),
    "ordered": collections.OrderedDict([("b", A), ("a", A + 1)]),
    "registered": {"n": Layer(A, None), "m": Layer(A + 1, [A + 2])},
    "numbers": {"b": 1.5, "a": True, "d": 3, "c": 2j, "e": np.float32(3), "f": np.float64(4)},
    "wide": [np.arange(3), np.ones(2), np.zeros((), np.int8)],
    "empty": ((), {}, None),
}


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("name", TREES)
def test_calls_of_all_kinds_of_arguments_give_what_the_first_gave(name, arrays):
    def f(tree):
        leaves = st.tree_util.tree_leaves(tree)
        return st.tree_util.tree_map(lambda x: x * 2, tree), [x + i for i, x in enumerate(leaves)]
    tree = TREES[name]
    if arrays:
        tree = st.tree_util.tree_map(jnp.asarray, tree)
    jitted = st.jit(f)
    compiled = jitted.lower(tree).compile()
    first = jitted(tree)
    for call in (jitted, jitted, jitted, compiled, compiled):
        again = call(tree)
        assert st.tree_util.tree_structure(again) == st.tree_util.tree_structure(first)
        st.tree_util.tree_map(same, again, first)
    assert known(jitted) == 1 and jitted._cache_size() == 1


def test_dictionaries_of_another_order_share_a_program_and_keep_their_values():
    f = st.jit(lambda t, *, k: (t["a"] - t["b"], k["u"] / k["v"]))
    one, two, three, four = (jnp.float32(x) for x in (1, 2, 3, 4))
    for _ in range(3):
        assert [float(x) for x in f({"a": one, "b": two}, k={"u": three, "v": four})] == [-1, .75]
        assert [float(x) for x in f({"b": one, "a": two}, k={"v": four, "u": two})] == [1, 0.5]
    assert f._cache_size() == 1


def test_static_arguments_and_keywords_choose_the_program(mesh):
    f = st.jit(lambda x, n, *, how: x * n if how == "times" else x + n,
               static_argnums=1, static_argnames="how")
    x = rows(mesh)
    for _ in range(3):
        for n, how, wanted in ((2, "times", 2.0), (3, "times", 3.0), (3, "plus", 4.0)):
            assert np.asarray(f(x, n, how=how))[0, 1] == wanted
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        f(x, [2], how="times")


def test_a_number_that_does_not_fit_is_refused_also_later():
    f = st.jit(lambda x: x + 1)
    for _ in range(3):
        assert int(f(7)) == 8
    with pytest.raises(OverflowError, match="An overflow was encountered while parsing"):
        f(2 ** 40)
    with pytest.raises(TypeError, match="abstract array"):
        f("seven")


def test_settings_and_meshes_are_looked_at_by_every_call(mesh):
    f = st.jit(lambda x: x / x)
    zero = jnp.zeros(2)
    for _ in range(3):
        assert np.isnan(np.asarray(f(zero))).all()
    with st.debug_nans(True), pytest.raises(FloatingPointError):
        f(zero)
    st.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError):
            f(zero)
    finally:
        st.config.update("jax_debug_nans", False)
    for _ in range(3):
        with st.enable_x64(True):
            assert f(np.ones(2)).dtype == np.float64
        assert f(np.ones(2)).dtype == np.float32
    calls = []
    g = st.jit(lambda x: calls.append(1) or x)
    for _ in range(3):
        g(zero)
    with st.disable_jit():
        g(zero)
    assert len(calls) == 2
    for _ in range(3):
        with st.set_mesh(mesh):
            inside = f(np.ones((8, 2), np.float32))
        assert inside.sharding.device_set == set(mesh.devices.flat)
        assert len(f(np.ones((8, 2), np.float32)).sharding.device_set) == 1


def test_arrays_that_are_gone_are_refused_and_donated_ones_go(mesh):
    f = st.jit(lambda x, y: x + y, donate_argnums=0)
    y = rows(mesh)
    for _ in range(4):
        x = rows(mesh)
        f(x, y)
        assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        f(x, y)
    g = st.jit(lambda t: t["a"][:4], donate_argnums=0)
    for _ in range(4):
        with pytest.warns(UserWarning, match="not usable"):
            g({"a": jnp.ones(8)})


def test_a_result_is_apart_from_the_numpy_array_that_it_was_given():
    for f in (st.jit(lambda x: x), st.jit(lambda x: x.reshape(2, 2)), jnp.ravel):
        for _ in range(4):
            a = np.ones(4, np.float32)
            y = f(a)
            a[0] = 5
            assert np.asarray(y).ravel().tolist() == [1, 1, 1, 1]
            assert a.flags.writeable


def test_results_cannot_be_written_to(mesh):
    f = st.jit(lambda x: (x, x + 1, x.T, x.sum(), jnp.sort(x), jnp.where(x > 1, x, 2)))
    x = rows(mesh)
    for _ in range(5):
        for y in f(x):
            assert not np.asarray(y).flags.writeable


def test_partial_sums_take_the_long_way(mesh):
    @st.jit
    def f(x):
        return jnp.einsum("ij,ij->j", x, x, out_sharding=P(None, unreduced={"x"}))

    g = st.jit(lambda x: st.sharding.reshard(x, P(None)))
    with st.set_mesh(mesh):
        x = rows(mesh)
        for _ in range(4):
            assert g(f(x)).tolist() == (np.asarray(x) ** 2).sum(0).tolist()


def test_an_error_in_a_callback_is_raised_once():
    calls = []

    def host(x):
        calls.append(1)
        raise AttributeError

    f = st.jit(lambda x: st.pure_callback(host, st.ShapeDtypeStruct((), np.float32), x))
    for n in range(1, 5):
        with pytest.raises(st.errors.JaxRuntimeError, match="AttributeError"):
            f(jnp.float32(1))
        assert len(calls) == n


def test_floats_warn_outside_and_not_inside():
    f = st.jit(lambda x: jnp.exp(x))
    x = jnp.full(3, 1e6, jnp.float32)
    with np.errstate(all="raise"):
        for _ in range(4):
            assert np.isinf(np.asarray(f(x))).all()
        with pytest.raises(FloatingPointError):
            np.exp(np.float32(1e6))


def test_static_fields_that_cannot_be_compared_are_told_of():
    @st.tree_util.register_dataclass
    @dataclasses.dataclass
    class Table:
        rows: Any = dataclasses.field(metadata={"static": True})

    f = st.jit(lambda x: x)
    f(Table(jnp.arange(4)))
    with pytest.raises(ValueError, match="while checking equality of metadata fields of pytree"):
        f(Table(jnp.arange(4)))
