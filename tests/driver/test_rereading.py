"""Every stage that is written down leads to the same later stages when it is read again.

Programs of all kinds are partitioned as their users do; each stage is then read from its text,
taken further, and compared with what came of it in the first place, character by character.
"""
from __future__ import annotations

import contextlib
import io
import json
import pathlib
import runpy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.cli.main import main
from shardtrace.driver.execution.programs import further
from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.passes import DONATED
from shardtrace.ir.text.parse import load_program, parse_program
from shardtrace.partitioner.pipeline import Options, partition
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..paths import EXAMPLES

MESH = st.make_mesh((2, 4), ("data", "model"))
EXPLICIT = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def placed(shape: tuple[int, ...], *spec: Any, mesh: Any = MESH) -> st.Array:
    numbers = np.random.default_rng(0).random(shape, np.float32)
    return st.device_put(numbers, NamedSharding(mesh, P(*spec)))


def constrained(x, w):
    h = jnp.tanh(x @ w)
    h = lax.with_sharding_constraint(h, NamedSharding(MESH, P(None, "model")))
    return (h @ w.T).sum(0)


def step(params, x):
    def loss(p):
        h = st.nn.gelu(x @ p["a"] + p["b"])
        for _ in range(2):
            h = jnp.sin(h)
        return (st.nn.softmax(h @ p["c"]) ** 2).mean()
    value, grads = st.value_and_grad(loss)(params)
    return value, {k: params[k] - 0.1 * grads[k] for k in params}


def scanned(x, ws):
    def body(h, w):
        return jnp.tanh(h @ w), h.sum()
    return st.grad(lambda ws: lax.scan(body, x, ws)[0].sum())(ws)


def captured(x):
    return x @ TABLE + jnp.arange(16.)


def uneven(x):
    return jnp.pad(x, ((1, 2), (0, 0)))[1:] * jnp.cumsum(x, 0)[:1]


def open_results(x):
    return jnp.zeros((8, 4)) + 1., x * 2.


def pads(x, y):
    """With sums that are padded before they are finished, in one literal or in several objects."""
    zero = jnp.float32(0)
    sums = [x.sum(0), (x * y).sum(0)]
    return sum(lax.pad(s, zero, [(1, 0, 0)]) for s in sums)[1:].sum()


def repeated(x, w, times):
    for _ in range(times):
        x = jnp.tanh(x @ w) + x
    return {"x": x, "sum": x.sum(0)}


TABLE = np.random.default_rng(1).random((128, 16), np.float32)

PROGRAMS: dict[str, Callable[[], Any]] = {
    "constrained": lambda: st.jit(constrained).lower(
        placed((16, 32), "data"), placed((32, 32), None, "model")),
    "step": lambda: st.jit(step).lower(
        {"a": placed((32, 64), None, "model"), "b": placed((64,), "model"),
         "c": placed((64, 32), "model")}, placed((16, 32), "data")),
    "scanned": lambda: st.jit(scanned).lower(placed((16, 32), "data"),
                                             placed((3, 32, 32), None, None, "model")),
    "captured": lambda: st.jit(captured).lower(placed((16, 128), "data", "model")),
    "uneven": lambda: st.jit(uneven).lower(placed((16, 3), "data")),
    "pads": lambda: st.jit(pads).lower(placed((16, 32), "data"), placed((16, 32), "data")),
    "results asked for": lambda: st.jit(open_results, out_shardings=(
        NamedSharding(MESH, P("model")), None)).lower(placed((8, 4), "data")),
    "values left open in parts": lambda: st.jit(lambda x, w: lax.with_sharding_constraint(
        x @ w, NamedSharding(MESH, P(P.UNCONSTRAINED, "model"))).sum(0)).lower(
            placed((16, 32), "data"), placed((32, 8))),
    "donated": lambda: st.jit(repeated, donate_argnums=0, static_argnums=2).lower(
        placed((16, 32), "data", "model"), placed((32, 32), None, "model"), 2),
    "static": lambda: st.jit(repeated, static_argnames="times", out_shardings={
        "x": NamedSharding(MESH, P("data")), "sum": None}).lower(
            placed((16, 32), "data"), placed((32, 32), "model"), times=3),
    "nothing placed": lambda: st.jit(constrained).lower(
        np.ones((16, 32), np.float32), np.ones((32, 32), np.float32)),
    "explicit": lambda: st.jit(lambda x, w: jnp.sin(x @ w).sum(0)).lower(
        placed((16, 32), "data", mesh=EXPLICIT), placed((32, 32), None, "model", mesh=EXPLICIT)),
    "by hand": lambda: st.jit(st.shard_map(
        lambda x: lax.psum(jnp.sin(x), "data"), mesh=MESH, in_specs=P("data", "model"),
        out_specs=P(None, "model"))).lower(placed((16, 32), "model")),
}


