"""Functions and methods have the parameters that they have in JAX: names, kinds, defaults.

JAX's are in tests/golden/signatures.txt, written by `tests/record_signatures.py`.
"""
from __future__ import annotations

import pytest
import signatures

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn

RECORDED = signatures.recorded()
OURS = signatures.surface(st)

# Where there is more to say than JAX says: arguments that mean something here alone.
MORE_EXACT = {
    "jax.ShapeDtypeStruct", "jax.Shard", "jax.checkpoint", "jax.default_device", "jax.enable_x64",
    "jax.remat", "jax.transfer_guard", "jax.vmap",
}


@pytest.mark.parametrize("holder", sorted({name.rpartition(".")[0] for name in RECORDED}))
def test_parameters_are_those_of_jax(holder):
    names = [n for n in RECORDED if n.rpartition(".")[0] == holder and n in OURS]
    different = [f"{n}({OURS[n]}), not ({RECORDED[n]})" for n in names
                 if OURS[n] != RECORDED[n] and n not in MORE_EXACT]
    assert not different, "\n".join(different)

@pytest.mark.parametrize("module", [jnp, jnp.linalg, jnp.fft, lax, lax.linalg, nn])
def test_every_public_name_is_exported_and_documented(module):
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and value.__module__.startswith("shardtrace"):
            assert value.__doc__, name
