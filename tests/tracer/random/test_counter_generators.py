"""philox2x32, philox4x32 and threefry4x32 draw the numbers of JAX."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import random
from shardtrace.tracer.random import counter_generators

from ...real_jax import real_jax

NAMES = ("philox2x32", "philox4x32", "threefry4x32")


def words(L: Any, name: str) -> list[np.ndarray]:
    """What is made of keys of a generator: keys, bits and numbers."""
    r = L.random
    key = r.key(12345678, impl=name)
    found = [r.key_data(k) for k in (
        key, r.split(key, 3), r.split(key, (2, 2)), r.fold_in(key, 7), r.key(-5, impl=name),
        L.vmap(lambda i: r.fold_in(key, i))(L.numpy.arange(2)))]
    found += [r.bits(key, (2, 3), f"uint{n}") for n in (8, 16, 32)]
    with L.enable_x64(True):
        found += [r.bits(key, (3,), "uint64"), r.key_data(r.key(1 << 40, impl=name))]
    found += [r.bits(key), r.bits(key, (0, 2)), r.permutation(key, 5), r.randint(key, (4,), 0, 99),
              L.jit(lambda s: r.uniform(r.key(s, impl=name), (2,)))(3),
              L.vmap(lambda k: r.normal(k, (2,)))(r.split(key, 2)),
              r.wrap_key_data(r.key_data(key), impl=name) == key]
    with L.default_prng_impl(name):
        found += [r.uniform(r.key(1), (2,)), r.PRNGKey(1)]
    return [np.asarray(x) for x in found]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_jax(name: str) -> None:
    for i, (a, b) in enumerate(zip(words(st, name), words(real_jax(), name), strict=True)):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-5)
        else:
            np.testing.assert_array_equal(a, b, str(i), strict=True)


# Known answers of the authors' library, for a key and a counter of ones and of digits of pi.
ANSWERS = [
    ("philox2x32", [0xFFFFFFFF] * 3, [0x2C3F628B, 0xAB4FD7AD]),
    ("philox2x32", [0x13198A2E, 0x243F6A88, 0x85A308D3], [0xDD7CE038, 0xF62A4C12]),
    ("philox4x32", [0xFFFFFFFF] * 6, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ("threefry4x32", [0xFFFFFFFF] * 8, [0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732]),
]


@pytest.mark.parametrize(("name", "given", "answer"), ANSWERS)
def test_generators_give_the_answers_that_their_authors_published(
        name: str, given: list[int], answer: list[int]) -> None:
    hash = counter_generators._philox if "philox" in name else counter_generators._threefry
    values = [st.numpy.uint32(x) for x in given]
    count = len(values) - len(answer)
    assert [int(x) for x in hash(values[:count], values[count:])] == answer


def test_keys_name_their_generator() -> None:
    for name in NAMES:
        assert random.key_impl(random.key(0, impl=name)) == name
        assert random.key(0, impl=name).dtype.name.startswith("key<")
    with pytest.raises(TypeError, match="PRNG key seed must be an integer"):
        random.key(0.5, impl="philox4x32")
