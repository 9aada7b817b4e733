"""`watch` explains a file, and again when it is saved."""
from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from shardtrace.cli.commands.watch import _until_interrupted
from shardtrace.cli.isolated import Died, Isolated, isolated

from .conftest import LAYER

CALL = "y = st.jit(layer)(put((64, 256), 'X'), put((256, 256), None, 'Y'), put((256, 256), {}))\n"


@pytest.fixture
def watched(write):
    """Start watching a file: what is printed, line by line, in a queue."""
    started = []

    def start(path):
        process = subprocess.Popen(
            [sys.executable, "-m", "shardtrace", "watch", str(path), "--suggest", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "COLUMNS": "80"})
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in process.stdout],
                         daemon=True).start()
        started.append(process)

        def until(text):
            said = ""
            while text not in said:
                said += lines.get(timeout=90)
            return said
        return process, until

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_saved_is_explained_again(write, watched) -> None:
    path = write(LAYER + CALL.format("None, 'Y'"))
    process, until = watched(path)
    said = until("Ctrl-C ends this")
    assert "1 all-gather" in said
    assert max(len(line) for line in said.splitlines() if str(path) not in line) <= 80
    path.write_text(path.read_text().replace("return h @ w2", "return h @ w2 +"))
    assert "SyntaxError" in until("Ctrl-C ends this")
    helper = path.with_name("sizes.py")
    helper.write_text("SPEC = ('Y',)\n")
    path.write_text(path.read_text().replace("return h @ w2 +", "return h @ w2").replace(
        CALL.format("None, 'Y'"), "import sizes\n" + CALL.format("*sizes.SPEC")))
    while "1 all-reduce" not in until("Ctrl-C ends this"):
        pass
    time.sleep(0.05)
    helper.write_text("SPEC = (None, 'Y')\n")
    while "1 all-gather" not in until("Ctrl-C ends this"):
        pass                # what was saved just before may be explained once more
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_finalizer_drops_ends_it() -> None:
    class Dropped:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.001)

    with _until_interrupted() as goes_on:
        assert goes_on()
        Dropped()
        assert not goes_on()


def test_there_is_no_such_file(said, tmp_path) -> None:
    status, _, complained = said("watch", tmp_path / "no.py")
    assert status == 2 and "there is no file" in complained


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")      # of JAX, where a test loaded it
def test_a_process_of_its_own_gives_what_it_can() -> None:
    assert isolated(abs, -3) == 3
    with pytest.raises(ZeroDivisionError):
        isolated(divmod_by_zero, 3)
    with pytest.raises(TimeoutError):
        isolated(time.sleep, 60, 0.2)
    with pytest.raises(Died, match="status 7"):
        isolated(os._exit, 7)
    begun = Isolated(then_ends).messages(2)
    assert [next(begun), next(begun)] == [0, 1]     # as they come: what is behind them is not
    with pytest.raises(Died, match="status 7"):
        next(begun)
    read, write = os.pipe()
    begun = Isolated(then_hangs).messages(2, until=read)
    assert next(begun) == 2
    os.write(write, b"enough")
    assert list(begun) == []
    preparing = Isolated(then_hangs, functools.partial(time.sleep, 600))
    assert not preparing.is_ready
    preparing.end()
    prepared = Isolated(then_ends, functools.partial(abs, -3))
    while not prepared.is_ready:
        time.sleep(0.01)
    assert next(prepared.messages(2)) == 0


def divmod_by_zero(n):
    return divmod(n, 0)


def then_hangs(n, tell):
    tell(n)
    time.sleep(600)


def then_ends(n, tell):
    for i in range(n):
        tell(i)
    os._exit(7)
