"""Each device's own rows with some of those before and behind, of gathered rows, or what is made of
such rows: the rows of neighbours are exchanged, or the totals of blocks, and no others.
"""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, values_of

WORDS = "exchange the rows of neighbours"


def windows(before: int, behind: int, fill: float = 0.0):
    """Of rows, those of each of eight devices, with so many before and behind."""
    def of(x):
        padded = np.pad(x, ((before, behind), (0, 0)), constant_values=fill)
        rows = len(x) // 8
        return np.concatenate([padded[i * rows:(i + 1) * rows + before + behind] for i in range(8)])
    return of


# what is read of the rows of all devices, `whole`; what that is of whole values
CASES = {
    "one of either": ("lax.dynamic_slice_in_dim(jnp.pad(whole, ((1, 1), (0, 0))), i * 64, 66)",
                      windows(1, 1)),
    "of those before": ("lax.dynamic_slice_in_dim(jnp.pad(whole, ((3, 0), (0, 0))), i * 64, 67)",
                        windows(3, 0)),
    "fewer than there are": (
        "lax.dynamic_slice_in_dim(jnp.pad(whole, ((4, 4), (0, 0))), 64 * i + 2, 68)",
        windows(2, 2)),
    "around which there are no zeros": (
        "lax.dynamic_slice_in_dim(jnp.pad(whole, ((1, 1), (0, 0)), constant_values=1.0), "
        "i * 64, 66)", None),
    "where the ends read others": ("lax.dynamic_slice_in_dim(whole, i * 64 - 1, 66)", None),
    "of another device": (
        "lax.dynamic_slice_in_dim(jnp.pad(whole, ((1, 1), (0, 0))), (i ^ 1) * 64, 66)", None)}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_neighbours_are_exchanged_alone(name, checked, tmp_path):
    read, wanted = CASES[name]
    source = HEAD + f"""\
def body(x):
    i = lax.axis_index("d")
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {read}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma={checked})
args = (struct((512, 1024), "d"),)
"""
    check_change(tmp_path, source, WORDS, 20, values_of, wanted)


def test_columns_of_neighbours_are_too(tmp_path):
    source = HEAD + """\
def around(x, axis):
    whole = lax.all_gather(x, axis, axis=1, tiled=True)
    zeros = jnp.pad(whole, ((0, 0), (2, 1)))
    return lax.dynamic_slice(zeros, (0, lax.axis_index(axis) * x.shape[1]), (512, 131))


specs = P(None, "d")
f = st.shard_map(lambda x: around(x * 2, "d"), mesh=mesh, in_specs=specs, out_specs=specs,
                 check_vma=False)
args = (struct((512, 1024), None, "d"),)
"""
    _, best = check_change(tmp_path, source, WORDS, 20, values_of,
                           lambda x: windows(2, 1)(2 * x.T).T)
    assert "jnp.concatenate([lax.ppermute(x[:, 126:]" in best.diff[0][1]


OWN = "compute each device's own block"
# what is made of the rows of all devices, of which each takes its own; that of whole values, and
# whether lines are shown
MADE = {
    "running sums": ("jnp.cumsum(jnp.sin(whole), 0)", lambda x: np.cumsum(np.sin(x), 0), True),
    "running maxima from the end": (
        "lax.cummax(whole, 0, reverse=True)", lambda x: np.maximum.accumulate(x[::-1])[::-1],
        True),
    "rows of before": ("jnp.roll(whole, 3, 0)", lambda x: np.roll(x, 3, 0), True),
    "differences": ("2 * whole - jnp.roll(whole, 1, 0) - jnp.roll(whole, -1, 0)",
                    lambda x: 2 * x - np.roll(x, 1, 0) - np.roll(x, -1, 0), True),
    "windows": ('lax.reduce_window(whole, -np.inf, lax.max, (3, 1), (1, 1), "SAME")',
                lambda x: np.lib.stride_tricks.sliding_window_view(np.pad(
                    x, ((1, 1), (0, 0)), constant_values=-np.inf), 3, 0).max(-1), False),
    "what is sorted": ("jnp.sort(whole, 0)", None, False)}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_own_rows_of_scans_and_windows_are_made_of_own_rows(name, checked, tmp_path):
    made, wanted, shown = MADE[name]
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    made = {made}
    return lax.dynamic_slice_in_dim(made, lax.axis_index("d") * 64, 64)


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma={checked})
args = (struct((512, 1024), "d"),)
"""
    check_change(tmp_path, source, OWN, 20, values_of, wanted, shown, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("made", "wanted", "words"), [
    ("jnp.cumsum(whole, 0).max(0)", lambda x: np.cumsum(x, 0).max(0), "reduce before the"),
    ("jnp.zeros((4, 1024)).at[jnp.arange(512) % 4].add(jnp.cumsum(whole, 0))",
     lambda x: np.cumsum(x, 0).reshape(-1, 4, 1024).sum(0), "add up each device's own")])
def test_what_is_reduced_of_a_scan_is_not_written_as_that_of_a_block(made, wanted, words, tmp_path):
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x / 64, "d", axis=0, tiled=True)
    return {made}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)
args = (struct((512, 1024), "d"),)
"""
    check_change(tmp_path, source, words, 3, values_of, lambda x: wanted(x / 64), False,
                 rtol=1e-3, atol=1e-3)
