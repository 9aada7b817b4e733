"""Calls of host functions by XLA's devices.

A function is called once for every position along the axes of its equation. Devices that differ
only along other axes share that call: the first to arrive makes it, and the others get its results.
The n-th call of one device is matched with the n-th call of the others.
"""
from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np

from ...ir.dtypes import is_extended
from ...ir.kernels.key_data import storage_dtype
from ...ir.program import Equation
from ...ir.support.lazy import lazy_import

_callbacks = lazy_import("...runtime.callbacks", __package__)


class SharedCall:
    """A callback equation as a function of a device's numbers, a token, and its blocks."""

    def __init__(self, eqn: Equation) -> None:
        self._call = _callbacks.HostCall(eqn)
        self._types = [a.aval for a in eqn.invars]
        self._results = [v.aval for v in eqn.outvars]
        if any(is_extended(t.dtype) for t in (*self._types, *(v.aval for v in eqn.outvars))):
            raise NotImplementedError(
                f"`{eqn.op.name}` of {eqn.location}: the jax engine passes no keys to functions of "
                "the host; pass `random.key_data`")
        self._lock = threading.RLock()
        self.begin()

    def begin(self) -> None:
        """Forget earlier runs."""
        self._counts: Counter[tuple[int, int]] = Counter()
        self._made: dict[tuple[int, int], Any] = {}
        self._problem: BaseException | None = None

    def check(self) -> None:
        """Raise what the function raised."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def __call__(self, place: Any, copy: Any, token: Any, *blocks: Any) -> tuple:
        with self._lock:
            place, copy = int(place), int(copy)
            number = self._counts[place, copy]
            self._counts[place, copy] += 1
            found = self._made.get((place, number))
            if found is None:
                found = self._made[place, number] = self._called(blocks)
            return (np.int32(0), *found)

    def _called(self, blocks: Any) -> list[np.ndarray]:
        """What the function gives. What it raises is kept for the caller of the program, since JAX
        would report it again when the process ends; the program goes on with zeros."""
        if self._problem is None:
            try:
                return self._call([np.asarray(x, storage_dtype(t.dtype))
                                   for x, t in zip(blocks, self._types, strict=True)])
            except BaseException as problem:
                self._problem = problem
        return [np.zeros(t.shape, storage_dtype(t.dtype)) for t in self._results]
