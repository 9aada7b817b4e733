"""Over Explicit axes what is written in the function is changed too, and typed again."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def gathered_before_it_shrinks(x: st.Array, w: st.Array) -> st.Array:
    return jnp.tanh(reshard(x, P(None, None)) @ w)


def asked_of_a_dot(x: st.Array, w: st.Array) -> st.Array:
    return jnp.matmul(x, w, out_sharding=P("data", None)) * 2


def asked_of_a_dot_in_a_loop(xs: st.Array, w: st.Array) -> st.Array:
    return lax.scan(lambda t, x: (t + (jnp.matmul(x, w, out_sharding=P("data")) ** 2).sum(), None),
                    jnp.float32(0), xs)[0]


@pytest.mark.parametrize(("f", "args", "text"), [
    (gathered_before_it_shrinks, (struct((4096, 2048), "data"), struct((2048, 128))),
     "take out the `reshard` to P() at line {}"),
    (asked_of_a_dot, (struct((4096, 256), "data", "model"), struct((256, 4096), "model")),
     "`out_sharding` at line {} to P("),
    (asked_of_a_dot_in_a_loop, (struct((4, 4096, 256), None, "data"), struct(
        (256, 8192), None, "model")), "take out the `out_sharding` to P('data') at line {}"),
])
def test_a_layout_that_is_written_is_changed(f: Callable, args: tuple, text: str) -> None:
    with st.set_mesh(MESH):
        found = st.explain(f)(*args)
        costliest = max(found.collectives, key=lambda c: c.total_time)
        best = costliest.suggestions[0]
        assert text.format(f.__code__.co_firstlineno + 1) in best.text
        changed = best.apply()
        after = st.explain(changed)(*args)
        assert after.time == best.time < found.time
        values = [st.device_put(np.linspace(-1, 1, np.prod(a.shape), dtype=np.float32)
                                .reshape(a.shape), a.sharding) for a in args]
        np.testing.assert_allclose(np.asarray(changed(*values)), np.asarray(st.jit(f)(*values)),
                                   rtol=2e-4, atol=1e-4)


def test_what_is_written_for_two_values_is_taken_out_of_both_and_of_their_derivative() -> None:
    """One of two operands cannot go elsewhere alone; the mean's cotangent follows its value."""
    def step(w: st.Array, x: st.Array, y: st.Array) -> st.Array:
        def loss(w: st.Array) -> st.Array:
            h = reshard(x @ w, P("model", None))
            return ((jnp.tanh(h) - reshard(y, P("model", None))) ** 2).mean()
        return w - 1e-3 * st.grad(loss)(w)

    args = (struct((64, 2048), None, "model"), struct((2048, 64), "data"),
            struct((2048, 2048), "data", "model"))
    with st.set_mesh(MESH):
        found = st.explain(step)(*args)
        best = max(found.collectives, key=lambda c: c.total_time).suggestions[0]
        line = step.__code__.co_firstlineno + 2
        assert best.text == (
            f"take out the `reshard` to P('model') at lines {line} and {line + 1}")
        assert best.received_bytes < found.received_bytes / 4
        values = [st.device_put(np.linspace(-1, 1, np.prod(a.shape), dtype=np.float32)
                                .reshape(a.shape), a.sharding) for a in args]
        np.testing.assert_allclose(np.asarray(best.apply()(*values)),
                                   np.asarray(st.jit(step)(*values)), rtol=2e-4, atol=1e-5)


def test_partial_sums_that_are_moved_before_they_are_summed() -> None:
    """The layout that is asked for is shown, and compared with suggestions, with its sums."""
    def product(x: st.Array, w: st.Array) -> st.Array:
        y = jnp.einsum("ij,jk->ik", x, w, out_sharding=P("data", unreduced={"model"}))
        y = reshard(y, P(unreduced={"model"}))
        return reshard(y + y, P())

    with st.set_mesh(MESH):
        found = st.explain(product)(struct((64, 64), "data", "model"), struct((64, 64), "model"))
        kinds = {c.kind: c for c in found.collectives}
        assert kinds["all-reduce"].suggestions[0].text.startswith("take out the `reshard` to P()")
        assert all(s.time < found.time for s in kinds["all-gather"].suggestions)
        assert '`reshard(y, P(unreduced={"model"}))` at line' in str(found)


def test_what_was_traced_under_a_mesh_is_changed_under_it() -> None:
    """A spec by itself names axes of the context mesh, which is left when changes are tried."""
    def f(x: st.Array, w: st.Array, v: st.Array) -> st.Array:
        h = reshard(jnp.matmul(x, w, out_sharding=P("data", "model")), P("data", None))
        return jnp.matmul(h, v, out_sharding=P("data", "model"))

    args = struct((4096, 1024), "data"), struct((1024, 4096), None, "model"), struct(
        (4096, 1024), None, "model")
    with st.set_mesh(MESH):
        found, lowered = st.explain(f)(*args), st.jit(f).lower(*args)
        inside = str(st.explain(f)(*args))
    assert "change first: take out the `reshard`" in inside
    assert str(found) == str(lowered.explain()) == inside
