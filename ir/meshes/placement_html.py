"""Meshes, specs and shardings in a notebook: tables of axes, devices and dimensions."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..support.html import FAINT, escaped, grid, page

_MOST = 16               # rows and columns of a mesh that are shown


def mesh_html(mesh: Any, devices: Any = None) -> str:
    """A mesh: its axes and, of a concrete one, which device is where, along its first axis and all
    others."""
    axes = grid(("mesh axis", "size", "type"), [
        (str(a), f"{n:,}", t.name) for a, n, t in
        zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)])
    if devices is None or not mesh.axis_names:
        return page(axes)
    ids = [[d.id for d in row.flat] for row in devices.reshape(mesh.axis_sizes[0], -1)]
    width = len(ids[0]) if ids else 0
    others = ", ".join(map(str, mesh.axis_names[1:]))
    shown = [[f"{mesh.axis_names[0]}={i}", *[str(d) for d in row[:_MOST]]]
             for i, row in enumerate(ids[:_MOST])]
    left = mesh.size - sum(len(row) - 1 for row in shown)
    more = f"<div style='{FAINT}'>and {left:,} more devices</div>" if left else ""
    heads = [f"devices by {others}" if others else "devices", *[""] * min(width, _MOST)]
    return page(axes + grid(heads, shown) + more)


def spec_html(entries: Sequence[Sequence[Any]], unreduced: Any = (), reduced: Any = (),
              shape: Sequence[int] = (), sizes: Any = None) -> str:
    """A spec: for each dimension the mesh axes that split it, with sizes where they are known.

    entries: of each dimension, a tuple unless it is unconstrained. sizes: of mesh axes, by name.
    """
    rows = []
    for d, axes in enumerate(entries):
        parts = 1
        if not isinstance(axes, tuple):
            row = [str(d), "unconstrained"]
        else:
            row = [str(d), ", ".join(map(str, axes)) or "whole"]
            for a in axes:
                parts *= (sizes or {}).get(a, 1)
        if sizes is not None:
            row.append(f"{parts:,}")
        if shape:
            row += [f"{shape[d]:,}", f"{-(-shape[d] // parts):,}"]
        rows.append(row)
    heads = ["dimension", "mesh axes", *(["parts"] if sizes is not None else []),
             *(["size", "of a piece"] if shape else [])]
    notes = [f"{word} over {', '.join(sorted(map(str, axes)))}"
             for word, axes in (("unreduced", unreduced), ("reduced", reduced)) if axes]
    table = grid(heads, rows) if rows else escaped("whole on every device")
    return page(table + "".join(f"<div>{escaped(n)}</div>" for n in notes))


def sharding_html(sharding: Any, shape: Sequence[int] = (), title: str = "") -> str:
    """A NamedSharding over its mesh, for an array of this shape if one is given."""
    spec = sharding.spec.padded(len(shape)) if shape else sharding.spec
    head = f"<div><code>{escaped(title or repr(sharding))}</code></div>"
    return page(head + spec_html(spec.entries, spec.unreduced, spec.reduced, shape,
                                 dict(sharding.mesh.shape)))
