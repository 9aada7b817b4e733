"""Bars are shown for long work on a terminal, and nothing otherwise."""
import io
import subprocess
import sys

import pytest

import shardtrace as st
from shardtrace.driver import progress_bars
from shardtrace.ir.support import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal, and nothing waits. To be called in the test: pytest has a
    standard error for each phase."""
    monkeypatch.setattr(progress_bars, "DELAY", 0.0)
    monkeypatch.setattr(progress_bars, "BRIEF", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def entered():
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made
    return entered


def shown():
    """Work some steps, waiting until the bar is there."""
    with progress.steps("counting sheep", 3) as work:
        if work is not progress.SILENT:
            timer = progress_bars.BARS._timer
            if timer is not None:
                timer.join()
        for _ in range(3):
            work.advance()
        return work is not progress.SILENT


def test_a_bar_is_drawn_on_a_terminal(terminal):
    screen = terminal()
    assert shown()
    assert "counting sheep" in screen.getvalue() and "/3" in screen.getvalue()
    assert not progress_bars.BARS._under_way and progress_bars.BARS._display is None


def test_nothing_is_drawn_before_its_time(terminal, monkeypatch):
    monkeypatch.setattr(progress_bars, "DELAY", 60.0)
    screen = terminal()
    with progress.steps("counting", 2) as work:
        assert work is not progress.SILENT
        work.advance()
    assert screen.getvalue() == "" and progress_bars.BARS._timer is None


def test_nothing_is_drawn_where_it_is_switched_off_or_piped(terminal, monkeypatch):
    screen = terminal()
    with st.config.override(shardtrace_progress=False):
        assert not shown()
    with progress_bars.bars(enabled=False):
        assert not shown()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shown()
    assert screen.getvalue() == ""


def test_work_inside_of_work_and_work_that_fails(terminal):
    terminal()
    assert list(progress.counted([1, 2], "outer")) == [1, 2]
    with pytest.raises(ValueError, match="stop"):
        for i in progress.counted(range(3), "failing"):
            for _ in progress.counted("ab", "inner"):
                pass
            if i == 1:
                raise ValueError("stop")
    assert not progress_bars.BARS._under_way


def test_rich_is_not_loaded_for_work_that_is_not_shown():
    program = ("import sys, numpy as np, shardtrace as st\n"
               "st.jit(lambda x: x + 1)(np.ones(3))\nprint('rich' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("value", ["0", "off"])
def test_the_environment_switches_it_off(value):
    program = "import shardtrace as st; print(st.config.shardtrace_progress)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, env={"SHARDTRACE_PROGRESS": value, "PATH": ""})
    assert done.stdout.strip() == "False"
