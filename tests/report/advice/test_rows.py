"""A wrong row of a table of specs touches many parameters; a change of it is tried and shown whole.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.report.advice.changes import pattern_of, row_of
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


@pytest.mark.parametrize(("names", "row", "pattern"), [
    (["ws[0]['o']", "ws[11]['o']"], "ws[*]['o']", "ws[*]['o']"),
    (["p['layer_0']['w']", "p['layer_12']['w']"], "p['layer_*']['w']", "p['layer_*']['w']"),
    (["s[0].mu[3]", "s[0].mu[4]"], "s[*].mu[*]", "s[0].mu[*]"),
    (["[0]['o']", "[1]['o']"], "[*]['o']", "[*]['o']"),
    (["w1"], "w1", "w1"), (["[1]"], "[1]", "[1]"), ([""], "", ""),
])
def test_names_that_differ_in_numbers_are_one_row(names: list[str], row: str, pattern: str
                                                  ) -> None:
    assert {row_of(name) for name in names} == {row}
    assert pattern_of(names) == pattern


@pytest.mark.parametrize("layers", [2, 7])
def test_a_wrong_row_is_put_right_in_all_layers_at_once(layers: int) -> None:
    """`down` is split by columns in each layer; by rows there is one sum a layer."""
    def f(ws: list[dict[str, st.Array]], x: st.Array) -> st.Array:
        for w in ws:
            x = x + jnp.tanh(x @ w["up"]) @ w["down"]
        return x

    up, down = struct((256, 512), None, "model"), struct((512, 256), None, "model")
    x = struct((64, 256), "data")
    found = st.explain(f)([{"up": up, "down": down}] * layers, x)
    dearest = max(found.collectives, key=lambda c: c.time * c.count)
    texts = [s.text for s in dearest.suggestions]
    row = f"pass all {layers} `ws[*]['down']` as P('model') instead of P(None, 'model')"
    assert any(row in text for text in texts), texts


def test_arguments_that_are_numbered_by_name_are_not_a_row() -> None:
    def f(w1: st.Array, w2: st.Array, x: st.Array) -> st.Array:
        return jnp.tanh(x @ w1) @ w2

    w = struct((256, 256), None, "model")
    found = st.explain(f)(w, w, struct((64, 256), "data"))
    texts = [s.text for c in found.collectives for s in c.suggestions]
    assert texts and not any("all 2" in text for text in texts)
