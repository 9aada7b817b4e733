"""Memory kinds, memory spaces and layouts: types, shardings and errors; JAX's too. Values stay."""

import pickle

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.layout import Format, Layout, with_layout_constraint
from shardtrace.sharding import (
    AbstractMesh,
    AxisType,
    GSPMDSharding,
    NamedSharding,
    SingleDeviceSharding,
)
from shardtrace.sharding import PartitionSpec as P

Space = st.memory.Space
V = np.arange(32, dtype=np.float32).reshape(8, 4)
KINDS = ("device", "pinned_host", "unpinned_host")


@pytest.fixture(params=[AxisType.Explicit, AxisType.Auto], ids=str)
def mesh(request):
    return st.make_mesh((4, 2), ("x", "y"), axis_types=(request.param,) * 2)


def both_spaces(mesh):
    x = st.device_put(V, NamedSharding(mesh, P("x")))
    return x, st.device_put(x, Space.Host)


# --------------------------------------------------------------------------- memory


def test_memory_spaces_are_listed_printed_and_pickled() -> None:
    assert list(Space) == [Space.Device, Space.Host, Space.Any]
    assert repr(Space.Host) == str(Space.Host) == "MemorySpace.Host"
    assert pickle.loads(pickle.dumps(Space.Host)) is Space.Host


def test_kinds_of_shardings() -> None:
    mesh = st.make_mesh((4, 2), ("x", "y"))
    device = st.devices()[0]
    abstract = AbstractMesh((2,), "x")
    for kind in KINDS:
        for sharding in (NamedSharding(mesh, P("x")), SingleDeviceSharding(device),
                         GSPMDSharding.get_replicated(st.devices()),
                         NamedSharding(abstract, P("x"))):
            other = sharding.with_memory_kind(kind)
            assert other.memory_kind == kind and f"memory_kind={kind}" in repr(other)
            assert pickle.loads(pickle.dumps(other)) == other
            assert other.is_equivalent_to(sharding, 2) == (kind == sharding.memory_kind)
    assert NamedSharding(abstract, P()).memory_kind is None
    for make in (lambda k: NamedSharding(mesh, P(), memory_kind=k),
                 lambda k: SingleDeviceSharding(device, memory_kind=k),
                 lambda k: NamedSharding(mesh, P()).with_memory_kind(k)):
        with pytest.raises(ValueError, match="Could not find memory addressable by device cpu"):
            make("foo")
    with pytest.raises(ValueError, match="Got invalid memory kind: foo. Valid memory kinds are: "
                                         "device, pinned_host, unpinned_host"):
        NamedSharding(abstract, P(), memory_kind="foo")


def test_device_put_to_a_space(mesh) -> None:
    x, h = both_spaces(mesh)
    assert str(st.typeof(h)).startswith("float32<host>[8")
    assert h.sharding == NamedSharding(mesh, P("x"), memory_kind="pinned_host") and h.committed
    assert st.typeof(h).memory_space is Space.Host and st.typeof(x).memory_space is Space.Device
    assert np.array_equal(h, V) and np.array_equal(h.addressable_shards[5].data, V[4:6])
    back = st.device_put(h, Space.Device)
    assert back.sharding == x.sharding and st.typeof(back) is st.typeof(x)
    for value in (V, 3.0, jnp.ones(3)):
        assert st.device_put(value, Space.Host).sharding.memory_kind == "pinned_host"
    put = st.device_put({"a": x, "b": x}, {"a": Space.Host, "b": Space.Device})
    assert [v.sharding.memory_kind for v in put.values()] == ["pinned_host", "device"]
    with pytest.raises(ValueError, match="Space"):
        st.device_put(x, "host")
    with pytest.raises(ValueError, match="Any"):
        st.device_put(x, Space.Any)


def test_results_stay_in_the_space_of_their_operands(mesh) -> None:
    x, h = both_spaces(mesh)
    for f, wanted in [(lambda v: v + 1, V + 1), (lambda v: v.T, V.T), (lambda v: v + v, V + V),
                      (lambda v: 2 * v, V * 2), (lambda v: v.sum(1), V.sum(1)), (lambda v: v, V)]:
        for made in (f(h), st.jit(f)(h)):
            assert made.sharding.memory_kind == "pinned_host"
            assert st.typeof(made).memory_space is Space.Host
            assert np.array_equal(made, wanted)
    with pytest.raises(ValueError, match="memory_space of all inputs passed to `add` must be the "
                                         "same"):
        h + x


