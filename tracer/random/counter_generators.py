"""Further generators of `jax.random`: philox2x32, philox4x32 and threefry4x32.

Each is a hash of counters under a key: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
easy as 1, 2, 3", 2011, with the constants of its library, Random123. Unlike threefry2x32 they are
no ops: programs hold the arithmetic. What is counted, and which words are used, are as in JAX
(0.10.2), so the numbers are, too.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.support.caches import cached
from ...ir.types import Shape
from ...ir.values.array import Array
from .. import jnp, lax
from ..operands.dtype_promotion import convert
from .user_generators import PRNGImpl

Words = Sequence[Any]
Hash = Callable[[Words, Words], list[Any]]      # (words of the key, words of the counter) -> words

_U32 = np.uint32
_ZERO = _U32(0)
_WEYL = 0x9E3779B9, 0xBB67AE85                  # by which the words of a Philox key grow
_MULTIPLIERS = {2: (0xD256D193,), 4: (0xD2511F53, 0xCD9E8D57)}
_ROTATIONS = (10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20)
_PARITY = 0x1BD11BDA                            # of the key schedule of Threefry


def _like(word: int, x: Any) -> Array:
    return jnp.full_like(x, _U32(word))


def _philox(key: Words, counter: Words) -> list[Any]:
    """Ten rounds: products of the even words, whose halves are exchanged between the pairs."""
    x = list(counter)
    factors = [_like(m, x[0]) for m in _MULTIPLIERS[len(x)]]
    for turn in range(10):
        if turn:
            key = [lax.add(k, _like(w, k)) for k, w in zip(key, _WEYL, strict=False)]
        products = [(lax.mulhi(m, x[2 * i]), lax.mul(m, x[2 * i])) for i, m in enumerate(factors)]
        mixed: list[Any] = []
        for i, k in enumerate(key):
            high, low = products[-1 - i]
            mixed += lax.bitwise_xor(lax.bitwise_xor(high, x[2 * i + 1]), k), low
        x = mixed
    return x


def _rotated(x: Any, by: int) -> Array:
    return lax.bitwise_or(lax.shift_left(x, _like(by, x)),
                          lax.shift_right_logical(x, _like(32 - by, x)))


def _threefry(key: Words, counter: Words) -> list[Any]:
    """Twenty rounds: each word at an even place is added to and mixed with one at an odd place; a
    word of the key schedule is added to each every four rounds."""
    schedule = [*key, functools.reduce(lax.bitwise_xor, [*key, _like(_PARITY, key[0])])]
    x = [lax.add(word, k) for word, k in zip(counter, schedule, strict=False)]
    for turn in range(20):
        for even, by in zip((0, 2), _ROTATIONS[turn % 8], strict=True):
            odd = (even + (3 if turn % 2 else 1)) % 4
            x[even] = lax.add(x[even], x[odd])
            x[odd] = lax.bitwise_xor(x[even], _rotated(x[odd], by))
        if turn % 4 == 3:
            step = turn // 4 + 1
            x = [lax.add(word, schedule[(i + step) % 5]) for i, word in enumerate(x)]
            x[3] = lax.add(x[3], _like(step, x[3]))
    return x


def _counts(shape: Shape) -> tuple[Any, Any]:
    """The halves of the row-major number of each element."""
    if math.prod(shape) > 1 << 32:
        raise NotImplementedError("random bits array of size exceeding 2 ** 32")
    places = [lax.mul(lax.broadcasted_iota("uint32", shape, i),
                      jnp.full(shape, math.prod(shape[i + 1:]), _U32)) for i in range(len(shape))]
    return _ZERO, functools.reduce(lax.add, places) if places else _ZERO


def _generator(name: str, tag: str, hash: Hash, key_words: int, words: int, seed_is_key: bool,
               halves: Callable[[Words], tuple[Any, Any]]) -> PRNGImpl:
    """The generator of a hash of `words` words.

    seed_is_key: a seed is hashed as the key, not as the counter. halves: the two words of the hash
    that numbers of 64 bits are made of.
    """
    def called(key: Words, *counter: Any) -> list[Any]:
        shape = np.broadcast_shapes(*map(np.shape, counter))
        return hash([jnp.broadcast_to(k, shape) for k in key],
                    [jnp.broadcast_to(c, shape) for c in counter])

    def words_of(key: Any) -> list[Any]:
        return [key[i] for i in range(key_words)]

    def new_keys(hashed: Words) -> Array:
        return jnp.stack(list(hashed[:key_words]), axis=-1)

    def seed(value: Any) -> Array:
        if value.shape:
            raise TypeError(f"PRNG key seed must be a scalar; got {value!r}.")
        if not issubdtype(value.dtype, np.integer):
            raise TypeError(f"PRNG key seed must be an integer; got {value!r}")
        high = lax.shift_right_logical(value, convert(32, value.dtype))
        given = [convert(high, _U32), convert(value, _U32)]
        if seed_is_key:
            return new_keys(called([*given, _ZERO, _ZERO], *[_ZERO] * words))
        return new_keys(called([_ZERO] * key_words, *given, *[_ZERO] * (words - 2)))

    def split(key: Any, shape: Shape) -> Array:
        return new_keys(called(words_of(key), *[_ZERO] * (words - 2),
                               *_counts(tuple(map(operator.index, shape)))))

    def fold_in(key: Any, data: Any) -> Array:
        return new_keys(called(words_of(key), *[_ZERO] * (words - 1), jnp.uint32(data)))

    def random_bits(key: Any, bit_width: int, shape: Shape) -> Array:
        if bit_width not in (8, 16, 32, 64):
            raise TypeError("requires 8-, 16-, 32- or 64-bit field width.")
        hashed = called(words_of(key), *_counts(tuple(shape)), *[_ZERO] * (words - 2))
        dtype = np.dtype(f"uint{bit_width}")
        if bit_width < 64:
            return convert(functools.reduce(lax.bitwise_xor, hashed), dtype)
        first, second = [convert(half, dtype) for half in halves(hashed)]
        return lax.bitwise_or(lax.shift_left(first, jnp.full_like(first, 32)), second)

    return PRNGImpl((key_words,), seed, split, random_bits, fold_in, name, tag)


_MAKERS: dict[str, Callable[[], PRNGImpl]] = {
    "philox2x32": lambda: _generator("philox2x32", "phx2", _philox, 1, 2, False,
                                     lambda x: (x[0], x[1])),
    "philox4x32": lambda: _generator("philox4x32", "phx4", _philox, 2, 4, False,
                                     lambda x: (x[0], x[1])),
    "threefry4x32": lambda: _generator(
        "threefry4x32", "fry4", _threefry, 4, 4, True,
        lambda x: (lax.bitwise_xor(x[0], x[2]), lax.bitwise_xor(x[1], x[3]))),
}
NAMES = tuple(_MAKERS)


@cached(len(NAMES), "generators of random numbers")
def counter_generator(name: str) -> PRNGImpl:
    """The generator of this name, of `NAMES`."""
    return _MAKERS[name]()
