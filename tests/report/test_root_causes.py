"""Many collectives are grouped by what causes them: one annotation, one paragraph."""
from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.report.equal_collectives import grouped
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from .. import specs

MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def norm(x: st.Array) -> st.Array:
    z = x - x.mean(-1, keepdims=True)
    return z / jnp.sqrt((z ** 2).mean(-1, keepdims=True) + 1e-6)


def forward(ws: list[dict[str, st.Array]], x: st.Array) -> st.Array:
    for w in ws:
        h = jnp.tanh(norm(x) @ w["up"])
        x = x + h @ w["down"]
    return x


@functools.cache
def explained(layers: int, *down: str | None):
    layer = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), *down)}
    return st.explain(forward)([dict(layer) for _ in range(layers)], struct((64, 256), "data"))


@pytest.mark.parametrize("layers", [6, 24])
def test_a_wrong_row_is_behind_all_that_it_brings(layers: int) -> None:
    found = explained(layers, None, "model")
    first, *others = found.root_causes
    assert first.text == "`ws[*]['down']` as P(None, 'model')"
    assert len(first.collectives) >= len(found.collectives) - 2
    every = [c for cause in found.root_causes for c in cause.collectives]
    assert sorted(map(id, every)) == sorted(map(id, found.collectives))
    assert sum(cause.received_bytes for cause in found.root_causes) == found.received_bytes
    assert first.to_dict()["received_bytes"] == first.received_bytes


def test_the_text_is_as_long_for_many_layers_as_for_few() -> None:
    def slopes(ws: list[dict[str, st.Array]], x: st.Array) -> list[dict[str, st.Array]]:
        return st.grad(lambda ws: jnp.mean(forward(ws, x) ** 2))(ws)

    layer = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), None, "model")}
    found = {n: st.explain(slopes)([dict(layer) for _ in range(n)], struct((64, 256), "data"))
             for n in (8, 24)}
    few, many = (found[n].text(suggestions=0).splitlines() for n in found)
    assert len(many) <= len(few) + 10
    short, full = (" ".join(found[8].text(0, each=each).split()) for each in (False, True))
    assert f"because of {found[8].root_causes[0].described(found[8].received_bytes)}" in short
    assert "`--all`" in short and "`--all`" not in full and len(full) > len(short)


def test_each_layer_is_told_by_its_own_values() -> None:
    """The lower bound counts every layer, and reasons name the weights of theirs."""
    found = explained(6, None, "model")
    named = {name for c in found.collectives for name in [f"ws[{i}]['down']" for i in range(6)]
             if name in c.reason}
    assert len(named) == 6
    two, eight = (explained(n, None, "model").lower_bound for n in (2, 8))
    assert eight > 3 * two


def test_all_that_is_written_at_a_line_is_one_cause() -> None:
    def to(x: st.Array) -> st.Array:
        return lax.with_sharding_constraint(x, NamedSharding(MESH, P("data", "model")))

    def f(x: st.Array, wq: st.Array, wk: st.Array, wv: st.Array) -> st.Array:
        q, k, v = (jnp.einsum("bsd,dhk->bshk", x, w) for w in (wq, wk, wv))
        k, v = to(k), to(v)
        p = nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k))
        return jnp.einsum("bhqt,bthk->bqhk", p, v)

    w = struct((256, 16, 64), None, "model")
    cause = st.explain(f)(struct((64, 512, 256), "data"), w, w, w).root_causes[0]
    assert cause.text.startswith("`k, v = to(k), to(v)` at line")
    assert len(cause.collectives) >= 2


def test_what_is_asked_for_is_its_own_cause() -> None:
    def f(x: st.Array, w: st.Array) -> st.Array:
        h = jnp.tanh(x @ w)
        return st.lax.with_sharding_constraint(h, NamedSharding(MESH, P("data"))) * 2

    found = st.explain(f)(struct((64, 256), "data"), struct((256, 512), None, "model"))
    assert [c.kind for c in found.collectives] == ["all-gather"]
    assert "with_sharding_constraint" in found.root_causes[0].text
    assert "at line" in found.root_causes[0].text


def test_what_is_computed_element_by_element_of_an_unlike_argument_is_because_of_that() -> None:
    def f(p: dict[str, st.Array], mu: dict[str, st.Array], g: dict[str, st.Array]):
        mu = st.tree.map(lambda m, g: 0.9 * m + g, mu, g)
        return st.tree.map(lambda p, m: p - 0.1 * m, p, mu), mu

    right = {"a": struct((16, 512, 256), None, None, "model")}
    found = st.explain(f)(right, {"a": struct((16, 512, 256), "model")}, right)
    assert found.root_causes[0].text == "`mu['a']` as P('model')"


