"""Suggestions are ranked by what they save and cost, and it is said at which size that turns."""
from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.report.advice.changes import Constrain
from shardtrace.report.advice.kinds import Kinds
from shardtrace.report.advice.ranking import Ranking
from shardtrace.report.reasons.value_paths import places
from shardtrace.report.render import advice
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

WHOLE_SEARCH = ("what_alone_saves_much", "what_computes_much_more")
MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def total(n: int):
    def f(x: st.Array) -> st.Array:
        return jnp.sum(x * x)

    return st.explain(f)(struct((n, 1024), "data"))


def test_it_is_said_at_which_size_a_suggestion_saves_no_more_time() -> None:
    """A sum of a few rows takes less time on each device than it takes to exchange it."""
    found = total(64)
    (reduce,) = found.collectives
    best = reduce.suggestions[0]
    assert best.text == "pass `x` as P() instead of P('data')" and best.time < found.time
    assert reduce.search.turn is not None
    factor, other = reduce.search.turn
    assert other is None and factor > 1
    said = " ".join(str(found).split())
    assert f"from about {factor:.2g} times the data on, the first saves no time" in said
    assert "replicates `x`: memory +" in said
    for times, pays in ((0.5, True), (2, False)):
        n = int(64 * factor * times) // 2 * 2
        before = total(n)
        after = st.whatif(lambda x: jnp.sum(x * x), {"x": P()})(struct((n, 1024), "data")).after
        assert (after.time < before.time) == pays


def test_a_line_says_what_is_saved_and_what_it_costs() -> None:
    def layer(x: st.Array, w1: st.Array, w2: st.Array) -> st.Array:
        return jnp.tanh(x @ w1) @ w2

    found = st.explain(layer)(struct((128, 256), "data"), struct((256, 512), None, "model"),
                              struct((512, 256), None, "model"))
    (gather,) = found.collectives
    said = " ".join(" ".join(advice(found, gather, len(gather.suggestions))).split())
    for s in gather.suggestions:
        saved = (found.time - s.time) / found.time
        assert f"(-{saved:.0%})" in said
    whole = next(s for s in gather.suggestions if "`w1` as P()" in s.text)
    assert f"replicates `w1`: memory +{whole.peak_bytes / found.peak_bytes - 1:.0%}" in said
    assert whole.flops > 1.25 * found.flops and gather.suggestions[0] is not whole


def test_what_is_faster_does_not_surpass_what_asks_less_of_the_caller() -> None:
    def layer(x: st.Array, w1: st.Array, w2: st.Array) -> st.Array:
        return jnp.tanh(x @ w1) @ w2

    found = st.explain(layer)(struct((128, 256), "data"), struct((256, 512), None, "model"),
                              struct((512, 256), None, "model"))
    (gather,) = found.collectives
    kinds = Kinds(found.search.candidates, gather.cause, frozenset(gather.mesh_axes))
    ranking = Ranking(found.search.whole, kinds, 1.0, gather.time)
    fast = gather.suggestions[0]
    slow = replace(fast, time=fast.time * 1.1)
    assert ranking.surpasses(fast, slow)
    assert not ranking.surpasses(replace(fast, _callers=1.0), slow)


@pytest.mark.parametrize("objective", ["time", "xla"])
def test_changes_are_made_where_they_were_found(objective: str) -> None:
    """Lines that compute the same are one for some plans, and several for others."""
    def f(x: st.Array, w: st.Array) -> tuple[st.Array, st.Array]:
        a, b = jnp.sin(x), jnp.sin(x)
        h = a + b
        return jnp.cumsum(h, 1), h @ w

    jitted = st.jit(f, compiler_options={"objective": objective})
    args = struct((64, 256), None, "model"), struct((256, 256))
    found = st.explain(jitted)(*args)
    subject, inlined = found.subject, found.partitioned.stages["inlined"]
    for place, value, eqn in places(inlined):
        if eqn is not None and value.aval.ndim:
            change = Constrain((place,), "", P("data"), eqn.location)
            made = subject.apply([change]).trace(*args).jaxpr
            (constraint,) = [e for e in made.eqns if e.op.name == "sharding_constraint"]
            assert constraint.location is eqn.location