def test_device_put_inside_of_jit(mesh) -> None:
    x, h = both_spaces(mesh)
    for target in (Space.Host, NamedSharding(mesh, P("x"), memory_kind="pinned_host")):
        out = st.jit(lambda v, target=target: st.device_put(v * 2, target))(x)
        assert out.sharding.memory_kind == "pinned_host" and np.array_equal(out, V * 2)
    out = st.jit(lambda v: st.device_put(v, Space.Device) + x)(h)
    assert out.sharding.memory_kind == "device" and np.array_equal(out, V + V)
    program = st.make_jaxpr(lambda v: st.device_put(v, Space.Host))(x)
    assert "<host>" in str(program) and "device_put[memory_space='host']" in str(program)
    assert str(st.parse_program(str(program))) == str(program)
    grad = st.grad(lambda v: (st.device_put(v, Space.Device) ** 2).sum())(h)
    assert st.typeof(grad) is st.typeof(h) and np.array_equal(grad, 2 * V)
    rows = st.vmap(lambda v: st.device_put(v, Space.Device))(st.device_put(V, Space.Host))
    assert st.typeof(rows).memory_space is Space.Device and np.array_equal(rows, V)


def test_jit_shardings_with_memory_kinds() -> None:
    mesh = st.make_mesh((4, 2), ("x", "y"))
    host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
    x = st.device_put(V, NamedSharding(mesh, P("x")))
    out = st.jit(lambda v: v * 2, out_shardings=host)(x)
    assert out.sharding == host and st.typeof(out).memory_space is Space.Host
    with pytest.raises(ValueError, match="Memory kinds passed to st.jit does not match memory "
                                         "kind on the respective arg"):
        st.jit(lambda v: v, in_shardings=host)(x)
    f = st.jit(lambda v: st.device_put(v, Space.Device) + 1, in_shardings=host, out_shardings=host)
    assert f(st.device_put(x, host)).sharding == host


# --------------------------------------------------------------------------- layouts


