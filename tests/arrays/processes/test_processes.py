"""Programs of several simulated processes: what each sees, what they compute, how they fail."""
from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, runtime
from shardtrace.arrays.processes import simulated
from shardtrace.arrays.processes.simulated import deal_devices
from shardtrace.arrays.storage import LocalBlocks, Stored
from shardtrace.distributed import run_processes
from shardtrace.errors import ProcessMismatchError
from shardtrace.experimental import multihost_utils
from shardtrace.ir.settings.context import STATE, config
from shardtrace.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardtrace.sharding import PartitionSpec as P

from ...paths import DOCS
from . import two_processes

LOADING = (DOCS / "loading.md").read_text()


pytestmark = pytest.mark.usefixtures("impatient_processes")


def rows(axis_type=AxisType.Auto):
    return NamedSharding(st.make_mesh((8,), ("x",), axis_types=(axis_type,)), P("x"))


def numbers(n=16, sharding=None, dtype=np.float32):
    """The numbers from 0 to n, of which each process makes its own."""
    sharding = rows() if sharding is None else sharding
    return st.make_array_from_callback((n,), sharding, lambda i: np.arange(n, dtype=dtype)[i])


# -- as JAX with two real processes ----------------------------------------------------------------

def test_two_processes_see_what_those_of_jax_see():
    def program():
        known = two_processes.names(st, jnp, multihost_utils)
        return [two_processes.outcome(row[0], known) for row in two_processes.rows()]

    found = run_processes(program, 2)
    table = two_processes.rows()
    wrong = [(row[0], i, row[1 + i], got[n]) for n, row in enumerate(table)
             for i, got in enumerate(found) if got[n] != row[1 + i]]
    assert wrong == []
    assert len(table) > 120


# -- the recipes -----------------------------------------------------------------------------------

@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_blocks_of_the_page_on_loading_run(count, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", LOADING, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    alone = {}
    exec(blocks[0], alone)
    script = compile("\n".join(blocks[1:]), "loading.md", "exec")

    def program():
        names = {"__name__": "__main__"}
        exec(script, names)
        return names["losses"]

    losses = run_processes(program, count)
    assert all(x == losses[0] for x in losses)
    out = capsys.readouterr().out
    assert out.count("losses") == 1 and out.count("[1. 1. 1. 1.]") == count
    assert out.count("Array(shape=(16, 4), dtype=float32)") == (count if count > 1 else 0)


def test_the_page_shows_the_error_of_a_missing_process():
    shown = re.search(r"```text\n(.*?)```", LOADING, re.DOTALL)[1]
    for phrase in ("waits for other processes in vain: process 2 ended, and others wait for it",
                   "this process waits here", "note: process 2 has ended"):
        assert phrase in shown


def test_training_gives_the_numbers_of_one_process():
    data = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

    def program():
        mesh = st.make_mesh((4, 2), ("data", "model"))
        x = st.make_array_from_callback((16, 8), NamedSharding(mesh, P("data")), lambda i: data[i])
        w = st.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P(None, "model")))

        @st.jit
        def step(w, x):
            value, g = st.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
            return w - 0.1 * g, value

        losses = []
        for _ in range(4):
            w, value = step(w, x)
            losses.append(float(value))
        return losses, multihost_utils.process_allgather(w, tiled=True)

    (expected, weights), = run_processes(program, 1)
    for losses, w in run_processes(program, 4):
        assert losses == expected
        np.testing.assert_array_equal(w, weights.reshape(w.shape))


# -- who is who ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("count", "given", "owners"), [
    (4, None, (0, 0, 1, 1, 2, 2, 3, 3)),
    (3, None, (0, 0, 0, 1, 1, 1, 2, 2)),
    (1, None, (0,) * 8),
    (2, 3, (0, 0, 0, 1, 1, 1)),
    (3, [1, 3, 2], (0, 1, 1, 1, 2, 2)),
])
def test_devices_are_dealt_out_in_order(count, given, owners):
    assert deal_devices(count, given) == owners
    seen = run_processes(lambda: [d.id for d in st.local_devices()], count,
                         local_device_count=given)
    assert seen == [[d for d, p in enumerate(owners) if p == i] for i in range(count)]


@pytest.mark.parametrize(("arguments", "message"), [
    ((9, None), "8 devices cannot be dealt to 9 processes"),
    ((2, 0), "every process needs a device"),
    ((2, [1]), "one number for each of 2 processes, got 1"),
])
def test_a_process_without_devices_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        deal_devices(*arguments)


