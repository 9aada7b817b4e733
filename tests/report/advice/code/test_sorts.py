"""A few of what is sorted are chosen by top_k, with the same values and places."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st

from ....user_files import user_file, user_module
from .explained_code import changed_result, check_change, check_typed, explained_code
from .test_changes import HEAD, function_source

WORDS = "`lax.top_k` instead of sorting"
CASES = {
    "places of the largest, last": ("jnp.argsort(x, -1)[:, -8:]", lambda x: np.argsort(x)[:, -8:]),
    "places of the largest, negated": ("jnp.argsort(-x)[:, :8]", lambda x: np.argsort(-x)[:, :8]),
    "places of the largest, descending": ("jnp.argsort(x, descending=True)[:, :8]",
                                          lambda x: np.argsort(-x)[:, :8]),
    "places of the smallest": ("jnp.argsort(x)[:, :8]", lambda x: np.argsort(x)[:, :8]),
    "the largest": ("jnp.sort(x)[:, -8:]", lambda x: np.sort(x)[:, -8:]),
    "the largest first": ("jnp.sort(x)[:, ::-1][:, :8]", lambda x: np.sort(x)[:, ::-1][:, :8]),
    "the smallest, last first": ("jnp.sort(x)[:, ::-1][:, -8:]",
                                 lambda x: np.sort(x)[:, ::-1][:, -8:]),
    "the smallest": ("jnp.sort(x)[:, :8]", lambda x: np.sort(x)[:, :8]),
    "the median": ("jnp.sort(x)[:, 8192:8193]", None),
    "every second": ("jnp.sort(x)[:, -16::2]", None),
    "other rows": ("jnp.sort(x)[:8]", None)}


@pytest.mark.parametrize("name", CASES)
def test_a_few_of_what_is_sorted_are_chosen_by_top_k(name, tmp_path):
    code, reference = CASES[name]
    source = function_source("h, w", code, (
        'struct((16, 64)), struct((64, 16384), None, "d")'), "x = h @ w")
    given = [np.eye(16, 64, dtype=np.float32), np.random.default_rng(0).permutation(
        64 * 16384).reshape(64, 16384).astype(np.float32)]
    check_change(tmp_path, source, WORDS, 4, lambda args: given,
                 reference and (lambda h, w: reference(w[:16])), rtol=0)


def test_a_sort_further_on_is_what_a_value_is_moved_for(tmp_path):
    source = HEAD + """\
def f(h, w):
    return jnp.argsort(-st.nn.log_softmax(h @ w), -1)[:, :4]


mesh = st.sharding.AbstractMesh((8, 4), ("data", "model"))
args = struct((512, 1024), "data"), struct((1024, 65536), None, "model")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = found.root_causes[0].groups[0][0].suggestions[0]
        assert WORDS in best.text and best.received_bytes < found.received_bytes / 10


def test_the_largest_of_joined_rows_are_among_those_of_each(tmp_path):
    """With ties, of which the first are chosen."""
    source = HEAD + """\
def f(h, w):
    x = jnp.einsum("bkd,dv->bkv", h, w)
    best, at = lax.top_k(x.reshape(16, 4 * 8192), 4)
    return best + at / 2


args = struct((16, 4, 16)), struct((16, 8192), None, "d")
"""
    with explained_code(tmp_path, source, "choose from each row before rows are joined") as (
            module, found, best):
        assert best is not None and best.received_bytes < found.received_bytes / 20
        rng = np.random.default_rng(0)
        given = [np.tile(np.eye(4, 16, dtype=np.float32), (16, 1, 1)),
                 rng.integers(0, 20, (16, 8192)).astype(np.float32)]
        changed = changed_result(best, module.args, given)
        assert best.diff
        check_typed(tmp_path, source, best, given, changed)
    rows = np.einsum("bkd,dv->bkv", *given).reshape(16, -1)
    at = np.argsort(-rows, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(changed, np.take_along_axis(rows, at, 1) + at / 2)
