"""Real JAX with enough devices, for the tests that need it; they skip without.

tests/conftest.py asks for eight before JAX is first used.
"""
from __future__ import annotations

from typing import Any

import pytest


def real_jax(devices: int = 8) -> Any:
    """The module `jax`, with the parts that load late; else the test, or its module, is skipped."""
    jax = pytest.importorskip("jax")
    for name in ("ad_checkpoint", "experimental", "extend.core", "extend.random", "image",
                 "scipy.sparse.linalg"):
        pytest.importorskip(f"jax.{name}")
    if jax.device_count() < devices:
        pytest.skip(f"needs XLA_FLAGS=--xla_force_host_platform_device_count={devices}",
                    allow_module_level=True)
    return jax
