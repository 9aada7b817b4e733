"""Pictures of shardings: which device holds which block of a matrix or vector.

The picture is plain text unless the output is a terminal with colours, where `rich` paints a cell
for each block. Sizes, paddings and borders are those of `jax.debug.visualize_array_sharding`
(0.10.2), so that documents written for it show the same pictures.
"""
from __future__ import annotations

import colorsys
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.pytree import flatten
from ...ir.shardings.sharding import Sharding
from ...ir.support.lazy import lazy_import
from .pictures import in_notebook, sharding_svg, show

_align = lazy_import("rich.align")
_box = lazy_import("rich.box")
_console = lazy_import("rich.console")
_padding = lazy_import("rich.padding")
_style = lazy_import("rich.style")
_table = lazy_import("rich.table")

ColorMap = Callable[[float], Sequence[float]]


@dataclass(frozen=True)
class _Cell:
    """A block: its devices as text, and blank columns and lines around the text."""
    text: str
    left: int
    right: int
    top: int
    bottom: int
    first: int      # smallest device id

    @property
    def width(self) -> int:
        return self.left + len(self.text) + self.right

    @property
    def height(self) -> int:
        return self.top + 1 + self.bottom


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
    colored = use_color and _has_colors()
    total = sum(max(row[c].width for row in rows) + 1 for c in range(len(rows[0]))) + 1
    if colored or total > max_width:
        _print_rich(rows, max_width, (color_map or _hues) if colored else None)
    else:
        print(_plain(rows))


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Print where the blocks of an array are; options as for `visualize_sharding`.

    >>> x = st.device_put(np.arange(8.0), st.devices()[2])
    >>> st.debug.visualize_array_sharding(x, use_color=False)
    ┌───────┐
    │ CPU 2 │
    └───────┘
    """
    visualize_sharding(arr.shape, arr.sharding, **options)


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call `callback` with the sharding of each array of a pytree.

    >>> st.debug.inspect_array_sharding(np.float32(1) + jnp.ones(2), callback=print)
    SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
    """
    for leaf in flatten(value)[0]:
        callback(leaf.sharding)


def _cells(shape: tuple[int, ...], sharding: Sharding, scale: float, min_width: int,
           max_width: int) -> list[list[_Cell]]:
    holders: dict[tuple[int, int], list[int]] = {}
    block = sharding.shard_shape(shape)
    for device, where in sharding.devices_indices_map(shape).items():
        place = [0 if s.start is None else s.start // n for s, n in zip(where, block, strict=True)]
        row, column = place if len(place) == 2 else (0, place[0])
        holders.setdefault((row, column), []).append(device.id)
    platform = sharding.device_assignment[0].platform.upper()
    height = int(10 * scale)
    width = int(height * ((shape[1] if len(shape) == 2 else 1) / shape[0]))
    across = block[-1] / shape[-1]
    down = block[0] / shape[0] if len(shape) == 2 else None
    w = min(max(int(across * width * 2.5), min_width), max_width)
    h = int(down * height) if down is not None else 1

    def cell(ids: list[int]) -> _Cell:
        text = f"{platform} {','.join(map(str, sorted(ids)))}"
        free, tall = w - len(text) - 2, h - 2
        return _Cell(text, max(free // 2, 0), max(free - free // 2, 0), max(tall // 2, 0),
                     max(tall - tall // 2, 0), min(ids))

    last_row, last_column = max(r for r, _ in holders), max(c for _, c in holders)
    return [[cell(holders[r, c]) for c in range(last_column + 1)] for r in range(last_row + 1)]


def _plain(rows: list[list[_Cell]]) -> str:
    columns = range(len(rows[0]))
    widths = [max(row[c].width for row in rows) for c in columns]

    def border(left: str, between: str, right: str) -> str:
        return left + between.join("─" * w for w in widths) + right

    parts = []
    for row in rows:
        blank = "│" + "│".join(" " * w for w in widths) + "│"
        lines = [blank] * max(cell.height for cell in row)
        at = row[0].top
        texts = [(" " * cell.left + cell.text + " " * cell.right) for cell in row]
        lines[at] = "│" + "│".join(_centered(t, w) for t, w in zip(texts, widths, strict=True)
                                   ) + "│"
        parts.append("\n".join(lines))
    inner = "\n" + border("├", "┼", "┤") + "\n"
    return border("┌", "┬", "┐") + "\n" + inner.join(parts) + "\n" + border("└", "┴", "┘")


def _centered(text: str, width: int) -> str:
    extra = width - len(text)
    return " " * (extra // 2) + text + " " * (extra - extra // 2)


def _has_colors() -> bool:
    return sys.stdout.isatty() and _console.Console().color_system is not None


def _print_rich(rows: list[list[_Cell]], max_width: int, color_map: ColorMap | None) -> None:
    table = _table.Table(show_header=False, show_lines=color_map is None, padding=0,
                         highlight=color_map is None, pad_edge=False,
                         box=_box.SQUARE if color_map is None else None)
    count = max(max(cell.first for cell in row) for row in rows) + 1
    for row in rows:
        drawn = []
        for cell in row:
            text = _align.Align(cell.text, "center", vertical="middle")
            around = (cell.top, cell.right, cell.bottom, cell.left)
            if color_map is None:
                drawn.append(_padding.Padding(text, around))
                continue
            red, green, blue = (int(255 * v) for v in color_map(cell.first / count)[:3])
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 150
            style = _style.Style(bgcolor=f"#{red:02x}{green:02x}{blue:02x}",
                                 color="white" if dark else "black")
            drawn.append(_padding.Padding(text, tuple(n + 1 if i % 2 else n for i, n in
                                                      enumerate(around)), style=style))
        table.add_row(*drawn)
    _console.Console(width=max_width, file=sys.stdout).print(table)


def _hues(x: float) -> tuple[float, float, float]:
    """Neighbouring numbers get hues far apart."""
    return colorsys.hsv_to_rgb((x * 7.618) % 1.0, 0.45, 0.95)
