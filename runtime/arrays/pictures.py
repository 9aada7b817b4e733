"""Pictures for notebooks: where the blocks of an array lie, as SVG, beside its type and values.

The colour of a block is that of its first device, as in the pictures for terminals. Of arrays with
more than two dimensions the two that are split most are drawn, the others are whole or said.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from ...ir.shardings.sharding import NamedSharding, Sharding
from ...ir.support import html as looks
from ...ir.support.lazy import lazy_import

html = lazy_import("html")

_WIDE, _HIGH, _MOST = 360, 200, 256      # pixels; blocks that are drawn
_SMALL = 34                              # pixels below which a block has no text


def sharding_svg(shape: Sequence[int], sharding: Sharding,
                 color_map: Any = None) -> str:
    """The blocks of an array of this shape as an SVG image, each with its devices.

    color_map: a function of [0, 1] to red, green and blue in [0, 1]. For no dimensions, or more
    blocks than can be told apart, a line of text.

    >>> picture = sharding_svg((8, 8), st.NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("x")))
    >>> picture.count("<rect"), "CPU 0,1" in picture
    (4, True)
    """
    dims = _drawn(shape, sharding)
    blocks = _blocks(shape, sharding, dims)
    rows, columns = 1 + max(r for r, _ in blocks), 1 + max(c for _, c in blocks)
    if len(blocks) > _MOST or not shape:
        return f"<span>{html.escape(_said(sharding))}</span>"
    tall = shape[dims[0]] if dims[0] >= 0 else 1
    wide = shape[dims[1]]
    height = max(28 * min(rows, 8), min(_HIGH, int(_WIDE * tall / max(wide, 1))))
    w, h = _WIDE / columns, height / rows
    platform = sharding.device_assignment[0].platform.upper()
    count = len(sharding.device_assignment)
    drawn = []
    for (r, c), ids in sorted(blocks.items()):
        x, y = c * w, r * h
        fill = _color(ids[0] / max(count, 1), color_map)
        drawn.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' "
                     f"fill='{fill}' stroke='#fff'/>")
        shown = ",".join(map(str, ids[:4])) + (",..." if len(ids) > 4 else "")
        text = f"{platform} {shown}" if w > 2 * _SMALL else shown
        if w >= _SMALL / 2 and h >= 12:
            drawn.append(f"<text x='{x + w / 2:.1f}' y='{y + h / 2 + 4:.1f}' fill='#fff' "
                         f"text-anchor='middle' font-size='11' font-family='monospace'>{text}"
                         f"</text>")
    return (f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDE}' height='{height}' "
            f"viewBox='0 0 {_WIDE} {height}'>{''.join(drawn)}</svg>")


def array_html(x: Any) -> str:
    """An array for a notebook: its type, its values in short, and where its blocks lie."""
    text = looks.code(html.escape(repr(x)).split("\n"))
    kind = html.escape(str(x.aval))
    try:
        picture = sharding_svg(x.shape, x.sharding) if x.ndim else ""
        where = _said(x.sharding)
    except (NotImplementedError, ValueError):        # a pending sum has no picture
        picture, where = "", str(x.sharding.spec) if isinstance(x.sharding, NamedSharding) else ""
    return looks.page(f"<b>{kind}</b> {html.escape(where)}{text}{picture}")


def in_notebook() -> bool:
    """Is this a notebook, which shows HTML?"""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def show(markup: str) -> None:
    """Show HTML in the notebook that this runs in."""
    sys.modules["IPython"].display.display(      # type: ignore[attr-defined]
        sys.modules["IPython"].display.HTML(markup))     # type: ignore[attr-defined]


def _said(sharding: Sharding) -> str:
    count = len(sharding.device_assignment)
    if isinstance(sharding, NamedSharding):
        mesh = ", ".join(f"{a}={n}" for a, n in sharding.mesh.shape.items())
        return f"{sharding.spec} over {mesh}"
    return f"on {count} device{'' if count == 1 else 's'}"


def _drawn(shape: Sequence[int], sharding: Sharding) -> tuple[int, int]:
    """(dimension downwards or -1, dimension to the right): the two that are split most."""
    if len(shape) < 2:
        return -1, 0
    block = sharding.shard_shape(tuple(shape))
    parts = [-(-n // max(b, 1)) for n, b in zip(shape, block, strict=True)]
    best = sorted(sorted(range(len(shape)), key=lambda d: (-parts[d], -d))[:2])
    return best[0], best[1]


def _blocks(shape: Sequence[int], sharding: Sharding, dims: tuple[int, int]
            ) -> dict[tuple[int, int], list[int]]:
    block = sharding.shard_shape(tuple(shape))
    found: dict[tuple[int, int], list[int]] = {}
    for device, where in sharding.devices_indices_map(tuple(shape)).items():
        at = [0 if s.start is None else s.start // max(n, 1)
              for s, n in zip(where, block, strict=True)]
        place = (at[dims[0]] if dims[0] >= 0 else 0, at[dims[1]] if at else 0)
        found.setdefault(place, []).append(device.id)
    return {place: sorted(ids) for place, ids in found.items()}


def _color(part: float, color_map: Any) -> str:
    if color_map is not None:
        r, g, b = (min(max(float(v), 0.0), 1.0) for v in tuple(color_map(part))[:3])
        return f"rgb({r * 255:.0f},{g * 255:.0f},{b * 255:.0f})"
    turn = math.modf(0.58 + 0.85 * part)[0]
    return f"hsl({turn * 360:.0f},45%,45%)"
