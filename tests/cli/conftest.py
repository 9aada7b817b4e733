"""Files to point the command at."""
import textwrap

import pytest

from shardtrace.cli.main import main

HEAD = """
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("X", "Y"))


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def put(shape, *spec):
    return st.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))

"""
LAYER = """
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2            # culprit
"""


@pytest.fixture
def write(tmp_path):
    """Write a Python file: the usual imports, then the text."""
    def written(text, name="model.py", head=HEAD):
        path = tmp_path / name
        path.write_text(head + textwrap.dedent(text))
        return path
    return written


@pytest.fixture
def said(capsys, monkeypatch):
    """Run the command in a wide terminal: its exit status, what it printed and complained of."""
    def run(*arguments, columns="250"):
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return status, printed.out, printed.err
    return run


def line_of(path, mark="# culprit"):
    """The number of the first line with a mark."""
    return next(i for i, line in enumerate(path.read_text().split("\n"), 1) if mark in line)
