"""The meshes of a text: those that it states, cut where it uses parts of their axes. For a text of
GSPMD, whose tilings name no axes, the coarsest mesh on which all of them are specs.
"""
from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Mapping
from typing import Any

from ...arrays.devices import device_count, make_mesh
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.shardings.hlo_sharding import HloSharding
from ...ir.shardings.refinement import common_refinement
from ...ir.shardings.restate import spec_for_tiling
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import UNCONSTRAINED, PartitionSpec
from ...ir.support.caches import cached
from .replay import Replay

GSPMD = ""                      # the name of the mesh of a text that has none
_PART = re.compile(r'"([^"\s]+)":\((\d+)\)(\d+)|name = "([^"]+)", sub_axis_info = \((\d+)\)(\d+)')
_TILING = re.compile(r'mhlo\.sharding = "([^"]*)"')

# Of each axis that is cut, its parts, major first: their names, and where they begin and end as
# products of sizes from the first on (`"x":(2)4` is from 2 to 8).
Parts = Mapping[str, tuple[tuple[str, int, int], ...]]


def parts_in(text: str, meshes: Iterable[Mapping[str, int]]) -> Parts:
    """How axes have to be cut so that all parts of them in a text are whole axes."""
    ends: dict[str, set[int]] = {}
    for found in _PART.findall(text):
        axis, before, size = found[:3] if found[0] else found[3:]
        ends.setdefault(axis, {1}).update((int(before), int(before) * int(size)))
    parts = {}
    for sizes in meshes:
        for axis in ends.keys() & sizes.keys():
            cuts = sorted(ends[axis] | {sizes[axis]})
            if any(b % a for a, b in zip(cuts, cuts[1:], strict=False)):
                fail(NotImplementedError, f"from_stablehlo: the parts of the mesh axis {axis!r} "
                     f"overlap: they end at {cuts}", code="stablehlo-mesh",
                     help="state the mesh with an axis for each part")
            parts[axis] = tuple([(f"{axis}_{i}", a, b) for i, (a, b) in enumerate(
                zip(cuts, cuts[1:], strict=False))])
    return parts


def cut(sizes: Mapping[str, int], parts: Parts) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names and sizes of a mesh's axes after the cuts."""
    axes: list[tuple[str, int]] = []
    for name, size in sizes.items():
        own = parts.get(name, ((name, 1, size),))
        if own[-1][2] != size:
            fail(ValueError, f"from_stablehlo: the text uses parts of the mesh axis {name!r}, "
                 f"of {own[-1][2]} devices; in the mesh that is given it has {size}",
                 code="stablehlo-mesh", help="leave out `mesh`, or give the axis the text's size")
        axes += [(part, end // start) for part, start, end in own]
    return tuple([name for name, _ in axes]), tuple([n for _, n in axes])


def auto_mesh(names: tuple[str, ...], sizes: tuple[int, ...]) -> Mesh | AbstractMesh:
    """A mesh with these Auto axes, of devices where there are enough."""
    kinds = (AxisType.Auto,) * len(names)
    if math.prod(sizes) > device_count():
        return AbstractMesh(sizes, names, kinds)
    return make_mesh(sizes, names, kinds)


def mesh_of_tilings(text: str, mesh: Mesh | AbstractMesh | None) -> Mesh | AbstractMesh | None:
    """The coarsest mesh on which all tilings in a text are specs; None where it has no tilings.

    Its axes are called a, b, and so on. mesh: takes its place.
    """
    found = [_sharding(s) for s in dict.fromkeys(_TILING.findall(text))]
    tilings = [s for s in found if s.is_tiled()]
    if mesh is not None or not tilings:
        return mesh
    count = tilings[0].num_devices()
    digits = [s.tiling(count) for s in tilings]
    both = None if any(t and t[0] == "irregular" for t in digits) else common_refinement(
        [AbstractMesh(sizes, tuple([f"{i}" for i in range(len(sizes))]))
         for sizes in [tuple([radix for radix, _, _ in t]) or (count,) for t in digits]])
    if both is None:
        fail(NotImplementedError, "from_stablehlo: no mesh has all of the text's tilings: "
             + ", ".join(map(str, tilings)), code="stablehlo-mesh",
             help="export it with Shardy, which names mesh axes")
    sizes = both.mesh.axis_sizes
    return auto_mesh(tuple(string.ascii_lowercase[:len(sizes)]), sizes)


@cached(1024, "tilings of GSPMD, by text")
def _sharding(text: str) -> HloSharding:
    return HloSharding.from_string(text)


def tiled(replay: Replay, text: str, ndim: int, open_dims: Iterable[int] = ()
          ) -> NamedSharding | None:
    """The sharding that a tiling of GSPMD is; None for one that names no mesh.

    open_dims: these dimensions are left open.
    """
    mesh = replay.meshes.get(GSPMD)
    said = _sharding(text)
    spec = None
    if mesh is not None and (said.is_tiled() or said.is_replicated()):
        spec = spec_for_tiling(mesh, said.tiling(mesh.size))
    elif said.is_replicated():
        return None
    if mesh is None or spec is None:
        fail(NotImplementedError, f"from_stablehlo: the sharding {text} is none of the mesh "
             f"{mesh}", code="stablehlo-mesh", location=replay.place,
             help="export it with Shardy, which is JAX's default")
    entries: list[Any] = list(spec.padded(ndim).entries)
    for d in open_dims:
        entries[d] = UNCONSTRAINED
    return NamedSharding(mesh, PartitionSpec(*entries))
