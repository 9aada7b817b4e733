"""Random keys: making them, splitting them, looking inside.

A typed key is an array of dtype `key<fry>`; a raw key is an array of its words, u32[..., 2], as the
older `PRNGKey` gives. Every function takes both and gives back what it was given. Names, errors and
numbers are those of `jax.random` (0.10.2).
"""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import KEY_FRY, KEY_RBG, KEY_URBG, KeyDType, is_extended
from ...ir.ops.random.primitives import (
    random_clone_p,
    random_fold_in_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
)
from ...ir.settings.context import config
from ...ir.source.wording import warn
from ...ir.values.array import Array
from .. import lax
from ..batching.vmap import vmap
from ..operands.dtype_promotion import is_array_like
from ..operands.rank_promotion import shape_of
from ..staging.constants import as_array
from .counter_generators import NAMES, counter_generator
from .user_generators import PRNGImpl, PRNGSpec, own_impl, own_key_dtype

_NAMES = {"threefry2x32": KEY_FRY, "rbg": KEY_RBG, "unsafe_rbg": KEY_URBG}


def generator(key: Array) -> dict[str, Any]:
    """The param that gives ops on keys their generator, unless it is threefry."""
    impl = key.aval.dtype.impl              # type: ignore[union-attr]
    return {} if impl == "fry" else {"generator": impl}


def hashing(key: Array) -> dict[str, Any]:
    """The params of ops that draw: the generator, and `jax_threefry_partitionable` if it is off."""
    params = generator(key)
    return params if config.jax_threefry_partitionable else {"partitionable": False, **params}


# -- checks ----------------------------------------------------------------------------------------

def key_dtype(impl_spec: Any = None) -> KeyDType:
    """The dtype of keys of a generator: its name, a key dtype, or None for the default."""
    if impl_spec is None:
        impl_spec = config.jax_default_prng_impl
    if isinstance(impl_spec, KeyDType):
        return impl_spec
    if isinstance(impl_spec, PRNGSpec):
        impl_spec = impl_spec._impl
    if isinstance(impl_spec, PRNGImpl):
        return own_key_dtype(impl_spec)
    if isinstance(impl_spec, str):
        if impl_spec in _NAMES:
            return _NAMES[impl_spec]
        if impl_spec in NAMES:
            return own_key_dtype(counter_generator(impl_spec))
        known = ", ".join(f'"{name}"' for name in (*_NAMES, *NAMES))
        raise ValueError(f'unrecognized PRNG implementation "{impl_spec}". Did you mean one of: '
                         f"{known}?")
    raise TypeError(f"unrecognized type {type(impl_spec)} for specifying PRNG implementation.")


def is_key(x: Any) -> bool:
    """Whether `x` is an array of typed keys."""
    return isinstance(x, Array) and is_extended(x.aval.dtype)


def checked_keys(name: str, key: Any) -> tuple[Array, bool]:
    """Typed keys of any shape, and whether raw ones were given."""
    if is_key(key):
        return key, False
    if not is_array_like(key) and not isinstance(key, str):
        raise TypeError(f"unexpected PRNG key type {type(key)}")
    if config.jax_legacy_prng_key != "allow":
        _refuse_raw(name)
    return _wrapped(key, key_dtype()), True


def _refuse_raw(name: str) -> None:
    message = ("Legacy uint32 key array passed as key to jax.random function. Please create keys "
               "using jax.random.key(). If use of a raw key array was intended, set "
               'jax_legacy_prng_key="allow".')
    if config.jax_legacy_prng_key == "error":
        fail(ValueError, message, code="raw-key", help="make a key with `random.key`")
    warn(message)


