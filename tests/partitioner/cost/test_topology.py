"""Where mesh axes lie on the wires, and how long collectives take there."""
import networkx
import pytest

from shardtrace.partitioner.cost.links import collective_seconds
from shardtrace.partitioner.cost.topology import NETWORK, Topology

MB = 1_000_000


@pytest.mark.parametrize(("hardware", "mesh", "text"), [
    ("v5p", {"x": 16}, "TPU v5p, torus 4 x 2 x 2"),
    ("v5p", {"x": 4096}, "TPU v5p, torus 16 x 16 x 16"),
    ("v5p", {"d": 16, "f": 16, "t": 16}, "TPU v5p, torus 16 x 16 x 16"),
    ("v5e", {"d": 16, "m": 16}, "TPU v5e, torus 16 x 16"),
    ("v5e", {"d": 64, "m": 16}, "TPU v5e, torus 16 x 16, 4 slices"),
    ("h100", {"d": 4, "m": 8}, "H100 SXM, 8 a node, 4 nodes"),
    ("v5p", {"x": 7}, "TPU v5p, torus 7 x 1 x 1"),
])
def test_a_mesh_finds_a_slice(hardware, mesh, text):
    assert str(Topology.of(hardware, mesh)) == text


@pytest.mark.parametrize(("hardware", "size", "ring"), [
    ("v5p", 4, True), ("v5p", 8, True), ("v5p", 6, False), ("v5p", 2, False),
    ("v5e", 16, True), ("v5e", 8, False), ("v6e", 16, True)])
def test_the_rule_of_wrapping(hardware, size, ring):
    shape = (size,) + (1,) * (2 if hardware == "v5p" else 1)
    span, = Topology.of(hardware, {"x": size}, shape=shape).spans(("x",))
    assert span.ring is ring


def test_the_last_axes_are_inside_of_a_node():
    topology = Topology.of("h100", {"data": 4, "model": 8})
    assert [s.dim for s in topology.spans(("data",))] == [NETWORK]
    assert [s.dim for s in topology.spans(("model",))] == [0]


def test_a_part_of_an_axis_has_a_part_of_its_pieces():
    topology = Topology.of("v5p", {"x": 16}, shape=(16, 1, 1))
    whole, = topology.spans(("x",))
    minor, = topology.spans(("x:(4)4",))
    major, = topology.spans(("x:(1)4",))
    assert (whole.size, minor.size, major.size) == (16, 4, 4)
    assert (minor.stride, major.stride) == (1, 4)
    assert whole.ring and not minor.ring


def test_graphs_are_networkx_graphs():
    torus = Topology.of("v5p", {"x": 64}, shape=(4, 4, 4)).graph()
    assert isinstance(torus, networkx.Graph)
    assert torus.number_of_nodes() == 64
    assert {d for _, d in torus.degree} == {6}            # wrapped in every direction
    line = Topology.of("v5e", {"x": 16}, shape=(4, 4)).graph()
    assert min(d for _, d in line.degree) == 2            # corners: no wrapping below 16
    node = Topology.of("h100", {"x": 8}).graph()
    assert node.degree["switch"] == 8


def test_a_mesh_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="has 8 devices"):
        Topology.of("v5p", {"x": 16}, shape=(2, 2, 2), slices=1)


def seconds(topology, kind, axes, size, operand):
    received = {"all-gather": (size - 1) * operand, "reduce-scatter": operand * (size - 1) // size,
                "all-reduce": 2 * operand * (size - 1) // size,
                "all-to-all": operand * (size - 1) // size, "collective-permute": operand}[kind]
    pairs = [(i, (i + 1) % size) for i in range(size)] if kind == "collective-permute" else None
    return collective_seconds(topology, kind, axes, size, operand, received, pairs)


W = 90e9        # one way, per link of v5p


@pytest.mark.parametrize(("kind", "operand", "wanted"), [
    ("all-gather", 100 * MB, 15 * 100e6 / (2 * W)),
    ("reduce-scatter", 1600 * MB, 15 * 100e6 / (2 * W)),
    ("all-reduce", 1600 * MB, 2 * 15 * 100e6 / (2 * W)),
    ("all-to-all", 1600 * MB, 16 * 1600e6 / (8 * W)),       # a quarter of gathering all of it
    ("collective-permute", 100 * MB, 100e6 / W),
])
def test_a_ring_of_16(kind, operand, wanted):
    topology = Topology.of("v5p", {"x": 16}, shape=(16, 1, 1))
    assert seconds(topology, kind, ("x",), 16, operand) == pytest.approx(wanted, rel=0.01)


def test_three_wrapped_dimensions_are_three_times_as_fast():
    block = 10 * MB
    one = seconds(Topology.of("v5p", {"x": 16}, shape=(16, 1, 1)), "all-gather", ("x",), 16, block)
    three = seconds(Topology.of("v5p", {"x": 4096}), "all-gather", ("x",), 4096, block)
    assert three / 4095 == pytest.approx(one / 15 / 3, rel=0.02)


def test_an_open_line_takes_twice_as_long_as_a_ring():
    ring = seconds(Topology.of("v5e", {"x": 16}, shape=(16, 1)), "all-gather", ("x",), 16, 10 * MB)
    line = seconds(Topology.of("v5e", {"x": 8}, shape=(8, 1)), "all-gather", ("x",), 8, 10 * MB)
    assert line / 7 == pytest.approx(2 * ring / 15, rel=0.02)


def test_small_messages_cost_latency():
    topology = Topology.of("v5p", {"x": 16}, shape=(16, 1, 1))
    assert seconds(topology, "all-gather", ("x",), 16, 8) == pytest.approx(8e-6, rel=0.01)


def test_a_group_across_nodes_sends_one_part_a_device_over_the_network():
    topology = Topology.of("h100", {"x": 64})
    whole = 800 * MB
    across = 2 * 7 / 8 * (whole / 8) / 50e9
    inside = 2 * 7 / 8 * whole / 450e9
    assert seconds(topology, "all-reduce", ("x",), 64, whole) == pytest.approx(
        across + inside, rel=0.02)


def test_a_shift_by_two_loads_every_link_twice():
    topology = Topology.of("v5p", {"x": 16}, shape=(16, 1, 1))
    size, block = 16, 100 * MB
    one = collective_seconds(topology, "collective-permute", ("x",), size, block, block,
                             [(i, (i + 1) % size) for i in range(size)])
    two = collective_seconds(topology, "collective-permute", ("x",), size, block, block,
                             [(i, (i + 2) % size) for i in range(size)])
    assert two == pytest.approx(2 * one, rel=0.01)
