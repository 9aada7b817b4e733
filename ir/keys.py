"""How random keys are held as numpy arrays: one uint64 each, so that a key array has its own shape.

numpy has no dtype for keys. Because one key is one element, every op that only moves elements
(slices, reshapes, selects, gathers) runs on key arrays as it is; only the ops in ops/random.py
look inside. The first word of a key is the low half.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .dtypes import ExtendedDType

KEY_STORAGE = np.dtype(np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def storage_dtype(dtype: Any) -> np.dtype:
    """The numpy dtype of arrays that hold values of `dtype`: itself, uint64 for random keys."""
    return KEY_STORAGE if isinstance(dtype, ExtendedDType) else dtype


def key_words(keys: np.ndarray) -> np.ndarray:
    """uint64 [...] -> the words of the keys, uint32 [..., 2]."""
    return np.stack(split_words(keys), axis=-1)


def split_words(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint64 [...] -> first and second words, uint32 [...] each."""
    return (keys & _LOW).astype(np.uint32), (keys >> _HALF).astype(np.uint32)


def join_words(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """First and second words, uint32 [...] -> keys, uint64 [...]."""
    return first.astype(np.uint64) | (second.astype(np.uint64) << _HALF)


def pack_keys(words: np.ndarray) -> np.ndarray:
    """uint32 [..., 2] -> uint64 [...]; inverse of `key_words`."""
    return join_words(words[..., 0], words[..., 1])