def attention(ws: list[dict[str, st.Array]], x: st.Array) -> st.Array:
    for w in ws:
        h = norm(x)
        q, k, v = (jnp.einsum("bsd,dhk->bshk", h, w[name]) for name in "qkv")
        s = jnp.einsum("bqhk,bthk->bhqt", q, k)
        s = lax.with_sharding_constraint(s, NamedSharding(MESH, P("model", "data")))   # swapped
        x = x + jnp.einsum("bhqt,bthk,hkd->bqd", nn.softmax(s), v, w["o"])
        h = lax.with_sharding_constraint(nn.gelu(norm(x) @ w["up"]),
                                         NamedSharding(MESH, P("data", None, "model")))
        x = x + h @ w["down"]
    return x


def test_what_saves_most_if_it_is_changed_comes_before_what_moves_more() -> None:
    """The sums that any layout of these layers has are of more bytes than what one mistake adds."""
    layer = {name: struct((1024, 8, 128), None, "model") for name in "qkv"}
    layer["o"] = struct((8, 128, 1024), "model")
    layer |= {"up": struct((1024, 4096), None, "model"), "down": struct((4096, 1024), "model")}
    with st.config.override(shardtrace_objective="time"):
        found = st.explain(attention)([dict(layer) for _ in range(4)],
                                      struct((16, 128, 1024), "data"))
        assert found.root_causes
    by_cost, first = found.causes_by_cost[0], found.root_causes[0]
    assert by_cost.received_bytes > first.received_bytes
    assert by_cost.text != first.text
    line = attention.__code__.co_firstlineno + 5
    assert first.text.endswith(f"at line {line}")
    text = found.text().split("because of ")[1]
    assert " ".join(text.split()).startswith(first.text)
    best = first.groups[0][0].suggestions[0]
    assert f"at line {line}" in best.text and best.time < 0.9 * found.time


def test_what_saves_no_time_is_not_to_be_changed_first() -> None:
    """Queries are exchanged while keys are projected and added to those of a cache."""
    def decode(wq: st.Array, wk: st.Array, wo: st.Array, keys: st.Array, x: st.Array) -> st.Array:
        q, k = jnp.einsum("bd,dhk->bhk", x, wq), jnp.einsum("bd,dhk->bhk", x, wk)
        keys = keys + k[:, None]
        p = nn.softmax(jnp.einsum("bhk,bthk->bht", q, keys))
        return jnp.einsum("bht,bthk,hkd->bd", p, keys, wo)

    found = st.explain(decode)(
        struct((1024, 8, 128), None, None, "model"), struct((1024, 8, 128), None, "model"),
        struct((8, 128, 1024), "model"), struct((16, 2048, 8, 128), "data", None, "model"),
        struct((16, 1024), "data"))
    cause = found.root_causes[0]
    assert cause.text == "`wq` as P(None, None, 'model')"
    hidden = cause.groups[0][0].suggestions[0]
    assert hidden.time == pytest.approx(found.time, rel=1e-9)
    text = " ".join(found.text().split())
    assert f"change first: {hidden.text}" not in text
    assert f"avoided by: {hidden.text} saves no time, 6.14 kB of 55.3 kB received (-11%)" in text


def test_a_suggestion_is_told_in_full_once_and_reasons_by_the_nearest() -> None:
    text = re.sub(r"\n {15}(?=\S)", " ", str(explained(6, None, "model")))     # unwrapped
    lines = [line.partition(": ")[2] for line in text.splitlines()
             if " by: " in line or line.startswith("change first: ")]
    assert len({line.removesuffix(" (as above)") for line in lines}) < len(lines)
    for n, line in enumerate(lines):
        assert line.endswith("(as above)") == (line.removesuffix(" (as above)") in lines[:n])
    full = explained(6, None, "model").text(each=True)
    assert "(as above)" not in full and full.count("comes from") >= text.count("comes from")
    alike = [c for group in grouped(explained(6, None, "model").collectives) if len(group) > 1
             for c in group]
    assert alike and all(f"   of {c.value or c.source.text()}, {c.place}\n" in full for c in alike)
    assert len([line for line in full.splitlines() if line.startswith("   of `")]) == len(alike)


def test_results_of_one_row_that_are_asked_for_alike_are_one_cause() -> None:
    def decayed(ws: list[dict[str, st.Array]]) -> list[dict[str, st.Array]]:
        return st.tree.map(lambda w: 0.9 * w, ws)

    rows = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), "model")}
    f = st.jit(decayed, out_shardings=NamedSharding(MESH, P()))
    found = st.explain(f)([dict(rows) for _ in range(3)])
    assert {c.text for c in found.root_causes} == {
        f"`out_shardings`, P() for result [*]['{row}']" for row in rows}


