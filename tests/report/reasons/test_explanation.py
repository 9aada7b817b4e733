"""Explanations: the line, the reason, the cost, and what avoids a collective, on known culprits."""
import contextlib
import functools
import inspect
import json
import pathlib

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.report.advice.ranking import EQUAL_WORTH
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from . import culprits

GOLDEN = pathlib.Path(__file__).parent / "golden"
SAME = {"rtol": 2e-4, "atol": 1e-4}


def under(mesh):
    return st.set_mesh(mesh) if mesh is culprits.EXPLICIT else contextlib.nullcontext()


@functools.cache
def explained(name):
    """Searched suggestions stay with it."""
    jitted, _, args, mesh = culprits.CASES[name]
    with under(mesh):
        return st.explain(jitted)(*args)


def blamed(found, kind):
    """The costliest collective of the kind."""
    return max((c for c in found.collectives if c.kind == kind), key=lambda c: c.total_time)


def culprit_line(jitted):
    lines, start = inspect.getsourcelines(jitted._f)
    return start + next(i for i, text in enumerate(lines) if "# culprit" in text)


def concrete(spec, seed):
    rng = np.random.default_rng(seed)
    if spec.dtype == np.int32:
        return st.device_put(rng.integers(0, 60, spec.shape).astype(np.int32), spec.sharding)
    return st.device_put(rng.standard_normal(spec.shape).astype(spec.dtype), spec.sharding)


@pytest.mark.parametrize("name", culprits.CASES)
def test_the_culprit_line_is_named(name):
    jitted, kind, _, _ = culprits.CASES[name]
    c = blamed(explained(name), kind)
    assert c.source.line == culprit_line(jitted)
    assert pathlib.Path(c.source.file).name == "culprits.py"
    assert c.reason
    assert "^" in c.excerpt()


@pytest.mark.parametrize("name", culprits.CASES)
def test_the_first_suggestion_does_what_it_says(name):
    jitted, kind, args, mesh = culprits.CASES[name]
    with under(mesh):
        found = explained(name)
        c = blamed(found, kind)
        best = c.suggestions[0]
        assert best.removes and best.text
        assert best.time < found.time
        assert best.received_bytes <= found.received_bytes
        changed = best.apply()
        after = st.explain(changed)(*args)
        left = [x for x in after.collectives if x.kind == kind and x.source.line == c.source.line
                and set(x.mesh_axes) & set(c.mesh_axes)]
        assert left == []
        assert (after.received_bytes, after.time, after.peak_bytes, after.flops) == (
            best.received_bytes, best.time, best.peak_bytes, best.flops)
        values = [concrete(a, i) for i, a in enumerate(args)]
        np.testing.assert_allclose(np.asarray(changed(*values)), np.asarray(jitted(*values)),
                                   **SAME)


@pytest.mark.parametrize("name", culprits.CASES)
def test_suggestions_come_best_first(name):
    with under(culprits.CASES[name][3]):
        found = explained(name)
        for c in found.collectives:
            order = [not s.removes for s in c.suggestions]
            assert order == sorted(order)
            # what replicates arguments leaves the exchange to who passes them, and comes later
            harmless = [s for s in c.suggestions if s.removes and s.flops <= found.flops
                        and s.peak_bytes <= found.peak_bytes
                        and s._arguments <= 1.25 * found.memory.argument_bytes]
            # of times that are alike, what is less effort
            assert all(s.time <= (1 + EQUAL_WORTH) * t.time
                       for i, s in enumerate(harmless) for t in harmless[i:])


def test_a_path_leads_from_the_annotation_to_the_value():
    c = explained("two_columns").collectives[0]
    text = str(c.paths[0])
    line = culprit_line(culprits.CASES["two_columns"][0]) - 1
    assert text == (f"Y on dimension 1 of `h` comes from `in_shardings[1]`, argument `w1` through "
                    f"`dot_general` line {line}, `tanh` line {line}")
    assert "`dot_general` line" in c.reason and "takes dimension 1 of `h` whole" in c.reason


def test_a_constraint_that_holds_a_value_is_named_and_taken_out():
    c = blamed(explained("whole_in_the_middle"), "all-gather")
    line = culprit_line(culprits.CASES["whole_in_the_middle"][0]) + 1
    assert f"`h` is held as P() by `with_sharding_constraint` at line {line}" in c.reason
    assert c.suggestions[0].text == f"take out the `with_sharding_constraint` to P() at line {line}"