def test_a_thread_sees_what_its_process_sees():
    mesh = st.make_mesh((4, 2), ("x", "y"))
    with runtime.as_process(2, of=4):
        assert (st.process_index(), st.process_count(), st.local_device_count()) == (2, 4, 2)
        assert st.device_count() == 8 and st.process_indices() == [0, 1, 2, 3]
        assert [d.id for d in mesh.local_devices] == [4, 5] and mesh.is_multi_process
        assert mesh.local_mesh.shape_tuple == (("x", 1), ("y", 2))
        assert [d.local_hardware_id for d in mesh.local_devices] == [0, 1]
        assert jnp.ones(3).devices() == {st.devices()[4]}
        with runtime.as_process(2, of=4), runtime.as_process(0, of=2):
            assert [d.id for d in mesh.local_devices] == [0, 1, 2, 3]
        assert st.process_index() == 2
    assert not mesh.is_multi_process and st.process_count() == 1
    assert mesh.local_mesh is mesh


def test_several_threads_make_a_world_of_their_own():
    def process(i):
        with runtime.as_process(i, of=4):
            x = numbers()
            return float(x.sum()), [s.data.tolist() for s in x.addressable_shards]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(process, range(4)))
        again = list(pool.map(process, range(4)))
    assert results == again
    assert results == [(120.0, [[4.0 * i, 4.0 * i + 1], [4.0 * i + 2, 4.0 * i + 3]])
                       for i in range(4)]


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="no process 4 of 4"), runtime.as_process(4, of=4):
        pass
    with pytest.raises(ValueError, match="needs a process"):
        run_processes(print, 0)


def test_a_process_is_one_thread_at_a_time():
    inside, done = threading.Event(), threading.Event()

    def process():
        with runtime.as_process(0, of=2):
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=process, name="first")
    thread.start()
    inside.wait(10)
    try:
        with pytest.raises(RuntimeError, match="process 0 of 2 runs already, in thread 'first'"), \
                runtime.as_process(0, of=2):
            pass
    finally:
        done.set()
        thread.join()


def test_context_and_configuration_of_the_caller_hold_in_all_processes():
    mesh = st.make_mesh((8,), ("x",))

    def program(i, more, *, last):
        return i, more, last, STATE.mesh is mesh, config.jax_enable_x64, jnp.arange(2).dtype.name

    with st.set_mesh(mesh), st.enable_x64():
        found = run_processes(program, 2, 5, last=7)
    assert found == [(i, 5, 7, True, True, "int64") for i in range(2)]
    assert run_processes(lambda a, b=2: (a, b), 2, 1) == [(1, 2)] * 2
    assert run_processes(lambda: STATE.mesh.empty, 1) == [True]


