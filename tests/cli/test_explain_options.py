"""`explain --all` tells each collective, `--suggest-seconds` says how long changes are tried."""
from __future__ import annotations

import json

import pytest

from shardtrace.cli.main import main

FILE = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

mesh = AbstractMesh((2, 4), ("data", "model"))


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def norm(x):
    z = x - x.mean(-1, keepdims=True)
    return z / jnp.sqrt((z ** 2).mean(-1, keepdims=True) + 1e-6)


@st.jit
def slopes(ws, x):
    def loss(ws):
        y = x
        for w in ws:
            y = y + jnp.tanh(norm(y) @ w["up"]) @ w["down"]
        return jnp.mean(y ** 2)
    return st.grad(loss)(ws)


layer = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), None, "model")}
slopes.lower([dict(layer) for _ in range(6)], struct((64, 256), "data"))
"""


@pytest.fixture
def target(tmp_path):
    file = tmp_path / "layers.py"
    file.write_text(FILE)
    return f"{file}:slopes"


def printed(capsys, *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def test_all_tells_each_collective_in_full(target, capsys) -> None:
    short = printed(capsys, target, "--suggest", "0")
    full = printed(capsys, target, "--suggest", "0", "--all")
    assert "because of `ws[*]['down']` as P(None, 'model')" in " ".join(short.split())
    assert "because of" not in full and full.count("-->") > short.count("-->")
    assert "shows in full" in short and "shows in full" not in full


def test_more_seconds_try_more(target, capsys) -> None:
    def tried(seconds: str) -> tuple[int, str]:
        said = printed(capsys, target, "--suggest", "1", "--suggest-seconds", seconds)
        return said.count("avoided by") + said.count("less by"), " ".join(said.split())

    none, said = tried("0")
    assert none == 0 and "the first 0 were tried" in said
    some, again = tried("0.5")
    assert some > 0 and again == tried("0.5")[1]
    assert main(["explain", target, "--suggest-seconds", "soon"]) == 2


def test_root_causes_are_data(target, capsys) -> None:
    found = json.loads(printed(capsys, target, "--suggest-seconds", "0", "--json"))
    causes = found["root_causes"]
    assert causes[0]["text"] and sum(c["collectives"] for c in causes) == len(found["collectives"])
    assert sum(c["received_bytes"] for c in causes) == found["received_bytes"]
