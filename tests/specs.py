"""All the ways to split an array over a mesh, and arguments without values."""
import itertools
from typing import Any

import numpy as np

import shardtrace as st
from shardtrace.ir.meshes.mesh import AbstractMesh


def specs(mesh: AbstractMesh, rank: int) -> list[tuple[tuple[str, ...], ...]]:
    """All full specs: every ordered choice of axes, cut into `rank` dimensions."""
    out = set()
    for k in range(len(mesh.axis_names) + 1):
        for axes in itertools.permutations(mesh.axis_names, k):
            for cuts in itertools.combinations_with_replacement(range(k + 1), rank - 1):
                bounds = (0, *cuts, k)
                out.add(tuple(tuple(axes[a:b])
                              for a, b in zip(bounds, bounds[1:], strict=False)))
    return sorted(out)


def struct(shape: tuple[int, ...], *spec: Any, mesh: Any, dtype: Any = np.float32
           ) -> st.ShapeDtypeStruct:
    """An argument that lies like this."""
    return st.ShapeDtypeStruct(shape, dtype, sharding=st.NamedSharding(mesh, st.P(*spec)))
