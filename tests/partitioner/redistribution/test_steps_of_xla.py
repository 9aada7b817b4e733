"""The exchanges with which JAX 0.10.2 brings an array of 64 rows a side to another layout."""
from __future__ import annotations

from typing import Any

import shardtrace as st
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

GRID, CUBE = {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}


@rows("axes, source, target, found", [
    (GRID, P(None, "x"), P("x", "y"), ["collective-permute x,y"]),
    (GRID, P(None, "y"), P("y", "x"), ["all-to-all y"]),
    (GRID, P("x"), P("y", "x"), ["collective-permute x,y"]),
    (GRID, P("y", "x"), P(None, "y"), ["all-gather x", "all-to-all y"]),
    (GRID, P("x", "y"), P("y"), ["all-gather x", "all-to-all y"]),
    (GRID, P("x", "y"), P("y", "x"), ["all-to-all y", "collective-permute x,y"]),
    (GRID, P("x", "y", None), P("y", None, "x"), ["all-to-all x", "all-to-all y"]),
    (GRID, P(None, None, "y"), P("y", "x"), ["all-to-all x", "all-to-all y"]),
    (GRID, P(None, "x", "y"), P("x"), ["all-gather y", "all-to-all x"]),
    (CUBE, P(("x", "y"), "z"), P(None, ("x", "z")),
     ["all-gather z", "all-to-all x,y", "collective-permute y,z"]),
    (CUBE, P(("z", "x")), P("y", "z"), ["all-to-all x", "collective-permute x,y,z"]),
    (CUBE, P("y", "z"), P(("x", "z", "y")), ["all-gather y", "all-gather z"]),
    (CUBE, P(None, "z"), P(("z", "x")), ["all-gather z"]),
    (CUBE, P(("x", "z")), P(None, ("x", "y")), ["all-to-all x,z", "collective-permute y,z"]),
    (CUBE, P(("z", "y")), P("x"), ["all-gather y", "collective-permute x,z"]),
    (CUBE, P("y"), P(("y", "z", "x")), []),
    (CUBE, P(("y", "z", "x")), P("z"), ["all-gather x,y", "collective-permute x,y,z"]),
    (CUBE, P("x", "y", "z"), P(("z", "x"), "y"), ["all-to-all z", "collective-permute x,z"]),
    (CUBE, P(("x", "z", "y")), P(None, ("z", "x", "y")),
     ["all-to-all x,y,z", "collective-permute x,z"]),
    (CUBE, P(None, "x", ("y", "z")), P(None, None, "z"),
     ["all-gather x", "all-gather y", "collective-permute y,z"]),
    (CUBE, P("y", "x", "z"), P(None, "z"),
     ["all-gather x", "all-gather y", "collective-permute x,y,z"])])
def test_a_value_goes_to_another_layout_as_in_xla(axes: dict[str, int], source: P, target: P,
                                                  found: list[str]) -> None:
    mesh = st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    x = st.ShapeDtypeStruct((64,) * max(2, len(source)), "float32",
                            sharding=NamedSharding(mesh, source))

    def same(x: Any) -> Any:
        return x
    compiled = st.jit(same, out_shardings=NamedSharding(mesh, target),
                      compiler_options={"objective": "xla"}).lower(x).compile()
    assert sorted([f"{r.kind} {','.join(sorted({a.partition(':')[0] for a in r.mesh_axes}))}"
                   for r in compiled.collectives()]) == found
