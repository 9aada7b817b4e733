"""An exchange of several operands is shown operand by operand: value, line, reason and bytes."""
from __future__ import annotations

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((8,), ("data",))


def struct(shape: tuple[int, ...], *spec) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*spec)))


def step(p, x, y):
    def loss(p):
        h = jnp.tanh(x @ p["a"] + p["b"])                                       # first layer
        return ((h @ p["c"] - y) ** 2).mean()                                   # second layer
    value, grads = st.value_and_grad(loss)(p)
    return value, st.tree.map(lambda p, g: p - 0.1 * g, p, grads)


def two(x, y):
    return x @ x.T, y @ y.T, jnp.tanh(x)


FIRST = step.__code__.co_firstlineno + 2


@pytest.fixture(scope="module")
def found():
    args = ({"a": struct((64, 32)), "b": struct((32,)), "c": struct((32, 16))},
            struct((256, 64), "data"), struct((256, 16), "data"))
    return st.explain(step)(*args)


def test_each_operand_has_its_line_reason_and_bytes(found) -> None:
    (exchange,) = found.collectives
    assert exchange.record.op == "variadic_psum_invariant"
    assert {(p.operand_bytes, p.source.line) for p in exchange.parts} == {
        (4 * 64 * 32, FIRST), (4 * 32, FIRST), (4 * 32 * 16, FIRST + 1), (4, FIRST + 1)}
    assert all("leaves partial sums" in p.reason and p.value for p in exchange.parts)
    assert sum(p.received_bytes for p in exchange.parts) == exchange.received_bytes
    assert sum(p.time for p in exchange.parts) == pytest.approx(exchange.time)
    assert exchange.source.line == FIRST                 # that of most bytes
    assert found.lower_bound == found.received_bytes     # of all of them, not of the first alone


def test_text_and_plain_data_say_what_each_operand_is(found) -> None:
    text = found.text(each=True)
    for p in found.collectives[0].parts:
        said = f"of {p.value}, {p.source}: {p.verdict}"
        assert " ".join(said.split()) in " ".join(text.split())
    data = found.to_dict()["collectives"][0]
    assert [(p["received_bytes"], p["source"]["line"], p["value"]) for p in data["parts"]] == [
        (p.received_bytes, p.source.line, p.value) for p in found.collectives[0].parts]
    assert [c.source.line for c in found.at(FIRST)] == [FIRST, FIRST]
    assert "1 collective" in found.root_causes[0].described(found.received_bytes)


def test_each_operand_counts_to_its_own_root_cause() -> None:
    found = st.explain(two)(struct((64, 512), None, "data"), struct((64, 256), None, "data"))
    (exchange,) = found.collectives
    assert len(exchange.parts) == 2
    assert {c.text: c.received_bytes for c in found.root_causes} == {
        "`x` as P(None, 'data')": exchange.received_bytes // 2,
        "`y` as P(None, 'data')": exchange.received_bytes // 2}
    found.to_html()


def test_written_exchanges_that_are_combined_are_asked_for() -> None:
    def sums(a, b):
        return lax.psum(jnp.sin(a), "data"), lax.psum(jnp.cos(b), "data")

    mapped = st.shard_map(sums, mesh=MESH, in_specs=(P("data"), P("data")), out_specs=(P(), P()))
    (c,) = st.explain(mapped)(struct((64, 8), "data"), struct((64, 8), "data")).collectives
    assert len(c.parts) == 2 and {part.reason_kind for part in c.parts} == {"asked"}
    assert c.reason_kind == "asked" and c.asked_by.text == '`lax.psum(jnp.sin(a), "data")`'
