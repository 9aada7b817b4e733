"""Pictures of shardings are JAX's, character by character."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.arrays import visualize
from shardtrace.arrays.devices import make_mesh
from shardtrace.arrays.transfer import device_put
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import P

pytestmark = pytest.mark.usefixtures("eight_devices")


LINE = """\
┌───────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │
└───────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
"""
HALVES = """\
┌───────────┬───────────┐
│CPU 0,1,2,3│CPU 4,5,6,7│
└───────────┴───────────┘
"""
GRID = """\
┌───────┬───────┬───────┬───────┐
│       │       │       │       │
│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │
│       │       │       │       │
│       │       │       │       │
├───────┼───────┼───────┼───────┤
│       │       │       │       │
│ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │
│       │       │       │       │
│       │       │       │       │
└───────┴───────┴───────┴───────┘
"""
ROWS = """\
┌───────────────────────┐
│                       │
│      CPU 0,1,2,3      │
│                       │
│                       │
├───────────────────────┤
│                       │
│      CPU 4,5,6,7      │
│                       │
│                       │
└───────────────────────┘
"""
TALL = """\
┌──────────┬──────────┐
│  CPU 0   │  CPU 4   │
├──────────┼──────────┤
│  CPU 1   │  CPU 5   │
├──────────┼──────────┤
│  CPU 2   │  CPU 6   │
├──────────┼──────────┤
│  CPU 3   │  CPU 7   │
└──────────┴──────────┘
"""
WIDE = """\
┌───────────────────┬───────────────────┬──────────────────┬───────────────────┐
│                   │                   │                  │                   │
│                   │                   │                  │                   │
│                   │                   │                  │                   │
├───────────────────┼───────────────────┼──────────────────┼───────────────────┤
│                   │                   │                  │                   │
│                   │                   │                  │                   │
│                   │                   │                  │                   │
└───────────────────┴───────────────────┴──────────────────┴───────────────────┘
"""
NARROW = """\
┌─────┬─────┬─────┬─────┐
│CPU 0│CPU 1│CPU 2│CPU 3│
├─────┼─────┼─────┼─────┤
│CPU 4│CPU 5│CPU 6│CPU 7│
└─────┴─────┴─────┴─────┘
"""


@pytest.mark.parametrize(("shape", "spec", "options", "picture"), [
    ((16,), P(("a", "b")), {}, LINE),
    ((16,), P("a"), {}, HALVES),
    ((8, 8), P("a", "b"), {}, GRID),
    ((8, 8), P("a"), {}, ROWS),
    ((8, 8), P("b", "a"), {}, TALL),
    ((8, 8), P("b", "a"), {"use_color": False}, TALL),
    ((4, 32), P("a", "b"), {}, WIDE),
    ((8, 8), P("a", "b"), {"min_width": 4, "scale": 0.5}, NARROW),
])
def test_drawings_show_which_device_holds_which_part(shape, spec, options, picture, capsys):
    sharding = NamedSharding(make_mesh((2, 4), ("a", "b")), spec)
    visualize.visualize_sharding(shape, sharding, **options)
    assert capsys.readouterr().out == picture
    visualize.visualize_array_sharding(device_put(np.zeros(shape), sharding), **options)
    assert capsys.readouterr().out == picture


def test_colours_replace_borders(capsys, monkeypatch):
    monkeypatch.setattr(visualize, "_has_colors", lambda: True)
    sharding = NamedSharding(make_mesh((2, 4), ("a", "b")), P("a", "b"))
    visualize.visualize_sharding((8, 8), sharding, color_map=lambda x: (x, 0.0, 1.0))
    text = capsys.readouterr().out
    assert "│" not in text and all(f"CPU {i}" in text for i in range(8))


@pytest.mark.parametrize("shape", [(), (4, 4, 4)])
def test_only_vectors_and_matrices_can_be_drawn(shape):
    sharding = NamedSharding(make_mesh((2, 4), ("a", "b")), P())
    with pytest.raises(ValueError, match="`visualize_sharding` only works for shapes with 1 and 2"):
        visualize.visualize_sharding(shape, sharding)


def test_inspect_calls_back_with_each_sharding():
    sharding = NamedSharding(make_mesh((2, 4), ("a", "b")), P("a"))
    seen = []
    visualize.inspect_array_sharding([device_put(np.zeros(2), sharding)] * 2, callback=seen.append)
    assert seen == [sharding, sharding]
