"""The pipeline: its stages, their dumps, what is said of a pass that fails; the rewrites."""
from __future__ import annotations

import gc

import numpy as np
import pytest

import shardtrace.partitioner.pipeline as pipeline
from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.ops.communication.collective_kinds import total_received
from shardtrace.ir.passes import Pass
from shardtrace.ir.program import Level, Program
from shardtrace.ir.rewriting.inline import inline
from shardtrace.ir.rewriting.unread import drop_dead
from shardtrace.ir.settings.context import config
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_program as parse
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.optimization.common_subexpressions import dedupe
from shardtrace.partitioner.optimization.own_blocks import FOLD_GATHERS, FORM_SCATTERS
from shardtrace.partitioner.pipeline import Options, partition

from . import lockstep
from .building import Build, auto, literal

MESH = auto(2, 4, names="xy")


def example():
    b = Build(MESH, "layer")
    x, w = b.arg(8, 8, name="x"), b.arg(8, 8, name="w")
    h = b.dot(x, w)
    return b.program(b.op("max", h, literal(0)), b.op("cumsum", h, axis=1, reverse=False))


SPECS = [P("x", "y"), P("y")]


def test_stages_are_kept_in_order_and_each_is_a_program_of_its_level():
    done = partition(example(), mesh=MESH, in_shardings=SPECS)
    assert list(done.stages) == ["traced", "inlined", "resolved", "resharded", "local",
                                 "optimized"]
    assert [p.level for p in done.stages.values()] == [
        Level.TRACED, Level.TRACED, Level.RESOLVED, Level.RESHARDED, Level.LOCAL, Level.LOCAL]
    assert done.local is done.stages["optimized"]
    assert done.resolved is done.stages["resolved"]
    assert done.local.arg_names == ("x", "w")
    assert [t.str_short() for t in done.local.global_in] == ["int32[8@x,8@y]", "int32[8@y,8]"]
    assert list(partition(example(), mesh=MESH, options=Options(optimize=False)).stages)[-1] == (
        "local")


@pytest.mark.parametrize("stage", ["traced", "inlined", "resolved", "resharded", "local",
                                   "optimized"])
def test_every_stage_is_text_that_can_be_read_back(stage):
    program = partition(example(), mesh=MESH, in_shardings=SPECS).stages[stage]
    assert programs_equal(parse(str(program)), program)


def test_dumps_are_numbered_and_begin_with_where_they_come_from(tmp_path):
    with config.override(shardtrace_dump=str(tmp_path)):
        for specs in (SPECS, SPECS, [P("x"), P("y")]):       # the second is the first again
            partition(example(), mesh=MESH, in_shardings=specs)
    name = example().name
    stages = ["00-traced.st", "01-inlined.st", "02-resolved.st", "03-resharded.st",
              "04-local.st", "05-optimized.st"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *(f"{name}.{s}" for s in stages), *(f"{name}.2.{s}" for s in stages)]
    first = (tmp_path / f"{name}.04-local.st").read_text().splitlines()[0]
    assert first.startswith("# after localize, ") and first.endswith("4 equations, 1 collectives")
    text = (tmp_path / f"{name}.05-optimized.st").read_text()
    assert parse(text).level is Level.LOCAL


def test_a_pass_that_leaves_an_invalid_program_is_named_and_its_input_kept(tmp_path, monkeypatch):
    def broken(program: Program, job) -> Program:
        return program.replace(eqns=program.eqns[1:])

    steps = list(pipeline.PIPELINE)
    steps[0] = Pass("break", "inlined", broken)
    monkeypatch.setattr(pipeline, "PIPELINE", tuple(steps))
    here, dumps = tmp_path / "here", tmp_path / "dumps"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(VerificationError, match="pass `break` left an invalid program") as caught:
        partition(example(), mesh=MESH)
    assert "set SHARDTRACE_DUMP to a folder" in str(caught.value)
    assert not list(here.iterdir())
    with config.override(shardtrace_dump=str(dumps)), pytest.raises(VerificationError) as caught:
        partition(example(), mesh=MESH)
    assert str(dumps / "repro.st") in str(caught.value)
    kept = (dumps / "repro.st").read_text()
    assert kept.startswith("# input of pass break")
    assert programs_equal(parse(kept), example())