def test_explicit_types_lead_to_the_arguments():
    c = explained("explicit_contraction").collectives[0]
    assert "Y on dimension 1 of `x` comes from `in_shardings[0]`, argument `x`" in c.reason


def test_collectives_in_loops_are_multiplied():
    found = explained("layers_by_columns")
    c = blamed(found, "all-gather")
    assert c.count == 4
    assert found.received_bytes == sum(c.received_bytes * c.count for c in found.collectives)


def test_records_agree_with_the_compiled_program():
    jitted, _, args, _ = culprits.CASES["tensor_parallel"]
    compiled = jitted.lower(*args).compile()
    for found in (compiled.explain(), jitted.lower(*args).explain(), st.explain(jitted)(*args)):
        assert [(c.kind, c.mesh_axes, c.group_size, c.received_bytes, c.count, c.source.line)
                for c in found.collectives] == [
            (r.kind, r.mesh_axes, r.group_size, r.received_bytes, r.count, r.source.line)
            for r in compiled.collectives()]


def test_totals_of_a_product():
    """64 x 256 times 256 x 512 over 2 x 4: by hand."""
    found = explained("weight_by_rows")
    assert found.flops == 2 * 32 * 64 * 512 + 32 * 64           # the product, and tanh
    assert found.received_bytes == 2 * 3 * 32 * 512 * 4 // 4
    assert found.lower_bound == found.received_bytes and found.gap == 1.0
    assert found.arithmetic_intensity == found.flops / found.figures.work.hbm_bytes
    assert 0 < found.utilisation() < 1


def test_the_lower_bound_counts_elements():
    """Swapping the dimensions that two axes split: a device lacks three quarters of its block."""
    mesh = AbstractMesh((2, 2), ("a", "b"))
    x = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("a", "b")))
    found = st.explain(st.jit(lambda x: x + 0, out_shardings=NamedSharding(mesh, P("b", "a"))))(x)
    assert found.lower_bound == 16 * 4
    assert found.gap >= 1.0


def test_nothing_to_explain():
    mesh = AbstractMesh((8,), ("x",))
    x = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("x")))
    found = st.explain(lambda x: jnp.sin(x))(x)
    assert found.collectives == () and found.received_bytes == 0 and found.gap == 1.0
    assert "no collectives" in str(found)


@pytest.mark.parametrize("devices", [8, 512, 65536])
def test_the_number_of_devices_does_not_matter(devices):
    mesh = AbstractMesh((devices,), ("x",))
    x = st.ShapeDtypeStruct((devices * 4, 256), np.float32,
                            sharding=NamedSharding(mesh, P("x")))
    found = st.explain(lambda x: x.sum(0))(x)
    assert [c.group_size for c in found.collectives] == [devices]
    assert found.collectives[0].suggestions is not None


def test_an_explanation_shows_as_data_html_table_and_text():
    found = explained("two_columns")
    data = json.loads(json.dumps(found.to_dict()))
    (record,) = data["collectives"]
    assert {"kind", "mesh_axes", "group_size", "received_bytes", "count", "time", "source",
            "reason", "suggestions"} <= set(record)
    assert {"text", "received_bytes", "time", "peak_bytes", "flops"} <= set(
        record["suggestions"][0])
    assert data["hardware"] == "v5p" and data["mesh"] == {"X": 2, "Y": 4}
    page = found._repr_html_()
    assert page.startswith("<div ") and "all-gather" in page and "h @ w2" in page
    assert found.table().row_count == 1
    assert str(found) == found.text()
    assert "all-gather over Y" in found.summary()
    assert repr(found).startswith("<explanation of two_columns on TPU v5p, torus 2 x 2 x 2: "
                                  "1 collective, ")


@pytest.mark.parametrize("hardware", ["v4", "v5e", "v6e", "7x", "a100", "h100", "b200", "cpu"])
def test_every_hardware_explains(hardware):
    jitted, _, args, _ = culprits.CASES["tensor_parallel"]
    found = st.explain(jitted, hardware)(*args)
    assert found.time > 0 and found.topology.hardware.key == hardware


@pytest.mark.parametrize("name", ["two_columns", "layers_by_columns", "whole_in_the_middle"])
def test_explanations_read_as_the_golden_texts(name, request):
    text = explained(name).text(suggestions=0) + "\n"
    path = GOLDEN / f"{name}.txt"
    if not path.exists():
        path.write_text(text)
    assert text == path.read_text()


