"""The pytest plugin, as users run it: in a process of its own, on files that it has not seen."""
from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from shardtrace.studio.comm_budgets import markdown, rows, size

from ..copies import copies

HEAD = """
import numpy as np, pytest
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("data", "model"))
def put(shape, *spec):
    return st.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))
x, w = put((64, 64), "data", "model"), put((64, 64), "model")
@st.jit
def layer(x, w):
    return jnp.tanh(x @ w)
"""


@pytest.fixture(scope="module")
def process():
    """Copies of a process that has imported what the files do, and nothing of the plugin."""
    with copies("import numpy, pytest, shardtrace, shardtrace.numpy, shardtrace.sharding") as run:
        yield run


@pytest.fixture
def run(tmp_path, process):
    """Run pytest on a test file: its exit status and what it printed."""
    def ran(text, *options, name="test_it.py"):
        (tmp_path / name).write_text(HEAD + textwrap.dedent(text))
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        given = ["-p", "no:pytest-lsp", "-p", "no:asyncio", "-p",
                 "shardtrace.studio.pytest_plugin", "--strict-markers", *options]
        status, said, complaints = process(
            "import os, pytest, sys\n"
            f"os.chdir({str(tmp_path)!r})\n"
            "os.environ.update(XLA_FLAGS='', COLUMNS='160')\n"
            f"status = pytest.main({given})\n"
            "sys.stdout.flush(), os._exit(status)")
        return status, said + complaints
    return ran


def test_a_marked_test_is_held_to_its_budget_whatever_ran_before(run) -> None:
    status, said = run("""
        def test_before():
            layer(x, w)
        @pytest.mark.comm(max_bytes="12.3 kB", kinds={"all-reduce": 1})
        def test_within():
            layer(x, w)
            layer(x, w)
        @pytest.mark.comm(max_bytes="12 kB")
        def test_beyond():
            layer(x, w)
        @pytest.mark.comm(max_bytes=0)
        def test_empty():
            pass
        @pytest.mark.comm(max_bytes="20 kB")
        def test_by_hand(comm):
            assert [c.kind for c in comm(layer, x, w).collectives] == ["all-reduce"]
            layer(x, put((64, 64)))
        def test_outside(comm):
            assert comm(lambda x: x.sum(), x).received_bytes == 7
        """, "-rA")
    assert status == 1 and "2 failed, 4 passed" in said, said
    assert "/driver/" not in said and "/studio/" not in said      # no frames of the package
    assert "FAILED test_it.py::test_beyond" in said and "FAILED test_it.py::test_empty" in said
    assert "each device receives 12,288 bytes, 288 more than the 12,000 allowed" in said
    assert "test_it.py:13" in said and "nothing that could exceed it" in said


def test_a_budget_that_is_none_is_an_error(run) -> None:
    status, said = run("""
        @pytest.mark.comm(max_bytes="a lot")
        def test_size():
            pass
        @pytest.mark.comm(kinds={"all-gahter": 1})
        def test_kind():
            pass
        @pytest.mark.comm("1 MB")
        def test_position():
            pass
        """)
    assert status == 1 and "'a lot' is no size" in said and "all-gather" in said
    assert "limits by name" in said


def test_the_report_tells_what_is_other_than_in_the_last_run(run, tmp_path) -> None:
    text = """
        @pytest.mark.comm(max_bytes="1 MB")
        def test_step():
            layer(x, w)
        """
    options = "--comm-report", "--comm-report-file=comm.md"
    status, said = run(text, *options)
    assert status == 0
    assert "layer: 1 all-reduce, 12.3 kB," in said
    split_once = text.replace("layer(x, w)", 'layer(put((64, 64), "data"), put((64, 64)))')
    status, said = run(split_once, *options, "-n", "1")
    assert status == 0
    assert "0 all-reduce (was 1)" in said and "(was 12.3 kB" in said, said
    head, *table = (tmp_path / "comm.md").read_text().splitlines()[2:]
    assert head == "| test | function | collectives | received | time | peak memory |"
    assert table[0] == "| --- | --- | --- | ---: | ---: | ---: |"
    assert table[1].startswith("| `test_it.py::test_step` | `layer` | ") and "(was" in table[1]


def test_nothing_is_imported_for_tests_that_are_not_marked(run) -> None:
    status, said = run("""
        import sys
        def test_free():
            assert "shardtrace.studio.comm_budgets" not in sys.modules
        """)
    assert status == 0, said
    done = subprocess.run([sys.executable, "-c", "import sys, shardtrace.studio.pytest_plugin\n"
                           "print([m for m in sys.modules if m.startswith('shardtrace.')"
                           " and 'studio' not in m], 'numpy' in sys.modules)"],
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[] False", done.stderr


@pytest.mark.parametrize("text, number", [
    ("24 kB", 24_000), ("1 MB", 1_000_000), ("1.5 MiB", 1_572_864), ("1e6", 1_000_000),
    ("7", 7), (12, 12)])
def test_sizes_are_read_with_their_units(text, number) -> None:
    assert size(text) == number


def test_rows_are_new_gone_or_changed() -> None:
    def record(name, bytes_, **kinds):
        return {"name": name, "bytes": bytes_, "time": 1e-6, "peak": 100,
                "kinds": {k.replace("_", "-"): n for k, n in kinds.items()}}
    made = rows({"t": [record("f", 200, all_gather=2), record("g", 1)]},
                {"t": [record("f", 100, all_gather=1), record("h|", 1)]})
    assert made[0][:4] == ("t", "f", "2 all-gather (was 1)", "200 B (was 100 B, +100%)")
    assert [r[1] for r in made[1:]] == ["g (new)", "h| (gone)"]
    assert "h\\| (gone)" in markdown(made)
