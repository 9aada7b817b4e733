"""Of rows that change places, only those that are read are sent, by the device that has them."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.sharding import PartitionSpec as P

from ..agreement import agree

X = np.random.default_rng(0).integers(0, 99, (8, 16, 6)).astype(np.float32)
BLOCK = 2 * 16 * 6 * 4          # bytes of a device's rows over 4
ROW = 16 * 6 * 4


def kinds(f, *args):
    return [r.kind for r in st.jit(f).lower(*args).compile().collectives()]


@pytest.mark.parametrize("rows, received", [
    (slice(7, 8), ROW / 4), (slice(0, 1), ROW / 4), (slice(4, 6), 2 * ROW / 4),
    (slice(5, 7), 3 / 4 * BLOCK)])              # of two devices: their blocks
def test_rows_of_one_device_are_sent_by_it_alone(rows, received):
    with st.config.override(shardtrace_objective="bytes"):
        assert agree(lambda x: (x * 2)[rows], [X], [("x",)], (None, "x"), (4,)) == received


def test_rows_with_a_stride_and_a_part_of_another_dimension():
    x = np.tile(X, (8, 1, 1))
    with st.config.override(shardtrace_objective="bytes"):
        assert agree(lambda x: (x * 2)[33:37:3, :, 1:4], [x], [("x",)], (None, "x"), (4,)) \
            == 2 * 16 * 3 * 4 / 4


def test_an_exchange_that_the_program_makes_stays():
    mesh = st.make_mesh((4,), ("x",))
    x = st.device_put(X, st.NamedSharding(mesh, P("x")))

    def last(b):
        return lax.all_to_all(b, "x", 1, 0, tiled=True)[7:]

    assert kinds(st.shard_map(last, mesh=mesh, in_specs=P("x"), out_specs=P(None, "x")), x) \
        == ["all-to-all"]
