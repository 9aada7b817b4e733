"""What is added up by place is added up on each device before it is exchanged."""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, blocks, values_of

WORDS = "add up each device's own before the exchange"


def added(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    found = np.zeros((64, x.shape[1]), x.dtype)
    np.add.at(found, labels, x)
    return found


def largest(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    found = np.zeros((64, x.shape[1]), x.dtype)
    np.maximum.at(found, labels, x)
    return found


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(("code", "wanted", "written"), [
    ("zeros.at[places].add(whole)", added, 'lax.psum(zeros.at[labels].add(x), "d")'),
    ("zeros.at[places].max(whole)", largest, 'lax.pmax(zeros.at[labels].max(x), "d")'),
    ("zeros.at[places].add(whole * 2)", lambda x, labels: 2 * added(x, labels),
     'lax.psum(zeros.at[labels].add(x * 2), "d")'),
    ("jnp.ones((64, 128)).at[places].add(whole)", None, ""),       # would be there once a device
    ("zeros.at[places].set(whole)", None, ""),                     # the last one counts
])
def test_what_is_added_up_by_place_is_added_up_first(code, wanted, written, checked, tmp_path):
    source = HEAD + f"""\
def body(x, labels):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    places = lax.all_gather(labels, "d", axis=0, tiled=True)
    zeros = jnp.zeros((64, 128))
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P({
        '"d"' if checked else ''}), check_vma={checked})
args = struct((16384, 128), "d"), st.ShapeDtypeStruct(
    (16384,), np.int32, sharding=NamedSharding(mesh, P("d")))
"""

    def given(args):
        x, _ = values_of(args)
        return x, np.random.default_rng(1).integers(0, 64, 16384).astype(np.int32)

    def on_all(x, labels):
        return np.concatenate([wanted(x, labels)] * 8) if checked else wanted(x, labels)

    _, best = check_change(tmp_path, source, WORDS, 4, given, on_all if wanted else None,
                           rtol=1e-3, atol=1e-3)
    if best is not None:
        assert [after for _, after in best.diff] == [f"return {written}"]


TOGETHER = {
    "two": ('lax.psum(x * 2, "d") + lax.psum(jnp.tanh(x), "d")',
            lambda b: (b * 2 + np.tanh(b)).sum(0)),
    "two beside something else": ('jnp.cos(x) + lax.psum(x * 2, "d") + lax.psum(jnp.tanh(x), "d")',
                                  lambda b: np.cos(b) + (b * 2 + np.tanh(b)).sum(0)),
    "one of them is read again": (
        'jnp.cos(total := lax.psum(x * 2, "d")) + (total + lax.psum(jnp.tanh(x), "d"))', None),
    "a largest and a sum": ('lax.pmax(x * 2, "d") + lax.psum(jnp.tanh(x), "d")', None)}


@pytest.mark.parametrize("name", TOGETHER)
def test_sums_over_devices_that_are_added_are_one(name, tmp_path):
    code, reference = TOGETHER[name]
    source = HEAD + f"""\
def body(x):
    return {code}


f = mapped(body)
args = (struct((8192, 256), "d"),)
"""
    wanted = reference and (lambda x: np.broadcast_to(
        reference(blocks(x)), blocks(x).shape).reshape(x.shape))
    check_change(tmp_path, source, "sum it once", 1.9, values_of, wanted, rtol=1e-4, atol=1e-4)