def test_layouts_and_formats_as_values() -> None:
    assert Layout((1, 0)) == Layout([1, 0]) != Layout((0, 1)) != Layout((0, 1), ())
    assert hash(Layout((1, 0))) == hash(Layout([1, 0]))
    assert repr(Layout((1, 0), ((8, 128),))) == (
        "Layout(major_to_minor=(1, 0), tiling=((8, 128),), sub_byte_element_size_in_bits=0)")
    assert Layout((1, 0)).update(major_to_minor=(0, 1)) == Layout((0, 1))
    one = SingleDeviceSharding(st.devices()[0])
    assert Format(Layout((0,)), one) == Format(Layout((0,)), one) != Format(None, one)
    assert repr(Format()) == "Format(layout=None, sharding=None)"
    assert repr(Format(Layout.AUTO)) == "Format(layout=AUTO, sharding=None)"
    with pytest.raises(ValueError, match="Sharding has to be concrete when layout is of type"):
        Format(Layout((0,)))
    with pytest.raises(TypeError, match="Invalid value received for the layout argument"):
        Format("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Invalid value received for the sharding argument"):
        Format(None, P("x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Length of major_to_minor and the rank"):
        Layout((1, 0)).check_compatible_aval((3,))


def test_formats_of_arrays(mesh) -> None:
    sharding = NamedSharding(mesh, P("x"))
    x = st.device_put(V, sharding)
    assert x.format == Format(Layout((0, 1), ()), sharding)
    assert jnp.float32(1).format.layout == Layout((), ())
    y = st.device_put(x, Format(Layout((1, 0)), sharding))
    assert y.format.layout == Layout((1, 0), ()) and np.array_equal(y, V)
    assert st.typeof(y) is st.typeof(x) and y.sharding == sharding
    assert y.addressable_shards[1].data.format.layout == y.format.layout
    assert st.device_put(y, y.format) is y and st.device_put(x, x.format) is x
    assert st.device_put(y, sharding).format == y.format
    for made in (y * 2, y.T, y.copy(), st.device_put(y, Format(None, NamedSharding(mesh, P("y"))))):
        assert made.format.layout == Layout((0, 1), ())
    assert with_layout_constraint(x, Layout((1, 0))).format == y.format
    with pytest.raises(ValueError, match="is incompatible with its layout annotation"):
        st.device_put(x, Format(Layout((0,)), sharding))
    with pytest.raises(ValueError, match="sharding and layout in `Layout` instance should be"):
        st.device_put(x, Format(Layout.AUTO, sharding))


def test_jit_with_formats() -> None:
    mesh = st.make_mesh((4, 2), ("x", "y"))
    wanted = Format(Layout((1, 0)), NamedSharding(mesh, P("x")))
    x = st.device_put(V, wanted.sharding)
    out = st.jit(lambda v: (v + 1, v * 2), out_shardings=(wanted, None))(x)
    assert [v.format.layout.major_to_minor for v in out] == [(1, 0), (0, 1)]
    assert np.array_equal(out[0], V + 1)
    taking = st.jit(lambda v: v + 1, in_shardings=wanted)
    y = st.device_put(x, wanted)
    assert np.array_equal(taking(y), V + 1) and np.array_equal(taking(V), V + 1)
    with pytest.raises(ValueError, match="Layout passed to jit does not match the layout"):
        taking(x)
    auto = Format(Layout.AUTO, wanted.sharding)
    with pytest.raises(ValueError, match="Got jit layout: AUTO"):
        st.jit(lambda v: v + 1, in_shardings=auto)(x)
    compiled = st.jit(lambda v: v + 1, in_shardings=auto, out_shardings=wanted).lower(
        st.ShapeDtypeStruct((8, 4), np.float32)).compile()
    assert compiled.input_formats[0][0].layout == Layout((0, 1), ())
    assert compiled.output_formats == Format(Layout((1, 0), ()), wanted.sharding)
    struct = st.ShapeDtypeStruct((8, 4), np.float32, sharding=wanted)
    assert struct.format == wanted and struct.sharding == wanted.sharding
    assert struct.update(shape=(16, 4)).format == wanted and "format=Layout" in repr(struct)
    traced = st.jit(lambda v: with_layout_constraint(v + 1, Layout((1, 0))))
    assert np.array_equal(traced(x), V + 1)


def test_layouts_left_to_the_compiler() -> None:
    """`Layout.AUTO` is where a result lies if nothing is moved for it, as XLA chooses (CPU)."""
    auto = Format(Layout.AUTO)
    x = np.ones((2, 3, 4), np.float32)
    for f, order in [(lambda v: v.T, (2, 1, 0)),
                     (lambda v: jnp.sin(v.transpose(1, 2, 0)), (2, 0, 1)),
                     (lambda v: v.transpose(2, 1, 0).sum(1), (1, 0)), (lambda v: v.T.T, (0, 1, 2)),
                     (lambda v: st.jit(jnp.transpose)(v) + 1, (2, 1, 0)),
                     (lambda v: jnp.concatenate([v.T, v.T]), (0, 1, 2)),
                     (lambda v: v.transpose(0, 2, 1) + v.reshape(2, 4, 3), (0, 1, 2)),
                     (lambda v: v.T[None], (0, 1, 2, 3)), (lambda v: v.sum(), ())]:
        compiled = st.jit(f, in_shardings=auto, out_shardings=auto).lower(x).compile()
        assert compiled.output_formats.layout.major_to_minor == order
        assert compiled(x).format.layout == compiled.output_formats.layout
        assert np.array_equal(compiled(x), np.asarray(f(jnp.asarray(x))))
    with pytest.raises(ValueError, match="does not accept device-local layouts directly"):
        st.jit(lambda v: v, in_shardings=Layout.AUTO)
    with pytest.raises(ValueError, match="Got jit layout: AUTO"):
        st.jit(lambda v: v, in_shardings=auto)(
            st.device_put(x, Format(Layout((2, 1, 0)), SingleDeviceSharding(st.devices()[0]))))


def test_a_layout_left_to_the_compiler_for_one_of_a_donated_argument_and_its_result() -> None:
    auto, x = Format(Layout.AUTO), np.ones(8, np.float32)
    double, pair = lambda v: v * 2, lambda v: (v * 2, v + 1)
    for f, asked, other in ((double, {"in_shardings": auto}, "output"),
                            (double, {"out_shardings": auto}, "input"),
                            (pair, {"out_shardings": (auto, None)}, "input")):
        jitted = st.jit(f, donate_argnums=0, **asked)
        for call in (jitted, jitted.lower):
            with pytest.raises(ValueError, match=f"Did you mean to set the ..{other} layout"):
                call(x)
    for f, asked in ((double, {"in_shardings": auto, "out_shardings": auto}),
                     (pair, {"out_shardings": (None, auto)}),
                     (lambda v: v.sum(keepdims=True), {"in_shardings": auto})):
        st.jit(f, donate_argnums=0, **asked)(x)
    rows = NamedSharding(st.make_mesh((8,), ("x",)), P("x"))
    st.jit(double, donate_argnums=0, out_shardings=auto)(st.device_put(x, rows))    # in its own
    for out, sharding in ((Format(Layout.AUTO, rows), rows), (auto, rows.update(spec=P()))):
        with pytest.raises(ValueError, match="Did you mean to set the ..input layout"):
            st.jit(double, donate_argnums=0, out_shardings=out)(st.device_put(x, sharding))


def test_formats_of_constraints_and_of_results_that_are_not_computed() -> None:
    mesh = st.make_mesh((4, 2), ("x", "y"))
    wanted = Format(Layout((1, 0)), NamedSharding(mesh, P("x")))
    constrain = st.lax.with_sharding_constraint
    out = constrain(jnp.asarray(V), wanted)
    assert out.format.layout.major_to_minor == (1, 0) and out.sharding == wanted.sharding
    out = st.jit(lambda v: constrain(v, wanted) + 1)(V)
    assert out.sharding == wanted.sharding and np.array_equal(out, V + 1)
    for f in (constrain, st.jit(constrain, static_argnums=1)):
        with pytest.raises(ValueError, match="arguments is incompatible with its layout"):
            f(V, Format(Layout((0,)), wanted.sharding))
        with pytest.raises(ValueError, match="got sharding None"):
            f(V, Format(Layout.AUTO))
    info = st.eval_shape(st.jit(lambda v: (v, v.T), out_shardings=(wanted, None)), V)
    assert info[0].format == wanted and info[0].sharding == wanted.sharding
    assert info[1].sharding is None