def leads_to(program: Any) -> list[str]:
    """The texts of the stages from a program on: itself twice where that changes nothing."""
    return [str(p) for p in further(program).values()]


def check(stages: dict[str, Any]) -> None:
    texts = {name: str(program) for name, program in stages.items()}
    order = list(texts)
    for i, name in enumerate(order):
        again = parse_program(texts[name])
        assert str(again) == texts[name]
        assert leads_to(again)[-len(order) + i:] == [texts[k] for k in order[i:]], name


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_stage_leads_to_the_same_later_ones(name: str) -> None:
    check(PROGRAMS[name]().stages)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_stage_of_what_is_not_optimized_does(name: str) -> None:
    traced = PROGRAMS[name]().stages["traced"]
    done = partition(traced, mesh=traced.mesh, in_shardings=[
        v.aval.spec if v.aval.has_explicit_mesh() else None for v in traced.invars],
        options=Options(optimize=False))
    assert list(done.stages)[-1] == "local"
    assert done.local.attributes.get(DONATED) == traced.attributes.get(DONATED)
    check(done.stages)


@pytest.mark.parametrize("name", ["step", "scanned", "uneven", "explicit"])
def test_each_stage_of_what_is_judged_otherwise_does(name: str) -> None:
    with st.config.override(shardtrace_objective="bytes", shardtrace_hardware="h100"):
        stages = PROGRAMS[name]().stages
    assert 'objective bytes on "h100"' in str(stages["resolved"])
    check(stages)


@pytest.mark.parametrize(("said", "why"), [
    ("objective speed", "objective must be one of 'time', 'bytes', 'memory', 'xla', got 'speed'"),
    ('objective time on "v17"', "no figures for hardware 'v17'"),
])
@pytest.mark.parametrize("level", ["traced", "resolved", "resharded", "local"])
def test_what_plans_cannot_be_judged_by_is_told(said: str, why: str, level: str) -> None:
    kind, types = ((" manual", "(a: f32[8] <- f32[8]) -> f32[8] => f32[8]") if level == "local"
                   else ("", "(a: f32[8]) -> f32[8]"))
    text = (f"mesh (x=8{kind})\nlevel {level}\n{said}\n\nprogram @f{types} {{\n"
            "  return a\n}\n")
    with pytest.raises(VerificationError, match=why):
        further(parse_program(text))


@pytest.mark.parametrize("name", ["mlp", "fsdp", "tensor_parallel", "pipeline",
                                  "mixture_of_experts", "transformer_scan", "ring_attention"])
def test_those_of_the_examples_do(name: str, tmp_path: pathlib.Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), dumping(tmp_path):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)["main"](steps=1)
    files = sorted(tmp_path.glob("*.st"))
    programs = sorted({f.name.rsplit(".", 2)[0] for f in files})
    assert programs
    for program in programs:
        stages = sorted(tmp_path.glob(f"{program}.0[0-5]-*.st"))     # the partitioner's
        read = [load_program(f) for f in stages]
        texts = [str(p) for p in read]
        for i, file in enumerate(stages):
            if file.name.endswith("-inlined.st"):
                continue            # searched for as long as the traced one; smaller ones are above
            assert leads_to(read[i])[-len(texts) + i:] == texts[i:], file.name


