"""Arguments that leave axes idle: they are split further, where that takes less time."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.ops.communication.sharding import sharding_constraint_p
from shardtrace.ir.settings.context import config
from shardtrace.partitioner import plans, trial_plans
from shardtrace.partitioner.propagation.idle_axes import split_arguments_further
from shardtrace.partitioner.propagation.propagate import solve
from shardtrace.partitioner.propagation.resolve import propagate
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((2, 4), ("d", "m"))


def struct(shape, *spec, mesh=MESH):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def split(f, *args):
    """The entries that constraints on the arguments of a program ask for; None where there is none.
    """
    program = st.jit(f).lower(*args).stages["inlined"]
    specs = [a.sharding.spec for a in args]
    solution = solve(program, args[0].sharding.mesh, specs, [P()] * len(program.outvars))
    made = split_arguments_further(program, solution)
    asked = {e.invars[0]: e.params["sharding"].spec.entries for e in made.eqns
             if e.op is sharding_constraint_p}
    assert all(v not in asked or [e.op for e in made.eqns if v in e.invars] == [
        sharding_constraint_p] for v in program.invars)             # nothing else reads them
    return [asked.get(v) for v in program.invars]


BATCH, WEIGHTS = struct((64, 32), "d"), struct((32, 16), None, "m")


def product(x, w):
    return jnp.tanh(x @ w).sum()


def test_arguments_are_split_further_as_most_values_with_idle_axes_are() -> None:
    assert split(product, BATCH, WEIGHTS) == [(("d", "m"), ()), None]
    assert split(product, struct((2, 32), "d"), WEIGHTS) == [None, ((), ("m", "d"))]


@pytest.mark.parametrize(("shape", "spec", "want"), [
    ((8, 32), ("d",), (("d", "m"), ())),
    ((8, 32), (None, "d"), ((), ("d", "m"))),
    ((12, 32), ("d",), None),           # six rows of a block for four devices
    ((8, 32), ("d", "m"), None),        # nothing is idle
    ((8, 32), (), None),                # nothing says along which dimension
])
def test_idle_axes_go_where_axes_are_that_they_divide(shape, spec, want) -> None:
    args = struct(shape, *spec), struct((8,), "d"), struct((8,), "m")
    assert split(lambda x, y, z: jnp.tanh(x).sum(), *args)[0] == want


def test_what_splits_no_argument_stays_idle() -> None:
    assert split(jnp.tanh, BATCH) == [None]


def test_axes_of_one_device_are_not_idle() -> None:
    mesh = AbstractMesh((8, 1), ("d", "u"))
    args = [struct((16, 8), *spec, mesh=mesh) for spec in (("d",), (None, "u"))]
    first, _ = split(jnp.add, *args)
    assert first is None


@pytest.mark.parametrize(("heads", "further"), [(4, True), (8, False)])
def test_arguments_stay_where_parts_of_axes_would_split_values(heads, further) -> None:
    """Four heads are over `m`, and what is in them is over `d`; eight would be over a part of `d`.
    """
    def loss(w):
        h = jnp.tanh(w).reshape(512, heads, -1)
        return (h / (h ** 2).sum(2, keepdims=True)).sum()

    mesh = AbstractMesh((4, 4), ("d", "m"))
    args = struct((512, 64), None, "m", mesh=mesh), struct((16,), "d", mesh=mesh)
    traced = st.jit(lambda w, x: loss(w) * x).lower(*args).stages["inlined"]
    given = tuple([a.sharding.spec for a in args])
    resolved = propagate(traced, mesh, given, (P(),), idle="arguments")
    assert ("splits argument `w` further" in str(resolved)) == further


def two_products(x, w1, w2):
    return jnp.tanh(jnp.tanh(jnp.tanh(x) @ w1) @ w2)


def test_values_between_products_are_split_further_and_products_as_before() -> None:
    args = BATCH, WEIGHTS, struct((16, 32), "m")
    given = tuple([a.sharding.spec for a in args])
    traced = st.jit(two_products).lower(*args).stages["inlined"]
    usual, further = [
        [v.aval.sharding.spec for e in propagate(traced, MESH, given, (P("d"),), idle=idle).eqns
         for v in e.outvars if e.op.name in ("tanh", "dot_general")] for idle in ("", "values")]
    rows, hidden, whole = P(("d", "m"), None), P("d", "m"), P("d", None)
    assert usual == [whole, hidden, hidden, whole, whole]
    assert further == [rows, hidden, hidden, rows, rows]


def gradients(x, ws):
    """Of layers with split weights: for a large batch it is shorter to gather the weights."""
    def loss(ws):
        h = x
        for w in ws:
            h = h + jnp.tanh(h @ w)
        return (h ** 2).mean()
    return st.grad(loss)(ws)


def lowered(rows, mesh=MESH, objective="time"):
    ws = [struct((256, 256), None, "m", mesh=mesh)] * 2
    results = None if mesh.explicit_axes else [w.sharding for w in ws]
    options = {"objective": objective, "hardware": "v5p"}
    return st.jit(gradients, out_shardings=results, compiler_options=options).lower(
        struct((rows, 256), "d", mesh=mesh), ws)


def test_a_large_batch_is_split_over_all_axes() -> None:
    compiled = lowered(65536).compile()
    kinds = {c.kind for c in compiled.collectives()}
    assert kinds == {"all-gather", "reduce-scatter", "all-reduce"}      # of weights alone
    assert max(c.received_bytes for c in compiled.collectives()) <= 2 * 256 * 256 * 4
    assert str(compiled.input_shardings[0][0].spec) == "P('d',)"        # as it is passed
    explained = compiled.explain("v5p")
    assert "the planner, which splits argument `x` further" in str(explained)
    assert "`x` as P('d')" in {root.text for root in explained.root_causes}
    assert explained.time < 0.7 * lowered(65536, objective="bytes").compile().explain("v5p").time
    assert "_idle_arguments on" not in str(lowered(64).stages["optimized"])


def test_over_explicit_axes_the_types_say_how_values_are_split() -> None:
    mesh = AbstractMesh((2, 4), ("d", "m"), axis_types=(AxisType.Explicit,) * 2)
    assert "_idle_arguments on" not in str(lowered(65536, mesh).stages["optimized"])


def test_results_are_the_same(executor) -> None:
    rng = np.random.default_rng(0)
    mesh = st.make_mesh((2, 4), ("d", "m"))
    x = rng.normal(size=(65536, 64)).astype(np.float32)
    ws = [rng.normal(size=(64, 64)).astype(np.float32) / 8 for _ in range(2)]
    placed = st.device_put(x, NamedSharding(mesh, P("d"))), [
        st.device_put(w, NamedSharding(mesh, P(None, "m"))) for w in ws]
    with config.override(shardtrace_objective="time", shardtrace_hardware="v5p"):
        f = st.jit(gradients)
        assert "_idle_arguments on" in str(f.lower(*placed).stages["optimized"])
        for own, want in zip(f(*placed), st.jit(gradients)(x, ws), strict=True):
            np.testing.assert_allclose(own, want, rtol=2e-4, atol=1e-6)


def test_results_of_a_body_stay_whole_over_its_axes() -> None:
    """What `shard_map` over y returns as the same along y is not split over it (as it once was)."""
    mesh = AbstractMesh((2, 2, 2), ("x", "y", "z"), axis_types=(AxisType.Auto,) * 3)

    def f(a, b, xs):
        def over_y(a, b):
            return st.shard_map(lambda a, b: b, in_specs=(P("z", "x"), P("z")),
                                out_specs=P(("x", "z")), axis_names={"x", "z"},
                                check_vma=False)(a, b)
        once = st.shard_map(over_y, in_specs=(P(None, "y"), P()), out_specs=P(),
                            axis_names={"y"}, check_vma=False)(a, b)
        return st.lax.scan(lambda h, x: (h + jnp.sum(h), x), once, xs)[0]
    args = [struct(shape, *spec, mesh=mesh) for shape, *spec in (
        ((4, 4), None, ("z", "x")), ((4,), "y"), ((8,),))]
    with st.sharding.use_abstract_mesh(mesh):
        traced = st.jit(f).lower(*args).stages["inlined"]
    resolved = propagate(traced, mesh, tuple([a.sharding.spec for a in args]), (None,),
                         idle="values")
    (once,) = [e.outvars[0].aval for e in resolved.eqns if e.op.name == "shard_map"]
    assert once.sharding.spec == P(("x", "z"))


def attention(x, ws):
    """The gradients of linear attention over four heads, with a residual."""
    def loss(ws):
        q, k, v, o = ws
        b, t, e = x.shape
        q, k, v = ((x @ w).reshape(b, t, 4, -1) for w in (q, k, v))
        s = jnp.einsum("bthk,bthv->bhkv", jnp.tanh(k), v)
        y = jnp.einsum("bthk,bhkv->bthv", q, s).reshape(b, t, e) @ o + x
        return ((y - x.mean(1, keepdims=True)) ** 2).mean()
    return st.grad(loss)(ws)


def of_attention(b, t, e, make):
    return make((b, t, e), "d"), [*[make((e, e), None, "m")] * 3, make((e, e), "m")]


def lowered_attention(*args):
    results = [w.sharding for w in args[1]]
    return st.jit(attention, out_shardings=results, compiler_options={
        "objective": "time", "hardware": "v5p"}).lower(*args)


def towers(x, y, ws):
    """The gradients of two towers, of which each row is compared with all rows of the other."""
    def tower(x, a, b):
        z = jnp.tanh(x @ a) @ b
        return z / (jnp.sqrt((z * z).sum(-1, keepdims=True)) + 1)
    return st.grad(lambda ws: ((tower(x, *ws[:2]) @ tower(y, *ws[2:]).T) ** 2).mean())(ws)


def test_values_are_split_further_where_that_takes_less_time() -> None:
    x, ws = struct((4096, 512), "d"), [struct((512, 1024), None, "m"), struct((1024, 256), "m")] * 2

    def explained(objective):
        return st.jit(towers, out_shardings=[w.sharding for w in ws], compiler_options={
            "objective": objective, "hardware": "v5p"}).lower(x, x, ws).compile().explain("v5p")

    found = explained("time")
    assert "_idle_values on" in str(found.partitioned.stages["optimized"])
    assert "from the planner, which splits values further" in " ".join(str(found).split())
    assert found.time < 0.9 * explained("xla").time


def test_arguments_and_values_are_split_further_together_where_only_that_gains_a_tenth() -> None:
    """Arguments alone gain less, values alone nothing."""
    mesh = AbstractMesh((4, 2), ("d", "m"))
    ws = [(struct((1024, 4096), None, "m", mesh=mesh), struct((4096, 1024), "m", mesh=mesh))] * 2
    x = struct((16384, 1024), "d", mesh=mesh)

    def loss(ws, x, y):
        for up, down in ws:
            x = x + st.nn.silu(x @ up) @ down
        return ((x - y) ** 2).mean()

    out = st.tree.map(lambda w: w.sharding, ws)
    lowered = st.jit(st.grad(loss), out_shardings=out, compiler_options={
        "objective": "time", "hardware": "v5p"}).lower(ws, x, x)
    assert "_idle_both on" in str(lowered.stages["optimized"])


@pytest.mark.parametrize("what", ["values", "both"])
def test_split_values_give_the_same_results(what, executor, monkeypatch) -> None:
    st.clear_caches()
    monkeypatch.setattr(trial_plans, "MIN_STEP", 0)
    monkeypatch.setattr(plans, "over_idle_axes", lambda taken, tried, make, *_: make(
        taken.objective._replace(idle=what)))
    rng = np.random.default_rng(0)
    mesh = st.make_mesh((2, 4), ("d", "m"))

    def placed(shape, *spec):
        return st.device_put(rng.normal(size=shape).astype(np.float32) / 4,
                             NamedSharding(mesh, P(*spec)))

    x, ws = of_attention(8, 16, 32, placed)
    assert f"_idle_{what} on" in str(lowered_attention(x, ws).stages["optimized"])
    for own, want in zip(lowered_attention(x, ws).compile()(x, ws),
                         attention(np.asarray(x), [*map(np.asarray, ws)]), strict=True):
        np.testing.assert_allclose(own, want, rtol=2e-4, atol=1e-5)
