"""Rows are read of a product, if that is less, instead of multiplied when they have been read."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st

from ...user_files import user_file, user_module
from .test_code_changes import HEAD, values_of

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
    source = HEAD + f"""\
def f(x, at, w):
    return jnp.tanh({code})


args = struct((4096, 512), "d"), struct((16384,), "d", dtype=np.int32), struct((512, 16))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next((s for c in found.collectives for s in c.suggestions
                     if WORDS in s.text and len(s.changes) == 1), None)
        if reference is None:
            assert best is None
            return
        assert best is not None and best.received_bytes < found.received_bytes / 4
        assert best.flops < found.flops / 2
        x, at, w = values_of(module.args)
        given = [x / 64, (at % 4096).astype(np.int32), w / 64]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_executor="per_device"):
            changed = np.asarray(best.apply()(*placed))
    np.testing.assert_allclose(changed, np.tanh(reference(*given)), rtol=2e-3, atol=2e-3)