def test_distributed_initialize_checks_who_the_process_is():
    def program(i):
        assert not st.distributed.is_initialized()
        st.distributed.initialize("localhost:1234", 4, i, local_device_ids=[0, 1])
        with pytest.raises(RuntimeError, match="should only be called once"):
            st.distributed.initialize()
        assert st.distributed.is_initialized()
        st.distributed.shutdown()
        for wrong in ({"num_processes": 3}, {"process_id": i + 1}, {"local_device_ids": 2}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                st.distributed.initialize(**wrong)
        return st.distributed.is_initialized()

    assert run_processes(program, 4) == [False] * 4
    with pytest.raises(ValueError, match="run_processes"):
        st.distributed.initialize(num_processes=4)


# -- what they compute -----------------------------------------------------------------------------

@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_a_program_of_all_runs_once_and_gives_everyone_its_part(axis_type):
    runs = []

    def program(i):
        x = numbers(sharding=rows(axis_type))

        @st.jit
        def f(x):
            return x * 2, x.sum()

        y, total = f(x)
        runs.append(id(y.storage.data))
        assert st.typeof(y).spec == (P("x") if axis_type is AxisType.Explicit else P(None))
        assert isinstance(x.storage, LocalBlocks) and isinstance(y.storage, Stored)
        assert not y.is_fully_addressable and [s.data.shape for s in y.addressable_shards] == [
            (2,), (2,)]
        return float(total), y.addressable_data(0).tolist()

    assert run_processes(program, 4) == [(120.0, [8.0 * i, 8.0 * i + 2]) for i in range(4)]
    assert len(set(runs)) == 1


def test_executors_agree_on_several_processes():
    def program():
        x = numbers()
        return [float(v) for v in (jnp.sin(x).sum(), st.jit(lambda a: (a @ a, a.max()))(x)[0])]

    expected = run_processes(program, 4)
    with config.override(shardtrace_engine="per_device"):
        np.testing.assert_allclose(run_processes(program, 4), expected, rtol=1e-6)


def test_devices_in_any_order_and_processes_with_unlike_numbers_of_devices():
    def program():
        mesh = Mesh(np.array(st.devices())[[5, 0, 3, 2, 4, 1]].reshape(3, 2), ("x", "y"))
        x = numbers(12, NamedSharding(mesh, P(("y", "x"))))
        y = st.device_put(x, NamedSharding(mesh, P("x")))
        total = st.shard_map(lambda v: lax.psum(v, ("x", "y")), mesh=mesh,
                             in_specs=P(("x", "y")), out_specs=P())(x)
        return multihost_utils.process_allgather((x, y), tiled=True), total

    for (x, y), total in run_processes(program, 3, local_device_count=[1, 2, 3]):
        np.testing.assert_array_equal(x, np.arange(12))
        np.testing.assert_array_equal(y, np.arange(12))
        np.testing.assert_array_equal(total, np.arange(12).reshape(6, 2).sum(0))


def test_a_mesh_made_before_the_processes_serves_them():
    mesh = st.make_mesh((8,), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    made_before = st.device_put(np.arange(16.0, dtype=np.float32), sharding)
    f = st.jit(lambda a, b: (a * b).sum())
    f(made_before, made_before)

    def program():
        assert not made_before.is_fully_addressable and len(made_before.addressable_shards) == 2
        with pytest.raises(RuntimeError, match="non-addressable"):
            np.asarray(made_before)
        return float(f(made_before, numbers(16, sharding)))

    assert run_processes(program, 4) == [1240.0] * 4
    assert np.asarray(made_before).shape == (16,)


def test_arrays_of_a_process_outside_of_it():
    made, computed = run_processes(lambda: (numbers(), numbers() + 1), 4)[1]
    assert np.asarray(computed).tolist() == list(range(1, 17))     # all have a part in it
    for use in (np.asarray, jnp.sin, lambda x: x.addressable_data(0)):
        with pytest.raises(RuntimeError, match="non-addressable"):
            use(made)


def test_processes_of_a_part_of_the_devices_meet_alone():
    def program(i):
        group = st.devices()[:4] if i < 2 else st.devices()[4:]
        mesh = Mesh(np.array(group), ("x",))
        x = numbers(8, NamedSharding(mesh, P("x")))
        for _ in range(3 if i < 2 else 5):
            x = x + i // 2
        foreign = st.device_put(1.0, SingleDeviceSharding(st.devices()[-2 * i - 1]))
        alone = foreign + 1                   # of a device of another process: nothing to do
        assert repr(alone) == "Array(shape=(), dtype=float32, weak_type=True)" or i == 1
        return float(x.sum())

    assert run_processes(program, 4) == [28.0, 28.0, 68.0, 68.0]


def test_values_of_the_process_alone_wait_for_nobody():
    def program(i):
        mesh = st.make_mesh((8,), ("x",))
        loss = numbers().sum()
        if i == 1:
            own = st.device_put(np.arange(4.0), NamedSharding(mesh.local_mesh, P("x")))
            f = st.jit(lambda a: jnp.sin(a).sum())
            with st.set_mesh(mesh):
                assert float(jnp.ones(4).sum() + 1) == 5
            return float(f(own)), float(jnp.arange(3.0).sum()), f"{float(loss * 100):.1f}"
        return None

    assert run_processes(program, 2)[1] == (pytest.approx(1.8918884), 3.0, "12000.0")


def test_values_that_differ_between_processes_stay_different():
    def program(i):
        x = numbers()
        y = st.jit(lambda a, b: a * 0 + b)(x, np.float32(i))
        z = st.device_put(x, NamedSharding(x.sharding.mesh, P())) * 0 + i
        return [float(s.data[0]) for s in y.addressable_shards], float(z[0]), float(y.sum())

    results = run_processes(program, 4)
    assert [r[0] for r in results] == [[i, i] for i in range(4)]
    assert [r[1] for r in results] == [0, 1, 2, 3] and {r[2] for r in results} == {24.0}


def test_donation_and_deletion_are_of_each_process():
    def program(i):
        x, y = numbers(), numbers()
        st.jit(lambda a: a + 1, donate_argnums=0)(x)
        if i == 1:
            y.delete()
        with pytest.raises(RuntimeError, match="Array has been deleted"):
            x.addressable_data(0)
        return x.is_deleted(), y.is_deleted()

    assert run_processes(program, 2) == [(True, False), (True, True)]


def test_random_numbers_gradients_and_loops_are_those_of_one_process():
    def program():
        s = rows()
        w = st.jit(lambda k: st.random.normal(k, (16,)), out_shardings=s)(st.random.key(3))
        g = st.grad(lambda w: (jnp.sin(w) * numbers()).sum())(w)
        c = st.jit(lambda w: lax.fori_loop(0, 3, lambda i, v: v * 2 + i, w))(w)
        return multihost_utils.process_allgather((w, g, c), tiled=True)

    alone = run_processes(program, 1)[0]
    for found in run_processes(program, 4):
        for a, b in zip(found, alone, strict=True):
            np.testing.assert_array_equal(a, b)


# -- how they fail ---------------------------------------------------------------------------------

def missing(i, x):
    if i != 2:
        return x.sum()


def raising(i, x):
    if i == 2:
        raise KeyError("no such file")
    return x.sum()


def elsewhere(i, x):
    return jnp.sin(x) if i == 2 else jnp.cos(x)


def other_types(i, x):
    return st.jit(lambda a, b: a + b[0])(x, np.ones(3 if i == 2 else 4))


def other_program(i, x):
    return st.jit(lambda a: a * (2.0 if i == 2 else 3.0))(x)


def other_sharding(i, x):
    mesh = st.make_mesh((4, 2), ("x", "y"))
    return st.device_put(x, NamedSharding(mesh, P("x") if i == 2 else P()))


def other_results(i, x):
    s = x.sharding if i == 2 else NamedSharding(x.sharding.mesh, P())
    return st.jit(lambda a: a + 1, out_shardings=s)(x)


def other_collective(i, x):
    return (multihost_utils.process_allgather(x, tiled=True) if i == 2
            else multihost_utils.broadcast_one_to_all(3))


def other_shapes(i, x):
    return multihost_utils.process_allgather(np.ones(i // 2))


def too_often(i, x):
    for _ in range(3 if i == 2 else 2):
        multihost_utils.sync_global_devices("step")


FAILURES = {
    missing: ("process 2 ended, and others wait for it", "process 2 has ended",
              "process 0 waits in the operation `reduce_sum` at test_processes.py"),
    elsewhere: ("the processes wait at different calls", "process 2 waits in the operation `sin`",
                "process 3 waits in the operation `cos`"),
    other_types: ("is called with different arguments, b[0] f32[4] by process 0 and b[0] f32[3] by "
                  "process 2".replace("b[0]", "b"), "the jitted function `<lambda>`"),
    other_program: ("called with different programs", "3.0:f32", "by process 2"),
    other_sharding: ("`device_put` is called with different shardings", "spec=P('x',)"),
    other_results: ("called with different results", "P('x',) by process 2"),
    other_collective: ("the processes wait at different calls", "process 2 waits in "
                       "`process_allgather`", "process 3 waits in `broadcast_one_to_all`"),
    other_shapes: ("`process_allgather` is called with different values, float32[0] by process 0 "
                   "and float32[1] by process 2",),
    too_often: ("processes 0, 1 and 3 ended, and others wait for them",
                "process 2 waits in `sync_global_devices` at test_processes.py",
                'multihost_utils.sync_global_devices("step")'),
}


@pytest.mark.parametrize("program", FAILURES, ids=lambda f: f.__name__)
def test_processes_that_do_not_meet_say_who_waits_where(program):
    seen = []

    def process(i):
        try:
            program(i, numbers())
        except ProcessMismatchError as e:
            seen.append(str(e))
            raise

    texts = []
    for _ in range(2):
        with pytest.raises(ProcessMismatchError) as caught:
            run_processes(process, 4)
        texts.append(str(caught.value))
        assert len(caught.value.__notes__) == 1
    assert texts[0] == texts[1]                   # whoever comes first
    for phrase in FAILURES[program]:
        assert phrase in texts[0], texts[0]
    ended = sum(f"process {i} has ended" in texts[0] for i in range(4))
    assert len(seen) == 2 * (4 - ended)


def test_what_a_process_raised_comes_before_what_others_waited_for():
    with pytest.raises(KeyError, match="no such file") as caught:
        run_processes(lambda i: raising(i, numbers()), 4)
    assert caught.value.__notes__[0] == "in process 2 of 4"

    waited = []

    def process(i):
        try:
            raising(i, numbers())
        except ProcessMismatchError as e:
            waited.append(str(e))

    with pytest.raises(KeyError):
        run_processes(process, 4)
    assert len(waited) == 3
    assert all("process 2 raised KeyError: 'no such file'" in text for text in waited)


def test_an_error_while_the_program_runs_is_raised_at_every_process():
    seen = []

    def process(i):
        try:
            st.jit(lambda x: st.pure_callback(fails, st.ShapeDtypeStruct((16,), np.float32), x))(
                numbers())
        except Exception as e:
            seen.append(type(e).__name__)
            raise

    def fails(x):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(Exception, match="in the callback") as caught:
        run_processes(process, 4)
    assert caught.value.__notes__[-1] == "in process 0 of 4"
    assert len(seen) == 4 and len(set(seen)) == 1


def test_a_process_that_never_starts_is_not_waited_for_when_nobody_can_start_it():
    began = time.monotonic()
    with runtime.as_process(1, of=2):
        x = numbers()
        assert x.addressable_data(0).tolist() == [8.0, 9.0]
        with pytest.raises(ProcessMismatchError, match="process 0 never started"):
            x.sum()
        with pytest.raises(ProcessMismatchError):     # nobody will come to the next call either
            jnp.sin(x)
    assert time.monotonic() - began < 20
    with runtime.as_process(1, of=2):
        assert numbers().shape == (16,)


def test_a_process_that_never_starts_is_waited_for_as_long_as_configured():
    errors = []

    def process(i):
        try:
            with config.override(shardtrace_process_timeout=0.3), runtime.as_process(i, of=4):
                numbers().sum()
        except ProcessMismatchError as e:
            errors.append(str(e))

    threads = [threading.Thread(target=process, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.02)                  # a thread that might start the fourth
    assert len(errors) == 3 and all("process 3 never started" in text for text in errors)


def test_after_a_failure_a_new_world_begins():
    for _ in range(2):
        with pytest.raises(ProcessMismatchError):
            run_processes(lambda i: missing(i, numbers()), 4)
        assert run_processes(lambda: float(numbers().sum()), 4) == [120.0] * 4


def test_processes_may_simulate_processes():
    def program(i):
        inner = run_processes(lambda: (st.process_count(), float(numbers().sum())), 2)
        return inner, float(numbers().sum())

    assert run_processes(program, 3) == [([(2, 120.0)] * 2, 120.0)] * 3


SCRIPT = """
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp

SCALE = 2

def rows(n):
    return np.arange(n, dtype=np.float32) * SCALE        # an import, and a name of the script

class Model:
    def __call__(self, x):
        return st.jit(lambda x: jnp.sum(x) * SCALE)(x)

if __name__ == "__main__":
    total = Model()(rows(4))
    assert float(total) == 24 and rows.__module__ == "__main__"
    globals()["seen"] = [f(3).sum() for f in (rows,)]
"""


def test_a_script_runs_in_each_process_as_a_module_of_its_own():
    before = set(vars(simulated))
    assert st.distributed.run_processes(exec, 2, SCRIPT) == [None, None]
    assert set(vars(simulated)) == before
    assert st.distributed.run_processes(eval, 2, "(lambda: __name__)()") == ["__main__"] * 2
    given = {"found": 7}
    assert st.distributed.run_processes(eval, 2, "found", given) == [7, 7]


def test_functions_of_a_script_run_in_processes(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT + """
    import operator
    assert st.distributed.run_processes(lambda i: rows(i + 1).sum(), 2) == [0, 2]
    assert [float(x) for x in st.distributed.run_processes(Model(), 2, rows(4))] == [24, 24]
    assert st.distributed.run_processes(operator.add, 2, 1, 2) == [3, 3]
    print("done")
""")
    run = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert run.returncode == 0 and "done" in run.stdout, run.stderr
    path.write_text(SCRIPT)
    command = "import shardtrace as jax; jax.distributed.run_processes(exec, 4, open('{}').read())"
    run = subprocess.run([sys.executable, "-c", command.format(path)], capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stderr
