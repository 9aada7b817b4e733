"""What is cast to more bits is exchanged before the cast; what is cast to fewer is not."""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, values_of

WORDS = "make values larger behind the exchange"


def rolled(x):
    return np.roll(x, 64, 0)


def narrowed(x):
    return x.astype(np.float16).astype(np.float32)


PAIRS = "[(i, (i + 1) % 8) for i in range(8)]"
CASES = {
    "permuted": (f'lax.ppermute(h.astype(jnp.float32), "d", {PAIRS})', "float16",
                 lambda x: rolled(narrowed(x))),
    "permuted to some": ('lax.ppermute(h.astype(jnp.float32), "d", [(0, 1)])', "float16",
                         lambda x: np.concatenate([0 * x[:64], narrowed(x[:64]), 0 * x[128:]])),
    "gathered": ('lax.all_gather(h.astype(jnp.float32), "d", axis=0, tiled=True)[::8]', "float16",
                 lambda x: np.tile(narrowed(x[::8]), (8, 1))),
    "narrow already": (f'lax.ppermute(h.astype(jnp.float16), "d", {PAIRS})', "float32", None),
    "summed": ('lax.psum(h.astype(jnp.float32), "d")', "float16", None)}


@pytest.mark.parametrize("name", CASES)
def test_what_is_cast_to_more_bits_is_exchanged_before(name, tmp_path):
    code, dtype, reference = CASES[name]
    source = HEAD + f"""\
def body(x):
    h = x.astype(jnp.{dtype})
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
args = (struct((512, 1024), "d"),)
"""
    _, best = check_change(tmp_path, source, WORDS, 1.9, values_of, reference)
    if best is not None and name == "permuted":
        ((old, new),) = best.diff
        assert new == old.replace("h.astype(jnp.float32)", "h") + ".astype(jnp.float32)"


def test_a_cast_in_a_helper_is_written_with_the_helpers_names(tmp_path):
    source = HEAD + """\
def whole(w):
    return lax.all_gather(w.astype(jnp.float32), "d", axis=0, tiled=True)


f = st.shard_map(lambda x: whole(x)[::8], mesh=mesh, in_specs=P("d"), out_specs=P("d"),
                 check_vma=False)
args = (struct((512, 1024), "d", dtype=np.float16),)
"""
    check_change(tmp_path, source, WORDS, 1.9, values_of,
                 lambda x: np.tile(x[::8].astype(np.float32), (8, 1)))
