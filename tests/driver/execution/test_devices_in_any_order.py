"""Arrays and programs on meshes with devices in any order, on sub-meshes, and on tiles that no mesh
of the devices in order has; in both executors."""

import pickle

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import (
    AxisType,
    GSPMDSharding,
    HloSharding,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
)
from shardtrace.sharding import PartitionSpec as P

EXECUTORS = ("simulated", "per_device")
X = np.arange(64, dtype=np.float32).reshape(8, 8)
ORDERS = {"reversed": range(7, -1, -1), "mixed": (5, 0, 3, 6, 1, 7, 2, 4),
          "last four": (4, 5, 6, 7), "every other": (6, 0, 4, 2)}
ODD = "{devices=[4,2]0,2,1,3,4,7,5,6}"


pytestmark = pytest.mark.usefixtures("executor")


def mesh_of(order, kind=AxisType.Auto) -> Mesh:
    devices = np.array([st.devices()[i] for i in order], dtype=object)
    return Mesh(devices.reshape(-1, 2), ("x", "y"), (kind,) * 2)


def check_shards(array, whole) -> None:
    """Every device of the sharding has the part of the value that the index map says."""
    index = array.sharding.devices_indices_map(array.shape)
    assert [s.device for s in array.addressable_shards] == list(index)
    for shard in array.addressable_shards:
        assert np.array_equal(shard.data, np.asarray(whole)[index[shard.device]])
        assert shard.data.devices() == {shard.device} and shard.index == index[shard.device]
    assert np.array_equal(np.asarray(array), whole)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_jit_on_a_mesh_of_devices_in_any_order(order, kind) -> None:
    mesh = mesh_of(ORDERS[order], kind)
    x = st.device_put(X, NamedSharding(mesh, P("x", "y")))
    w = st.device_put(X.T, NamedSharding(mesh, P(None, "y")))
    check_shards(x, X)

    @st.jit
    def f(x, w):
        y = jnp.sin(x[:, :8]) + 1
        return y, y.sum(0), jnp.where(x > 3, x, -x).T, w * 2

    y, total, turned, doubled = f(x, w)
    check_shards(y, np.asarray(jnp.sin(X) + 1))
    np.testing.assert_allclose(total, np.asarray(y).sum(0), rtol=1e-5)
    check_shards(turned, np.where(X > 3, X, -X).T)
    check_shards(doubled, X.T * 2)
    for out in (y, total, turned, doubled):
        assert out.sharding.device_assignment == mesh.device_tuple
    moved = st.device_put(turned, NamedSharding(mesh, P(("y", "x"))))
    check_shards(moved, np.asarray(turned))
    assert pickle.loads(pickle.dumps(mesh)) is mesh


@pytest.mark.parametrize("order", ORDERS)
def test_collectives_count_coordinates_and_not_device_numbers(order) -> None:
    mesh = mesh_of(ORDERS[order])
    n = mesh.shape["x"]

    def body(v):
        i = st.lax.axis_index("x")
        turned = st.lax.ppermute(v, "x", [(k, (k + 1) % n) for k in range(n)])
        return st.lax.psum(v, "y"), v + i, turned, st.lax.all_gather(v, "x", tiled=True)

    f = st.jit(st.shard_map(body, mesh=mesh, in_specs=P("x", "y"),
                            out_specs=(P("x"), P("x", "y"), P("x", "y"), P(None, "y")),
                            check_vma=False))
    summed, numbered, turned, gathered = f(X)
    rows = 8 // n
    check_shards(summed, X[:, :4] + X[:, 4:])
    check_shards(numbered, X + np.repeat(np.arange(n), rows)[:, None])
    check_shards(turned, np.roll(X, rows, 0))
    check_shards(gathered, X)


