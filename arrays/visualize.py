"""Pictures of shardings: which device holds which block of a matrix or vector.

The picture is plain text unless the output is a terminal with colours, where `rich` paints a cell
for each block. Sizes, paddings and borders are those of `jax.debug.visualize_array_sharding`
(0.10.2), so that documents written for it show the same pictures. In notebooks it is an SVG image:
the colour of a block is that of its first device; of arrays with more than two dimensions the two
that are split most are drawn.
"""
from __future__ import annotations

import colorsys
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.ops.control.callback import inspect_sharding_p
from ..ir.shardings.sharding import NamedSharding, Sharding
from ..ir.support import html as looks
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from ..ir.trees.pytree import flatten

html = lazy_import("html")

_align = lazy_import("rich.align")
_box = lazy_import("rich.box")
_console = lazy_import("rich.console")
_padding = lazy_import("rich.padding")
_style = lazy_import("rich.style")
_table = lazy_import("rich.table")

ColorMap = Callable[[float], Sequence[float]]


class _Cell(NamedTuple):
    """A block: its devices as text, the first of them, and blank lines and columns around the text
    (above, right, below, left).
    """
    text: str
    first: int
    around: tuple[int, int, int, int]


def visualize_sharding(shape: Sequence[int], sharding: Sharding, *, use_color: bool = True,
                       scale: float = 1.0, min_width: int = 9, max_width: int = 80,
                       color_map: ColorMap | None = None) -> None:
    """Print where the blocks of an array of this shape are; in a notebook, show it as an image.

    scale: size of the picture (10 lines at 1). min_width, max_width: of a cell and of the whole,
      in characters. color_map: a function of [0, 1] to red, green and blue in [0, 1].
    Raises ValueError unless there are 1 or 2 dimensions, NotImplementedError for partial sums.

    >>> sharding = st.NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("y"))
    >>> st.debug.visualize_sharding((8,), sharding, use_color=False)
    ┌───────────┬───────────┐
    │CPU 0,2,4,6│CPU 1,3,5,7│
    └───────────┴───────────┘
    """
    shape = tuple(shape)
    if len(shape) not in (1, 2):
        raise ValueError("`visualize_sharding` only works for shapes with 1 and 2 dimensions.")
    if use_color and in_notebook():
        show(sharding_svg(shape, sharding, color_map))
        return
    rows = _cells(shape, sharding, scale, min_width, max_width)
    _print(rows, max_width, (color_map or _hues) if use_color and _has_colors() else None)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print where the blocks of an array are; options as for `visualize_sharding`.

    >>> x = st.device_put(np.arange(8.0), st.devices()[2])
    >>> st.debug.visualize_array_sharding(x, use_color=False)
    ┌───────┐
    │ CPU 2 │
    └───────┘
    """
    inspect_array_sharding(arr, callback=lambda sharding: visualize_sharding(
        arr.shape, sharding, **options))


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call `callback` with the sharding of each array of a pytree.

    Of a traced value it is the sharding that the partitioner gives it, known when the program has
    been partitioned.

    >>> st.debug.inspect_array_sharding(np.float32(1) + jnp.ones(2), callback=print)
    SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
    """
    for leaf in flatten(value)[0]:
        sharding = getattr(leaf, "sharding", None)      # which a traced value does not have
        if sharding is None:
            inspect_sharding_p.bind(leaf, callback=callback)
        else:
            callback(sharding)


def _cells(shape: tuple[int, ...], sharding: Sharding, scale: float, min_width: int,
           max_width: int) -> list[list[_Cell]]:
    """The cells of the picture, by row and column: which devices hold each block, and how large it
    is drawn.
    """
    block, found = sharding.shard_shape(shape), _blocks(shape, sharding, _drawn(shape, sharding))
    platform = sharding.device_assignment[0].platform.upper()
    height = int(10 * scale)
    width = int(height * ((shape[1] if len(shape) == 2 else 1) / shape[0]))
    across = block[-1] / shape[-1]
    down = block[0] / shape[0] if len(shape) == 2 else None
    w = min(max(int(across * width * 2.5), min_width), max_width)
    h = int(down * height) if down is not None else 1

    def cell(ids: list[int]) -> _Cell:
        text = f"{platform} {','.join(map(str, ids))}"
        free, tall = w - len(text) - 2, h - 2
        return _Cell(text, ids[0], (max(tall // 2, 0), max(free - free // 2, 0),
                                    max(tall - tall // 2, 0), max(free // 2, 0)))

    last_row, last_column = map(max, zip(*found, strict=True))
    return [[cell(found[r, c]) for c in range(last_column + 1)] for r in range(last_row + 1)]


def _has_colors() -> bool:
    return sys.stdout.isatty() and _console.Console().color_system is not None


def _print(rows: list[list[_Cell]], max_width: int, color_map: ColorMap | None) -> None:
    """Print the cells as a table, coloured by their first device if there is a colour map."""
    table = _table.Table(show_header=False, show_lines=color_map is None, padding=0,
                         highlight=color_map is None, pad_edge=False,
                         box=_box.SQUARE if color_map is None else None)
    count = max(max(cell.first for cell in row) for row in rows) + 1
    for row in rows:
        drawn = []
        for cell in row:
            text = _align.Align(cell.text, "center", vertical="middle")
            if color_map is None:
                drawn.append(_padding.Padding(text, cell.around))
                continue
            red, green, blue = (int(255 * v) for v in color_map(cell.first / count)[:3])
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 150
            style = _style.Style(bgcolor=f"#{red:02x}{green:02x}{blue:02x}",
                                 color="white" if dark else "black")
            top, right, bottom, left = cell.around
            drawn.append(_padding.Padding(text, (top, right + 1, bottom, left + 1), style=style))
        table.add_row(*drawn)
    _console.Console(width=max_width, file=sys.stdout).print(table)


def _hues(x: float) -> tuple[float, float, float]:
    """Hues in [0, 1), far apart for neighbouring numbers."""
    return colorsys.hsv_to_rgb((x * 7.618) % 1.0, 0.45, 0.95)


# -- images for notebooks --------------------------------------------------------------------------

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
        return f"<span>{html.escape(_placement_text(sharding))}</span>"
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
    """An array for a notebook: its type, abbreviated values, and the devices of its blocks."""
    text = looks.code(html.escape(repr(x)).split("\n"))
    kind = html.escape(str(x.aval))
    try:
        picture = sharding_svg(x.shape, x.sharding) if x.ndim else ""
        where = _placement_text(x.sharding)
    except (NotImplementedError, ValueError):        # a pending sum has no picture
        picture, where = "", str(x.sharding.spec) if isinstance(x.sharding, NamedSharding) else ""
    return looks.page(f"<b>{kind}</b> {html.escape(where)}{text}{picture}")


def in_notebook() -> bool:
    """Does this run in a notebook, which shows HTML?"""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def show(markup: str) -> None:
    """Show HTML in the notebook around this call."""
    sys.modules["IPython"].display.display(      # type: ignore[attr-defined]
        sys.modules["IPython"].display.HTML(markup))     # type: ignore[attr-defined]


def _placement_text(sharding: Sharding) -> str:
    count = len(sharding.device_assignment)
    if isinstance(sharding, NamedSharding):
        mesh = ", ".join(f"{a}={n}" for a, n in sharding.mesh.shape.items())
        return f"{sharding.spec} over {mesh}"
    return f"on {count} device{'' if count == 1 else 's'}"


def _drawn(shape: Sequence[int], sharding: Sharding) -> tuple[int, int]:
    """The two dimensions split most: drawn downwards (-1: none), and to the right."""
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
