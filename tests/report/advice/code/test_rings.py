"""What goes round all devices to be added up is one sum over devices."""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, values_of

WORDS = "sum over devices at once"
RING = """\
    total, moving = x, x
    for _ in range({steps}):
        moving = lax.ppermute(moving, "d", [(i, {to}) for i in range(8)])
        total = total + moving
    return total
"""
DOUBLED = """\
    total = jnp.tanh(x)
    for step in (1, 2, 4):
        total = lax.ppermute(total, "d", [(i, (i + step) % 8) for i in range(8)]) + total
    return total
"""


@pytest.mark.parametrize(("body", "wanted"), [
    (RING.format(steps=7, to="(i + 1) % 8"), lambda x: x),
    (RING.format(steps=7, to="(i - 3) % 8"), lambda x: x),
    (DOUBLED, np.tanh),
    (RING.format(steps=6, to="(i + 1) % 8"), None),            # lacks a device's own
    (RING.format(steps=7, to="(i + 2) % 8"), None),            # has some twice, others never
])
def test_what_goes_round_all_devices_is_summed_at_once(body, wanted, tmp_path):
    source = HEAD + f"""\
def body(x):
{body}

f = mapped(body)
args = (struct((8 * 512, 1024), "d"),)
"""

    def on_all(x):
        return np.concatenate([sum(np.split(wanted(x), 8))] * 8)

    check_change(tmp_path, source, WORDS, 1.5, values_of, on_all if wanted else None, shown=False,
                 rtol=1e-4, atol=1e-4)