def test_arrays_of_two_orders_do_not_mix_but_move() -> None:
    a = st.device_put(X, NamedSharding(mesh_of(range(8)), P("x")))
    b = st.device_put(X, NamedSharding(mesh_of(ORDERS["reversed"]), P("x")))
    with pytest.raises(ValueError, match="Received incompatible devices for jitted computation"):
        a + b
    check_shards(a + st.device_put(b, a.sharding), X + X)
    part = st.device_put(X, NamedSharding(mesh_of(range(4)), P("x")))
    with pytest.raises(ValueError, match="Received incompatible devices"):
        a + part
    # in_shardings of jit move what has the same tiles on other devices
    check_shards(st.jit(lambda v: v * 2, in_shardings=a.sharding)(b), X * 2)
    with pytest.raises(ValueError, match="does not match the sharding on the respective arg"):
        st.jit(lambda v: v, in_shardings=NamedSharding(mesh_of(range(8)), P("y")))(a)


def test_meshes_of_other_sizes_over_the_same_devices_mix_freely() -> None:
    a = st.device_put(X, NamedSharding(mesh_of(range(8)), P("x", "y")))
    devices = np.array(st.devices(), dtype=object)
    for sizes, names, spec in [((2, 4), ("a", "b"), P("a", "b")), ((8,), ("c",), P("c")),
                               ((2, 2, 2), ("a", "b", "c"), P(("c", "a"), "b")),
                               ((2, 4), ("a", "b"), P("b", "a"))]:
        b = st.device_put(X, NamedSharding(Mesh(devices.reshape(sizes), names), spec))
        check_shards(a + b, X + X)
        check_shards(b @ a, X @ X)
        check_shards(st.jit(lambda v: v.T * 1, out_shardings=b.sharding)(a), X.T)


# --------------------------------------------------------------------------- tile assignments


def tiles(text: str, count: int = 8) -> GSPMDSharding:
    return GSPMDSharding(st.devices()[:count], HloSharding.from_string(text))


@pytest.mark.parametrize("text", [
    ODD, "{replicated}", "{devices=[2,4]<=[4,2]T(1,0)}", "{devices=[8,1]7,6,5,4,3,2,1,0}",
    "{devices=[2,2,2]0,3,1,2,4,5,6,7 last_tile_dim_replicate}", "{maximal device=2}",
    "{devices=[4,1,2]<=[2,2,2]T(2,0,1) last_tile_dim_replicate}",
])
def test_arrays_with_tiles(text) -> None:
    sharding = tiles(text)
    x = st.device_put(X, sharding)
    assert x.sharding == sharding and x.committed
    check_shards(x, X)
    for made in (st.make_array_from_callback((8, 8), sharding, lambda index: X[index]),
                 st.make_array_from_single_device_arrays(
                     (8, 8), sharding, [s.data for s in x.addressable_shards])):
        assert made.sharding == sharding
        check_shards(made, X)
    y = x * 2 + 1
    check_shards(y, X * 2 + 1)
    if text != "{maximal device=2}":
        assert y.sharding == sharding
    check_shards(x @ x, X @ X)
    check_shards(st.device_put(x, NamedSharding(mesh_of(range(8)), P("y"))), X)
    back = st.device_put(st.device_put(X, NamedSharding(mesh_of(range(8)), P("y"))), sharding)
    check_shards(back, X)
    assert np.array_equal(np.asarray(x[3]), X[3]) and float(x.sum()) == X.sum()


def test_tiles_at_the_borders_of_jit() -> None:
    odd, regular = tiles(ODD), tiles("{devices=[2,4]<=[4,2]T(1,0)}")
    named = NamedSharding(mesh_of(range(8)), P("x", "y"))
    for given in (odd, regular):
        for wanted in (odd, regular, named):
            out = st.jit(lambda v: jnp.tanh(v) * 3, in_shardings=given, out_shardings=wanted)(X)
            assert out.sharding == wanted
            check_shards(out, np.asarray(jnp.tanh(X) * 3))
    a, b, c = (st.device_put(X, s) for s in (odd, regular, named))
    check_shards(a + b, X + X)
    assert (a + c).sharding.mesh is named.mesh      # the array with a mesh names the result
    check_shards(b + c + a, X * 3)
    assert (a + b).sharding == odd
    with pytest.raises(ValueError, match="does not match the sharding on the respective arg"):
        st.jit(lambda v: v, in_shardings=regular)(a)
    constrained = st.jit(lambda v: st.lax.with_sharding_constraint(v * 2, regular))(X)
    assert constrained.sharding == regular
    check_shards(constrained, X * 2)
    check_shards(st.lax.with_sharding_constraint(c, odd), X)
    compiled = st.jit(lambda v: v + 1).lower(a).compile()
    assert compiled.input_shardings[0][0].is_equivalent_to(odd, 2)
    assert compiled.output_shardings.is_equivalent_to(odd, 2)
    check_shards(compiled(a), X + 1)


