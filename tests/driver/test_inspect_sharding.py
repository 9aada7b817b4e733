"""`debug.inspect_array_sharding` within traced functions: what the partitioner decides is shown."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding, SingleDeviceSharding
from shardtrace.sharding import PartitionSpec as P

V = np.arange(32.0, dtype=np.float32).reshape(8, 4)


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=str)
def mesh(request):
    return st.make_mesh((4, 2), ("x", "y"), axis_types=(request.param,) * 2)


def test_within_jit_loops_branches_and_derivatives(mesh) -> None:
    seen = []

    def told(x):
        st.debug.inspect_array_sharding(x, callback=seen.append)
        return x

    def loop(x):
        return st.lax.scan(lambda c, _: (told(c * 2), None), x, None, length=3)[0]

    x = st.device_put(V, NamedSharding(mesh, P("x")))
    for f, wanted in [(lambda x: told(x * 2), 2 * V), (loop, 8 * V),
                      (lambda x: st.lax.cond(True, told, lambda x: x, x), V),
                      (lambda x: st.grad(lambda v: told(v * v).sum())(x), 2 * V)]:
        g = st.jit(f)
        np.testing.assert_array_equal(g(x), wanted)
        assert [s.spec[0] for s in seen] == ["x"] * len(seen) and seen
        assert all(s.device_set == set(mesh.devices.flat) for s in seen)
        count = len(seen)
        g(x)                        # told once for each program
        assert len(seen) == count
        seen.clear()
    assert "inspect_sharding" not in st.jit(told).lower(x).compile().as_text()


def test_outside_and_on_one_device(mesh) -> None:
    seen = []
    ask = lambda x: st.debug.inspect_array_sharding({"a": x}, callback=seen.append)  # noqa: E731
    x = st.device_put(V, NamedSharding(mesh, P("x")))
    ask(x)
    st.grad(lambda v: (ask(v), v.sum())[1])(x)
    assert [s.spec for s in seen] == [P("x")] * 2
    seen.clear()
    st.jit(lambda v: (ask(v), v + 1)[1])(V)
    assert [type(s) for s in seen] == [SingleDeviceSharding]
    st.vmap(lambda v: (ask(v), v)[1])(V)
    assert len(seen) == 2


def test_pictures_of_traced_values(mesh, capsys) -> None:
    def f():
        x = jnp.zeros(16)
        st.debug.visualize_array_sharding(x, use_color=False)
        return x

    f()
    st.jit(f, out_shardings=NamedSharding(st.make_mesh((8,), ("i",)), P("i")))()
    auto = st.make_mesh((8,), ("i",))
    st.shard_map(f, mesh=auto, in_specs=(), out_specs=P("i"))()
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("│ CPU 0 │\n", "│ CPU 0 │ CPU 1 │", "│CPU 0,1,2,3"))
