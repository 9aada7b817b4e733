"""A save that is killed leaves the older checkpoint or the newer, never a mixture.

A program saves while every step that touches the disk is counted, and is killed at the n-th, for
every n; then the folder is restored. The steps are seen by an audit hook (files opened for writing,
folders made, names changed or removed) and by wrapping `os.fsync` and the library's `save_file`,
which is also killed when half of the file is there.
"""
from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import safetensors.numpy

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.checkpoints import restore, save
from shardtrace.driver.checkpoints import folder
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

PROGRAM = textwrap.dedent("""
    import json, os, shutil, sys
    import numpy as np
    import safetensors.numpy
    import shardtrace as st
    from shardtrace.checkpoints import restore, save
    from shardtrace.sharding import NamedSharding, PartitionSpec as P

    path, older = sys.argv[1], sys.argv[2] == "older"
    sharding = NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("x", "y"))
    def state(n):
        return {"n": n, "w": st.device_put(np.full((8, 4), n, np.float32), sharding)}

    steps, last = [], None
    def step(name):
        if last is None:
            return
        steps.append(name)
        if len(steps) == last:
            os._exit(9)

    def hook(event, args):
        if event == "open" and isinstance(args[0], str) and args[0].startswith(path) and (
                args[2] & (os.O_WRONLY | os.O_RDWR)):
            step("write " + os.path.basename(args[0]))
        elif event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            step(event.removeprefix("os.") + " " + os.path.basename(str(args[0])))
    sys.addaudithook(hook)
    def fsync(descriptor, real=os.fsync):
        step("sync before " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)
        step("sync after")
    os.fsync = fsync
    def save_file(tensors, file, real=safetensors.numpy.save_file):
        step("write before " + os.path.basename(file))
        real(tensors, file)
        size = os.path.getsize(file)
        if last is not None and len(steps) + 1 == last:
            os.truncate(file, size // 2)
        step("write half " + os.path.basename(file))
    safetensors.numpy.save_file = save_file

    def killed_at(n):
        global last
        child = os.fork()
        if child == 0:
            last = n
            save(path, state(2))
            if n == 0:
                print(json.dumps(steps), flush=True)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    def found():
        try:
            got = restore(path)
        except FileNotFoundError as e:
            return "torn" if "did not finish" in str(e) else "none"
        assert (np.asarray(got["w"]) == got["n"]).all(), "a mixture"
        return got["n"]

    n, outcomes, afterwards = 0, [], []
    while True:
        n += 1
        shutil.rmtree(path, ignore_errors=True)
        if older:
            save(path, state(1))
        if not killed_at(n):
            break
        outcomes.append(found())
        save(path, state(3))
        afterwards.append([found(), len(os.listdir(path))])
    print(json.dumps(outcomes))
    print(json.dumps([found(), afterwards]))
    killed_at(0)
""")


@pytest.fixture(scope="module", params=["older", "none"])
def killed(request, tmp_path_factory):
    if not os.path.exists("/proc/self/fd") or not hasattr(os, "fork"):
        pytest.skip("the test needs fork and /proc")
    path = tmp_path_factory.mktemp("killed") / "state"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, str(path), request.param],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    outcomes, (last, afterwards), steps = map(json.loads, done.stdout.splitlines())
    return request.param, outcomes, last, afterwards, steps


def test_whenever_it_is_killed_one_whole_checkpoint_is_there(killed) -> None:
    before, outcomes, last, _, _ = killed
    expected = {"older": {1, 2}, "none": {"none", "torn", 2}}[before]
    assert len(outcomes) > 12 and set(outcomes) <= expected, outcomes
    # There is one moment at which the new one takes over.
    assert outcomes == sorted(outcomes, key=lambda found: found == 2)
    assert outcomes[-1] == 2
    assert last == 2, "not killed, the save is whole"


def test_the_next_save_works_and_removes_what_a_killed_one_left(killed) -> None:
    _, outcomes, _, afterwards, _ = killed
    assert afterwards == [[3, 2]] * len(outcomes)


def test_data_are_on_disk_before_the_index_names_them(killed) -> None:
    *_, steps = killed
    commit = next(i for i, s in enumerate(steps) if s.startswith("rename index.json.new"))
    order = ["write half process-0.safetensors", "sync before process-0.safetensors",
             "write index.json.new", "sync before index.json.new"]
    places = [steps.index(s) for s in order]
    assert places == sorted(places) and places[-1] < commit
    assert steps[commit + 1] == "sync before state"
    removed = [i for i, s in enumerate(steps) if s.startswith(("remove", "rmdir"))]
    assert all(i > commit for i in removed), "the older one goes after the newer is whole"


# -- damage that no crash does ---------------------------------------------------------------------

def _saved(path: pathlib.Path) -> pathlib.Path:
    mesh = st.make_mesh((4, 2), ("x", "y"))
    save(path, {"w": st.device_put(np.ones((8, 4)), NamedSharding(mesh, P("x", "y")))})
    return path / "shards-000001" / "process-0.safetensors"


