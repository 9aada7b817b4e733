"""Wrong rows of tables of specs in programs of many layers: the row is named and put right."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((8, 4), ("data", "model"))
LAYERS = 32


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def loss(layers: list[dict[str, st.Array]], x: st.Array, y: st.Array) -> st.Array:
    for p in layers:
        x = x + jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]
    return jnp.mean((x - y) ** 2)


def step(state, x, y):
    slopes = st.grad(loss)(state["params"], x, y)
    params = st.tree.map(lambda p, g: p - 0.1 * g, state["params"], slopes)
    average = st.tree.map(lambda a, p: 0.99 * a + 0.01 * p, state["average"], params)  # culprit
    return {"params": params, "average": average}


def table(w: tuple[str | None, ...], v: tuple[str | None, ...] = ("model",)):
    return {"w": struct((1024, 4096), *w), "b": struct((4096,), "model"),
            "v": struct((4096, 1024), *v)}


def state(**averages):
    return {"params": [table((None, "model")) for _ in range(LAYERS)],
            "average": [table(**averages) for _ in range(LAYERS)]}


def test_a_wrong_row_among_the_slots_of_an_optimiser() -> None:
    x = struct((4096, 1024), "data")
    found = st.explain(step)(state(w=("model", None)), x, x)
    moved = [c for c in found.collectives if c.kind == "all-to-all"]
    assert len(moved) == LAYERS and {"average" in c.source.source_line() for c in moved} == {True}
    row = f"pass all {LAYERS} `state['average'][*]['w']` as P(None, 'model') instead of P('model')"
    best = moved[0].suggestions[0]
    assert best.text == row
    after = st.explain(best.apply())(state(w=("model", None)), x, x)
    assert not [c for c in after.collectives if c.kind == "all-to-all"]
    assert after.received_bytes < found.received_bytes and after.time < found.time
    assert row in " ".join(found.text().split())


@pytest.mark.parametrize("layers", [8, 32])
def test_a_wrong_row_of_the_parameters(layers: int) -> None:
    def forward(params, x):
        for p in params:
            x = x + jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]
        return x

    wrong = [table((None, "model"), (None, "model")) for _ in range(layers)]
    found = st.explain(forward)(wrong, struct((4096, 1024), "data"))
    dearest = max(found.collectives, key=lambda c: c.total_time)
    row = f"pass all {layers} `params[*]['v']` as P('model') instead of P(None, 'model')"
    assert row in dearest.suggestions[0].text
    assert "`params[*]['v']`" in found.root_causes[0].text


@pytest.mark.usefixtures("by_time")
@pytest.mark.parametrize("layer, wrong, right", [
    (table(("model",)), "`params[8]['w']` as P('model')", "P(None, 'model')"),
    (table((None, "model"), (None, "model")), "`params[8]['v']` as P(None, 'model')",
     "P('model')")])
def test_a_wrong_parameter_of_one_layer(layer: dict, wrong: str, right: str) -> None:
    def forward(params, x):
        for p in params:
            x = x + jnp.tanh(x @ p["w"] + p["b"]) @ p["v"]
        return x

    layers = [table((None, "model")) for _ in range(16)]
    layers[8] = layer
    first = st.explain(forward)(layers, struct((1024, 1024), "data")).root_causes[0]
    name, was = wrong.split(" as ")
    assert first.text == wrong
    assert f"pass {name} as {right} instead of {was}" in first.groups[0][0].suggestions[0].text


def test_no_candidate_is_without_a_change() -> None:
    def update(params, x):
        def cost(params):
            h = x
            for p in params:
                n = h / jnp.sqrt((h * h).mean(-1, keepdims=True) + 1.0)
                h = h + (nn.silu(n @ p["gate"]) * (n @ p["w"])) @ p["v"]
            return (h * h).mean()

        return st.tree.map(lambda p, g: p - 0.1 * g, params, st.grad(cost)(params))

    rows = [{**table(("model",)), "gate": struct((1024, 4096), None, "model")} for _ in range(2)]
    found = st.explain(update)(rows, struct((32768, 1024), "data"))
    candidates = found.search.candidates
    assert all(all(candidates.of(c.record, c.cause)) for c in found.collectives)


def test_a_wrong_row_is_found_where_code_could_be_changed_too() -> None:
    """The heads of attention invite changes of code, each of which takes as long to try."""
    def attention(x: st.Array, p: dict[str, st.Array]) -> st.Array:
        q, k, v = ((x @ p[n]).reshape(*x.shape[:2], 16, 64) for n in "qku")
        scores = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8)
        return jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape) @ p["o"]

    def cost(layers: list[dict[str, st.Array]], x: st.Array) -> st.Array:
        for p in layers:
            x = x + attention(x, p)
            x = x + nn.gelu(x @ p["w"] + p["b"]) @ p["v"]
        return (x * x).mean()

    def adam(params, first, second, x):
        slopes = st.grad(cost)(params, x)
        first = st.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = st.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slopes)
        return st.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, first, second), (
            first, second)

    heads = {n: struct((1024, 1024), None, "model") for n in "qku"}
    wrong = {**table((None, "model"), (None, "model")), **heads, "o": struct((1024, 1024), "model")}
    state = [dict(wrong) for _ in range(12)]
    found = st.explain(adam)(state, state, state, struct((8, 512, 1024), "data"))
    first = found.root_causes[0]
    best = first.groups[0][0].suggestions[0]
    assert "all 12 `params[*]['v']` as P('model') instead of P(None, 'model')" in best.text
    assert best.time < found.time and not best.estimated
