"""Expressions whose values, dtypes or errors are easily otherwise, evaluated with JAX beside us."""
from __future__ import annotations

import contextlib
import importlib
from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ...real_jax import real_jax
from ...rows import rows

F16, F32 = np.float16, np.float32
VALUES = [
    *(f"jnp.{name}(np.ones(4, {a}), {b}(0.3), method={method!r})"
      for name in ("quantile", "percentile", "nanquantile")
      for a, b in (("F16", "F32"), ("F32", "F16"), ("np.int32", "F16"))
      for method in ("linear", "lower", "nearest", "midpoint")),
    "jnp.quantile(np.arange(9, dtype=F16), np.array([0.1, 0.77], F32))",
    *(f"jnp.{name}(np.ones(3, {dtype}))" for name in ("cumulative_prod", "cumulative_sum")
      for dtype in ("np.int8", "np.uint8", "bool", "F16")),
    *(f"jnp.trapezoid(np.arange(12, dtype=F32).reshape(3, 4)**2, dx={dx}, axis={axis})"
      for dx, axis in (("0.5", -1), ("0.5", 0), ("np.array([1, 2, 3], F32)", -1),
                       ("np.array([[1], [2]], F32)", 0), ("np.array([3], F32)", 1),
                       ("np.array([[1], [2], [3]], F32)", -1), ("np.array([1, 2, 3, 4], F32)", 0))),
    "jnp.geomspace(np.ones((2, 3), F32), np.array([2, 3, 4], F32), 5)",
    "jnp.geomspace(F32(3), np.array([[2, 3, 4]], F32), 5, axis=1)",
    "jnp.packbits(np.array([0, -3, 3, 100, 1], np.int32))",
    *(f"jnp.poly(np.array([1, {root}, 2], F32))" for root in ("np.inf", "np.nan", "0")),
    "jnp.unique(jnp.ones((2, 0)), True, True, True, axis=0)",
    "jnp.unique(jnp.ones((0, 3)), True, True, True, axis=1)",
    "jnp.unique(jnp.ones((0, 3)), True, True, True, axis=0)",
    *(f"jnp.{name}(Boxed(np.ones({shape})))" for name in ("size", "ndim", "shape", "isscalar")
      for shape in ((), (2, 3))),
    *(f"scipy.ndimage.map_coordinates(jnp.arange(12).reshape(3, 4), [np.array([1, 2]), "
      f"np.array([0, 5])], order={order}, mode={mode!r})"
      for order in (0, 1) for mode in ("nearest", "wrap", "mirror", "constant", "reflect")),
]
ERRORS = [
    ("jnp.fft.fftfreq(10, d=[0, 1, 2])", "allow"),
    ("jnp.nanprod(jnp.zeros(3), where=jnp.ones(3, dtype=int), initial=0.0)", "allow"),
    ("jnp.nanmax(jnp.zeros(3), where=jnp.ones(3, dtype=int))", "allow"),
    ("jit(jnp.tri)(3, M=3, k=0)", "allow"),
    ("jnp.vectorize(jnp.add, signature='(),()->()')(jnp.ones((2, 2)), jnp.ones(2))", "raise"),
    ("jnp.zeros((2, 3))[..., -4]", "static"), ("jnp.zeros((2, 3))[:, [1, 2], None][4]", "static"),
    ("jit(lambda x: x[4])(jnp.zeros(2))", "static"), ("jnp.zeros(2).at[4].get()", "static"),
]


class Boxed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __jax_array__(self) -> Any:
        return self.value


def _evaluated(package: Any, name: str, expression: str) -> Any:
    parts = {part.rpartition(".")[2]: importlib.import_module(f"{name}.{part}")
             for part in ("scipy", "scipy.ndimage", "lax", "nn")}
    return eval(expression, {"jnp": package.numpy, "np": np, "jit": package.jit, "Boxed": Boxed,
                             "F16": F16, "F32": F32, **parts})


@rows("expression", VALUES)
def test_values_and_dtypes(expression: str) -> None:
    jax = real_jax()
    ours, theirs = (p.tree.leaves(_evaluated(p, name, expression))
                    for p, name in ((st, "shardtrace"), (jax, "jax")))
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert getattr(x, "dtype", type(x)) == getattr(y, "dtype", type(y))
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-3)


@pytest.mark.parametrize(("expression", "setting"), ERRORS)
def test_errors_have_the_class_and_beginning_of_those_of_jax(expression: str, setting: str) -> None:
    jax = real_jax()
    found = []
    for package, name in ((st, "shardtrace"), (jax, "jax")):
        with contextlib.ExitStack() as stack:
            if setting == "static":
                package.config.update("jax_check_static_indices", True)
                stack.callback(package.config.update, "jax_check_static_indices", False)
            elif setting == "raise":
                stack.enter_context(package.numpy_rank_promotion("raise"))
            with pytest.raises((ValueError, TypeError, IndexError)) as caught:
                _evaluated(package, name, expression)
        text = str(caught.value).replace("jax.numpy", "jnp")
        found.append((caught.type, text[:30]))
    assert found[0] == found[1]
