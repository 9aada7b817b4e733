"""Shardy's annotations and regions, and StableHLO's collectives inside of these."""
from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import UNCONSTRAINED, PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from ...tracer import lax
from ...tracer.lax.communication import parallel
from ...tracer.lax.communication.manual_axes import axis_index
from ...tracer.lax.sharding import with_sharding_constraint
from ...tracer.shard_map.shard_map import shard_map
from .attributes import python_of
from .meshes import tiled
from .regions import binary_function
from .replay import Replay, rule

hlo, sdy = lazy_import("jaxlib.mlir.dialects.stablehlo"), lazy_import("jaxlib.mlir.dialects.sdy")


def sizes_of(op: Any) -> dict[str, int]:
    """The sizes of the axes of a `sdy.mesh`."""
    attribute = sdy.MeshAttr(op.attributes["mesh"])
    axes = [sdy.MeshAxisAttr(a) for a in attribute.axes]
    return {a.name: a.size for a in axes}


def sharding_of(replay: Replay, attribute: Any) -> tuple[NamedSharding, list[tuple[str, ...]]]:
    """The sharding, and the axes of each dimension. An open dimension without axes is
    unconstrained; that axes may be added to other dimensions is dropped.
    """
    said = sdy.TensorShardingAttr(attribute)
    mesh = replay.meshes[python_of(said.mesh_or_ref)]
    entries, axes = [], []
    for d in said.dimension_shardings:
        dimension = sdy.DimensionShardingAttr(d)
        names = tuple([name for a in dimension.axes
                       for name in _axes(sdy.AxisRefAttr(a), sdy.SubAxisInfoAttr, replay)])
        axes.append(names)
        entries.append(names or (None if dimension.is_closed else UNCONSTRAINED))
    return NamedSharding(mesh, PartitionSpec(*entries)), axes


def _axes(axis: Any, part: Any, replay: Replay) -> tuple[str, ...]:
    """The axes of the mesh that an axis, or a part of one, of Shardy or of StableHLO is."""
    own = replay.parts.get(axis.name)
    if axis.sub_axis_info is None:
        return (axis.name,) if own is None else tuple([name for name, _, _ in own])
    info = part(axis.sub_axis_info)
    start, end = info.pre_size, info.pre_size * info.size
    found = tuple([name for name, a, b in own or () if start <= a and b <= end])
    if not found:
        fail(NotImplementedError, "from_stablehlo: the text uses a part of the mesh axis "
             f"{axis.name!r}, which it has not", code="stablehlo-mesh", location=replay.place,
             help="state the mesh with an axis for each part")
    return found


def stated(replay: Replay, attributes: Any, ndim: int) -> NamedSharding | None:
    """The sharding among the attributes of an argument. A mesh without axes is one device, on which
    arguments lie that are on no mesh, such as numbers: it says nothing.
    """
    if "sdy.sharding" in attributes:
        sharding = sharding_of(replay, attributes["sdy.sharding"])[0]
        return sharding if sharding.mesh.axis_names else None
    if "mhlo.sharding" in attributes:
        return tiled(replay, python_of(attributes["mhlo.sharding"]), ndim)
    return None


def result(replay: Replay, x: Any, attributes: Any) -> Any:
    """A result of the program, with the sharding among its attributes."""
    if "sdy.sharding" in attributes:
        return laid_out(replay, x, attributes["sdy.sharding"])
    sharding = stated(replay, attributes, x.ndim)
    return x if sharding is None else with_sharding_constraint(x, sharding)


def laid_out(replay: Replay, x: Any, attribute: Any) -> Any:
    """x with a sharding. Inside of a region, one over its manual axes says nothing."""
    sharding, axes = sharding_of(replay, attribute)
    if not sharding.mesh.axis_names or set(itertools.chain(*axes)) & set(replay.manual):
        return x
    if replay.manual:
        if set(replay.manual) == set(sharding.mesh.axis_names):
            return x
        return with_sharding_constraint(x, sharding.spec)
    return with_sharding_constraint(x, sharding)


