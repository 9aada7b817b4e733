"""Older signatures of shard_map.

`jax.experimental.shard_map.shard_map` took mesh and specs by position and called the check
`check_rep`; it named the axes to leave alone (`auto`) where `shard_map` names those to take over.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.meshes.mesh import AbstractMesh, Mesh
from .shard_map import shard_map as current_shard_map


def shard_map(f: Callable[..., Any], mesh: Mesh | AbstractMesh, in_specs: Any, out_specs: Any,
              check_rep: bool = True, auto: frozenset[str] = frozenset()) -> Callable[..., Any]:
    """`f` applied on each device to its blocks; see `shard_map` for the arguments.

    auto: the mesh axes that do not become Manual. check_rep: the older name of `check_vma`.
    """
    manual = frozenset(mesh.axis_names) - auto if auto else frozenset()
    return current_shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs,
                             axis_names=manual, check_vma=check_rep)
