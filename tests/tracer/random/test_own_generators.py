"""Generators of a user's own: their keys are keys as all others, their functions are traced."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import random
from shardtrace.extend.random import (
    define_prng_impl,
    random_seed,
    rbg_prng_impl,
    seed_with_impl,
    threefry_2x32,
    threefry_prng_impl,
    unsafe_rbg_prng_impl,
)
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...real_jax import real_jax


def _mixed(words, n):
    return words * np.uint32(747796405) + jnp.asarray(n, np.uint32) * np.uint32(2891336453)


def _counting(key_shape, name="counting", tag="count"):
    """A generator that multiplies and adds, on words of any shape."""
    def many(words, shape):
        n = jnp.arange(np.prod(shape, dtype=int), dtype=np.uint32)
        return _mixed(words, n.reshape(*shape, *(1,) * len(key_shape)))

    return define_prng_impl(
        key_shape=key_shape, seed=lambda s: jnp.full(key_shape, s).astype(np.uint32) + 1,
        split=many, fold_in=_mixed, name=name, tag=tag,
        random_bits=lambda words, width, shape: many(words, shape)[
            (..., *(0,) * len(key_shape))].astype(f"uint{width}"))


@pytest.mark.parametrize("key_shape", [(1,), (2,), (4,), (3, 2)], ids=str)
def test_keys_of_any_shape(key_shape) -> None:
    spec = _counting(key_shape)
    key = random.key(4, impl=spec)
    first = np.full(key_shape, 5, np.uint32)
    assert key.shape == () and key.dtype == random.key_dtype(spec) and random.key_impl(key) == spec
    assert key.dtype == random.key(0, dtype=key.dtype).dtype != random.key(0).dtype
    assert st.dtypes.issubdtype(key.dtype, st.dtypes.prng_key)
    assert np.array_equal(random.key_data(key), first)
    keys = random.split(key, (3, 2))
    wanted = first * np.uint32(747796405) + (
        np.arange(6, dtype=np.uint32) * np.uint32(2891336453)).reshape(3, 2, *(1,) * len(key_shape))
    assert keys.shape == (3, 2) and np.array_equal(random.key_data(keys), wanted)
    assert np.array_equal(random.key_data(keys[1, 1]), wanted[1, 1])
    again = random.wrap_key_data(wanted, impl=spec)
    assert again.dtype == key.dtype and bool((again == keys).all())
    folded = random.fold_in(key, 3)
    assert np.array_equal(random.key_data(folded), wanted[1, 1])
    assert np.array_equal(random.bits(key, (2, 3)), wanted.reshape(6, -1)[:, 0].reshape(2, 3))
    with pytest.raises(TypeError, match="to end with"):
        random.wrap_key_data(np.zeros((*key_shape[:-1], 7), np.uint32), impl=spec)


def test_numbers_are_drawn_from_its_bits() -> None:
    key = random.key(9, impl=_counting((2,)))
    first, second = random.split(key)
    x = random.uniform(first, (50,))
    assert 0 <= x.min() and x.max() < 1 and len(np.unique(x)) == 50
    for f in (random.normal, random.uniform, random.exponential, random.gumbel,
              lambda k, s: random.randint(k, s, 0, 9), lambda k, s: random.permutation(k, 20)):
        eager, jitted = f(second, (4, 5)), st.jit(f, static_argnums=1)(second, (4, 5))
        assert np.array_equal(eager, jitted)
    rows = st.vmap(lambda k: random.normal(k, (3,)))(random.split(key, 4))
    assert np.array_equal(rows[2], random.normal(random.split(key, 4)[2], (3,)))
    with pytest.raises(NotImplementedError, match="generators of this library"):
        random.gamma(key, 2.0)


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto], ids=str)
def test_keys_are_sharded_and_programs_are_text(kind) -> None:
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    key = random.key(1, impl=_counting((3,)))
    with st.set_mesh(mesh):
        keys = st.device_put(random.split(key, 8), P("x"))
        f = st.jit(lambda k: st.vmap(random.normal)(k))
        assert np.array_equal(f(keys), st.vmap(random.normal)(random.split(key, 8)))
        words = st.jit(random.key_data)(keys)
        assert words.shape == (8, 3) and words.sharding.spec in (P("x"), P("x", None))
    program = st.make_jaxpr(random.split)(key)
    assert str(st.parse_program(str(program))) == str(program)


def test_generators_are_told_apart_by_what_they_do() -> None:
    one, other = _counting((2,)), _counting((2,))
    assert one == one and hash(one) == hash(one) and one != other
    assert repr(one) == "PRNGSpec('counting')" and str(one) == "count"
    assert random.key_dtype(one) == random.key_dtype(one) != random.key_dtype(other)
    with pytest.raises(TypeError):
        random.key(0, impl=one) == random.key(0, impl=other)  # noqa: B015
    plain = define_prng_impl(key_shape=(1,), seed=None, split=None, random_bits=None, fold_in=None)
    assert repr(plain) == "PRNGSpec('<unnamed>')" and str(plain) == "?"


def test_the_generators_that_are_here() -> None:
    for name, impl in [("threefry2x32", threefry_prng_impl), ("rbg", rbg_prng_impl),
                       ("unsafe_rbg", unsafe_rbg_prng_impl)]:
        key = random.key(3, impl=name)
        assert impl.name == name and impl.key_shape == random.key_data(key).shape
        assert random.key_impl(random.key(3, impl=impl)) == name
        assert bool(seed_with_impl(impl, 3) == key)
        words = impl.seed(jnp.asarray(3))
        assert np.array_equal(words, random.key_data(key))
        assert np.array_equal(impl.split(words, (3,)), random.key_data(random.split(key, 3)))
        assert np.array_equal(impl.random_bits(words, 16, (5,)), random.bits(key, (5,), np.uint16))
        assert np.array_equal(impl.fold_in(words, 7), random.key_data(random.fold_in(key, 7)))
        assert random_seed(np.arange(4), impl)[3] == key
    many = random_seed(np.arange(6).reshape(2, 3), _counting((4,))._impl)
    assert many.shape == (2, 3) and np.array_equal(random.key_data(many)[1, 2], [6] * 4)


def test_threefry_hash_as_jax() -> None:
    jax = real_jax()
    theirs = pytest.importorskip("jax.extend.random")
    for shape in [(), (1,), (4,), (3, 5), (0,)]:
        count = np.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)
        words = np.array([13, 37], np.uint32)
        assert np.array_equal(threefry_2x32(words, count),
                              theirs.threefry_2x32(jax.numpy.asarray(words), count))
    with pytest.raises(TypeError, match="threefry_2x32 requires uint32 arguments"):
        threefry_2x32(np.zeros(2, np.int32), np.zeros(2, np.uint32))
