"""docs/architecture.md draws the calls of a first call as they are made."""
from __future__ import annotations

import itertools
import pathlib
import re
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..paths import ROOT

_PACKAGE = pathlib.Path(st.__file__).parent         # the tree, or what was installed of it
_DRAWING = re.search(r"```text\n(Jitted.*?)```", (ROOT / "docs/architecture.md").read_text(), re.S)


def drawn_calls() -> list[tuple[tuple[str, str], int]]:
    """The functions of the drawing, (file, name), each with its depth."""
    assert _DRAWING is not None
    lines = [line for line in _DRAWING[1].splitlines() if line.strip()]
    return [((line.split()[1], line.split()[0]), (len(line) - len(line.lstrip())) // 2)
            for line in lines]


def frames_above(frame: FrameType | None) -> list[tuple[str, str]]:
    above = []
    while frame is not None:
        path = pathlib.Path(frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            above.append((str(path.relative_to(_PACKAGE)), frame.f_code.co_qualname))
        frame = frame.f_back
    return above


@pytest.mark.usefixtures("empty_caches")
def test_the_drawn_calls_are_made_in_this_order_by_those_above_them() -> None:
    mesh = st.make_mesh((2, 4), ("data", "model"))
    step = st.jit(lambda x, w: jnp.tanh(x @ w),
                  in_shardings=(NamedSharding(mesh, P("data", "model")),
                                NamedSharding(mesh, P("model"))))
    x, w = np.ones((8, 16), np.float32), np.ones((16, 32), np.float32)
    drawn = drawn_calls()
    wanted = {name for name, _ in drawn}
    made: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_qualname in {name for _, name in wanted}:
            above = frames_above(frame)
            if above and above[0] in wanted:
                made.setdefault(above[0], above[1:])

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        step(x, w)
    finally:
        sys.setprofile(before)
    assert list(made) == [name for name, _ in drawn]
    callers: list[tuple[str, str]] = []
    for name, depth in drawn:
        del callers[depth:]
        assert [c for c in made[name] if c in wanted] == callers[::-1], name
        if callers:                 # the ground floor's caches and settings are under every call
            between = itertools.takewhile(lambda c: c != callers[-1], made[name])
            files = {file for file, _ in between if not file.startswith("ir/")}
            assert files <= {name[0], callers[-1][0]}, name
        callers.append(name)
