"""Plans of programs that are drawn at random: the function computes the same with them."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.planning import search

from ..fuzz import judge
from ..fuzz.maker import KINDS, make


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_proposed_for_random_programs_computes_the_same(
        kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("EFFORT", 300), ("FEWEST", 6), ("LEAST", 4), ("EVERY", 0)):
        monkeypatch.setattr(search, name, few)
    judged = 0
    for seed in range(4000, 4012):
        case = make(seed, kind, judge.NAMES, judge.trace)[0]
        if {*case.axis_types} != {"Auto"} or judge.judge(case).kind != judge.RIGHT:
            continue
        function = judge.function_of(case)
        with judge.placed(case) as xs:
            wanted = st.tree.leaves(st.jit(function)(*xs))
            mesh = judge.mesh_of(st, case.sizes, case.axis_types)
            found = st.autoshard(function, *xs, mesh=mesh)
            assert str(found)
            placed = st.tree.map(lambda x, s: st.device_put(np.asarray(x), s), tuple(xs),
                                 tuple(found.in_shardings[0]))
            with st.config.override(shardtrace_engine="per_device"):
                results = st.tree.leaves(found.jit()(*placed))
        for a, b in zip(results, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a).astype(b.dtype), np.asarray(b), rtol=2e-2,
                                       atol=1e-2)
        judged += 1
    assert judged
