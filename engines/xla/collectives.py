"""Collectives in a generated program: those of `jax.lax`, over the same mesh axes.

A collective that `jax.lax` lacks becomes a local slice, or rounds of `ppermute` (`rounds.py`). None
of these gathers more than the device keeps.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.ops.communication.retiling import Tiling, nested
from ...ir.program import Equation
from .literals import plain, table, tuple_of
from .program_writer import ProgramWriter
from .rounds import OneExchange, Round, retile_rounds, row_rounds

Params = dict[str, Any]
Writer = Callable[[ProgramWriter, Params, str, str, Equation], str]     # axes, operand

_SUMS = ("psum", "psum_invariant", "unreduced_psum")
_COMBINED = {"pprod": "lax.mul", "pand": "lax.bitwise_and", "por": "lax.bitwise_or",
             "pxor": "lax.bitwise_xor"}


def _parts(p: Params) -> str:
    groups = p.get("axis_index_groups")
    return "" if groups is None else f", axis_index_groups={plain(groups)}"


def _sum(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    function = "pmax" if e.invars[0].aval.dtype == np.bool_ else "psum"
    return f"lax.{function}({x}, {axes}{_parts(p)})"


def _extreme(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    return f"lax.{e.op.name}({x}, {axes}{_parts(p)})"


def _combined(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    if e.invars[0].aval.dtype == np.bool_ and e.op.name in ("pand", "por"):
        return f"lax.{'pmin' if e.op.name == 'pand' else 'pmax'}({x}, {axes})"
    return f"combine_all({x}, {axes}, {_size(e)}, {_COMBINED[e.op.name]})"


def _size(e: Equation) -> int:
    assert e.op.collective is not None
    mesh = next(a.aval.mesh for a in (*e.invars, *e.outvars) if a.aval.mesh.axis_names)
    return math.prod(map(mesh.axis_size, e.op.collective.axes(e.params)))


def _gather(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    return (f"lax.all_gather({x}, {axes}, axis={p['all_gather_dimension']}, "
            f"tiled={p['tiled']}{_parts(p)})")


def _scatter(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    return (f"lax.psum_scatter({x}, {axes}, scatter_dimension={p['scatter_dimension']}, "
            f"tiled={p['tiled']}{_parts(p)})")


def _block(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    """Reductions other than sums. XLA makes one exchange of a maximum and its own block."""
    name, where = e.op.name.removesuffix("_scatter"), f"{p['axis_size']}, {p['scatter_dimension']}"
    if e.invars[0].aval.dtype == np.bool_:
        name = {"pand": "pmin", "por": "pmax"}.get(name, name)
    if name in _COMBINED:
        return f"combine_own({x}, {axes}, {where}, {_COMBINED[name]})"
    return f"own_block(lax.{name}({x}, {axes}), {axes}, {where})"


def _all_to_all(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    return (f"lax.all_to_all({x}, {axes}, {p['split_axis']}, {p['concat_axis']}, "
            f"tiled={p['tiled']}{_parts(p)})")


class _Group:
    """The members of a group in the order of the mesh, by which `ppermute` numbers them.

    axes: in that order, as text. place: of each member, numbered as the equation does.
    """

    def __init__(self, s: ProgramWriter, e: Equation) -> None:
        assert e.op.collective is not None
        names = s.axis_names(e.op.collective.axes(e.params))
        order = [n for n in s.sizes if n in names]
        self.axes = tuple_of(map(repr, order))
        numbers = np.arange(math.prod([s.sizes[n] for n in order])).reshape(
            [s.sizes[n] for n in order])
        self.place = numbers.transpose([order.index(n) for n in names]).ravel()

    def pairs(self, pairs: Any) -> str:
        return plain(sorted([(int(self.place[a]), int(self.place[b])) for a, b in pairs]))

    def table(self, values: np.ndarray) -> np.ndarray:
        """A table with a row for each member."""
        out = np.empty_like(values)
        out[self.place] = values
        return out

    def tables(self, values: np.ndarray) -> np.ndarray:
        """A table with a row for each two members."""
        out = np.empty_like(values)
        out[np.ix_(self.place, self.place)] = values
        return out


def _permute(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    group = _Group(s, e)
    return f"lax.ppermute({x}, {group.axes}, {group.pairs(p['perm'])})"


def _slice(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    return f"own_block({x}, {axes}, {p['axis_size']}, {p['dimension']})"


def _retile(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    """A retile as text: a local slice or `all_to_all` where tilings are nested, a permutation of
    whole tiles, or else rounds of `ppermute` of their parts.
    """
    size = dict(zip(p["axes"], p["axis_sizes"], strict=True))
    source, target = (tuple([tuple([a for a in axes if size[a] > 1]) for axes in tiling])
                      for tiling in (p["source"], p["target"]))
    moved = _moved_axes(source, target)
    if moved is not None and nested(source, target, size):
        return _move(s, moved, x)
    x_type = e.invars[0].aval
    shape, rounds = retile_rounds(x_type.shape, p["axes"], p["axis_sizes"], p["source"],
                                  p["target"], x_type.dtype.itemsize)
    group = _Group(s, e)
    if isinstance(rounds, OneExchange):
        receives = f"np.array({group.tables(rounds.receives).tolist()})"
        tables = [*[table(group.tables(t)) for t in (rounds.there, rounds.here)], receives]
        return (f"exchange_tiles_in_one({x}, {group.axes}, {plain(shape)}, {plain(rounds.shape)}, "
                f"{', '.join(s.constant(t, 'places') for t in tables)})")
    pairs = [pair for r in rounds for pair in r.pairs or [
        (i, i) for i in np.flatnonzero(r.receives).tolist()]]
    if all(r.shape == shape for r in rounds) and len({a for a, _ in pairs}) == len(pairs):
        if all(a == b for a, b in pairs):
            return x
        return f"lax.ppermute({x}, {group.axes}, {group.pairs(pairs)})"     # whole tiles
    text = tuple_of([_round(r, group) for r in rounds])
    return f"exchange_tiles({x}, {group.axes}, {plain(shape)}, {s.constant(text, 'pieces')})"


def _moved_axes(source: Tiling, target: Tiling) -> tuple[Tiling, Tiling] | None:
    """For each dimension the axes that leave it and those that come, where the same do both."""
    kept = [len([1 for a, b in zip(have, want, strict=False) if a == b])
            for have, want in zip(source, target, strict=True)]
    leaving, entering = (tuple([axes[k:] for axes, k in zip(tiling, kept, strict=True)])
                         for tiling in (source, target))
    sets = [sorted(a for axes in moved for a in axes) for moved in (leaving, entering)]
    return (leaving, entering) if sets[0] == sets[1] and sets[0] else None


def _move(s: ProgramWriter, moved: tuple[Tiling, Tiling], x: str) -> str:
    leaving, entering = (tuple([s.axis_names(axes) for axes in tiling]) for tiling in moved)
    used = {a for axes in leaving for a in axes}
    axes = [a for a in s.sizes if a in used]
    texts = [tuple_of([tuple_of(map(repr, axes)) for axes in t]) for t in (entering, leaving)]
    return (f"move_axes({x}, {tuple_of(map(repr, axes))}, "
            f"{plain([s.sizes[a] for a in axes])}, {', '.join(texts)})")


def _round(r: Round, group: _Group) -> str:
    return tuple_of([
        group.pairs(r.pairs), plain(r.shape), table(group.table(r.there)),
        table(group.table(r.here)), f"np.array({group.table(r.receives).tolist()})"])


def _rows(s: ProgramWriter, p: Params, axes: str, x: str, e: Equation) -> str:
    """An `exchange_rows` as text: rounds of `ppermute`, and how the rows that arrive are put in
    order, run by run or by a table of places.
    """
    aval = e.invars[0].aval
    plan = row_rounds(p["axis_size"], p["parts"], p["wanted"],
                      aval.local_nbytes // max(1, aval.local_shape()[p["dimension"]]))
    group = _Group(s, e)
    rounds = tuple_of([tuple_of([
        group.pairs(r.pairs), table(group.table(r.rows) if r.pairs else group.tables(
            r.rows.reshape(p["axis_size"], p["axis_size"], -1)).reshape(r.rows.shape))])
        for r in plan.rounds])
    if not plan.places.shape[1]:
        return f"lax.slice_in_dim({x}, 0, 0, axis={p['dimension']})"
    name = s.constant(rounds, "rounds")
    if plan.runs is None:
        places = s.constant(table(group.table(plan.places)), "places")
        return f"exchange_rows({x}, {group.axes}, {p['dimension']}, {name}, {places})"
    runs = tuple_of([tuple_of([str(k), table(group.table(starts)), str(count)])
                     for k, starts, count in plan.runs])
    return f"exchange_runs({x}, {group.axes}, {p['dimension']}, {name}, {s.constant(runs, 'runs')})"


WRITERS: dict[str, Writer] = {
    **dict.fromkeys(_SUMS, _sum), "pmax": _extreme, "pmin": _extreme,
    **dict.fromkeys(_COMBINED, _combined),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), _gather),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), _scatter),
    **{f"{name}_scatter": _block for name in ("pmax", "pmin", *_COMBINED)},
    "all_to_all": _all_to_all, "ppermute": _permute, "all_slice": _slice, "retile": _retile,
    "exchange_rows": _rows}


def exchange(source: ProgramWriter, e: Equation, x: str) -> str | None:
    """The source text of a collective of operand `x`; None if it is not supported."""
    write = WRITERS.get(e.op.name)
    if write is None:
        return None
    assert e.op.collective is not None
    axes = source.axes(e.op.collective.axes(e.params))
    return write(source, e.params, axes, x, e)
