"""What makes values larger is done behind an exchange, if it is done to each block alike."""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, values_of

WORDS = "make values larger behind the exchange"
GATHER = '"d", axis=0, tiled=True)'
# what is gathered; what the whole of it is in numpy (None: it is not of the blocks alone)
CASES = {
    "heads repeated for their queries": ("jnp.repeat(x, 8, 1)", lambda x, c: np.repeat(x, 8, 1)),
    "rows repeated, each next to itself": ("jnp.repeat(x, 2, 0)", lambda x, c: np.repeat(x, 2, 0)),
    "scaled by what all devices have": ("x[:, None] * c[0, :, None]",
                                        lambda x, c: x[:, None] * c[0, :, None]),
    "as far as it is smaller": ("jnp.repeat(jnp.tanh(x) @ c[:16], 4, 1)",
                                lambda x, c: np.repeat(np.tanh(x) @ c[:16], 4, 1)),
    "all rows, one time after the other": ("jnp.tile(x, (2, 1))", None),
    "scaled by what differs": ("x[:, None] * jnp.cumsum(x, 0).max(0)[:, None]", None),
    "numbered": ("jnp.broadcast_to(x[:, None], (64, 8, 16)) + lax.axis_index('d')", None),
    "not larger": ("jnp.tanh(x)", None)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("checked", [True, False])
def test_what_makes_blocks_larger_is_done_behind_the_gather(name, checked, tmp_path):
    code, reference = CASES[name]
    source = HEAD + f"""\
def body(x, c):
    return lax.all_gather({code}, {GATHER}[::8] * 1.0


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma={checked})
args = (struct((512, 16), "d"), struct((64, 16)))
"""

    def wanted(x, c):
        whole = reference(x, c)[::8]
        return np.concatenate([whole] * 8)

    check_change(tmp_path, source, WORDS, 1.9, values_of,
                 None if reference is None else wanted, rtol=2e-3, atol=2e-3)


def test_weights_kept_in_bytes_are_scaled_behind_the_gather_as_it_would_be_written(tmp_path):
    source = HEAD + f"""\
def body(w, scales, x):
    for k in range(2):
        whole = lax.all_gather(w[k].astype(np.float32) * scales[k], {GATHER}
        x = jnp.tanh(x @ whole)
    return x


f = st.shard_map(body, mesh=mesh, in_specs=(P(None, "d"), P(), P("d")), out_specs=P("d"))
args = (struct((2, 512, 512), None, "d", dtype=np.int8), struct((2, 512)), struct((64, 512), "d"))
"""

    def values(args):
        rng = np.random.default_rng(0)
        return [rng.integers(-9, 9, a.shape).astype(a.dtype) / (1 if a.dtype == np.int8 else 512)
                for a in args]

    def wanted(w, scales, x):
        for k in range(2):
            x = np.tanh(x @ (w[k] * scales[k]))
        return x

    _, best = check_change(tmp_path, source, WORDS, 3.5, lambda args: [
        v.astype(a.dtype) for v, a in zip(values(args), args, strict=True)], wanted,
        rtol=2e-3, atol=2e-3)
    ((before, after),) = best.diff
    assert before.startswith("whole = lax.all_gather(w[k].astype(np.float32) * scales[k],")
    assert after == f"whole = lax.all_gather(w[k], {GATHER}.astype(np.float32) * scales[k]"


RING = "[(i, (i + 1) % 8) for i in range(8)]"
# what goes round, from where to where; what it is of a block in numpy (None: no change is made)
ROUND = {
    "repeated heads": ("jnp.repeat(x, 8, 1)", RING, lambda x: np.repeat(x, 8, 1)),
    "of what is computed by element": ("jnp.repeat(1 - jnp.tanh(x), 8, 1)", RING,
                                       lambda x: np.repeat(1 - np.tanh(x), 8, 1)),
    "to some, where others get zeros": ("jnp.repeat(1 - x, 8, 1)", "[(0, 1), (1, 0)]", None),
    "with a number of each device": ("jnp.repeat(x, 8, 1) + lax.axis_index('d')", RING, None)}

STEPS = {"scan": "(k, total), _ = lax.scan(step, (k, jnp.zeros_like(k)), jnp.arange(3))",
         "for": "total = 0\n    for n in range(3):\n        (k, total), _ = step((k, total), n)"}


@pytest.mark.parametrize("name", ROUND)
@pytest.mark.parametrize("loop", STEPS)
@pytest.mark.parametrize("checked", [True, False])
def test_what_goes_round_is_made_larger_where_it_is_read(name, loop, checked, tmp_path):
    code, sent, reference = ROUND[name]
    source = HEAD + f"""\
def step(carry, n):
    k, total = carry
    return (lax.ppermute(k, "d", {sent}), total + (n + 1) * k), None


def body(x):
    k = {code}
    {STEPS[loop]}
    return total + 4 * k


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma={checked})
args = (struct((512, 16), "d"),)
"""

    def wanted(x):
        every = reference(x).reshape(8, 64, 128)
        return sum([(n + 1) * np.roll(every, n, 0) for n in range(4)]).reshape(512, 128)

    words = "make what goes round larger in each step" if loop == "scan" else WORDS
    check_change(tmp_path, source, words, 7, values_of, reference and wanted, shown=False,
                 rtol=1e-5, atol=1e-5)
