"""Published crossovers of parallelism come out of the model.

"How to Scale Your Model" (Google DeepMind, 2025) derives when training is bound by communication on
TPU v5p: data parallelism and FSDP below C / W = 2,550 tokens a device over one torus axis and 850
over three; tensor parallelism beyond F / 2,550 devices an axis; and, between H100 nodes, data
parallelism below 2,475 tokens a GPU.
"""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.partitioner.cost.hardware import hardware
from shardtrace.partitioner.cost.links import collective_seconds
from shardtrace.partitioner.cost.topology import Topology
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

D, F, BF16 = 8192, 32768, 2


def crossing(ratio, low, high):
    """Where a falling ratio passes through one."""
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if ratio(middle) > 1 else (low, middle)
    return (low * high) ** 0.5


def fsdp_ratio(device, topology, axes, n):
    """Gathering two layers' weights over their forward computation, by tokens a device."""
    rate = hardware(device).peak_of("bfloat16")
    block = 2 * D * F * BF16 // n
    gather = collective_seconds(topology, "all-gather", axes, n, block, (n - 1) * block)
    return lambda tokens: gather / (4 * tokens * D * F / rate)


@pytest.mark.parametrize(("shape", "published"), [((28, 1, 1), 2550), ((16, 16, 16), 850)])
def test_fsdp_over_v5p(shape, published):
    n = int(np.prod(shape))
    topology = Topology.of("v5p", {"x": n}, shape=shape)
    found = crossing(fsdp_ratio("v5p", topology, ("x",), n), 10, 1e6)
    assert found == pytest.approx(published, rel=0.05)


def test_data_parallelism_over_v5p():
    n = 28
    topology = Topology.of("v5p", {"x": n}, shape=(n, 1, 1))
    whole = 2 * D * F * BF16
    reduce = collective_seconds(topology, "all-reduce", ("x",), n, whole, 2 * whole * (n - 1) // n)

    def ratio(tokens):
        return reduce / (8 * tokens * D * F / hardware("v5p").peak_of("bfloat16"))

    assert crossing(ratio, 10, 1e6) == pytest.approx(2550, rel=0.05)


@pytest.mark.parametrize("hidden", [16384, 32768, 65536])
def test_tensor_parallelism_over_v5p(hidden):
    """Largest number of devices on one axis: F / 2,550 (by bandwidth, as published)."""
    rate, tokens = hardware("v5p").peak_of("bfloat16"), 1 << 18

    def ratio(n):
        block = tokens * D * BF16
        wire = 2 * block / (2 * hardware("v5p").link)       # gather in, reduce-scatter out
        return (4 * tokens * D * hidden / (n * rate)) / wire

    n = crossing(ratio, 1, 1000)
    assert n == pytest.approx(hidden / 2550, rel=0.01)
    n = 8                                                   # and by the collectives themselves
    topology = Topology.of("v5p", {"x": n}, shape=(n, 1, 1))
    block = tokens * D * BF16 // n
    taken = collective_seconds(topology, "all-gather", ("x",), n, block, (n - 1) * block)
    wire = tokens * D * BF16 / (2 * hardware("v5p").link)
    assert taken == pytest.approx(wire * (n - 1) / n, rel=0.01)


def test_data_parallelism_between_h100_nodes():
    topology = Topology.of("h100", {"x": 1024})
    whole = 2 * D * F * BF16
    reduce = 2 * (127 / 128) * whole / 8 / hardware("h100").network
    found = collective_seconds(topology, "all-reduce", ("x",), 1024, whole, 2 * whole)
    assert found > reduce                                   # and what the node itself takes
    rate = hardware("h100").peak_of("bfloat16")
    assert reduce * rate / (8 * D * F) == pytest.approx(2475, rel=0.02)


def mixed_ratio(hidden):
    """Weights gathered over two torus axes, activations over the third, beside the products."""
    topology = Topology.of("v5p", {"x": 256, "y": 16}, shape=(16, 16, 16))
    rate = hardware("v5p").peak_of("bfloat16")
    block = 2 * D * hidden * BF16 // 4096
    weights = collective_seconds(topology, "all-gather", ("x",), 256, block, 255 * block)

    def ratio(tokens):
        part = tokens * 16 * D * BF16 // 16          # a device's part of the activations of its row
        gather = collective_seconds(topology, "all-gather", ("y",), 16, part, 15 * part)
        scatter = collective_seconds(topology, "reduce-scatter", ("y",), 16, 16 * part, 15 * part)
        return max(weights, gather + scatter) / (4 * tokens * D * hidden / rate)

    return ratio


def test_fsdp_with_tensor_parallelism_over_v5p():
    """Tokens a device: C**2 / (W**2 * 2 * F), devices divided best (here F = 16 C/W)."""
    hidden = 16 * 2550
    found = crossing(mixed_ratio(hidden), 1, 1e5)
    assert found == pytest.approx(2550 ** 2 / (2 * hidden), rel=0.12)
    assert mixed_ratio(hidden)(500) < 1 < mixed_ratio(hidden)(50)
    assert found < 850 / 8                      # far below what FSDP alone needs, over all axes


def fsdp_step(tokens, n=16):
    """A layer's forward pass with weights split over the batch's axis, gathered when used."""
    mesh = AbstractMesh((n,), ("d",))

    def layer(x, w):
        w = st.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return x @ w

    def struct(shape, *spec):
        return st.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))

    explained = st.explain(layer, "v5p", topology=(n, 1, 1))
    return explained(struct((tokens * n, D), "d"), struct((D, F), "d"))


def test_a_traced_layer_crosses_where_the_formula_says():
    for tokens, bound in ((1536, True), (4096, False)):
        found = fsdp_step(tokens)
        (gather,) = found.collectives
        assert gather.kind == "all-gather"
        assert (gather.time > found.times.compute) is bound