@pytest.mark.usefixtures("by_time")
def test_a_small_mistake_is_told_before_a_sum_that_is_needed() -> None:
    def f(x: st.Array, w: st.Array, b: st.Array, o: st.Array) -> st.Array:
        return nn.gelu(x @ w + b) @ o

    given = functools.partial(specs.struct, mesh=AbstractMesh((8, 4), ("data", "model")))
    found = st.explain(f)(given((8192, 1024), "data"), given((1024, 16384), None, "model"),
                          given((16384,), "data"), given((16384, 1024), "model"))
    assert [cause.text for cause in found.root_causes] == ["`b` as P('data')", "`o` as P('model')"]
    assert found.root_causes[0].time < found.root_causes[1].time


@pytest.mark.usefixtures("by_time")
def test_the_sum_of_a_wrong_weight_is_shown_before_what_else_it_brings() -> None:
    """No product with `up` as it lies does without the sum; that of `gate` gathers its operand for
    it, which takes less.
    """
    def experts(w: dict[str, st.Array], x: st.Array, dispatch: st.Array) -> st.Array:
        inputs = jnp.einsum("gsd,gsec->egcd", x, dispatch)
        gate = jnp.einsum("egcd,edf->egcf", inputs, w["gate"])
        up = jnp.einsum("egcd,edf->egcf", inputs, w["up"])
        out = jnp.einsum("egcf,efd->egcd", nn.silu(gate) * up, w["down"])
        return x + jnp.einsum("egcd,gsec->gsd", out, dispatch)

    given = functools.partial(specs.struct, mesh=AbstractMesh((8, 4), ("expert", "model")))
    weights = {"gate": given((16, 4096, 14336), "expert", None, "model"),
               "up": given((16, 4096, 14336), "expert", "model"),
               "down": given((16, 14336, 4096), "expert", "model")}
    first = st.explain(experts)(weights, given((8, 512, 4096), "expert"),
                                given((8, 512, 16, 80), "expert")).root_causes[0]
    assert first.text == "`w['up']` as P('expert', 'model')"
    assert [group[0].source.source_line().split()[0] for group in first.groups] == ["up", "gate"]


@pytest.mark.usefixtures("by_time")
def test_of_several_changes_the_one_that_saves_most_is_of_the_cause() -> None:
    """The constraints are changed for the rest, where the planner has a better place for them."""
    mesh = AbstractMesh((16,), ("d",))

    def to(v: st.Array, *spec: str | None) -> st.Array:
        return lax.with_sharding_constraint(v, NamedSharding(mesh, P(*spec)))

    def solve(rho: st.Array, green: st.Array) -> st.Array:
        k = to(jnp.fft.fft(jnp.fft.fft(rho, axis=2), axis=1), None, "d")
        k = to(jnp.fft.ifft(jnp.fft.fft(k, axis=0) * green, axis=0), "d")
        return jnp.fft.ifft(jnp.fft.ifft(k, axis=1), axis=2).real

    given = functools.partial(specs.struct, (512, 512, 512), "d", mesh=mesh)
    first = st.explain(solve)(given(), given(dtype=np.complex64)).root_causes[0]
    shown = first.groups[0][0]
    assert first.text == "`green` as P('d')" and "green" in shown.source.text()
    assert "pass `green` as P(None, 'd') instead of P('d')" in shown.suggestions[0].text


def test_what_a_choice_brings_is_because_of_what_brought_its_axes(by_time: None) -> None:
    """The sum of the table's gradient over `data` is put together again for the results, behind an
    exchange over both axes of which the momentum brings one.
    """
    mesh = AbstractMesh((8, 4), ("data", "model"))

    def given(shape, *spec, dtype=np.float32):
        return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def step(params, mu, tokens, targets):
        def loss(p):
            h = p["table"][tokens]
            h = h + jnp.tanh(h @ p["w"]["up"]) @ p["w"]["down"]
            z = h @ p["table"].T
            chosen = jnp.take_along_axis(z, targets[..., None], -1)
            return (nn.logsumexp(z, -1) - chosen[..., 0]).mean()
        mu = st.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, st.grad(loss)(params))
        return st.tree.map(lambda p, m: p - m, params, mu), mu

    def tree(*down):
        return {"table": given((32000, 1024), "model"), "w": {
            "up": given((1024, 4096), None, "model"), "down": given((4096, 1024), *down)}}

    tokens = given((32, 512), "data", dtype=np.int32)
    found = st.explain(step, trials=1)(tree("model"), tree(None, "model"), tokens, tokens)
    wrong = next(r for r in found.root_causes if r.text.startswith("`mu"))
    assert all("model" in c.mesh_axes for c in wrong.collectives)