def test_a_constraint_is_taken_out_before_it_asks_for_more_axes() -> None:
    """It saves 2% less of a step than the constraint over both axes, but exchanges less."""
    mesh = AbstractMesh((8, 4), ("data", "model"))

    def laid_out(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))

    def layer(p: dict[str, st.Array], x: st.Array) -> st.Array:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, p[n]) for n in "qkv")
        scores = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        x = x + jnp.einsum("bhqk,bkhd,hdm->bqm", scores, v, p["o"])
        return x + nn.gelu(x @ p["up"]) @ p["down"]

    def model(layers: list[dict[str, st.Array]], x: st.Array) -> st.Array:
        for p in layers:
            x = lax.with_sharding_constraint(layer(p, x), NamedSharding(mesh, P("model")))
        return x.mean(1)

    heads = laid_out((1024, 16, 64), None, "model")
    p = {"q": heads, "k": heads, "v": heads, "o": laid_out((16, 64, 1024), "model"),
         "up": laid_out((1024, 4096), None, "model"), "down": laid_out((4096, 1024), "model")}
    cause = st.explain(model)([p] * 3, laid_out((64, 512, 1024), "data")).root_causes[0]
    first = cause.groups[0][0]
    assert first.cause.asked_by is not None and "with_sharding_constraint" in cause.text
    assert first.suggestions[0].text.startswith("take out the `with_sharding_constraint`")
    assert first.suggestions[1].time < first.suggestions[0].time


@pytest.mark.usefixtures("by_time")
def test_the_row_alone_comes_before_it_with_another_that_takes_about_as_much_memory() -> None:
    mesh = AbstractMesh((8, 4), ("data", "model"))
    given = functools.partial(specs.struct, mesh=mesh)

    def score(tables: list[st.Array], ids: st.Array, w: st.Array) -> st.Array:
        rows = [jnp.take(t, ids[:, i], axis=0) for i, t in enumerate(tables)]
        return nn.relu(jnp.concatenate(rows, -1) @ w).sum(-1)

    tables = [given((200000, 128), *(("data",) if i == 2 else (None, "model"))) for i in range(4)]
    ids = st.ShapeDtypeStruct((32768, 4), np.int32, sharding=NamedSharding(mesh, P("data")))
    found = st.explain(score)(tables, ids, given((512, 1024), None, "model"))
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert best.text == "pass `tables[2]` as P(None, 'model') instead of P('data')"


@pytest.mark.usefixtures("by_time")
def test_a_constraint_in_a_loop_is_taken_out_where_another_spec_saves_little_more() -> None:
    mesh = AbstractMesh((8, 4), ("data", "model"))
    given = functools.partial(specs.struct, mesh=mesh)

    def sample(w: dict[str, st.Array], x: st.Array, cond: st.Array) -> st.Array:
        def model(x: st.Array, c: st.Array | float) -> st.Array:
            return nn.silu((x + c) @ w["a"]) @ w["b"]

        def step(_: st.Array, x: st.Array) -> st.Array:
            noise = 3.0 * model(x, cond) - 2.0 * model(x, 0.0)
            noise = lax.with_sharding_constraint(noise, NamedSharding(mesh, P(None, None, "model")))
            return x - 0.01 * noise
        return lax.fori_loop(0, 20, step, x)

    weights = {"a": given((1024, 4096), None, "model"), "b": given((4096, 1024), "model")}
    x = given((256, 64, 1024), "data")
    best = st.explain(sample)(weights, x, x).root_causes[0].groups[0][0].suggestions[0]
    assert best.text.startswith("take out the `with_sharding_constraint`")


