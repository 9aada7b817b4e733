"""The command: dumps are shown, taken further, listed and run."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.cli.main import main
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.program import Level
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import save_program
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


@pytest.fixture
def stages(tmp_path):
    """A matmul with a sharded contraction, every stage saved; {stage: path}."""
    mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)

    def struct(shape, *spec):
        return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))

    lowered = st.jit(lambda x, w: jnp.sin(x @ w)).lower(
        struct((4, 8), "X", "Y"), struct((8, 4), "Y"))
    paths = {}
    for name, program in lowered.stages.items():
        paths[name] = tmp_path / f"{name}.st"
        save_program(program, paths[name])
    return paths, lowered.stages


def test_show_prints_the_program_and_sums_it_up(stages, capsys):
    paths, programs = stages
    assert main(["show", str(paths["optimized"])]) == 0
    out = capsys.readouterr().out
    text, _, summary = out.partition("\nlocal program")
    assert programs_equal(parse_program(text), programs["optimized"])
    assert "1 collective," in summary and "all-reduce over Y (4 devices)" in summary


def test_partition_takes_a_traced_program_further(stages, capsys):
    paths, programs = stages
    assert main(["partition", str(paths["traced"]), "--in", "x=P('X', 'Y')",
                 "--in", "w=P('Y', None)"]) == 0
    assert programs_equal(parse_program(capsys.readouterr().out), programs["optimized"])


@pytest.mark.parametrize("stage", ["resolved", "resharded", "local", "optimized"])
@pytest.mark.parametrize("executor", ["simulated", "per_device"])
def test_run_computes_what_numpy_does_from_any_stage(stages, stage, executor, capsys, tmp_path):
    paths, programs = stages
    x, w = np.ones((4, 8), np.float32), np.full((8, 4), 0.5, np.float32)
    np.savez(tmp_path / "args.npz", x=x, w=w)
    assert main(["run", str(paths[stage]), "--load", str(tmp_path / "args.npz"),
                 "--executor", executor, "--values"]) == 0
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first.startswith("float32[4@X,4]")
    values = np.array(rest.replace("[", " ").replace("]", " ").split(), float).reshape(4, 4)
    np.testing.assert_allclose(values, np.sin(x @ w), rtol=1e-5)
    assert programs["optimized"].level is Level.LOCAL


@pytest.mark.parametrize("arguments, phrase", [
    (["show", "no-such-file.st"], "No such file"),
    (["partition", "{traced}", "--in", "q=P('X')"], "NAME one of x, w"),
    (["partition", "{traced}", "--in", "x=3"], "is no spec"),
    (["partition", "{traced}", "--stage", "cooked"], "no stage 'cooked'"),
    (["run", "{optimized}", "--in", "x=P('X')"], "has its shardings already"),
])
def test_mistakes_are_one_message_and_exit_status_2(stages, arguments, phrase, capsys):
    paths, _ = stages
    filled = [a.format(**{k: str(v) for k, v in paths.items()}) for a in arguments]
    assert main(filled) == 2
    error = capsys.readouterr().err
    assert phrase in error and "Traceback" not in error


@pytest.mark.parametrize("verb, wanted, other", [
    ("partition", {"propagate", "localize", "combine", "verify"}, "rematerialize"),
    ("explain", {"propagate", "localize", "verify"}, "rematerialize"),
    ("run", {"localize", "verify", "rematerialize"}, "join-slices"),
])
def test_the_time_of_passes_is_told_beside_the_answer(stages, verb, wanted, other, capsys):
    words = [verb, str(stages[0]["traced"]), "--in", "x=P('X', 'Y')", "--in", "w=P('Y', None)"]
    assert main(words) == 0
    plain = capsys.readouterr()
    assert main([*words, "--time-passes"]) == 0
    told = capsys.readouterr()
    assert told.out == plain.out
    rows = [line.split("\u2502") for line in told.err.removeprefix(plain.err).splitlines()]
    found = {name.strip(): [cell.strip() for cell in cells]
             for _, name, *cells, _ in [row for row in rows if len(row) == 8]}
    assert wanted <= set(found) and other not in found
    before, after = found["localize"][-2:]
    assert 0 < int(before) <= int(after) + 1


def test_what_passes_within_a_stage_and_in_bodies_leave_lies_beside_the_stages(tmp_path):
    def f(x):
        def body(c, row):
            return jnp.sin(c), row // 3
        return lax.scan(body, x, jnp.arange(64).reshape(8, 8)), st.jit(jnp.cos)(
            jnp.concatenate([x[1:], x[:1]]))

    x = np.ones((8, 8), np.float32)
    with st.config.override(shardtrace_dump=str(tmp_path)):
        want = st.jit(f)(x)
    stages = [path.name.split(".")[1] for path in sorted(tmp_path.glob("*.st"))]
    assert stages[:6] == ["00-traced", "01-inlined", "02-resolved", "03-resharded", "04-local",
                          "05-optimized"]
    passes = {path.name.split(".", 1)[1]: path for path in (tmp_path / "passes").iterdir()}
    (body,) = [path for name, path in passes.items() if name.endswith("rounded-integers.scan1.st")]
    assert "floor_div" in body.read_text() and "in the program of `scan1`" in body.read_text()
    inner = parse_program(passes["00b-inline.st"].read_text())
    assert main(["run", str(passes["00b-inline.st"]), "--no-progress"]) == 0
    assert "jit" not in [e.op.name for e in inner.eqns] and want is not None
