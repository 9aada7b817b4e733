"""Ranks of an MPI job: the tests of every engine, processes, losses, and how jobs end.

Each starts a job, which takes seconds: many programs share one.
"""
from __future__ import annotations

import functools
import json
import pathlib
import re
import subprocess

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.settings.context import config

from ..paths import EXAMPLES, ROOT
from ..user_files import example_module
from .process_programs import PROGRAMS
from .ranks import mpiexec, run

MODELS = ("mlp", "transformer", "mixture_of_experts")
STEPS = 3


def _pytest(count: int, *arguments: str) -> None:
    done = mpiexec(count, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--color=no",
                   *arguments, cwd=ROOT)
    passed = re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and len(passed) == count, done.stdout[-6000:] + done.stderr[-2000:]


def test_what_every_engine_does_ranks_do() -> None:
    _pytest(4, "-m", "every_engine and not slow", "tests/engines")


def test_collectives_on_fewer_ranks_than_devices() -> None:
    _pytest(3, "--engine", "mpi", "-k", "bfloat16",
            "tests/runtime/both_executors/test_collectives.py")


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_all_programs_of_both_executors_run_on_ranks(count: int) -> None:
    _pytest(count, "--engine", "mpi", "--hypothesis-seed=0", "tests/runtime/both_executors")


# -- processes -------------------------------------------------------------------------------------

PROCESSES = '''
import io, json, pathlib, re, sys, tempfile
from contextlib import redirect_stdout
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental import multihost_utils

sys.path.insert(0, "..")
from tests.paths import DOCS
from tests.arrays.processes import two_processes

st.distributed.initialize(engine="mpi", num_processes=2)
me = st.process_index()
assert st.distributed.is_initialized() and st.process_count() == 2
assert [d.id for d in st.local_devices()] == [4 * me + i for i in range(4)]

# What JAX gives in two processes.
known = two_processes.names(st, jnp, multihost_utils)
for row in two_processes.rows():
    found = two_processes.outcome(row[0], known)
    if found != row[1 + me]:
        print("wrong", json.dumps([me, row[0], row[1 + me], found]))

# The blocks of the page on loading, which end with a checkpoint.
blocks = re.findall(r"^```python\\n(.*?)^```$", (DOCS / "loading.md").read_text(),
                    re.MULTILINE | re.DOTALL)
st.distributed.shutdown()
assert st.process_count() == 1
st.config.update("engine", "mpi")                 # which the page's `initialize()` goes by
names, said = {"__name__": "__main__"}, io.StringIO()
with redirect_stdout(said):
    exec("\\n".join(blocks[1:]), names)
assert said.getvalue().count("losses") == (me == 0), said.getvalue()

# Host functions: each place calls once, where its first device is; all get what it returns.
mesh = st.make_mesh((8,), ("x",))
rows = st.NamedSharding(mesh, st.P("x"))
x = st.make_array_from_callback((16,), rows, lambda i: np.arange(16, dtype=np.float32)[i])
seen = []
def counted(v):
    seen.append(np.shape(v))
    return np.float32(len(seen))
def f(x):
    st.debug.print("total {}", x.sum())
    n = st.experimental.io_callback(counted, st.ShapeDtypeStruct((), np.float32), x, ordered=True)
    return x.sum() + n
said = io.StringIO()
with redirect_stdout(said):
    found = [float(st.jit(f)(x)) for _ in range(2)]
assert found == [121, 122] and len(seen) == 2 * (me == 0), (found, seen)
assert said.getvalue() == ("total 120.0\\ntotal 120.0\\n" if me == 0 else "")

# Checkpoints: each rank writes its blocks.
folder = [str(tempfile.mkdtemp()) if me == 0 else ""]
folder = bytes(multihost_utils.broadcast_one_to_all(np.frombuffer(
    folder[0].encode().ljust(200), np.uint8))).decode().strip()
keys = st.device_put(st.random.split(st.random.key(3), 8), rows)
tree = {"x": x, "half": x.astype("bfloat16"), "eighth": x.astype("float8_e4m3fn"), "keys": keys}
st.checkpoints.save(folder, tree)
again = st.checkpoints.restore(folder)
for name, value in tree.items():
    for a, b in zip(value.addressable_shards, again[name].addressable_shards, strict=True):
        assert a.device == b.device and a.data.value.tobytes() == b.data.value.tobytes(), name
if me == 0:
    written = sorted(p.name for p in pathlib.Path(folder).rglob("*.safetensors"))
    print("files", json.dumps(written))

# Narrow values and keys on the wire; values that differ; arrays in another order of devices.
moved = st.device_put(tree["eighth"], st.NamedSharding(mesh, st.P()))
np.testing.assert_array_equal(np.asarray(moved, np.float32), np.asarray(
    np.arange(16, dtype=np.float32).astype(moved.dtype), np.float32))
drawn = st.jit(lambda k: st.random.normal(k[0], (4,)))(keys)
np.testing.assert_allclose(np.asarray(drawn), np.asarray(
    st.random.normal(st.random.split(st.random.key(3), 8)[0], (4,))), rtol=1e-6)
turned = st.sharding.Mesh(np.array(st.devices())[::-1], ("x",))
y = st.device_put(x, st.NamedSharding(turned, st.P("x")))
assert float(st.jit(lambda y: (y * jnp.arange(16)).sum())(y)) == 1240
small = st.sharding.Mesh(np.array(st.local_devices()), ("y",))      # of this process alone
assert float(st.jit(jnp.sum)(st.device_put(np.ones(8) * me, st.NamedSharding(small, st.P("y"))))
             ) == 8 * me
try:
    st.device_put(np.ones(16) * me, rows)
except AssertionError as e:
    assert "is not the same on each process" in str(e)
else:
    raise AssertionError("device_put took values that differ")
print("process", me, "ends")
'''


