"""Fixtures of the tests of callbacks."""
from __future__ import annotations

import pytest

import shardtrace as st
from shardtrace.sharding import AxisType


@pytest.fixture(params=["explicit", "auto"])
def mesh(request):
    kind = AxisType.Explicit if request.param == "explicit" else AxisType.Auto
    return st.make_mesh((2, 2), ("x", "y"), axis_types=(kind,) * 2)
