"""The generators rbg and unsafe_rbg in numpy: keys of four words, numbers from Philox.

rbg splits and folds the two halves of a key by threefry; unsafe_rbg draws new keys from Philox as
well, which is fast and of unknown quality. Numbers for a whole array of keys all come from the
first of them, as in JAX, where a batch of keys is one draw.

Keys are held as key_data.py says. Source: `jax.random` (0.10.2).
"""
from __future__ import annotations

import math

import numpy as np

from ..key_data import join_words, key_words, pack_keys, split_words
from . import philox, threefry

Shape = tuple[int, ...]


def _halves(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two keys of threefry that a key consists of."""
    words = key_words(keys)
    return join_words(words[..., 0], words[..., 1]), join_words(words[..., 2], words[..., 3])


def _whole(first: np.ndarray, second: np.ndarray, generator: str) -> np.ndarray:
    return pack_keys(np.stack([*split_words(first), *split_words(second)], -1), generator)


def _draw(keys: np.ndarray, lead: int, shape: Shape) -> np.ndarray:
    """uint32 words of the first key of each device: [lead dims, shape]."""
    first = keys[(slice(None),) * lead + (0,) * (keys.ndim - lead)]
    words = philox.leading(key_words(first), math.prod(shape), 4)
    return words.astype(np.uint32).reshape(first.shape + shape)


def seed(seeds: np.ndarray, generator: str) -> np.ndarray:
    """Keys of integer seeds: the key of threefry, twice."""
    half = threefry.seed(seeds)
    return _whole(half, half, generator)


def random_bits(keys: np.ndarray, lead: int, bit_width: int, shape: Shape) -> np.ndarray:
    """Random bits, `shape` for each key, as uint<bit_width>."""
    whole = keys.shape[lead:] + shape
    first = keys[(slice(None),) * lead + (0,) * (keys.ndim - lead)]
    drawn = philox.leading(key_words(first), math.prod(whole), 2 if bit_width == 64 else 4)
    return drawn.astype(f"uint{bit_width}").reshape(first.shape + whole)


def split(keys: np.ndarray, lead: int, shape: Shape, partitionable: bool, generator: str
          ) -> np.ndarray:
    """New keys, `shape` for each key."""
    if generator == "urbg":
        count = math.prod(shape)
        words = _draw(keys, lead, (*keys.shape[lead:], 10 * count, 4))[..., ::10, :]
        return pack_keys(words.reshape(keys.shape + shape + (4,)), generator)
    make = threefry.split if partitionable else threefry.original_split
    first, second = (make(half, shape) for half in _halves(keys))
    return _whole(first, second, generator)


def fold_in(keys: np.ndarray, lead: int, data: np.ndarray, generator: str) -> np.ndarray:
    """A new key for each key and uint32 number."""
    if generator == "urbg":
        drawn = _draw(seed(data, generator), lead, (*data.shape[lead:], 10, 4))[..., -1, :]
        return pack_keys(key_words(keys) ^ drawn, generator)
    first, second = (threefry.fold_in(half, data) for half in _halves(keys))
    return _whole(first, second, generator)


# -- one draw for each key -------------------------------------------------------------------------

def each_bits(keys: np.ndarray, bit_width: int) -> np.ndarray:
    """One number for each key, as if each were alone."""
    drawn = philox.leading(key_words(keys), 1, 2 if bit_width == 64 else 4)
    return drawn[..., 0].astype(f"uint{bit_width}")


def each_split(keys: np.ndarray, count: int) -> np.ndarray:
    """`count` new keys of each key, as if each were alone: [...] -> [..., count]."""
    generator = keys.dtype.names[0]       # type: ignore[index]
    if generator == "rbg":
        return split(keys, 0, (count,), True, generator)
    words = philox.leading(key_words(keys), 40 * count, 4).astype(np.uint32)
    return pack_keys(words.reshape(*keys.shape, 10 * count, 4)[..., ::10, :], generator)