@pytest.mark.usefixtures("by_time")
def test_one_kernel_of_a_row_does_not_come_before_the_row_because_it_is_small() -> None:
    mesh = AbstractMesh((4, 2), ("data", "model"))
    given = functools.partial(specs.struct, mesh=mesh)

    def conv(x: st.Array, k: st.Array, stride: int = 1) -> st.Array:
        return lax.conv_general_dilated(x, k, (stride, stride), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def net(p: dict[str, st.Array], blocks: list[dict[str, st.Array]], x: st.Array) -> st.Array:
        x = conv(x, p["stem"], 2)
        for b in blocks:
            x = x + conv(nn.relu(conv(x, b["in"])), b["out"])
        return x.mean((1, 2)) @ p["head"]

    kernel = given((3, 3, 128, 128), None, None, "model")
    found = st.explain(net)({"stem": given((3, 3, 3, 128)), "head": given((128, 10))},
                            [{"in": kernel, "out": kernel}] * 4, given((64, 64, 64, 3), "data"))
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert best.text == "pass all 4 `blocks[*]['in']` as P() instead of P(None, None, 'model')"


@pytest.mark.usefixtures("by_time")
def test_what_alone_saves_much_comes_first_though_it_takes_more_memory() -> None:
    """Another layout of `last` only lets exchanges overlap otherwise: that is no suggestion."""
    mesh = AbstractMesh((8, 4), ("data", "model"))
    given = functools.partial(specs.struct, mesh=mesh)

    def score(tables: dict[str, st.Array], w: dict[str, st.Array], ids: dict[str, st.Array],
              dense: st.Array) -> st.Array:
        rows = [jnp.take(t, ids[name], axis=0).sum(1) for name, t in tables.items()]
        z = jnp.concatenate([*rows, nn.relu(dense @ w["bottom"])], -1)
        return nn.relu(z @ w["top"]) @ w["last"]

    tables = {"user": given((1_000_000, 64), None, "model"), "item": given((4_000_000, 64), "data"),
              "shop": given((100_000, 64), None, "model")}
    weights = {"bottom": given((32, 128)), "top": given((320, 512)), "last": given((512, 1))}
    ids = {name: st.ShapeDtypeStruct((16384, 8), np.int32, sharding=NamedSharding(mesh, P("data")))
           for name in tables}
    found = st.explain(score)(tables, weights, ids, given((16384, 32), "data"))
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert best.text == "pass `tables['item']` as P(None, 'model') instead of P('data')"
    assert best.peak_bytes > 1.25 * found.peak_bytes
    assert not any("'last'" in s.text for c in found.collectives for s in c.suggestions
                   if c.kind == "all-to-all")


@pytest.mark.usefixtures("by_time")
def test_what_computes_much_more_is_not_first_where_another_saves_nearly_as_much() -> None:
    """Messages of edges that are made whole: without that, each device adds up all nodes."""
    mesh = AbstractMesh((8, 4), ("data", "model"))

    def net(params, nodes, edges, senders, receivers):
        for w, update in params:
            m = nn.relu(jnp.concatenate([nodes[senders], nodes[receivers], edges], -1) @ w)
            m = lax.with_sharding_constraint(m, NamedSharding(mesh, P()))
            added = jnp.zeros((8192, 256)).at[receivers].add(m)
            nodes = nodes + nn.relu(jnp.concatenate([nodes, added], -1) @ update)
        return nodes

    def struct(shape, *spec, dtype=np.float32):
        return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    ids = struct((1 << 17,), "data", dtype=np.int32)
    weights = struct((768, 256)), struct((512, 256))
    found = st.explain(net, "v5p")([weights] * 3, struct((8192, 256)),
                                   struct((1 << 17, 256), "data"), ids, ids)
    firsts = [c.suggestions[0] for c in found.collectives if c.suggestions]
    assert firsts and all(s.flops <= 1.25 * found.flops for s in firsts)
    first = found.root_causes[0].groups[0][0].suggestions[0]
    assert first.flops <= found.flops and first.time < 0.6 * found.time


@pytest.mark.usefixtures("by_time")
def test_one_argument_is_changed_rather_than_all_that_it_is_read_with() -> None:
    """Where caches are split by heads, and their mask by positions."""
    given = functools.partial(specs.struct, mesh=AbstractMesh((8, 8), ("data", "model")))

    def attend(q: st.Array, k: st.Array, v: st.Array, mask: st.Array) -> st.Array:
        s = jnp.einsum("bqkgd,btkd->bkgqt", q, k) / 11
        s = jnp.where(mask[:, None, None], s, -1e30)
        return jnp.einsum("bkgqt,btkd->bqkgd", nn.softmax(s), v)

    cache = given((64, 16384, 8, 128), "data", None, "model", dtype=jnp.bfloat16)
    found = st.explain(attend)(
        given((64, 32, 8, 4, 128), "data", None, "model", dtype=jnp.bfloat16), cache, cache,
        given((64, 32, 16384), "data", None, "model", dtype=np.bool_))
    first = found.root_causes[0].groups[0][0].suggestions[0]
    assert first.text == "pass `mask` as P('data') instead of P('data', None, 'model')"