def test_ranks_are_the_processes_that_simulated_ones_are() -> None:
    said = run(2, PROCESSES)
    assert "wrong" not in said, said
    assert said.count("ends") == 2
    assert len(json.loads(said.split("files ")[1].splitlines()[0])) == 2


SAME = '''
import json, sys
sys.path.insert(0, "..")
import shardtrace as st
from shardtrace.engines.mpi import link
from tests.engines.process_programs import PROGRAMS
link.PIECE = 96                                   # so that messages are in several pieces
st.distributed.initialize(engine="mpi")
for name, program in PROGRAMS.items():
    print("found", json.dumps([name, st.process_index(), program()]), flush=True)
'''


def test_ranks_find_what_simulated_processes_find() -> None:
    said = run(4, SAME)
    found = {(name, i): value for name, i, value in (
        json.loads(line[6:]) for line in said.splitlines() if line.startswith("found"))}
    for name, program in PROGRAMS.items():
        with config.override(jax_num_cpu_devices=8):
            for i, value in enumerate(st.distributed.run_processes(program, 4)):
                assert found[name, i] == json.loads(json.dumps(value)), (name, i)


# -- losses ----------------------------------------------------------------------------------------

TRAIN = '''
import json, sys
sys.path.insert(0, "..")
import shardtrace as st
from tests.user_files import example_module
st.distributed.initialize(engine="mpi")
for name in sys.argv[2:]:
    losses = example_module(name).main(steps=int(sys.argv[1]))
    if st.process_index() == 0:
        print("found", json.dumps([name, losses]))
'''


@functools.cache
def losses_on(engine: str, name: str) -> list[float]:
    """The losses of an example's steps in this process, on eight devices."""
    with config.override(jax_num_cpu_devices=8, engine=engine):
        return example_module(name).main(steps=STEPS)


@pytest.mark.parametrize("count", [2, 4])
def test_losses_are_those_of_the_simulation(count: int) -> None:
    said = run(count, TRAIN, [str(STEPS), *MODELS])
    found = dict(json.loads(line[6:]) for line in said.splitlines() if line.startswith("found"))
    assert set(found) == set(MODELS)
    for name in MODELS:
        # the simulation computes blocks of all devices in one product: other roundings
        np.testing.assert_allclose(found[name], losses_on("simulated", name), rtol=1e-6,
                                   err_msg=name)
        assert found[name] == losses_on("per_device", name), name


