"""Real JAX with eight devices, for the tests that import programs of it; they skip without."""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


def real_jax() -> Any:
    """The module `jax`, with the parts that load late."""
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = pytest.importorskip("jax")
    for name in ("ad_checkpoint", "experimental", "extend.core", "extend.random", "image",
                 "scipy.sparse.linalg"):
        pytest.importorskip(f"jax.{name}")
    if len(jax.devices()) < 8:
        pytest.skip("needs eight devices", allow_module_level=True)
    return jax


def equations(program: Any) -> Iterator[Any]:
    """The equations of a program, and of the programs in it."""
    for eqn in program.eqns:
        yield eqn
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            for inner in held if isinstance(held, tuple) else (held,):
                yield from equations(inner)
