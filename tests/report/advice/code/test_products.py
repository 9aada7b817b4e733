"""Rows are read of a product, if that is less, instead of multiplied when they have been read;
columns are cut from a weight instead of from its product; what is multiplied is not flattened.
"""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import function_source, values_of


def tanh_of(reference, before=lambda *values: values):
    """What `reference` gives of what `before` makes of the arguments, with tanh; None if it is."""
    return reference and (lambda *values: np.tanh(reference(*before(*values))))


def small_values(args):
    return [v / 64 for v in values_of(args)]


TWO_AXES = 'st.make_mesh((2, 4), ("data", "model"))'
CLOSE = {"rtol": 2e-3, "atol": 2e-3}
WORDS = "multiply before rows are read"
CASES = {
    "rows": ("x[at] @ w", lambda x, at, w: x[at] @ w),
    "rows of a table of rows": ("x[at.reshape(64, -1)] @ w",
                                lambda x, at, w: x[at.reshape(64, -1)] @ w),
    "zeros where there are none": (
        'x.at[at].get(mode="fill", fill_value=0) @ w', lambda x, at, w: x[at] @ w),
    "ones where there are none": ('x.at[at].get(mode="fill", fill_value=1) @ w', None),
    "a part of the rows": ("x[at][:, :256] @ w[:256]", None)}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_of_the_product(name, tmp_path):
    code, reference = CASES[name]
    source = function_source("x, at, w", f"jnp.tanh({code})", (
        'struct((4096, 512), "d"), struct((16384,), "d", dtype=np.int32), struct((512, 16))'))

    def given(args):
        x, at, w = values_of(args)
        return [x / 64, (at % 4096).astype(np.int32), w / 64]
    found, best = check_change(tmp_path, source, WORDS, 4, given, tanh_of(reference), **CLOSE)
    assert best is None or best.flops < found.flops / 2


CUT = "cut the weight instead of its product"
COLUMNS = {
    "a split": ("jnp.subtract(*jnp.split(h, 2, -1))", lambda h: h[:, :1024] - h[:, 1024:]),
    "a split by sizes": ("jnp.subtract(*lax.split(h, (1024, 1024), 1))",
                         lambda h: h[:, :1024] - h[:, 1024:]),
    "the last columns": ("h[:, 1536:]", lambda h: h[:, 1536:]),
    "a split behind a bias": ("jnp.subtract(*jnp.split(h + jnp.sin(jnp.arange(2048.0)), 2, 1))",
                              lambda h: np.subtract(*np.split(h + np.sin(np.arange(2048)), 2, 1))),
    "the last columns behind a bias": ("(jnp.cos(jnp.arange(2048.0)) + h)[:, 1536:]",
                                       lambda h: (np.cos(np.arange(2048.0)) + h)[:, 1536:]),
    "rows": ("h[:1024] - h[1024:]", None),
    "every second": ("h[:, ::2]", None)}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_cut_from_the_weight(name, tmp_path):
    code, reference = COLUMNS[name]
    source = function_source("x, w", f"jnp.tanh({code})", (
        'struct((2048, 64), "data"), struct((64, 2048), None, "model")'), "h = x @ w", TWO_AXES)
    wanted = tanh_of(reference, lambda x, w: (x @ w,))
    check_change(tmp_path, source, CUT, 2, small_values, wanted, **CLOSE)


APART = "instead of flattening"
FLAT = {
    "summed over": ("x.reshape(256, -1) @ w", lambda x, w: x.reshape(256, -1) @ w),
    "kept": ('jnp.einsum("bi,bj->ij", x.reshape(256, -1), w[:256])',
             lambda x, w: x.reshape(256, -1).T @ w[:256]),
    "split otherwise": ("x.reshape(128, -1) @ jnp.concatenate([w, w])", None)}


@pytest.mark.parametrize("name", FLAT)
def test_what_is_multiplied_is_not_flattened(name, tmp_path):
    code, reference = FLAT[name]
    source = function_source("x, w", f"jnp.tanh({code})", (
        'struct((256, 3, 1024), "data", None, "model"), struct((3072, 16))'), mesh=TWO_AXES)
    check_change(tmp_path, source, APART, 2, small_values, tanh_of(reference), **CLOSE)
