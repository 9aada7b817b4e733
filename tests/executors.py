"""A function on both executors: the simulated one, and devices that compute each for itself."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
from shardtrace.driver.jit.jitted import JITTED
from shardtrace.ir.support.caches import CACHES, forget

from .comparisons import same_bits

EXECUTORS = ("simulated", "per_device")
FURTHER: list[str] = []                 # engines on which functions run too: pytest --engine


def assert_alike(found: Any, wanted: Any, **tolerance: float) -> None:
    """Leaves are equal, or close with rtol= and atol= of `assert_allclose`; integers are equal."""
    for a, b in zip(st.tree.leaves(found), st.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if same_bits(a, b):
            continue
        if tolerance and a.dtype.kind not in "biu":
            np.testing.assert_allclose(a, b, **tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def agree(f: Callable[..., Any], *args: Any, runs: int = 1, **tolerance: float) -> Any:
    """What jit(f) gives in the simulated executor, as numpy arrays; the other one gives the same,
    each time."""
    found = []
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            jitted = st.jit(f)
            found += [st.tree.map(np.asarray, jitted(*args)) for _ in range(runs)]
    for other in found[1:]:
        assert_alike(other, found[0], **tolerance)
    for engine in FURTHER:                   # whose compilers round and add as they like
        with st.config.override(engine=engine):
            assert_alike(st.jit(f)(*args), found[0], **{"rtol": 1e-4, "atol": 1e-4, **tolerance})
    return found[0]


def forget_plans() -> None:
    """A program that equals one before is planned anew.

    What is known of ops and shardings stays: to find it again takes longer than most tests.
    """
    for jitted in list(JITTED):
        jitted.clear_cache()
    forget(*[name for name in CACHES if name.startswith(("arrays.", "driver.", "runtime."))])
