"""Functions and methods have the parameters that they have in JAX: names, kinds, defaults.

JAX's are in tests/golden/signatures.txt, written by `tests/record_signatures.py`.
"""
from __future__ import annotations

import pytest
import signatures

import shardtrace.numpy as jnp
from shardtrace import lax, nn

RECORDED = signatures.recorded()
OURS = signatures.surface(jnp, lax, nn)

# What JAX has beyond: hooks of its compiler, hardware generators, formats of one vendor.
NOT_OFFERED = {
    "jnp.int1", "jnp.uint1", "lax.PrecisionLike", "lax.RandomAlgorithm", "lax.after_all",
    "lax.composite", "lax.create_token", "lax.custom_linear_solve", "lax.custom_root",
    "lax.dce_sink", "lax.linalg.hessenberg", "lax.linalg.tridiagonal", "lax.pbroadcast",
    "lax.platform_dependent", "lax.precv", "lax.psend", "lax.ragged_all_to_all",
    "lax.rng_bit_generator", "lax.rng_uniform", "lax.scaled_dot", "lax.stage",
    "nn.get_scaled_dot_general_config", "nn.scaled_dot_general", "nn.scaled_matmul",
}
# Where JAX tells less than there is to know.
MORE_EXACT = {"Array.item", "jnp.set_printoptions", "lax.random_gamma_grad"}


@pytest.mark.parametrize("holder", sorted({name.rpartition(".")[0] for name in RECORDED}))
def test_parameters_are_those_of_jax(holder):
    names = [n for n in RECORDED if n.rpartition(".")[0] == holder and n in OURS]
    different = [f"{n}({OURS[n]}), not ({RECORDED[n]})" for n in names
                 if OURS[n] != RECORDED[n] and n not in MORE_EXACT]
    assert not different, "\n".join(different)


def test_only_hooks_of_compilers_are_missing():
    assert {n for n in RECORDED if n not in OURS} <= NOT_OFFERED


@pytest.mark.parametrize("module", [jnp, jnp.linalg, jnp.fft, lax, lax.linalg, nn])
def test_every_public_name_is_exported_and_documented(module):
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and value.__module__.startswith("shardtrace"):
            assert value.__doc__, name