def checked_key(name: str, key: Any) -> tuple[Array, bool]:
    """One typed key, and whether a raw one was given. Raises ValueError for several keys."""
    typed, raw = checked_keys(name, key)
    if typed.aval.shape:
        fail(ValueError, f"{name} accepts a single key, but was given a key array of shape "
             f"{shape_of(key)} != (). Use jax.vmap for batching.", code="several-keys",
             label=f"the key is {typed.aval.str_short(True)}",
             help=f"use one of the keys, or map {name} over them with `vmap`")
    return typed, raw


def _wrapped(words: Any, dtype: Any) -> Array:
    if not all(hasattr(words, name) for name in ("ndim", "shape", "dtype")):
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data to have ndim, "
                        f"shape, and dtype attributes. Got {words}")
    if isinstance(words, np.ndarray) and words.dtype != np.uint32 and (
            words.shape[words.ndim - len(dtype.key_shape):] == dtype.key_shape):
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; "
                        f"got dtype={words.dtype}")
    return random_wrap_p.bind(words, impl=dtype.impl)


def as_given(raw: bool, keys: Array) -> Array:
    """Typed keys in the form in which keys were given."""
    return random_unwrap_p.bind(keys) if raw else keys


# -- making ----------------------------------------------------------------------------------------

def _seeded(function: str, seed: Any, impl: Any) -> Array:
    dtype = key_dtype(impl)
    if is_key(seed):
        raise TypeError(f"{function} accepts a scalar seed, but was given a PRNG key.")
    shape = shape_of(seed)
    if shape:
        raise TypeError(f"{function} accepts a scalar seed, but was given an array of shape "
                        f"{shape} != (). Use jax.vmap for batching")
    return random_seed(seed, dtype)


def random_seed(seeds: Any, impl: Any) -> Array:
    """A typed key for each integer of `seeds`: the generator first and last, as `key` of one.

    >>> from shardtrace.extend.random import random_seed, rbg_prng_impl
    >>> random_seed(jnp.arange(3), rbg_prng_impl).shape
    (3,)
    """
    dtype = key_dtype(impl)
    if isinstance(seeds, int):
        seeds = np.int64(seeds)         # hashes and other large numbers lose their high half
    offset = config.read("jax_random_seed_offset")
    if offset:
        seeds = as_array(seeds) + offset
    own = own_impl(dtype)
    if own is None:
        return random_seed_p.bind(seeds, impl=dtype.impl)
    seeded = own.seed
    for _ in shape_of(seeds):
        seeded = vmap(seeded)
    return _wrapped(seeded(as_array(seeds)), dtype)


