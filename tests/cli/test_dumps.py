"""The command: dumps are shown, taken further, listed and run."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.cli.main import main
from shardtrace.ir.program import Level, programs_equal
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
