"""Resizing of images: JAX's values, whole and split images, derivatives, errors."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import image
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

X = np.arange(12, dtype=np.float32).reshape(3, 4) ** 1.5

# The first row of X resized to (2, 6), as JAX 0.10.2 gives it.
ROWS = [
    ("nearest", True, [0.0, 1.0, 1.0, 2.82843, 5.19615, 5.19615]),
    ("linear", True, [3.0, 3.90881, 5.22788, 6.86887, 8.73591, 10.19269]),
    ("linear", False, [2.0, 2.77254, 3.92016, 5.42048, 7.16137, 8.52718]),
    ("cubic", True, [2.09955, 2.8798, 4.27977, 5.87216, 7.94306, 9.32425]),
    ("cubic", False, [1.10665, 1.72599, 2.89132, 4.31884, 6.22291, 7.50393]),
    ("cubic-pytorch", True, [2.09955, 2.8798, 4.27977, 5.87216, 7.94306, 9.32425]),
    ("cubic-pytorch", False, [1.17221, 1.82066, 3.1419, 4.40483, 6.45649, 7.81439]),
    ("lanczos3", True, [1.62586, 2.29141, 3.74059, 5.18435, 7.45031, 8.70244]),
    ("lanczos3", False, [0.51105, 1.02164, 2.2029, 3.48964, 5.57097, 6.72794]),
    ("lanczos5", True, [1.32974, 2.25149, 3.4503, 4.94623, 7.07205, 8.52461]),
    ("lanczos5", False, [-0.17894, 0.53245, 1.44057, 2.74346, 4.68323, 5.98534]),
    ("area", True, [2.66667, 3.53006, 4.39345, 6.7846, 8.21106, 9.63752]),
]


@pytest.mark.parametrize(("method", "antialias", "row"), ROWS)
def test_resized_image_is_that_of_jax(method, antialias, row):
    got = image.resize(X, (2, 6), method, antialias=antialias)
    np.testing.assert_allclose(got[0], row, atol=2e-5)


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3", "area"])
def test_an_image_of_the_same_shape_is_left_alone(method):
    np.testing.assert_array_equal(image.resize(X, X.shape, method), X)


def test_scaled_and_translated_image_is_zero_outside():
    got = image.scale_and_translate(X, (3, 3), (0, 1), jnp.array([1.5, 0.5]),
                                    jnp.array([0.2, -0.3]), "linear")
    np.testing.assert_allclose(got, [[1.38272, 4.4351, 0.0], [5.13468, 9.14905, 0.0],
                                     [12.14564, 17.87898, 0.0]], atol=2e-5)


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_a_split_batch_is_resized_where_it_is(method):
    mesh = st.make_mesh((8,), ("x",))
    images = np.cos(np.arange(8 * 4 * 4 * 2, dtype=np.float32)).reshape(8, 4, 4, 2)
    split = st.device_put(images, NamedSharding(mesh, P("x")))
    f = st.jit(lambda x: image.resize(x, (8, 6, 3, 2), method))
    np.testing.assert_allclose(f(split), image.resize(images, (8, 6, 3, 2), method), atol=1e-6)
    assert f(split).sharding.spec == P("x")
    assert "all_gather" not in f.lower(split).compile().as_text()


def test_derivative_is_that_of_a_linear_function():
    def f(x):
        return image.resize(x, (5, 7), "bilinear")

    ct = np.sin(np.arange(35, dtype=np.float32)).reshape(5, 7)
    (back,) = st.vjp(f, X)[1](ct)
    assert float(jnp.vdot(back, X)) == pytest.approx(float(jnp.vdot(ct, f(X))), rel=1e-5)


def test_errors_say_what_does_not_fit():
    with pytest.raises(ValueError, match="shape must have length equal to the number of dim"):
        image.resize(X, (2,), "linear")
    with pytest.raises(ValueError, match='Unknown resize method "sharp"'):
        image.resize(X, (2, 2), "sharp")
    with pytest.raises(ValueError, match="Nearest neighbor resampling is not currently supported"):
        image.scale_and_translate(X, (2, 2), (0,), [1.0], [0.0], "nearest")


def test_sizes_of_a_resized_image_are_whole_numbers():
    with pytest.raises(TypeError, match="integer type"):
        st.image.resize(jnp.ones((3, 4)), [10.5, 17], "bicubic")
    assert st.image.resize(jnp.ones((3, 4)), jnp.array((10, 17)), "nearest").shape == (10, 17)
