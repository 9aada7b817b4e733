"""Where arrays are, what they say and what they refuse: tests/golden/placement.txt, beside JAX.

The table is recorded from JAX by `tests/record/placement.py`. What is meant to differ stands in
`OWN`, each with the reason.
"""
from __future__ import annotations

import re

import pytest

import shardtrace as st
import shardtrace.numpy as jnp

from . import placement

CHUNK = 400
ROWS = placement.rows()
OWN = {
    r"donate=": "a donated array is deleted; JAX does so on devices, and on CPU only now and then",
    r"device=s\('x'\)\)$": "over Explicit axes an array is resharded as `device=` asks",
    r"\.imag$|grad\(": "JAX loses the devices of an array on an Explicit mesh without a context",
    r"\.(real|conj\(\)|squeeze\(\))$": "an array that does not change is given back itself; JAX "
                                       "pads its spec",
    r"\.to_device\(d": "JAX keeps the sharded type on one device",
    r"\.at\[.*(set|add|mul)\(": "updates work on an Explicit mesh without a context; the "
                                "partitioner may give up a split dimension that is written to",
    r"jnp\.roll": "the partitioner gives up the rolled dimension",
    r"\.repeat\(": "repeating a split dimension asks for out_sharding, as under a context mesh",
    r"jnp\.(nonzero|unique)\(": "positions are found on the host, whatever the sharding",
    r"jnp\.searchsorted": "the position of a Python number is searched on the first device",
    r"jit\(lambda v: device_put\(v, s\('x'\)\)": "inside jit, device_put over Auto axes is a "
                                                 "constraint; JAX ignores the sharding on CPU",
    r"inside\(lambda: jnp": "under a context mesh results have full specs",
    r"update\(nonsense|vma=|SDS\(\(8\.0|manual_axis_type=jax": "ShapeDtypeStruct: other names are "
                                                               "refused, vma is accepted",
    r"^make_array_from_callback\(\[|a, \[8, 4\]\)$": "a shape may be a list",
    r"lambda i: None|device_put\(object|device_put\(SDS|jnp\.sin\(SDS|'nonsense'\)$": "other words",
    r"\{'b': d\[0\]\}|'b': \(8, 4\)|\{'a': s\('x'\)\}|\(a, \[d\[0\]\]\)": "other words for trees",
    r"NS\(m\.abstract_mesh, P\('x'\)\)\)$": "the error says what to do",
    r"^len\(jax\.core": "types have a length, as their values do",
}


pytestmark = pytest.mark.usefixtures("eight_devices")


def _differences(rows):
    """(kind, expression, ours, JAX's) where the two differ."""
    known = {kind: placement.names(st, jnp, kind) for kind in placement.KINDS}
    for expression, *theirs in rows:
        for kind, wanted in zip(placement.KINDS, theirs, strict=True):
            ours = placement.outcome(expression, known[kind])
            if not placement.agrees(ours, wanted):
                yield kind, expression, ours, wanted


def _is_meant(expression: str) -> bool:
    return any(re.search(pattern, expression) for pattern in OWN)


@pytest.mark.parametrize("start", range(0, len(ROWS), CHUNK))
def test_arrays_are_where_jax_has_them_and_say_what_jax_says(start):
    found = [f"[{kind}] {expression}\n  JAX:  {wanted}\n  here: {ours}"
             for kind, expression, ours, wanted in _differences(ROWS[start:start + CHUNK])
             if not _is_meant(expression)]
    assert not found, "\n".join(found)


def test_every_difference_that_is_meant_is_there():
    rows = [row for row in ROWS if _is_meant(row[0])]
    different = {expression for _, expression, _, _ in _differences(rows)}
    stale = [pattern for pattern in OWN if not any(re.search(pattern, e) for e in different)]
    assert stale == []