def test_a_constraint_that_is_changed_first_is_a_cause_though_it_asked_for_no_exchange() -> None:
    """What is computed element by element of what it asks for is summed later, as a whole."""
    mesh = AbstractMesh((8, 4), ("data", "model"))
    s = functools.partial(specs.struct, mesh=mesh)

    def loss(ws: list[dict[str, st.Array]], x: st.Array, y: st.Array) -> st.Array:
        for w in ws:
            g = lax.with_sharding_constraint(nn.sigmoid(x @ w["gate"]), NamedSharding(mesh, P()))
            x = x + g * (nn.gelu(x @ w["up"]) @ w["down"])
        return ((x - y) ** 2).mean()

    layer = {"gate": s((1024, 1024)), "up": s((1024, 4096), None, "model"),
             "down": s((4096, 1024), "model")}
    rows = s((8192, 1024), "data")

    def step(ws: list[dict[str, st.Array]], x: st.Array, y: st.Array) -> list[dict[str, st.Array]]:
        return st.tree.map(lambda w, g: w - 0.01 * g, ws, st.grad(loss)(ws, x, y))

    found = st.explain(step)([dict(layer) for _ in range(2)], rows, rows)
    first, *others = found.root_causes
    told = first.groups[0][0]
    assert "`with_sharding_constraint`" in told.suggestions[0].text
    assert told.asked_by is None
    assert first.text.startswith("`lax.with_sharding_constraint(nn.sigmoid(")
    assert {c.mesh_axes for c in first.collectives} == {told.mesh_axes}
    assert others


def test_what_is_read_of_a_gather_is_because_of_the_gather_and_not_of_the_index() -> None:
    """As where each device has the rows of all experts gathered, and reads those of its own."""
    mesh = AbstractMesh((8,), ("x",))

    def body(w: st.Array, rows: st.Array) -> st.Array:
        every = lax.all_gather(rows, "x")
        own = every[:, lax.axis_index("x")].reshape(-1, 256) @ w[0]
        return lax.all_to_all(own.reshape(8, 1, 64, 256), "x", 0, 1, tiled=True)[0]

    f = st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    found = st.explain(f)(*[st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(
        mesh, P("x"))) for shape in ((8, 256, 256), (64, 64, 256))])
    first = found.root_causes[0]
    assert "exchange the parts that are read" in first.collectives[0].suggestions[0].text
    assert first.text.startswith("`lax.all_gather(rows, \"x\")` at line ")
    assert first.groups[0][0].kind == "all-gather"


def test_exchanges_of_a_body_are_because_of_their_lines_and_not_of_the_index() -> None:
    mesh = st.make_mesh((8,), ("d",))

    def body(x: st.Array) -> st.Array:
        first = lax.axis_index("d") == 0
        x = jnp.where(first, jnp.tanh(x), x)
        total = lax.psum(jnp.where(first, x, 0), "d")
        return total + lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])

    f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    x = st.ShapeDtypeStruct((512, 1024), np.float32, sharding=NamedSharding(mesh, P("d")))
    summed, sent = st.explain(f)(x).root_causes
    assert summed.text.startswith("`lax.psum(") and sent.text.startswith("`lax.ppermute(")


def test_rows_that_a_loop_takes_in_turn_are_moved_because_of_what_cuts_them() -> None:
    """As where gradients are added up over parts of a batch, which one device after the other has.
    """
    def step(w: st.Array, x: st.Array) -> st.Array:
        def part(total: st.Array, rows: st.Array) -> tuple[st.Array, None]:
            return total + st.grad(lambda w: (jnp.tanh(rows @ w) ** 2).sum())(w), None
        return lax.scan(part, jnp.zeros_like(w), x.reshape(8, -1, x.shape[1]))[0]

    found = st.explain(step)(struct((512, 512)), struct((65536, 512), "data"))
    first = found.root_causes[0]
    assert re.match(r"`x\.reshape\(8, -1, x\.shape\[1\]\)` at line \d+", first.text), first.text
    best = first.groups[0][0].suggestions[0]
    assert best.text == ("keep `x` with rows of the 8 parts of dimension 0 side by side, "
                         "instead of one part behind the other")
    assert best.received_bytes < found.received_bytes / 10
