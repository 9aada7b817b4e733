"""Functions and methods have the parameters that they have in JAX: names, kinds, defaults.

JAX's are in tests/golden/signatures.txt, written by `tests/record/signatures.py`.
"""
from __future__ import annotations

import inspect
import pydoc

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn

from ..rows import rows
from . import signatures

RECORDED = signatures.recorded()
OURS = signatures.surface(st)

# Where there is more to say than JAX says: arguments that mean something here alone.
MORE_EXACT = {
    "jax.ShapeDtypeStruct", "jax.Shard", "jax.checkpoint", "jax.default_device", "jax.enable_x64",
    "jax.remat", "jax.transfer_guard", "jax.vmap",
}
# JAX's say (*args, out=None, where=None) of all of them; here each says what it takes.
MORE_EXACT |= {f"jnp.{name}" for name in jnp.__all__ if isinstance(getattr(jnp, name), jnp.ufunc)}


@rows("holder", sorted({name.rpartition(".")[0] for name in RECORDED}))
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


def test_help_of_a_ufunc_begins_with_its_signature():
    for name in ("add", "negative", "logaddexp", "bitwise_and", "maximum"):
        f = getattr(jnp, name)
        told = pydoc.plain(pydoc.render_doc(f)).splitlines()
        assert f"{name}{inspect.signature(f)}" in told, told[:4]
    assert str(inspect.signature(jnp.add)) == "(x, y, /)"


def test_a_ufunc_in_a_class_is_not_bound_to_the_instance():
    class Layer:
        combine = jnp.add

    assert Layer().combine(1, 2) == 3