def test_copies_that_differ_stay_different_until_they_move() -> None:
    sharding = tiles("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    blocks = [st.device_put(np.full((4, 8), i, np.float32), d)
              for i, d in enumerate(st.devices())]
    x = st.make_array_from_single_device_arrays((8, 8), sharding, blocks)
    assert [float(s.data[0, 0]) for s in x.addressable_shards] == list(range(8))
    first = np.repeat([0.0, 4.0], 4)[:, None] * np.ones(8)
    assert np.array_equal(np.asarray(x), first)
    y = x + st.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh_of(range(8)), P("y")))
    assert np.array_equal(np.asarray(y), first)


def test_unreduced_tiles_are_refused_as_values() -> None:
    for text in ("{unreduced}", "{devices=[4,1,2]<=[8] last_tile_dims={unreduced}}"):
        with pytest.raises(NotImplementedError, match="unreduced"):
            st.device_put(X, tiles(text))


def test_a_single_device_is_a_sharding_of_one_tile() -> None:
    one = SingleDeviceSharding(st.devices()[3])
    x = st.device_put(X, GSPMDSharding.get_replicated([st.devices()[3]]))
    assert x.sharding.is_equivalent_to(one, 2)
    check_shards(x + st.device_put(X, one), X + X)


def test_pictures_of_tiles(capsys) -> None:
    st.debug.visualize_sharding((8, 8), tiles(ODD))
    said = capsys.readouterr().out.splitlines()
    assert [line.split("│")[1:3] for line in said if "CPU" in line] == [
        ["  CPU 0   ", "  CPU 2   "], ["  CPU 1   ", "  CPU 3   "],
        ["  CPU 4   ", "  CPU 7   "], ["  CPU 5   ", "  CPU 6   "]]


def test_constraints_may_name_other_auto_meshes_of_the_same_devices() -> None:
    a = st.device_put(X, NamedSharding(mesh_of(range(8)), P("x", "y")))
    devices = np.array(st.devices(), dtype=object)
    other = Mesh(devices.reshape(2, 4), ("x", "y"))      # the same names, other sizes
    third = Mesh(devices.reshape(2, 2, 2), ("a", "b", "c"))

    def constrain(v, mesh, spec):
        return st.lax.with_sharding_constraint(v, NamedSharding(mesh, spec))

    @st.jit
    def f(v):
        v = constrain(v * 2, third, P(("a", "b"), "c"))
        total, rows = st.lax.scan(
            lambda c, row: (c + constrain(row, third, P("c")), row.sum()), v[0], v)
        return constrain(v.T, other, P("x", P.UNCONSTRAINED)), total, rows

    turned, total, rows = f(a)
    check_shards(turned, X.T * 2)
    assert turned.sharding.mesh.shape_tuple == (("x", 2), ("y", 4))      # as its type says
    np.testing.assert_allclose(total, (X * 2).sum(0) + X[0] * 2)
    np.testing.assert_allclose(rows, (X * 2).sum(1))
    same = st.jit(lambda v: constrain(v, third, P(("a", "b"), "c")))(a)
    assert same.sharding.is_equivalent_to(a.sharding, 2)
    with pytest.warns(UserWarning, match="the constraint is left out"):
        odd = st.jit(lambda v: st.lax.with_sharding_constraint(v + 1, tiles(ODD)))(a)
    check_shards(odd, X + 1)