@rule("sdy.sharding_constraint", "sdy.reshard")
def _constraint(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return laid_out(replay, x[0], op.attributes["sharding"])


@rule("sdy.propagation_barrier", "sdy.sharding_group")
def _nothing(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return list(x)[:len(op.results)]


@rule("Sharding")
def _tiled(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """A constraint of GSPMD; the backend's options say which dimensions it leaves open."""
    attributes = op.attributes
    options = str(attributes["backend_config"]) if "backend_config" in attributes else ""
    open_dims = re.findall(r"\d+", options.partition("unspecified_dims=[")[2].partition("]")[0])
    sharding = tiled(replay, python_of(attributes["mhlo.sharding"]), x[0].ndim,
                     map(int, open_dims))
    return x[0] if sharding is None else with_sharding_constraint(x[0], sharding)


@rule("SPMDFullToShardShape", "SPMDShardToFullShape")
def _gspmd(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    fail(NotImplementedError, "from_stablehlo: the text has a manual region of GSPMD, which does "
         "not name its mesh axes", code="stablehlo-mesh", location=replay.place,
         help="export it with Shardy, which is JAX's default "
              "(jax.config.update('jax_use_shardy_partitioner', True))")


@rule("sdy.manual_computation")
def _manual(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """A region in which each device has its blocks: a shard_map over the manual axes."""
    names = [name for axis in str(op.attributes["manual_axes"]).split('"')[1::2]
             for name, _, _ in replay.parts.get(axis, ((axis, 1, 1),))]
    ins, outs = (sdy.TensorShardingPerValueAttr(op.attributes[n]).shardings for n in (
        "in_shardings", "out_shardings"))
    given = [sharding_of(replay, s) for s in ins]
    found = [sharding_of(replay, s) for s in outs]
    meshes = [s.mesh for s, _ in (*given, *found)] or list(replay.meshes.values())

    def spec(axes: list[tuple[str, ...]]) -> PartitionSpec:
        return PartitionSpec(*[tuple([a for a in entry if a in names]) or None for entry in axes])

    def run(*blocks: Any) -> list[Any]:
        outer = replay.manual
        replay.manual = (*outer, *names)
        try:
            return replay.region(op.regions[0], blocks)
        finally:
            replay.manual = outer
    run.__name__ = run.__qualname__ = "manual"
    return shard_map(run, mesh=None if replay.manual else meshes[0], check_vma=False,
                     in_specs=tuple([spec(axes) for _, axes in given]),
                     out_specs=[spec(axes) for _, axes in found], axis_names=frozenset(names))(*x)


# -- collectives -----------------------------------------------------------------------------------

@rule("stablehlo.partition_id")
def _partition_id(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """The device's number in the mesh; axes that are not manual count as 0 here."""
    mesh = _mesh(replay)
    number: Any = np.int32(0)
    for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True):
        own = axis_index(name) if name in replay.manual else np.int32(0)
        number = lax.add(lax.mul(number, np.int32(size)), own)
    return lax.convert_element_type(number, np.uint32)


@rule("stablehlo.replica_id")
def _replica_id(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    return np.uint32(0)


def _mesh(replay: Replay) -> Mesh | AbstractMesh:
    if not replay.manual:
        fail(ValueError, "from_stablehlo: a collective stands outside of a sdy.manual_computation",
             code="stablehlo-mesh", location=replay.place,
             help="its replica groups are of devices, and the text has no mesh for them")
    return next(m for m in replay.meshes.values() if set(replay.manual) <= set(m.axis_names))


class _Groups(NamedTuple):
    """Which devices exchange something: those along mesh axes, in this order; or of these only the
    ones whose positions along them are in a group."""
    axes: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...] | None = None

    def options(self) -> dict[str, Any]:
        return {} if self.parts is None else {"axis_index_groups": self.parts}


def _groups(replay: Replay, op: Any) -> _Groups:
    """The fewest manual axes that the replica groups of a collective are over."""
    attribute = op.attributes["replica_groups"]
    if hlo.ReplicaGroupMeshAxesAttr.isinstance(attribute):
        axes = hlo.ReplicaGroupMeshAxesAttr(attribute).axes
        return _Groups(tuple([name for a in axes for name in _axes(
            hlo.AxisRefAttr(a), hlo.SubAxisInfoAttr, replay)]))
    mesh = _mesh(replay)
    groups = np.array(attribute)
    places = np.stack(np.unravel_index(groups, mesh.axis_sizes), -1)        # group, member, axis
    for count in range(1, len(replay.manual) + 1):
        for names in itertools.permutations(replay.manual, count):
            dims = [mesh.axis_names.index(n) for n in names]
            found = _in_each(places, dims, mesh)
            if found is not None:
                size = int(np.prod([mesh.axis_sizes[d] for d in dims]))
                whole = found == ((*range(size),),)
                if whole or list(names) == [n for n in mesh.axis_names if n in names]:
                    return _Groups(names, None if whole else found)
    fail(NotImplementedError, f"from_stablehlo: the groups of {op.name}, {groups.tolist()}, are "
         f"not the same wherever else devices are than along {', '.join(replay.manual)}",
         code="stablehlo-mesh", location=replay.place,
         help="state the mesh so that each group lies along some of its axes")


def _in_each(places: np.ndarray, dims: Sequence[int], mesh: Any
             ) -> tuple[tuple[int, ...], ...] | None:
    """Lists of devices as positions along dims, if they are the same wherever else devices are.

    places: of each device of each list, its place along each axis.
    """
    sizes = [mesh.axis_sizes[d] for d in dims]
    others = [d for d in range(len(mesh.axis_names)) if d not in dims]
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for row in places.tolist():
        elsewhere = {tuple([place[d] for d in others]) for place in row}
        if len(elsewhere) != 1:
            return None
        positions = [int(np.ravel_multi_index([place[d] for d in dims], sizes)) for place in row]
        found.setdefault(elsewhere.pop(), set()).add(tuple(positions))
    count = int(np.prod([mesh.axis_sizes[d] for d in others]))
    alike = {frozenset(s) for s in found.values()}
    return tuple(sorted(alike.pop())) if len(found) == count and len(alike) == 1 else None


_SUMS: dict[Callable[..., Any] | None, Callable[..., Any]] = {
    lax.add: parallel.psum, lax.max: parallel.pmax, lax.min: parallel.pmin}


@rule("stablehlo.all_reduce")
def _all_reduce(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """A collective of `lax` where the computation is known; any other is run on gathered values,
    one device after the other.
    """
    combine = binary_function(op.regions[0])
    axes, parts = groups = _groups(replay, op)
    if combine in _SUMS:
        return [_SUMS[combine](v, axes, **groups.options()) for v in x]
    run = combine or (lambda a, b: replay.region(op.regions[0], (a, b))[0])
    out = []
    for v in x:                            # of each device's value, one after the other
        parts = parallel.all_gather(v, axes, axis_index_groups=parts)
        total = lax.index_in_dim(parts, 0, 0, keepdims=False)
        for i in range(1, parts.shape[0]):
            total = run(total, lax.index_in_dim(parts, i, 0, keepdims=False))
        out.append(total)
    return out


@rule("stablehlo.all_gather")
def _all_gather(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    groups, dimension = _groups(replay, op), python_of(op.attributes["all_gather_dim"])
    return [parallel.all_gather(v, groups.axes, axis=dimension, tiled=True, **groups.options())
            for v in x]


@rule("stablehlo.reduce_scatter")
def _reduce_scatter(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    if binary_function(op.regions[0]) is not lax.add:
        fail(NotImplementedError, "from_stablehlo: a reduce_scatter combines by a function other "
             "than add", code="unknown-operation", location=replay.place,
             help="write an all_reduce, and take each device's block of it")
    groups = _groups(replay, op)
    return parallel.psum_scatter(
        x[0], groups.axes, tiled=True, **groups.options(),
        scatter_dimension=python_of(op.attributes["scatter_dimension"]))


@rule("stablehlo.all_to_all")
def _all_to_all(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    groups = _groups(replay, op)
    split, joined = (python_of(op.attributes[n]) for n in ("split_dimension", "concat_dimension"))
    return [parallel.all_to_all(v, groups.axes, split, joined, tiled=True, **groups.options())
            for v in x]


@rule("stablehlo.collective_permute")
def _permute(replay: Replay, op: Any, x: Sequence[Any]) -> Any:
    """Over the fewest manual axes along which all pairs of devices agree."""
    pairs = np.array(op.attributes["source_target_pairs"])
    mesh = _mesh(replay)
    places = np.stack(np.unravel_index(pairs, mesh.axis_sizes), -1)         # pair, end, axis
    names = [n for d, n in enumerate(mesh.axis_names)
             if n in replay.manual and (places[:, 0, d] != places[:, 1, d]).any()]
    names = names or list(replay.manual[:1])
    for axes in (tuple(names), tuple([n for n in mesh.axis_names if n in replay.manual])):
        found = _in_each(places, [mesh.axis_names.index(n) for n in axes], mesh)
        if found is not None:
            return parallel.ppermute(x[0], axes, [(a, b) for a, b in found])
    fail(NotImplementedError, "from_stablehlo: the pairs of a collective_permute differ between "
         f"groups of the manual mesh axes {', '.join(replay.manual)}",
         code="stablehlo-mesh", location=replay.place,
         help="write a permutation of all devices along these axes")