def test_a_file_that_is_cut_off_or_missing_is_named(tmp_path) -> None:
    file = _saved(tmp_path)
    size = file.stat().st_size
    os.truncate(file, size - 8)
    with pytest.raises(ValueError, match=rf"process-0.safetensors has {size - 8} bytes, and had "
                       rf"{size} when it was saved"):
        restore(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match=r"process-0.safetensors is missing"):
        restore(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"format": "shardtrace checkpoint", "version": 1}'])
def test_a_damaged_index_is_named(tmp_path, text) -> None:
    _saved(tmp_path)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match=r"index.json is damaged"):
        restore(tmp_path)


def test_other_json_and_later_versions_are_refused(tmp_path) -> None:
    _saved(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps({**index, "version": 99}))
    with pytest.raises(ValueError, match="of version 99; this release reads up to 1"):
        restore(tmp_path)
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="no index of a checkpoint"):
        restore(tmp_path)


# -- where there is no checkpoint ------------------------------------------------------------------

def test_a_path_without_a_checkpoint_says_what_is_there(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="it does not exist"):
        restore(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="it is a file"):
        restore(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no index.json"):
        restore(tmp_path / "empty")
    file = _saved(tmp_path / "torn")
    (tmp_path / "torn" / "index.json").unlink()
    assert file.exists()
    with pytest.raises(FileNotFoundError, match="no whole checkpoint .* did not finish"):
        restore(tmp_path / "torn")


def test_a_folder_with_other_files_is_not_touched(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"no part of a checkpoint: thesis.tex"):
        save(tmp_path, jnp.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(FileExistsError, match="is a file; a checkpoint is a folder"):
        save(tmp_path / "thesis.tex", jnp.ones(3))


def test_files_beside_a_checkpoint_stay(tmp_path) -> None:
    save(tmp_path, jnp.ones(3))
    (tmp_path / "notes.txt").write_text("learning rate 0.1")
    save(tmp_path, jnp.zeros(3))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "index.json", "notes.txt", "shards-000002"]


def test_overwriting_can_be_refused(tmp_path) -> None:
    save(tmp_path, jnp.ones(3), overwrite=False)
    with pytest.raises(FileExistsError, match="There is a checkpoint at"):
        save(tmp_path, jnp.zeros(3), overwrite=False)
    np.testing.assert_array_equal(restore(tmp_path), 1)


def test_parents_are_made_and_a_checkpoint_can_be_moved(tmp_path) -> None:
    save(tmp_path / "a" / "b" / "c", {"x": jnp.ones(3)})
    shutil.move(tmp_path / "a" / "b" / "c", tmp_path / "d")
    np.testing.assert_array_equal(restore(tmp_path / "d")["x"], 1)


def test_a_failed_write_leaves_the_older_checkpoint(tmp_path, monkeypatch) -> None:
    save(tmp_path, {"n": 1, "x": jnp.ones(3)})

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.safetensors_numpy._load(), "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, {"n": 2, "x": jnp.ones(3)})
    monkeypatch.undo()
    assert restore(tmp_path)["n"] == 1
    save(tmp_path, {"n": 3, "x": jnp.ones(3)})
    assert restore(tmp_path)["n"] == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.json", "shards-000002"]


# -- a disk that is full ---------------------------------------------------------------------------

@pytest.mark.parametrize("older", [False, True])
def test_a_disk_that_is_full_at_any_step_leaves_a_whole_checkpoint(
        older: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that writes fails in turn, for good from then on; removing always works."""
    steps, last = 0, 0

    def failing(real):
        def step(*args, **kwargs):
            nonlocal steps
            steps += 1
            if last and steps >= last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)
        return step

    for module, name in ((os, "mkdir"), (os, "fsync"), (os, "replace"), (json, "dump"),
                         (safetensors.numpy, "save_file")):
        monkeypatch.setattr(module, name, failing(getattr(module, name)))
    for n in range(1, 40):
        path = tmp_path / f"{n}"
        last = 0
        if older:
            save(path, {"n": 1, "w": np.ones(4)})
        steps, last = 0, n
        try:
            save(path, {"n": 2, "w": np.ones(4)})
        except OSError as error:
            assert error.errno == errno.ENOSPC and "make room" in str(error)
            known = "new checkpoint is whole" in str(error)
        else:
            break
        finally:
            last = 0
        if known or older:
            assert restore(path)["n"] == (2 if known else 1)
            assert len([f for f in path.iterdir() if f.is_dir()]) <= 1 + known
        else:
            assert restored(path) == "none now"
    assert 6 < n < 39


def restored(path: pathlib.Path) -> object:
    try:
        return restore(path)
    except FileNotFoundError:
        return "none now"


FULL = """
import os, resource, signal, sys
import numpy as np
from shardtrace.checkpoints import restore, save
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
save(path, {"w": np.ones(10, np.float32)})
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save(path, {"w": np.ones(100_000, np.float32)})
except OSError as error:
    print(error)
print(restore(path)["w"].size, sorted(os.listdir(path)))
"""


def test_a_file_that_the_system_does_not_let_grow_is_no_half_checkpoint(
        tmp_path: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "c")], text=True,
                          capture_output=True, check=True)
    assert "could not be saved" in done.stdout and "before is whole" in done.stdout
    assert done.stdout.endswith("10 ['index.json', 'shards-000001']\n")