def test_the_example_trains_on_ranks_as_in_simulated_processes(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = mpiexec(4, str(EXAMPLES / "engines" / "train_mpi.py"), str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    with config.override(jax_num_cpu_devices=8):
        losses, *others = st.distributed.run_processes(example_module("engines/train_mpi").main, 4)
    assert losses[-1] < losses[0] and all(x == losses for x in others)
    wanted = capsys.readouterr().out.splitlines()
    assert done.stdout.splitlines() == wanted
    assert wanted[0] == "4 processes, 8 devices" and len(wanted) == 11
    state = st.checkpoints.restore(str(tmp_path / "state"))
    assert state["up"].shape == (32, 64)


# -- how jobs end ----------------------------------------------------------------------------------

ENDS = '''
import os, sys, time
import numpy as np
import shardtrace as st
from shardtrace import lax
from shardtrace.experimental import multihost_utils

st.distributed.initialize(engine="mpi", heartbeat_timeout_seconds=3)
me, how = st.process_index(), sys.argv[1]
mesh = st.make_mesh((8,), ("x",))
x = st.make_array_from_callback((16,), st.NamedSharding(mesh, st.P("x")),
                                lambda i: np.arange(16, dtype=np.float32)[i])

@st.jit
def step(x):
    return x / x.sum()

@st.jit
def split(x):
    def body(x):
        return lax.cond(lax.axis_index("x") >= 6, lambda: lax.pmax(x, "x"),
                        lambda: lax.psum(x, "x"))
    return st.shard_map(body, mesh=mesh, in_specs=st.P("x"), out_specs=st.P("x"),
                        check_vma=False)(x)

step(x)
multihost_utils.sync_global_devices("all have begun")
open(os.path.join(sys.argv[2], str(os.getpid())), "w").close()
if me == 1:
    if how in ("killed", "raises", "ends"):
        time.sleep(2)                       # until the others wait
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "raises":
        raise KeyError("no such file")
    if how == "ends":
        sys.exit()
    if how == "sleeps":
        time.sleep(1000)
    if how == "program":
        def step(x):
            return x / (x.sum() + 1)
        step = st.jit(step)
    if how == "call":
        multihost_utils.process_allgather(np.ones(3))
if how == "split":
    split(x)
while True:
    x = step(x)
'''
WAITS = r"process %d waits in the jitted function `step` at <string>:\d+"
HOW = {
    "killed": (r"process \d was ended while it waited for processes? [\d, and]*1",
               r"signal 9 \(Killed\)"),
    "raises": (r"^KeyError: 'no such file'$",
               r"process 1 raised an exception, and others wait for it",
               r"note: process 1 raised KeyError: 'no such file'", WAITS % 0, WAITS % 2),
    "ends": (r"process 1 ended, and others wait for it", r"note: process 1 has ended", WAITS % 2),
    "sleeps": (r"process 1 did not come in time, and others wait for it",
               r"note: process 1 is computing", WAITS % 0, WAITS % 2),
    "program": (r"`step` is called with different programs, .* by process 0 and .* by process 1",
                WAITS % 0, WAITS % 1),
    "call": (r"the processes wait at different calls", r"process 1 waits in `process_allgather` at",
             WAITS % 0),
    "split": (r"the processes wait at different calls",
              r"process 0 waits in `psum(_invariant)?` of the jitted function `split` at",
              r"process 2 waits in `pmax` of the jitted function `split` at"),
}


@pytest.mark.parametrize("how", HOW)
def test_a_job_that_cannot_go_on_ends_and_says_who_waits_where(how: str, tmp_path: pathlib.Path
                                                              ) -> None:
    done = mpiexec(3, "-c", ENDS, how, str(tmp_path), timeout=120)
    assert done.returncode != 0
    for pattern in HOW[how]:
        assert re.search(pattern, done.stderr, re.MULTILINE), done.stderr
    numbers = [p.name for p in tmp_path.iterdir()]
    assert len(numbers) == 3
    left = subprocess.run(["ps", "-o", "pid=,stat=", "-p", ",".join(numbers)], text=True,
                          capture_output=True).stdout.split("\n")
    assert [line for line in left if line.strip() and "Z" not in line] == []
