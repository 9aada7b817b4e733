"""Rows of a gathered table are read of each device's own block, and only these are exchanged."""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, values_of

WORDS = "look rows up in each device's own block"
ROWS = 8192
PLACES = np.random.default_rng(1).integers(-9, ROWS + 9, (4, 8)).astype(np.int32)


def outside(table: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Counted from the end where negative, and what is not there is not a number."""
    found = table[np.where(places < 0, places + ROWS, places).clip(0, ROWS - 1)]
    return np.where(((places >= -ROWS) & (places < ROWS))[..., None], found, np.nan)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(("code", "wanted", "written"), [
    ("whole[places]", outside, 'lax.psum(x.at[places - lax.axis_index("d") * 1024].get('
     'mode="fill", fill_value=0, wrap_negative_indices=False), "d")'),
    ('whole.at[places].get(mode="clip")',
     lambda t, at: t[np.where(at < 0, at + ROWS, at).clip(0, ROWS - 1)], ""),
    ('(whole * 2).at[places].get(mode="fill", fill_value=7)',
     lambda t, at: np.nan_to_num(2 * outside(t, at), nan=7.0), ""),
    ("whole[places + lax.axis_index(\"d\")]", None, ""),       # on each device others
    ("whole[places, 3]", lambda t, at: outside(t, at)[..., 3], ""),
])
def test_rows_of_a_gathered_table_are_read_of_the_blocks(code, wanted, written, checked, tmp_path):
    source = HEAD + f"""\
def body(x, places):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P({
        '"d"' if checked else ''}), check_vma={checked})
args = struct(({ROWS}, 128), "d"), st.ShapeDtypeStruct(
    (4, 8), np.int32, sharding=NamedSharding(mesh, P()))
"""

    def given(args):
        return values_of(args)[0], PLACES

    def on_all(x, places):
        return np.concatenate([wanted(x, places)] * 8) if checked else wanted(x, places)

    _, best = check_change(tmp_path, source, WORDS, 4, given, on_all if wanted else None,
                           shown=bool(written))
    assert best is None or [after for _, after in best.diff] == (
        [f"return {written}"] if written else [])
