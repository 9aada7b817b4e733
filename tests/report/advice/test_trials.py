"""A trial of a change decides anew only about the equations that the change touches."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import TracedSubject
from shardtrace.ir.support.caches import Bounded
from shardtrace.report.advice.changes import Argument
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"))
WIDTHS = [128 + 64 * i for i in range(9)]       # no layer is like another one


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def forward(layers: Sequence[dict[str, st.Array]], x: st.Array) -> st.Array:
    for w in layers:
        x = (x + jnp.tanh(x @ w["up"]) @ w["down"]) @ w["out"]
    return jnp.sum(x * x)


LAYERS = [{"up": struct((d, 4 * d), None, "model"), "down": struct((4 * d, d), "model"),
           "out": struct((d, d + 64))} for d in WIDTHS]


@pytest.fixture
def decided(monkeypatch) -> Callable[[Callable[[], object]], int]:
    """How many answers about equations, layouts and costs a call finds that were not known yet."""
    found = []
    known = Bounded.__setitem__

    def counting(table, key, value) -> None:
        found.append(key)
        known(table, key, value)

    monkeypatch.setattr(Bounded, "__setitem__", counting)

    def count(call: Callable[[], object]) -> int:
        before = len(found)
        call()
        return len(found) - before
    return count


@pytest.mark.parametrize("number", [0, len(LAYERS) // 2, len(LAYERS) - 1])
def test_a_trial_decides_about_the_layer_that_is_changed(number, decided) -> None:
    traced = st.jit(forward).trace(LAYERS, struct((64, WIDTHS[0]), "data"))
    st.clear_caches()
    whole = decided(lambda: traced.lower().compile())
    lowered = traced.lower()
    subject = TracedSubject(traced, lowered.compile()._executable)
    names = subject.partitioned.traced.arg_names
    name = f"layers[{number}]['down']"
    change = Argument(names.index(name), name, P(None, "model"), P("model"))
    subject.changed((), 0.0)
    assert decided(lambda: subject.changed((), 0.0)) == 0
    changed = decided(lambda: subject.changed((change,), 0.0))
    assert 0 < changed < 3 * whole / len(LAYERS)
