"""save and restore by several processes: who writes what, who reads what, and who is missing."""
from __future__ import annotations

import threading

import numpy as np
import pytest
import safetensors.numpy

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.checkpoints import restore, save
from shardtrace.distributed import run_processes
from shardtrace.driver.checkpoints import blocks
from shardtrace.ir.diagnostics.errors import ProcessMismatchError
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

VALUE = np.arange(64, dtype=np.float32).reshape(8, 8)


def _array(spec, value=VALUE, sizes=(4, 2)):
    sharding = NamedSharding(st.make_mesh(sizes, ("x", "y")), spec)
    return st.make_array_from_callback(value.shape, sharding, lambda index: value[index])


def _save(path, spec):
    save(path, {"w": _array(spec), "step": 3, "host": np.arange(3), "scale": jnp.float32(2)})


def _is_value(x):
    assert x.addressable_shards
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, VALUE[shard.index])
    return True


@pytest.mark.parametrize("spec", [P(), P("x"), P("x", "y"), P(None, "y"), P(("y", "x"))])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_some_processes_saved_others_restore(tmp_path, spec, count):
    run_processes(_save, 4, tmp_path, spec)

    def load():
        like = {"w": NamedSharding(st.make_mesh((8,), ("z",)), P(None, "z")), "step": 0,
                "host": np.zeros(3, np.int64), "scale": st.ShapeDtypeStruct((), np.float32)}
        for got in (restore(tmp_path), restore(tmp_path, like)):
            assert got["step"] == 3 and got["host"].tolist() == [0, 1, 2]
            assert float(got["scale"]) == 2 and not got["scale"].committed
            assert got["scale"].devices() == {st.local_devices()[0]}
            _is_value(got["w"])
        return got["w"].is_fully_addressable

    assert run_processes(load, count) == [count == 1] * count


def test_each_block_is_written_once_by_the_process_of_its_first_copy(tmp_path):
    run_processes(_save, 4, tmp_path, P("x"))
    held = {p: safetensors.numpy.load_file(tmp_path / "shards-000001" / f"process-{p}.safetensors")
            for p in range(4)}
    assert [sorted(names) for names in held.values()] == [
        ["['host']", "['scale']", "['w']@0,0"], ["['w']@2,0"], ["['w']@4,0"], ["['w']@6,0"]]


def test_who_owns_no_first_copy_writes_no_file(tmp_path):
    run_processes(_save, 4, tmp_path, P())
    assert [p.name for p in (tmp_path / "shards-000001").iterdir()] == ["process-0.safetensors"]


@pytest.mark.parametrize(("spec", "share"), [(P("x"), 1 / 4), (P("x", "y"), 1 / 4),
                                             (P(None, "y"), 1), (P(), 1)])
def test_each_process_reads_what_its_devices_need(tmp_path, monkeypatch, spec, share):
    save(tmp_path, {"w": _array(P("y", "x"))})
    read, real = threading.local(), blocks.BlockReader._slice

    def counted(self, *part):
        data = real(self, *part)
        read.bytes += data.nbytes
        return data

    monkeypatch.setattr(blocks.BlockReader, "_slice", counted)

    def load():
        read.bytes = 0
        sharding = NamedSharding(st.make_mesh((4, 2), ("x", "y")), spec)
        _is_value(restore(tmp_path, {"w": sharding})["w"])
        return read.bytes

    assert run_processes(load, 4) == [VALUE.nbytes * share] * 4


def test_arrays_on_some_processes_alone_can_be_saved_by_all(tmp_path):
    def program():
        half = NamedSharding(st.sharding.Mesh(np.array(st.devices()[4:]), ("x",)), P("x"))
        x = st.make_array_from_callback((8, 8), half, lambda index: VALUE[index],
                                        dtype=np.float32)
        save(tmp_path, x)
        return len(restore(tmp_path).addressable_shards)

    assert run_processes(program, 4) == [0, 0, 2, 2]
    _is_value(restore(tmp_path))


def test_a_checkpoint_is_replaced_by_all_together(tmp_path):
    def program(index):
        for step in range(3):
            save(tmp_path, {"w": _array(P("x"), VALUE + step), "step": step})
            assert restore(tmp_path)["step"] == step
            st.experimental.multihost_utils.sync_global_devices(f"read {step}")

    run_processes(program, 4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.json", "shards-000003"]


# -- when they do not agree ------------------------------------------------------------------------

@pytest.mark.parametrize(("state", "message"), [
    (lambda i: {"a": 1} if i < 2 else {"b": 1}, r"the tree of process 2 .*\['a'\].*\['b'\]"),
    (lambda i: {"a": i}, r"\['a'\] has value 0 in process 0 and 1 in process 1"),
    (lambda i: {"a": np.zeros(1 + i)}, r"\['a'\] has shape \[1\] in process 0 and \[2\]"),
    (lambda i: [st.device_put(np.zeros(2), st.local_devices()[0])],
     r"\[0\] is not one array of all processes: it lies on devices \[0\] in process 0 and devices "
     r"\[2\] in process 1"),
])
def test_processes_that_save_something_else_are_named(tmp_path, state, message):
    save(tmp_path, {"old": 1})
    with pytest.raises(ValueError, match="The processes do not save the same tree.*" + message):
        run_processes(lambda i: save(tmp_path, state(i)), 4)
    assert restore(tmp_path) == {"old": 1}


def test_a_process_that_is_missing_leaves_the_older_checkpoint(tmp_path):
    save(tmp_path, {"old": 1})

    def program(index):
        if index != 2:
            save(tmp_path, {"w": _array(P("x"))})

    with pytest.raises(ProcessMismatchError, match="checkpoints.save waits for other processes"):
        run_processes(program, 4)
    assert restore(tmp_path) == {"old": 1}


def test_a_process_that_cannot_write_leaves_the_older_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, {"old": 1})
    real = safetensors.numpy.save_file

    def save_file(tensors, file):
        if "process-3" in str(file):
            raise OSError(28, "No space left on device")
        real(tensors, file)

    monkeypatch.setattr(safetensors.numpy, "save_file", save_file)
    with pytest.raises(OSError, match="No space left"):
        run_processes(_save, 4, tmp_path, P("x"))
    monkeypatch.undo()
    assert restore(tmp_path) == {"old": 1}
    run_processes(_save, 4, tmp_path, P("x"))
    _is_value(restore(tmp_path)["w"])