def test_only_optimization_can_be_left_out() -> None:
    text = "without localize\n\nprogram @f(a: f32[8]) -> f32[8] {\n  return a\n}\n"
    with pytest.raises(VerificationError, match="'localize' cannot be left out"):
        further(parse_program(text))


def test_results_that_are_open_in_parts_are_refused() -> None:
    traced = PROGRAMS["static"]().stages["traced"]
    with pytest.raises(ValueError, match="Unconstrained dims are not allowed"):
        partition(traced, mesh=traced.mesh, out_shardings=(P(P.UNCONSTRAINED), None))


@contextlib.contextmanager
def dumping(folder: pathlib.Path) -> Iterator[None]:
    saved = st.config.read("shardtrace_dump")
    st.config.update("shardtrace_dump", str(folder))
    try:
        yield
    finally:
        st.config.update("shardtrace_dump", saved)


# What a stage leads to is the same for all programs (above); a command reads it, and says that.
@pytest.mark.parametrize("name", ["constrained", "donated", "explicit", "by hand",
                                  "nothing placed"])
def test_commands_say_the_same_of_every_stage(name: str, tmp_path: pathlib.Path, capsys: Any
                                              ) -> None:
    with dumping(tmp_path):
        PROGRAMS[name]().compile()
    files = sorted(tmp_path.glob("*.st"))
    assert len(files) == 6
    said = []
    for file in files:
        assert main(["explain", str(file), "--json", "--suggest", "0"]) == 0
        found = json.loads(capsys.readouterr().out)
        collectives = [(c["kind"], c["mesh_axes"], c["received_bytes"])
                       for c in found["collectives"]]
        assert main(["collectives", str(file)]) == 0
        said.append((collectives, found["received_bytes"], found["time"],
                     capsys.readouterr().out))
        assert main(["partition", str(file)]) == 0
        said[-1] += (capsys.readouterr().out,)
    for s in said:
        assert s == said[0]


def test_a_program_is_written_once(tmp_path: pathlib.Path) -> None:
    f = st.jit(constrained)
    args = placed((16, 32), "data"), placed((32, 32), None, "model")
    with dumping(tmp_path):
        f(*args)
        f.lower(*args).compile()
        f.lower(*args)
        assert len(list(tmp_path.glob("*.st"))) == 6
        f(args[0][:8], args[1])
    assert sum("00-traced" in p.name and "constrained" in p.name
               for p in tmp_path.glob("*.st")) == 2


def test_a_traced_text_that_does_not_say_where_its_arguments_are_is_asked_about(
        tmp_path: pathlib.Path, capsys: Any) -> None:
    path = tmp_path / "f.st"
    text = ("mesh (x=2 auto)\n\nprogram @f(a: f32[8]) -> f32[] {\n"
            "  b: f32[] = reduce_sum[axes=(0,)] a\n  return b\n}\n")
    path.write_text(text)
    assert main(["collectives", str(path)]) == 2
    assert "--in \"a=P('x')\"" in " ".join(capsys.readouterr().err.split())
    assert main(["trace", str(path)]) == 0
    assert main(["collectives", str(path), "--in", "a=P('x')"]) == 0
    capsys.readouterr()
    path.write_text(text.replace("a: f32[8])", "a: f32[8] <- f32[8@x])"))
    assert main(["collectives", str(path)]) == 0
    assert capsys.readouterr().out.startswith("1 collective")
    path.write_text(text.replace("\n\nprogram", "\nlayouts free\n\nprogram"))
    assert main(["collectives", str(path)]) == 0
    assert capsys.readouterr().out.startswith("0 collectives")
