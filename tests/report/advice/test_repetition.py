"""Programs that repeat a block are shortened; changes are tried on the short program first."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import ProgramSubject, TracedSubject
from shardtrace.ir.settings.context import config
from shardtrace.ir.verify import verify
from shardtrace.report.advice.repetition import runs, shortened
from shardtrace.report.advice.suggestions import SECONDS
from shardtrace.report.advice.trials import RATE
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def forward(ws: list[dict[str, st.Array]], x: st.Array) -> st.Array:
    for w in ws:
        x = x + jnp.tanh(x @ w["up"] + w["bias"]) @ w["down"]
    return x


def step(ws: list[dict[str, st.Array]], x: st.Array) -> list[dict[str, st.Array]]:
    slopes = st.grad(lambda ws: jnp.mean(forward(ws, x) ** 2))(ws)
    return st.tree.map(lambda w, g: w - 0.1 * g, ws, slopes)


def arguments(layers: int, down: tuple[str | None, ...] = (None, "model"), rows: int = 64):
    layer = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), *down),
             "bias": struct((512,), "model")}
    return [dict(layer) for _ in range(layers)], struct((rows, 256), "data")


@pytest.mark.parametrize("function", [forward, step])
def test_the_length_of_a_shortened_program_is_that_of_few_layers(function) -> None:
    lengths = {}
    for layers in (4, 12, 40):
        program = st.explain(function)(*arguments(layers)).partitioned.stages["inlined"]
        short = shortened(program)
        lengths[layers] = len(program.eqns if short is None else short.program.eqns)
        if short is not None:
            verify(short.program)
            assert [program.invars[i] for i in short.arguments] == list(short.program.invars)
            assert [program.outvars[i] for i in short.results] == list(short.program.outvars)
            names = [program.arg_names[i] for i in short.arguments]
            assert tuple(names) == short.program.arg_names
            # a period may begin amid a layer
            assert abs(sum("'up'" in n for n in names) - sum("'down'" in n for n in names)) <= 1
    assert lengths[12] == lengths[40] < 2 * lengths[4]


def test_a_program_that_repeats_nothing_is_left_as_it_is() -> None:
    def f(x: st.Array) -> st.Array:
        x = jnp.sin(x)
        x = x @ x.T
        return jnp.tanh(x).sum(0)

    program = st.explain(f)(struct((64, 64), "data")).partitioned.stages["inlined"]
    assert not runs(program) and shortened(program) is None


def test_of_what_repeats_in_the_period_of_other_equations_the_own_one_is_found() -> None:
    def f(x: st.Array) -> st.Array:
        for _ in range(12):
            x = jnp.exp(jnp.cos(jnp.sin(jnp.tanh(x))))
        for _ in range(20):
            x = jnp.log(jnp.abs(x))
        return x

    program = st.explain(f)(struct((64, 64), "data")).partitioned.stages["inlined"]
    assert [(r.period, r.count) for r in runs(program)] == [(4, 12), (2, 20)]


@pytest.mark.parametrize("function", [forward, step])
def test_advice_on_many_layers_is_found_on_few_and_tried_on_all(function) -> None:
    args = arguments(24)
    found = st.explain(function, suggest_seconds=8)(*args)
    dearest = max((c for c in found.collectives if "model" in c.mesh_axes),
                  key=lambda c: c.total_time)
    best = dearest.suggestions[0]
    assert "all 24 `ws[*]['down']` as P('model') instead of P(None, 'model')" in best.text
    assert not best.estimated
    after = st.explain(best.apply())(*args)
    assert (after.received_bytes, after.time, after.peak_bytes, after.flops) == (
        best.received_bytes, best.time, best.peak_bytes, best.flops)
    assert after.received_bytes < found.received_bytes and after.time < found.time


@pytest.mark.parametrize("function", [forward, step])
def test_what_the_text_of_many_layers_partitions_is_bounded(function, monkeypatch) -> None:
    found = st.explain(function)(*arguments(48))
    partitioned = []

    def counted(of):
        def changed(self, *asked):
            made = of(self, *asked)
            partitioned.append(len(made.local.eqns))
            return made
        return changed

    for subject in (TracedSubject, ProgramSubject):
        monkeypatch.setattr(subject, "changed", counted(subject.changed))
    said = found.text()
    assert "all 48 `ws[*]['down']` as P('model')" in " ".join(said.split())
    whole = len(found.partitioned.local.eqns)
    # equations count half where no plans are compared, and a local program has some more of them
    assert sum(partitioned) <= 1.5 * 2 * SECONDS * RATE and max(partitioned) <= 1.5 * whole
    assert 0 < sum(n > whole / 2 for n in partitioned) < len(partitioned) / 2


@config.override(shardtrace_objective="time")
def test_without_time_for_the_whole_program_figures_are_in_proportion() -> None:
    """By time, and large: of plans that are as good by bytes a few layers may have another one than
    all, and XLA's plan is looked at for what exchanges much."""
    args = arguments(40, rows=512)
    found = st.explain(forward, suggest_seconds=0.07)(*args)
    dearest = max(found.collectives, key=lambda c: c.total_time)
    best = dearest.suggestions[0]
    assert best.estimated and "in proportion" in " ".join(str(found).split())
    after = st.explain(best.apply())(*args)
    assert best.received_bytes == pytest.approx(after.received_bytes, rel=0.005)
    assert best.time == pytest.approx(after.time, rel=0.1)
    assert best.flops == pytest.approx(after.flops, rel=0.005)


def test_over_explicit_axes_the_short_program_is_typed_anew() -> None:
    mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)

    def typed(shape: tuple[int, ...], spec: P) -> st.ShapeDtypeStruct:
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))

    def f(ws: list[st.Array], x: st.Array) -> st.Array:
        for w in ws:
            x = jnp.tanh(x + reshard(w, P(("data", "model"))))
        return x

    with st.set_mesh(mesh):
        args = [typed((640, 256), P("model", "data"))] * 12, typed((640, 256), P(("data", "model")))
        found = st.explain(f)(*args)
        best = found.collectives[0].suggestions[0]
        assert best.text == (
            "pass all 12 `ws[*]` as P(('data', 'model')) instead of P('model', 'data')")
        after = st.explain(best.apply())(*args)
        assert not after.collectives and after.time == best.time