def test_donated_arguments_lower_the_peak():
    mesh = AbstractMesh((8,), ("x",))
    x = st.ShapeDtypeStruct((1024, 1024), np.float32, sharding=NamedSharding(mesh, P("x")))
    kept = st.explain(st.jit(lambda x: x * 2))(x)
    given = st.explain(st.jit(lambda x: x * 2, donate_argnums=0))(x)
    assert given.peak_bytes == kept.peak_bytes // 2


def test_what_forbade_another_layout_is_told():
    c = explained("two_columns").collectives[0]
    assert c.vetoes == ("Y on dimension 0 of `w2` was not taken: dimension 1 of it is over Y",)
    assert "instead: Y on dimension 0 of `w2`" in str(explained("two_columns"))


def test_gaps_stand_beside_operations():
    """A running sum over four blocks: the last needs what lies before it, one slice."""
    x = culprits.struct((256, 4096), None, "Y")
    (gap,) = st.explain(lambda x: jnp.cumsum(x, axis=1))(x).gaps()
    assert (gap.op, gap.lower_bound, gap.received_bytes) == ("cumsum", 1024, 3 * 1024)
    assert gap.factor == 3.0 and "3x over the bound" in str(gap)
    assert gap.to_dict()["line"] == gap.source.line
    tight = explained("weight_by_rows").gaps()
    assert [g.factor for g in tight] == [1.0]


def test_equal_collectives_of_a_line_are_told_once():
    def f(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x
    weights = [culprits.struct((256, 256), None, "Y")] * 5
    found = st.explain(f)(culprits.struct((64, 256), "X"), weights)
    assert len(found.collectives) == 4
    text = found.text(suggestions=0)
    assert text.count("-->") < 4 and "in 3 places" in text or "in 4 places" in text


def test_what_was_not_tried_is_said():
    c = explained("two_columns").collectives[0]
    assert c.search.tried == c.search.candidates
    jitted, _, args, _ = culprits.CASES["two_columns"]
    few = st.explain(jitted, trials=2)(*args)
    assert few.collectives[0].search.tried == 2
    assert f"of {c.search.candidates} candidates the first 2 were tried" in str(few)


def test_trials_leave_no_dumps_and_warn_of_nothing(tmp_path, recwarn):
    jitted, _, args, _ = culprits.CASES["two_columns"]
    with st.config.override(shardtrace_dump=str(tmp_path)):
        found = st.explain(st.jit(jitted._f))(*args)
        written = len(list(tmp_path.iterdir()))
        assert found.collectives[0].suggestions
        assert written and len(list(tmp_path.iterdir())) == written
    assert not recwarn.list


@pytest.mark.parametrize("run", [
    lambda a, b: st.lax.fori_loop(0, 5, lambda i, c: c + b * i, a),
    lambda a, b: st.lax.scan(lambda c, x: (jnp.tanh(c) * x, c.sum()), a, b),
    lambda a, b: st.lax.cond(a.sum() > 0, lambda: a + b, lambda: a - b),
    lambda a, b: st.lax.while_loop(lambda c: c.sum() < 3, lambda c: c + jnp.abs(b), a)])
def test_operands_that_loops_and_branches_have_moved(run):
    """What moves belongs to the loop or the branches, for which no least number of bytes is known
    but that of the move."""
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)
    rows = NamedSharding(mesh, P("x"))
    args = [np.ones((8, 8), np.float32)] * 2
    with st.set_mesh(mesh):
        found = st.jit(run, in_shardings=(rows, rows)).lower(*args).explain()
    assert found.collectives
    for gap in found.gaps():
        assert 0 <= gap.lower_bound <= gap.received_bytes
    assert gap.source.text() in str(found)


def test_of_many_exchanges_at_a_line_each_has_the_move_of_its_own_reason():
    """Some reasons begin with the words of others."""
    mesh = AbstractMesh((8,), ("x",))
    rows = NamedSharding(mesh, P("x"))
    found = st.explain(st.jit(lambda a: lax.associative_scan(jnp.add, a), out_shardings=rows))(
        st.ShapeDtypeStruct((64, 128), np.float32, sharding=rows))
    told = [part for c in found.collectives for part in c.parts or (c,)
            if part.cause.move is not None]
    assert len(told) > 10
    for part in told:
        reason, own = part.cause.move.reason, [c._replace(place="") for c in part.record.why]
        assert {*reason} <= {*own} or {*own} <= {*reason}, (str(part.record), reason)
