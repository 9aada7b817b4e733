"""Reasons name the argument or line that wanted the layout, also of what is written in bodies."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.settings.context import config
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def test_what_is_written_in_a_body_comes_from_what_the_body_is_given() -> None:
    def body(x: st.Array, w: st.Array) -> tuple[st.Array, st.Array]:
        h = jnp.tanh(x @ w)
        whole = lax.all_gather(h, "model", axis=1, tiled=True)
        return lax.psum(whole.sum(0), "data"), lax.ppermute(
            h, "model", [(i, (i + 1) % 4) for i in range(4)])

    inner = st.shard_map(body, mesh=MESH, in_specs=(P("data"), P(None, "model")),
                         out_specs=(P(), P("data", "model")), check_vma=False)
    found = st.explain(lambda a, b: inner(a * 2, b))(
        struct((64, 256), "data"), struct((256, 512), None, "model"))
    reasons = {c.kind: c.reason for c in found.collectives}
    assert len(reasons) == 3
    for kind, given, names in (("all-gather", "w", "argument `b`"),
                               ("collective-permute", "w", "argument `b`"),
                               ("all-reduce", "x", "argument `a`")):
        assert f"of `{given}` comes from" in reasons[kind] and names in reasons[kind], reasons[kind]
        assert "`shard_map` line" in reasons[kind]
    assert "`psum` is written here" in reasons["all-reduce"]


def test_what_only_in_specs_splits_comes_from_them() -> None:
    inner = st.shard_map(lambda x: lax.psum(x.sum(0), "data"), mesh=MESH, in_specs=P("data"),
                         out_specs=P())
    found = st.explain(inner)(struct((64, 256)))
    (reduce,) = found.collectives
    assert "data on dimension 0 of `x` comes from `in_specs[0]` of the `shard_map`" in reduce.reason


def test_the_way_of_an_axis_is_forward_where_there_is_one() -> None:
    def loss(params: dict, x: st.Array) -> st.Array:
        def layer(h: st.Array, p: dict) -> tuple[st.Array, None]:
            z = h * lax.rsqrt((h * h).mean(-1, keepdims=True)) * p["g"]
            return h + jnp.tanh(z @ p["up"]) @ p["down"], None
        return (lax.scan(layer, x, params)[0] ** 2).sum()

    def step(params: dict, x: st.Array) -> dict:
        g = st.grad(loss)(params, x)
        return st.tree.map(lambda p, g: p - 0.1 * g, params, g)                         # update

    params = {"down": struct((4, 512, 512), None, "model"), "g": struct((4, 512), None, "model"),
              "up": struct((4, 512, 512), None, None, "model")}
    found = st.explain(step)(params, struct((64, 128, 512), "data"))
    paths = [p for c in found.collectives for p in c.paths if p.argument == 1 and p.steps
             and p.steps[-1][1].transform == "jvp"]             # of values on the way forward
    ways = [[at.source_line() for _, at in p.steps] for p in paths]
    assert ways and not [way for way in ways if any("# update" in line for line in way)], ways


def test_several_in_specs_of_a_body_are_named_together() -> None:
    inner = st.shard_map(lambda q, k: q * k, mesh=MESH, in_specs=(P(None, "model"),) * 2,
                         out_specs=P(None, "model"))
    found = st.explain(lambda q, k: inner(q, k) * 2)(
        struct((64, 256), "data", "model"), struct((64, 256), "data", "model"))
    assert found.root_causes[0].text.startswith("`in_specs[*]` of the `shard_map` at line ")


def test_sums_that_a_gradient_adds_to_a_body_stand_where_the_body_is_called() -> None:
    inner = st.shard_map(lambda x, w: jnp.tanh(x @ w), mesh=MESH, in_specs=(P("data"), P()),
                         out_specs=P("data"), check_vma=False)

    def loss(w: st.Array, x: st.Array) -> st.Array:
        return inner(x, w).sum()                                         # here

    found = st.explain(st.grad(loss))(struct((256, 512)), struct((64, 256), "data"))
    summed = next(c for c in found.collectives if c.kind == "all-reduce")
    assert "# here" in summed.source.source_line()
    assert "argument `x`" in summed.reason
    assert not [s.text for s in summed.suggestions if "instead of the sum" in s.text]


def test_what_a_body_makes_of_its_place_comes_from_the_index() -> None:
    inner = st.shard_map(lambda x: lax.psum(x * lax.axis_index("data"), "data"), mesh=MESH,
                         in_specs=P(), out_specs=P())
    (reduce,) = st.explain(inner)(struct((64, 256))).collectives
    assert "comes from `axis_index`" in reduce.reason


@config.override(shardtrace_objective="time")
def test_what_is_read_twice_in_each_of_many_layers_is_followed_once() -> None:
    """Each layer of a residual network doubles the ways: followed one by one they never end."""
    def step(layers: list[dict[str, st.Array]], x: st.Array) -> list[dict[str, st.Array]]:
        def loss(layers: list[dict[str, st.Array]]) -> st.Array:
            h = x
            for p in layers:
                h = h + (nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
            return (h * h).mean()
        return st.tree.map(lambda p, g: p - 0.1 * g, layers, st.grad(loss)(layers))

    mesh = AbstractMesh((8, 4), ("data", "model"))

    def large(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))

    rows = {"gate": large((1024, 4096), "model"), "up": large((1024, 4096), "model"),
            "down": large((4096, 1024), None, "model")}
    found = st.explain(step)([rows] * 12, large((65536, 1024), "data"))
    assert len(found.collectives) > 70                  # of several values each
    assert all(c.reason for c in found.collectives)


def test_what_is_brought_to_a_loop_comes_from_its_own_argument_and_who_reads_that_in_the_loop(
        ) -> None:
    def f(qs: st.Array, cache: st.Array, ws: st.Array, x: st.Array) -> st.Array:
        def layer(h, each):
            w, cached, out = each
            q = jnp.einsum("bd,dhk->bhk", h, w)
            p = nn.softmax(jnp.einsum("bhk,bshk->bhs", q, cached))
            o = jnp.einsum("bhs,bshk->bhk", p, cached)
            return h + jnp.einsum("bhk,hkd->bd", o, out), None
        return lax.scan(layer, x, (qs, cache, ws))[0]

    found = st.explain(f)(struct((8, 256, 16, 32), None, None, "model"),
                          struct((8, 32, 1024, 16, 32), "model", "data"),
                          struct((8, 16, 32, 256), None, "model"), struct((32, 256), "data"))
    dearest = max(found.collectives, key=lambda c: c.total_time)
    assert "`scan`" in dearest.reason and "keeps `cache` in one layout" in dearest.reason
    roots = {path.root for path in dearest.paths}
    assert any("argument `cache`" in root for root in roots)
    assert not any("argument `ws`" in root for root in roots), dearest.reason
    assert found.root_causes[0].text == "`cache` as P('model', 'data')"


def test_of_many_equations_of_a_line_that_one_is_followed_which_is_split_so() -> None:
    def f(decay: st.Array, x: st.Array) -> st.Array:
        def step(one, other):
            return one[0] * other[0], one[1] * other[0] + other[1]
        return lax.associative_scan(step, (nn.sigmoid(decay), x), axis=1)[1]

    found = st.explain(f, suggest_seconds=0.5)(
        *[struct((32, 256, 64), None, "data", "model")] * 2)
    assert any(c.kind == "collective-permute" for c in found.collectives)
    assert all(c.paths for c in found.collectives)
    assert all(cause.text for cause in found.root_causes)


def test_an_argument_along_a_dimension_that_fewer_have_than_its_other_is_named_first() -> None:
    def f(ws: dict[str, st.Array], x: st.Array) -> st.Array:
        def layer(h, w):
            q, k, v = (jnp.einsum("bsd,dhk->bshk", h, w[n]) for n in "qkv")
            p = nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k))
            o = jnp.einsum("bhqt,bthk->bqhk", p, v)
            return h + jnp.einsum("bqhk,hkd->bqd", o, w["o"]), None
        return lax.scan(layer, x, ws)[0]

    w = struct((8, 1024, 16, 64), None, None, "model")
    found = st.explain(f)({"q": struct((8, 1024, 16, 64), None, None, None, "model"), "k": w,
                           "v": w, "o": struct((8, 16, 64, 1024), None, "model")},
                          struct((16, 128, 1024), "data"))
    assert found.root_causes[0].text == "`ws['q']` as P(None, None, None, 'model')"


def test_what_wants_a_result_elsewhere_than_it_is_made_is_named() -> None:
    def f(x: st.Array, w: st.Array, v: st.Array) -> st.Array:
        h = jnp.tanh(jnp.einsum("ecd,edf->ecf", x, w))
        h = lax.with_sharding_constraint(h, NamedSharding(mesh, P(None, ("data", "model"))))
        return jnp.einsum("ecf,efd->ecd", h, v)

    mesh = AbstractMesh((8, 4), ("data", "model"))

    def given(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))

    found = st.explain(f)(given((16, 2048, 512), "model", "data"), given((16, 512, 1024), "model"),
                          given((16, 1024, 512), "model"))
    (moved,) = found.collectives
    assert "comes from `with_sharding_constraint` at line" in moved.reason, moved.reason
    assert "with_sharding_constraint" in found.root_causes[0].text


def test_values_that_read_alike_have_one_sentence() -> None:
    def joined(x: st.Array) -> st.Array:
        return jnp.concatenate([jnp.tanh(x[i]) for i in range(3)], 1)

    asked = st.jit(joined, out_shardings=NamedSharding(MESH, P(None, "model")))
    (c,) = st.explain(asked)(struct((3, 8, 16), None, None, "model")).collectives
    first, *paths = c.cause.lines()
    assert "puts its blocks together" in first and len(paths) == 1, paths
    assert "argument `x` through `slice`" in paths[0]
