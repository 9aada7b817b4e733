"""What a user reads: the three dumps of a jitted function, the types while tracing, the files.

The texts are kept in tests/golden; a change shows as a diff. All of them are programs: each must
parse back to the program that it shows.
"""
import io
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.text.parse import load_program, parse_program
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


def struct(mesh, shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def explicit_layer():
    mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)

    def layer(x, w):
        h = jnp.tanh(x @ w)
        return h.sum(axis=1)

    return layer, (struct(mesh, (32, 64), "X", None), struct(mesh, (64, 128), None, "Y"))


def auto_mlp():
    mesh = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def mlp(x, w1, w2):
        h = nn.relu(x @ w1)
        h = lax.with_sharding_constraint(h, NamedSharding(mesh, P("data", "model")))
        return h @ w2

    return mlp, (struct(mesh, (16, 8), "data"), struct(mesh, (8, 32)), struct(mesh, (32, 8)))


def manual_sum():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def total(v):
        return lax.psum(v.sum(), "x")

    return st.shard_map(total, mesh=mesh, in_specs=P("x"), out_specs=P()), (struct(mesh, (32,)),)


PROGRAMS = {"explicit_layer": explicit_layer, "auto_mlp": auto_mlp, "manual_sum": manual_sum}


@pytest.mark.parametrize("name", PROGRAMS)
def test_dumps_of_the_three_stages(name, golden):
    f, args = PROGRAMS[name]()
    traced = st.jit(f).trace(*args)
    lowered = traced.lower()
    compiled = lowered.compile()
    texts = {"traced": str(traced.jaxpr), "lowered": lowered.as_text(),
             "compiled": compiled.as_text()}
    programs = {"traced": traced.jaxpr, "lowered": lowered.program, "compiled": compiled.program}
    whole = "".join(f"# -- {stage}\n{text.rstrip()}\n\n" for stage, text in texts.items())
    golden(f"dumps/{name}.txt", whole.replace(os.path.abspath(__file__), "test_dumps.py"))
    for stage, text in texts.items():
        assert programs_equal(parse_program(text), programs[stage])


def test_a_collective_carries_its_axes_bytes_and_line():
    f, args = PROGRAMS["explicit_layer"]()
    text = st.jit(f).lower(*args).compile().as_text()
    lines = text.splitlines()
    (at,) = [i for i, x in enumerate(lines) if "= psum_invariant" in x]
    equation, cost, reason = lines[at:at + 3]
    assert "axes=('Y',)" in equation
    assert "all-reduce over Y" in cost and "test_dumps.py:" in cost
    assert "96 B received per device" in cost          # 2 * 3/4 of 16 numbers of 4 bytes
    assert "# because `reduce_sum` leaves partial sums" in reason


def test_show_types_prints_values_as_they_are_traced(golden):
    f, args = PROGRAMS["auto_mlp"]()
    out = io.StringIO()
    with st.debug.show_types(out):
        st.jit(f).trace(*args)
    golden("dumps/show_types.txt", out.getvalue())
    assert "(open: data, model)" in out.getvalue()


SCRIPT = textwrap.dedent("""
    import numpy as np
    import shardtrace as st
    import shardtrace.numpy as jnp
    from shardtrace.sharding import NamedSharding, PartitionSpec as P

    mesh = st.make_mesh((2, 4), ("x", "y"))
    table = np.arange(1000, dtype=np.float32)

    @st.jit
    def layer(v):
        h = jnp.sin(v) + table
        return h.sum(axis=0)

    layer(st.device_put(np.ones((8, 1000), np.float32), NamedSharding(mesh, P("x", "y"))))
""")


def run_script(tmp_path: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment}, cwd=tmp_path)


def test_dump_directory_has_every_stage_of_the_users_programs(tmp_path):
    run_script(tmp_path, SHARDTRACE_DUMP=str(tmp_path / "dump"))
    stages = ["traced", "inlined", "resolved", "resharded", "local", "optimized"]
    files = sorted((tmp_path / "dump").glob("*.st"))
    assert [p.name for p in files] == [f"layer.{i:02d}-{s}.st" for i, s in enumerate(stages)]
    for path in files:
        assert path.read_text().startswith("# after ")
        program = load_program(path)
        assert len(program.consts) == 1      # the large constant stands in an .npz beside the text


def test_types_are_printed_for_every_trace_on_request(tmp_path):
    printed = run_script(tmp_path, SHARDTRACE_DEBUG="trace").stderr
    assert "trace layer" in printed
    (line,) = [x for x in printed.splitlines() if " h " in x]
    assert "script.py:12" in line and "float32[8,1000]" in line and "(open: x, y)" in line


def test_dumps_do_not_depend_on_the_seed_of_hashes(tmp_path):
    program = """
import numpy as np, shardtrace as st, shardtrace.numpy as jnp
from shardtrace.sharding import PartitionSpec as P
mesh = st.make_mesh((4, 2), ("data", "model"))
put = lambda x, *spec: st.device_put(x, st.NamedSharding(mesh, P(*spec)))
loss = lambda w, x: (jnp.tanh(x @ w["a"]) @ w["b"]).mean()
w = {"a": put(np.ones((8, 16), np.float32), None, "model"),
     "b": put(np.ones((16, 8), np.float32), "model")}
x = put(np.ones((16, 8), np.float32), "data")
step = st.jit(st.grad(loss))
step(w, x)
print(st.explain(step)(w, x))
"""
    found = set()
    for seed in range(2):
        folder = tmp_path / str(seed)
        done = subprocess.run([sys.executable, "-c", program], check=True, text=True,
                              capture_output=True, env={**os.environ, "PYTHONHASHSEED": str(seed),
                                                        "SHARDTRACE_DUMP": str(folder)})
        files = sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())
        assert files
        found.add((done.stdout, *[(f, (folder / f).read_bytes()) for f in files]))
    assert len(found) == 1