def test_a_trial_that_leaves_an_invalid_program_writes_nothing(tmp_path, monkeypatch):
    def broken(program: Program, job) -> Program:
        return program.replace(eqns=program.eqns[1:])

    steps = (Pass("break", "inlined", broken), *pipeline.PIPELINE[1:])
    monkeypatch.setattr(pipeline, "PIPELINE", steps)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(VerificationError, match="pass `break` left an invalid program") as caught:
        partition(example(), mesh=MESH, options=Options(dump=False))
    assert "repro.st" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_garbage_collection_is_paused_and_restored():
    assert gc.isenabled()
    seen = []
    steps = (Pass("look", "inlined", lambda p, job: (seen.append(gc.isenabled()), p)[1]),)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "PIPELINE", steps + pipeline.PIPELINE[1:])
        partition(example(), mesh=MESH)
    assert seen == [False] and gc.isenabled()


def test_partitioning_does_not_depend_on_the_number_of_devices():
    big = auto(128, 512, names="xy")
    b = Build(big)
    x, w, v = b.arg(1024, 1024), b.arg(1024, 4096), b.arg(4096, 1024)
    y = b.dot(b.op("max", b.dot(x, w), literal(0)), v)
    done = partition(b.program(y), mesh=big, in_shardings=[P("x"), P(None, "y"), P("y")])
    assert [c.op for c in collectives(done.local)] == ["psum_invariant"]
    assert total_received(done.local) == 2 * 511 * 8 * 1024 * 4 // 512
    small = auto(2, 2, names="xy")
    again = Build(small)
    args = again.arg(1024, 1024), again.arg(1024, 4096), again.arg(4096, 1024)
    z = again.dot(again.op("max", again.dot(*args[:2]), literal(0)), args[2])
    other = partition(again.program(z), mesh=small, in_shardings=[P("x"), P(None, "y"), P("y")])
    assert [e.op for e in other.local.eqns] == [e.op for e in done.local.eqns]


def test_captured_arrays_stay_whole_and_are_sliced():
    b = Build(MESH)
    x = b.arg(8, 8)
    value = np.arange(64, dtype=np.int32).reshape(8, 8)
    program = b.program(b.op("add", x, b.const(value)))
    done = partition(program, mesh=MESH, in_shardings=[P("x", "y")])
    assert collectives(done.local) == []
    assert [e.op.name for e in done.local.eqns] == ["all_slice", "all_slice", "add"]
    got = lockstep.run_local(done.local, [value])
    assert np.array_equal(got[0], 2 * value)


# -- inlining --------------------------------------------------------------------------------------

def test_calls_are_inlined_with_fresh_variables_and_their_shardings_become_constraints():
    inner = Build(MESH, "inner")
    a = inner.arg(8, 8)
    called = inner.program(inner.op("neg", inner.op("neg", a)))
    b = Build(MESH)
    x = b.arg(8, 8)
    (y,) = b.op("jit", x, jaxpr=called, name="inner",
                in_shardings=(NamedSharding(MESH, P("x")),), out_shardings=(None,))
    (z,) = b.op("jit", y, jaxpr=called, name="inner", in_shardings=(None,), out_shardings=(None,))
    flat = inline(b.program(z, y))
    assert [e.op.name for e in flat.eqns] == ["sharding_constraint"] + ["neg"] * 4
    assert len({v for e in flat.eqns for v in e.outvars}) == 5
    done = partition(b.program(z, y), mesh=MESH)
    assert done.in_specs[0].entries == (("x",), ())


# -- rewrites --------------------------------------------------------------------------------------

