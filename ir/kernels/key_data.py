"""How random keys are held as numpy arrays: one element each, so a key array has its own shape.

numpy has no dtype for keys. Because one key is one element, every op that only moves elements
(slices, reshapes, selects, gathers) runs on key arrays as it is; only the ops in
ops/random/primitives.py look inside. Keys of threefry are uint64, the first word in
the low half. Keys of other generators are records with one field, named as the generator.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import KEY_DTYPES, KEY_FRY, ExtendedDType, KeyDType

KEY_STORAGE = np.dtype(np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def storage_dtype(dtype: Any) -> np.dtype:
    """The numpy dtype of arrays that hold values of `dtype`: for numbers, itself."""
    if not isinstance(dtype, ExtendedDType):
        return dtype
    if isinstance(dtype, KeyDType) and dtype is not KEY_FRY:
        return np.dtype([(dtype.impl, np.uint32, dtype.key_shape)])
    return KEY_STORAGE


def generator_of(keys: np.ndarray) -> str:
    """The tag of the generator whose keys these are."""
    return keys.dtype.names[0] if keys.dtype.names else "fry"


def key_words(keys: np.ndarray) -> np.ndarray:
    """The words of keys: [...] -> uint32 [..., *key_shape]."""
    if keys.dtype.names:
        return keys[keys.dtype.names[0]]
    return np.stack(split_words(keys), axis=-1)


def split_words(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [...] -> first and second words, uint32 [...] each."""
    return (keys & _LOW).astype(np.uint32), (keys >> _HALF).astype(np.uint32)


def join_words(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """First and second words, uint32 [...] -> keys, uint64 [...]."""
    return first.astype(np.uint64) | (second.astype(np.uint64) << _HALF)


def pack_keys(words: np.ndarray, generator: str = "fry") -> np.ndarray:
    """The keys of words, uint32 [..., *key_shape] -> [...]; inverse of `key_words`."""
    if generator == "fry":
        return join_words(words[..., 0], words[..., 1])
    dtype = KEY_DTYPES[generator]
    out = np.empty(words.shape[:words.ndim - len(dtype.key_shape)], storage_dtype(dtype))
    out[generator] = words
    return out
