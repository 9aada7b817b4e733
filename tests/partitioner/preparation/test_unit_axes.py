"""Mesh axes of one device: plans as on the mesh without them, and types as they are written."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

# name: (function of two arrays and of how it spells specs, their specs, the spec of its result),
# "u" being the axis of one device
CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "another order": (lambda x, w, s: x * 2, (P(("x", "u")), P()), P(("u", "x"))),
    "moved to another dimension": (lambda x, w, s: x * 2, (P("u", "x"), P()), P("x", "u")),
    "over nothing else": (lambda x, w, s: x @ w, (P("u"), P(None, "u")), P()),
    "contracted": (lambda x, w, s: x @ w, (P(None, ("x", "u")), P(("u", "x"))), P("u")),
    "row-parallel": (lambda x, w, s: jnp.tanh(x @ w), (P("u", "x"), P("x", "u")), P("u")),
    "constrained": (lambda x, w, s: lax.with_sharding_constraint(x @ w, s(P("u", "x"))).sum(0),
                    (P("x"), P(None, "u")), P("u")),
    "in a loop": (lambda x, w, s: lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, 3),
                  (P("x", "u"), P("u")), None),
    "gradient": (lambda x, w, s: st.grad(lambda w: jnp.sum((x @ w) ** 2))(w),
                 (P("x", "u"), P("u")), P("u")),
    "rows out of place": (lambda x, w, s: x[1:] - x[:-1], (P(("x", "u")), P()), None),
}


def mesh_of(sizes: dict[str, int], kind: AxisType = AxisType.Auto) -> Any:
    return st.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(kind,) * len(sizes))


def without(spec: Any) -> Any:
    """A spec without the axis of one device."""
    return None if spec is None else P(*[
        tuple(a for a in ([e] if isinstance(e, str) else e or ()) if a != "u") for e in spec])


def compiled(name: str, mesh: Any, spelled: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    f, specs, out = CASES[name]
    rng = np.random.default_rng(0)
    args = [st.device_put(rng.standard_normal((16, 16)).astype(np.float32),
                          NamedSharding(mesh, spelled(s))) for s in specs]
    wanted = {} if out is None else {"out_shardings": NamedSharding(mesh, spelled(out))}
    with st.set_mesh(mesh), st.config.override(shardtrace_engine="per_device"):
        lowered = st.jit(lambda x, w: f(x, w, spelled), **wanted).lower(*args).compile()
        return lowered, st.tree.leaves(lowered(*args))


@rows("objective", ["time", "xla"])
@rows("name", CASES)
def test_plans_are_those_of_the_mesh_without_them(name: str, objective: str) -> None:
    with st.config.override(shardtrace_objective=objective):
        plan, results = compiled(name, mesh_of({"x": 8, "u": 1}), lambda spec: spec)
        alone, expected = compiled(name, mesh_of({"x": 8}), without)
    assert [(c.kind, c.mesh_axes, c.received_bytes) for c in plan.collectives()] == [
        (c.kind, c.mesh_axes, c.received_bytes) for c in alone.collectives()]
    assert [e.op.name for e in plan.program.eqns] == [e.op.name for e in alone.program.eqns]
    assert plan.explain().times == alone.explain().times
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(result), np.asarray(other))
        assert result.sharding.is_equivalent_to(NamedSharding(result.sharding.mesh, P(
            *other.sharding.spec)), result.ndim)


def test_what_is_exchanged_over_them_by_hand_stays() -> None:
    mesh = mesh_of({"x": 8, "u": 1})
    f = st.shard_map(lambda v: lax.psum(v + lax.axis_index("u"), "u"), mesh=mesh,
                     in_specs=P("x", "u"), out_specs=P("x"))
    x = st.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8),
                      NamedSharding(mesh, P("x", "u")))
    plan = st.jit(f).lower(x).compile()
    assert [(c.kind, c.mesh_axes, c.received_bytes) for c in plan.collectives()] == [
        ("all-reduce", ("u",), 0)]
    np.testing.assert_array_equal(np.asarray(plan(x)), np.asarray(x))


def test_explicit_types_keep_them() -> None:
    mesh = mesh_of({"x": 8, "u": 1}, AxisType.Explicit)
    with st.set_mesh(mesh):
        x = st.device_put(np.ones((8, 8), np.float32), P("x", "u"))
        f = st.jit(lambda x: (x.T * 2, x.reshape(64), st.sharding.reshard(x, P("u", "x"))))
        results = f(x)
        assert [str(v.aval) for v in f.trace(x).jaxpr.outvars] == [
            str(st.typeof(r)) for r in results] == [
                "float32[8@u,8@x]", "float32[64@(x,u)]", "float32[8@u,8@x]"]
        assert [s.spec for s in f.lower(x).compile().output_shardings] == [
            P("u", "x"), P(("x", "u")), P("u", "x")]
        assert "@u" not in f.lower(x).compile().as_text()


def test_explicit_results_may_follow_from_them() -> None:
    mesh = mesh_of({"x": 8, "u": 1}, AxisType.Explicit)
    with st.set_mesh(mesh):
        x = st.device_put(np.arange(128.0, dtype=np.float32).reshape(8, 16), P("u", "x"))
        result = st.jit(lambda x: x.reshape(128))(x)        # refused of P(None, "x")
        assert str(st.typeof(result)) == "float32[128@(u,x)]"
        np.testing.assert_array_equal(np.asarray(result), np.arange(128))
