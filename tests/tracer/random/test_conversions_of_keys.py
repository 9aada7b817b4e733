"""Random keys are not converted to numbers, nor to keys of another generator, as in JAX."""
from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax

REFUSED = {
    "number": lambda m, key: m.lax.convert_element_type(1, key.dtype),
    "numpy number": lambda m, key: m.lax.convert_element_type(np.int32(0), key.dtype),
    "array": lambda m, key: m.lax.convert_element_type(m.numpy.ones(3), key.dtype),
    "to a number": lambda m, key: m.lax.convert_element_type(key, np.int32),
    "another generator": lambda m, key: m.lax.convert_element_type(
        key, m.random.key(0, impl="rbg").dtype),
    "another generator, jitted": lambda m, key: m.jit(lambda k: m.lax.convert_element_type(
        k, m.random.key(0, impl="rbg").dtype))(key),
}


@pytest.mark.parametrize("name", REFUSED)
def test_conversions_are_refused_in_the_words_of_jax(name):
    words = []
    for m in (st, real_jax()):
        with pytest.raises(ValueError) as e:
            REFUSED[name](m, m.random.key(0))
        words.append(str(e.value).split("\n")[0].removesuffix(", e.g.:"))
    assert words[0] == words[1]


def test_a_key_is_converted_to_what_it_is():
    def same(m: ModuleType):
        key = m.random.key(7)
        return m.random.key_data(m.lax.convert_element_type(key, key.dtype))

    np.testing.assert_array_equal(same(st), same(real_jax()))


@pytest.mark.parametrize("setting, value", [("jax_random_seed_offset", 5),
                                            ("jax_high_dynamic_range_gumbel", True)])
def test_settings_of_seeds_and_of_gumbel_numbers(setting, value):
    def drawn(m: ModuleType):
        return [m.random.key_data(m.random.key(3)), m.random.PRNGKey(2**31 - 1),
                m.random.key_data(m.jit(m.random.key)(-7)),
                m.random.gumbel(m.random.PRNGKey(0), (500,)),
                m.random.categorical(m.random.PRNGKey(1), np.zeros(40), shape=(500,))]

    found = []
    for m in (st, real_jax()):
        before, usual = getattr(m.config, setting), drawn(m)
        m.config.update(setting, value)
        found.append(drawn(m))
        m.config.update(setting, before)
        assert any((a != b).any() for a, b in zip(found[-1], usual, strict=True))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
