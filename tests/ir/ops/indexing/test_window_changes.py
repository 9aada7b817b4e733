"""Windows that a scatter changes as such are those that it would change element by element."""
import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from shardtrace.ir.ops.indexing import window_updates as window_changes
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

NAMES = ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max")


def case(seed):
    """Device dimensions, an operand, indices, updates and params; windows may lie outside."""
    rng = np.random.default_rng(seed)
    lead, ndim = int(rng.integers(3)), int(rng.integers(1, 4))
    devices, shape = rng.integers(1, 4, lead), rng.integers(2, 6, ndim)
    slices = [int(rng.integers(1, n + 1)) for n in shape]
    inserted = tuple([d for d in range(ndim) if slices[d] == 1 and rng.random() < .5])
    mapped = tuple([d for d in range(ndim) if rng.random() < .7])
    queries = rng.integers(1, 4, rng.integers(3)).tolist()
    windows = [n for d, n in enumerate(slices) if d not in inserted]
    ndim_updates = len(queries) + len(windows)
    places = np.sort(rng.permutation(ndim_updates)[:len(windows)]).tolist()
    updates, rest = [0] * ndim_updates, iter(queries)
    for place, n in zip(places, windows, strict=True):
        updates[place] = n
    updates = [n or next(rest) for n in updates]
    stacked = [[1 if rng.random() < .3 else int(n) for n in devices] for _ in range(3)]
    x = rng.standard_normal((*stacked[0], *shape)).astype(np.float32)
    indices = rng.integers(-1, 5, (*stacked[1], *queries, len(mapped))).astype(np.int32)
    values = rng.standard_normal((*stacked[2], *updates)).astype(np.float32)
    modes = GatherScatterMode.FILL_OR_DROP, GatherScatterMode.CLIP
    return (lead, x, indices, values), {
        "dimension_numbers": ScatterDimensionNumbers(tuple(places), inserted, mapped),
        "indices_are_sorted": False, "unique_indices": False, "mode": modes[rng.integers(2)]}


@pytest.mark.parametrize("name", NAMES)
def test_windows_as_such_are_their_elements(name, monkeypatch):
    evaluate = OPS[name].evaluator
    for seed in range(150):
        (lead, x, indices, values), params = case(seed)
        results = []
        for least in (1 << 30, 1):
            monkeypatch.setattr(window_changes, "WRITTEN", least)
            monkeypatch.setattr(window_changes, "COMBINED", least)
            results.append(evaluate.function(lead, x, indices, values, **params))
            results.append(evaluate.write_over(lead, x.copy(), indices, values, **params))
        for other in results[1:]:
            np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("spec", [P("X"), P(None, "X"), P("Y", "X")])
def test_a_stencil_that_sets_and_adds_inside_of_a_split_array(spec, executor):
    mesh = st.make_mesh((4, 2), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)
    x = np.random.default_rng(0).standard_normal((32, 24)).astype(np.float32)

    def step(i, x):
        x = x.at[1:-1, 1:-1].set(0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]))
        return x.at[2:-2, 1:-3].add(1.0)

    expected = x.copy()
    for _ in range(3):
        inner = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] = np.float32(0.25) * inner
        expected[2:-2, 1:-3] += 1
    st.config.update("shardtrace_engine", executor)
    try:
        with st.set_mesh(mesh):
            split = st.device_put(x, NamedSharding(mesh, spec))
            got = np.asarray(st.jit(lambda x: lax.fori_loop(0, 3, step, x))(split))
    finally:
        st.config.update("shardtrace_engine", "simulated")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