def seed_with_impl(impl: Any, seed: Any) -> Array:
    """A typed key of a generator, made of a seed: `random_seed(seed, impl)`."""
    return random_seed(seed, impl)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """A random key made of an integer seed: what all functions of `random` begin with.

    The same seed gives the same key everywhere. impl: the generator: "threefry2x32" (the default),
    "rbg", "unsafe_rbg", "philox2x32", "philox4x32" or "threefry4x32", or one of
    `extend.random.define_prng_impl`. Raises TypeError for a seed
    that is no integer scalar.

    Sharding
      Auto, Explicit: whole on every device; `split(key, n)` gives an array of keys, which may be
        split.
      Manual: the same on every device. `fold_in(key, lax.axis_index('x'))` gives each its own.

    >>> first, second = st.random.split(st.random.key(7))
    >>> st.random.normal(first, (2,)).shape, first.dtype
    ((2,), key<fry>)
    """
    return _seeded("key", seed, _one_of("key", impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A raw key, u32[2] (u32[4] for rbg), of an integer seed; typed under `enable_custom_prng`.

    Raises TypeError for seeds that are no integer scalars. Source: `jax.random.PRNGKey`.

    >>> from shardtrace import random
    >>> random.PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    return as_given(not config.jax_enable_custom_prng, _seeded("PRNGKey", seed, impl))


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Array:
    """Typed keys of their words: u32[..., 2] -> key<fry>[...]; TypeError for other arrays."""
    return _wrapped(key_bits_array, key_dtype(_one_of("wrap_key_data", impl, dtype)))


def _one_of(function: str, impl: Any, dtype: Any) -> Any:
    if impl is not None and dtype is not None:
        raise ValueError("Cannot specify both `impl` and `dtype` arguments to "
                         f"jax.random.{function}")
    return dtype if impl is None else impl


# -- new keys of old -------------------------------------------------------------------------------

def split(key: Any, num: int | tuple[int, ...] = 2) -> Array:
    """`num` new keys made of one, as an array; the old key must not be used again.

    key: one key. num: a number, or a shape. The new keys draw independent numbers.

    Sharding
      Auto: the partitioner lays the keys out by their uses.
      Explicit: whole on every device; `reshard` splits them.
      Manual: the same keys on every device, unless the key varies.

    >>> st.random.split(st.random.key(0), 3).shape
    (3,)
    """
    typed, raw = checked_key("split", key)
    return as_given(raw, split_keys(typed, num))


def split_keys(key: Array, num: int | tuple[int, ...] = 2) -> Array:
    """`split` of a typed key."""
    shape = tuple(map(operator.index, num)) if isinstance(num, Sequence) else (operator.index(num),)
    own = own_impl(key.aval.dtype)
    if own is not None:
        return _wrapped(own.split(random_unwrap_p.bind(key), shape), key.aval.dtype)
    return random_split_p.bind(key, shape=shape, **hashing(key))


def split_off(key: Array, num: int = 2) -> list[Array]:
    """`num` new keys of a typed key, one by one."""
    keys = split_keys(key, num)
    return [lax.index_in_dim(keys, i, keepdims=False) for i in range(num)]


def fold_in(key: Any, data: Any) -> Array:
    """A new key made of a key and an integer, such as the number of a step or of a device.

    Different integers give independent keys. data: taken as uint32; a traced value will do.

    Sharding
      Auto, Explicit: the key stays whole on every device.
      Manual: with `lax.axis_index('x')` as the integer each device has a key of its own.

    >>> key = st.random.key(0)
    >>> bool((st.random.fold_in(key, 1) == st.random.fold_in(key, 2)).any())
    False
    """
    typed, raw = checked_key("fold_in", key)
    shape = shape_of(data)
    if shape:
        raise TypeError("fold_in accepts a scalar, but was given an array of"
                        f"shape {shape} != (). Use jax.vmap for batching.")
    if isinstance(data, Array):
        word: Any = lax.convert_element_type(data, np.uint32)
    elif isinstance(data, int):
        word = np.uint32(data)          # OverflowError where it does not fit
    else:
        word = np.asarray(data).astype(np.uint32)[()]
    own = own_impl(typed.aval.dtype)
    if own is not None:
        return _wrapped(own.fold_in(random_unwrap_p.bind(typed), as_array(word)),
                        typed.aval.dtype)
    return as_given(raw, random_fold_in_p.bind(typed, word, **generator(typed)))


def clone(key: Any) -> Array:
    """The key again, declared to be used a second time on purpose (for key-reuse checks)."""
    typed, raw = checked_keys("clone", key)
    return as_given(raw, random_clone_p.bind(typed))


# -- looking inside --------------------------------------------------------------------------------

def key_data(keys: Any) -> Array:
    """The words that keys are made of: key<fry>[...] gives uint32[..., 2]."""
    return random_unwrap_p.bind(checked_keys("key_data", keys)[0])


def key_impl(keys: Any) -> str | PRNGSpec:
    """The generator that keys are for: its name, or what `extend.random.define_prng_impl` gave.

    >>> st.random.key_impl(st.random.key(0))
    'threefry2x32'
    """
    dtype = checked_keys("key_impl", keys)[0].aval.dtype
    own = own_impl(dtype)
    if own is not None:
        return own.name if own.name in NAMES and own is counter_generator(own.name) else (
            PRNGSpec(own))
    return next(name for name, known in _NAMES.items() if known is dtype)