def local_program(f):
    """A per-device program over (x=2, y=4) of one block i32[8,8] that varies over both axes."""
    manual = MESH.update_axis_types({a: type(MESH.axis_types[0]).Manual for a in "xy"})
    b = Build(manual)
    x = b.arg(8, 8)
    v = b.op("pvary", x, axes=("x", "y"))
    results = f(b, v)
    results = results if isinstance(results, tuple) else (results,)
    return b.program(*results).replace(level=Level.LOCAL)


def names(program):
    return [e.op.name for e in program.eqns[1:]]


def gather(b, x, axis, n, dim):
    return b.op("all_gather_invariant", x, axis_name=(axis,), axis_size=n,
                all_gather_dimension=dim, tiled=True)


def own(b, x, axis, n, dim):
    return b.op("all_slice", x, axes=(axis,), dimension=dim, axis_size=n)


def test_equal_collectives_are_done_once():
    p = local_program(lambda b, x: (gather(b, x, "x", 2, 0), gather(b, x, "x", 2, 0),
                                    gather(b, x, "x", 2, 1)))
    q = dedupe(p)
    assert names(q) == ["all_gather_invariant"] * 2
    assert q.outvars[0] is q.outvars[1]


def test_a_slice_of_what_was_gathered_is_the_block():
    p = local_program(lambda b, x: own(b, gather(b, x, "x", 2, 0), "x", 2, 0))
    assert names(drop_dead(FOLD_GATHERS(p))) == []
    p = local_program(lambda b, x: own(b, gather(b, x, "x", 2, 0), "x", 2, 1))
    assert names(FOLD_GATHERS(p)) == ["all_gather_invariant", "all_slice"]


def test_an_all_reduce_of_which_one_block_is_kept_is_a_reduce_scatter():
    def f(b, x):
        return own(b, b.op("psum_invariant", x, axes=("x", "y")), "y", 4, 1)

    p = local_program(f)
    q = FORM_SCATTERS(p)
    assert names(q) == ["reduce_scatter", "psum_invariant"]
    assert q.eqns[-1].outvars[0].aval is p.eqns[-1].outvars[0].aval
    devices = lockstep.devices_of(MESH)
    block = {d: np.arange(64, dtype=np.int32).reshape(8, 8) for d in devices}
    runs = [lockstep.Lockstep(MESH, devices).program(r, [block])[0] for r in (p, q)]
    for d in devices:
        assert np.array_equal(runs[0][d], runs[1][d])


def test_an_all_reduce_that_is_read_whole_stays():
    def f(b, x):
        s = b.op("psum_invariant", x, axes=("y",))
        return own(b, s, "y", 4, 1), s

    assert names(FORM_SCATTERS(local_program(f))) == ["psum_invariant", "all_slice"]


def test_a_sum_of_which_each_keeps_a_block_comes_before_a_transpose_of_it():
    def f(b, x):
        turned = b.op("transpose", x, permutation=(1, 0))
        return own(b, b.op("psum_invariant", turned, axes=("x", "y")), "y", 4, 1)

    p = local_program(f)
    q = FORM_SCATTERS(FORM_SCATTERS(p))
    assert names(q) == ["reduce_scatter", "transpose", "psum_invariant"]
    scatter = next(e for e in q.eqns if e.op.name == "reduce_scatter")
    assert scatter.params["scatter_dimension"] == 0
    devices = lockstep.devices_of(MESH)
    block = {d: np.arange(64, dtype=np.int32).reshape(8, 8) + 100 * n
             for n, d in enumerate(devices)}
    runs = [lockstep.Lockstep(MESH, devices).program(r, [block])[0] for r in (p, q)]
    for d in devices:
        assert np.array_equal(runs[0][d], runs[1][d])


def test_what_nothing_reads_is_dropped():
    p = local_program(lambda b, x: (gather(b, x, "x", 2, 0), b.op("neg", x))[1])
    assert names(drop_dead(p)) == ["neg"]
