"""Programs of four processes with two devices each, which simulated ones and ranks both run.

Each returns what its process found, as numbers and text.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.experimental import multihost_utils
from shardtrace.sharding import AxisType, Mesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

DATA = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def grid() -> Mesh:
    return st.make_mesh((4, 2), ("x", "y"))


def made(mesh: Mesh, spec: P, data: np.ndarray = DATA) -> Any:
    return st.make_array_from_callback(data.shape, NamedSharding(mesh, spec), lambda i: data[i])


def own(x: Any) -> list[Any]:
    """What the devices of the process hold, as numbers."""
    return [[s.device.id, np.asarray(s.data).astype(np.float64).round(4).tolist()]
            for s in x.addressable_shards]


def in_region(f: Callable[..., Any], mesh: Mesh, out: P = P("x")) -> Any:
    return st.jit(st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out, check_vma=False))


def training() -> Any:
    mesh = grid()
    x, w = made(mesh, P("x")), made(mesh, P(None, "y"), DATA[:8])

    @st.jit
    def step(w: Any, x: Any) -> Any:
        value, g = st.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.1 * g, value

    losses = []
    for _ in range(4):
        w, value = step(w, x)
        losses.append(round(float(value), 5))
    whole = multihost_utils.process_allgather(w, tiled=True)
    return losses, own(w), round(float(whole.sum()), 3)


def parts_of_the_devices() -> Any:
    """Two pairs of processes, each with a mesh of its own."""
    pair = st.process_index() // 2
    mesh = Mesh(np.array(st.devices())[4 * pair:4 * pair + 4], ("x",))
    x = made(mesh, P("x"), DATA[:8] + pair)
    step = st.jit(lambda x, k: (x * k).sum())
    found = [round(float(step(x, k)), 3) for k in range(2 + pair)]
    y = made(grid(), P("x", "y"))                         # and all four together
    return found, round(float(st.jit(jnp.sum)(y)), 3)


def sizes_that_do_not_divide() -> Any:
    x = made(grid(), P("x", "y"))
    y, z = st.jit(lambda x: (x[1:] @ x[:7].T, jnp.concatenate([x[3:], x[:2]]).mean(1)))(x)
    return [np.asarray(multihost_utils.process_allgather(v, tiled=True)).round(3).tolist()
            for v in (y, z)]


def values_that_differ() -> Any:
    """What check_vma=False wrongly calls replicated stays what each device has."""
    x = made(st.make_mesh((8,), ("x",)), P("x"), DATA[:8, 0])
    y = in_region(lambda v: v * lax.axis_index("x"), x.sharding.mesh, P())(x)
    return own(y), round(float(st.jit(lambda y: y.sum())(y)) * 0, 3)


def loops_of_different_lengths() -> Any:
    mesh = st.make_mesh((8,), ("x",))
    x = made(mesh, P("x"), np.arange(8, dtype=np.float32))

    def f(v: Any) -> Any:
        n, c = lax.while_loop(lambda s: s[0] < v[0], lambda s: (s[0] + 1, s[1] * 2), (0, v + 1))
        c, sums = lax.scan(lambda c, _: (c + lax.psum(c, "x"), lax.pmax(c, "x")), c, None, length=3)
        return lax.cond(lax.axis_index("x") > 4, lambda: c, lambda: -c) + sums.sum() + n

    return own(in_region(f, mesh)(x))


def partial_sums() -> Any:
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x, w = made(mesh, P(None, "y")), made(mesh, P("y"), DATA[:8])
    with st.set_mesh(mesh):
        y = st.jit(lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=P(unreduced={"y"})))(
            x, w)
        z = st.jit(lambda y: st.sharding.reshard(y, P("x")))(y)
    return own(z), str(y.sharding.spec)


def narrow_and_wide() -> Any:
    mesh = st.make_mesh((8,), ("x",))
    found = []
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "int8", "uint32", "bool", "complex64"):
        x = made(mesh, P("x"), np.abs(DATA).astype(jnp.dtype(dtype)))
        y = in_region(lambda v: lax.all_gather(v, "x").astype(bool), mesh, P(None, "x"))(x)
        total = st.jit(lambda x: x.sum(0))(x) if dtype != "float8_e4m3fn" else x[3]
        found.append([dtype, int(np.asarray(multihost_utils.process_allgather(
            y, tiled=True)).sum()), repr(
                np.asarray(total).astype(np.complex128).round(3).tolist())])
    return found


def keys_and_bits() -> Any:
    mesh = grid()
    keys = st.device_put(random.split(random.key(7), 8), NamedSharding(mesh, P("x")))
    y = st.jit(lambda k: random.normal(k[3], (16, 8)),
               out_shardings=NamedSharding(mesh, P("x", "y")))(keys)
    again = st.device_put(keys, NamedSharding(mesh, P()))
    return own(y), np.asarray(random.key_data(again)).tolist()


def other_orders_of_devices() -> Any:
    turned = Mesh(np.array(st.devices())[::-1].reshape(4, 2), ("x", "y"))
    mixed = Mesh(np.array(st.devices())[[3, 1, 6, 0, 2, 7, 5, 4]].reshape(2, 4), ("a", "b"))
    x = made(turned, P("x", "y"))
    y = st.jit(lambda x: x * 2 + x[::-1])(x)
    z = st.device_put(y, NamedSharding(mixed, P("b", "a")))
    w = st.jit(lambda z: z.sum(0), out_shardings=NamedSharding(mixed, P(("a", "b"))))(z)
    return own(y), own(z), own(w)


def host_functions_in_a_region() -> Any:
    mesh = grid()

    def f(v: Any) -> Any:
        return v + st.pure_callback(lambda i, v: np.asarray(v) * (2 + np.asarray(i)),
                                    st.ShapeDtypeStruct(v.shape, v.dtype), lax.axis_index("x"), v)

    return own(in_region(f, mesh)(made(mesh, P("x"))))


def global_and_local() -> Any:
    me, mesh = st.process_index(), st.make_mesh((8,), ("x",))
    x = multihost_utils.host_local_array_to_global_array(np.arange(4) * me, mesh, P("x"))
    y = st.jit(lambda x: x - x.mean(), donate_argnums=0)(x)
    back = multihost_utils.global_array_to_host_local_array(y, mesh, P("x"))
    told = multihost_utils.broadcast_one_to_all({"a": np.arange(3) + me}, is_source=me == 2)
    multihost_utils.assert_equal(told)
    return x.is_deleted(), np.asarray(back).tolist(), told["a"].tolist(), repr(y)


def errors() -> Any:
    """Those that all processes come to, after which they go on."""
    me, mesh = st.process_index(), st.make_mesh((8,), ("x",))
    rows = NamedSharding(mesh, P("x"))
    found = []
    for attempt in (lambda: st.device_put(np.ones(8) * me, rows),
                    lambda: st.jit(lambda x: x @ x)(made(mesh, P("x"))),
                    lambda: np.asarray(made(mesh, P("x"))),
                    lambda: multihost_utils.sync_global_devices(f"name {me}")):
        try:
            attempt()
        except Exception as e:
            found.append(f"{type(e).__name__}: {str(e).splitlines()[0]}"[:60])
    return found, round(float(st.jit(jnp.sum)(made(mesh, P("x")))), 3)


PROGRAMS: dict[str, Callable[[], Any]] = {f.__name__: f for f in (
    training, parts_of_the_devices, sizes_that_do_not_divide, values_that_differ,
    loops_of_different_lengths, partial_sums, narrow_and_wide, keys_and_bits,
    other_orders_of_devices, host_functions_in_a_region, global_and_local, errors)}
