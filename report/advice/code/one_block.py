"""Rewrites of the user's code where a device reads one block of what it gathers or sums.

    NAME                  instead of                            written
    own first             taking the own block of a value       computing it from the own block
                          computed from a gather
    own sum               taking the own block of a value       computing it from the block that a
                          computed from a sum over devices, or  psum_scatter gives
                          of what is gathered of them
    gather last           combining a gathered value with a     combining the own block with that
                          sum over devices                      of a psum_scatter, then the gather
    swapped               taking the own block of a gathered    an all_to_all
                          value along another dimension
    neighbours            taking the own block of a gathered    a ppermute from either side, and the
                          value with rows next to it            own block in between
    smaller of one block  computing less from one block of a    computing it on the device that has
    first                 gathered value, the same on all, or   the block, and broadcasting it
                          from what all get of one device

    blocks in zeros       a psum of what each device writes      an all_gather of the blocks
                          into zeros at its own place

What is read as it is gathered is `one block` of rewrites.py.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....ir.meshes.mesh_axes import group_size
from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal
from ....ir.rewriting.rewrite import Match, Rewrite
from ....ir.rules.factor import PASS
from ....ir.support.named_tuple import NamedTuple
from .blocks import GATHERS, SUMS, Blocks, behind, scattered, size_of
from .lines.expressions import is_zeros, without_pvary
from .on_blocks import varying_alike
from .rewrites import GATHERED, CodeChange, MadeOf, broadcast, fit, own_part, sources
from .varying_axes import by_device

_ADDS = ("reduce_sum", "dot_general")

# -- each device's own block ----------------------------------------------------------------------

def _own(m: Match, names: Sequence[str], n: int) -> int | None:
    """The dimension of which each of n devices takes its own block of what is read; None if it does
    not.
    """
    read, cut = m.eqn.invars[0].aval.shape, m.eqn.outvars[0].aval.shape
    dims = [d for d, (a, b) in enumerate(zip(read, cut, strict=True)) if a != b]
    if len(names) != 1 or len(dims) != 1 or read[dims[0]] != n * cut[dims[0]]:
        return None
    for dim, a in enumerate(m.eqn.invars[1:]):
        start = by_device(m, a, n, names)
        wanted = np.arange(n) * cut[dim] if dim == dims[0] else 0
        if start is None or (start != wanted).any():
            return None
    return dims[0]


def _own_first(m: Match) -> Atom | None:
    """Of what is made of a gather, each device's own block, made of that block."""
    blocks = Blocks(m)
    maker = m.maker(m.value)
    found = None if maker is None or maker.op.name in GATHERS else blocks.of(m.value)
    if found is None or blocks.gather is None or (
            found[0].aval.shape != m.eqn.outvars[0].aval.shape):
        return None
    block, d = found
    if _own(m, blocks.gather.axes, blocks.count) != d:
        return None
    return fit(m, block)


class _Total(NamedTuple):
    """A sum over devices: the equation that gives it, what each device adds, and the exchange."""
    eqn: Equation
    part: Atom
    exchange: Equation


class _OwnSums(Blocks):
    """Makes each device's own block of what is made of a sum over devices, of the block of the sum.
    made_of: by value and dimension its block; met: has the sum been come to?
    """

    def __init__(self, m: Match, total: _Total) -> None:
        super().__init__(m, total.exchange)
        self.total, self.met = total, False
        self.made_of: dict[tuple[Atom, int], Atom | None] = {}

    def part(self, a: Atom, d: int | None) -> Atom | None:
        block = None if d is None else self.block(a, d)
        return self.block_of_equal(a, d) if block is None else block

    def block(self, a: Atom, d: int) -> Atom | None:
        """The block of a value along a dimension; None if the value is not computed from the sum.
        """
        if (a, d) not in self.made_of:
            self.made_of[a, d] = None
            eqn = None if len(self.made_of) > self.MOST else self.m.maker(a)
            self.made_of[a, d] = None if eqn is None else self.of_sum(eqn, d)
        return self.made_of[a, d]

    def of_sum(self, eqn: Equation, d: int) -> Atom | None:
        """The block along a dimension of what an equation computes."""
        if eqn is self.total.eqn:
            return scattered(self.m, self.total.part, self.total.exchange, d)
        op = eqn.op
        if op.name == "pvary":
            return self.block(eqn.invars[0], d)
        if op.rule is None or op.collective is not None or op.multiple_results or op.subprograms:
            return None
        rule = op.factor_rule(tuple([a.aval.shape for a in eqn.invars]),
                              (eqn.outvars[0].aval.shape,), eqn.params)
        f = next(iter(rule.results[0][d]), -1)
        if f < 0 or rule.factors[f].kind != PASS or rule.factors[f].blocked or (
                rule.factors[f].size % self.count):
            return None
        cut = [self.block(a, k) for a, dims in zip(eqn.invars, rule.operands, strict=True)
               for k, own in enumerate(dims) if f in own]
        if all(x is None for x in cut):
            return None
        values = self.of_blocks(eqn, rule, f)
        return None if values is None else values[0]


class _OwnOfBoth(_OwnSums):
    """Makes each device's own block of what is made of a sum and of gathered values, too: of the
    block that it gathers from the others. gathers: those that have been come to.
    """

    def __init__(self, m: Match, total: _Total) -> None:
        super().__init__(m, total)
        self.gathers: list[Equation] = []

    def of_sum(self, eqn: Equation, d: int) -> Atom | None:
        if eqn.op.name not in GATHERS:
            self.met = self.met or eqn is self.total.eqn
            return super().of_sum(eqn, d)
        params, axes = eqn.params, self.total.exchange.axes
        if (eqn.axes != axes or not params["tiled"] or params["axis_index_groups"] is not None
                or params["all_gather_dimension"] != d):
            return None
        self.gathers.append(eqn)
        return eqn.invars[0]


def _gathered_last(m: Match) -> Atom | None:
    """Of what is combined of a sum and a gathered value, each device's own block, gathered."""
    total = _summed(m)
    if total is None or m.program.op_names.isdisjoint(GATHERS) or (
            total.exchange.op.name in GATHERS):
        return None
    for d in range(m.eqn.outvars[0].aval.ndim):
        blocks = _OwnOfBoth(m, total)
        block = blocks.of_sum(m.eqn, d)
        if block is not None and blocks.met and blocks.gathers:
            gather = blocks.gathers[0]
            return fit(m, m.emit(gather.op, block, like=gather, **gather.params))
    return None


def _own_sum(m: Match) -> Atom | None:
    total = _summed(m)
    if total is None:
        return None
    sums = _OwnSums(m, total)
    d = _own(m, total.exchange.axes, sums.count)
    block = None if d is None else sums.block(m.value, d)
    return None if block is None else fit(m, block)


def _summed(m: Match) -> _Total | None:
    """The sum over devices, or of what is gathered of them, of which what is read is made."""
    if m.program.op_names.isdisjoint((*SUMS, *GATHERS)):
        return None
    for e in behind(m):
        if e.op.name in SUMS:
            if len(e.invars) != 1 or e.params.get("axis_index_groups") is not None:
                return None
            return _Total(e, e.invars[0], e)
        if e.op.name not in _ADDS:
            continue
        blocks = Blocks(m)
        made = blocks.reduced(e)
        if made is not None and blocks.gather and not blocks.exchanges:
            part, how = made
            if how == "reduce_sum":
                return _Total(e, part, blocks.gather)
    return None


def _swapped(m: Match) -> Atom | None:
    n = m.x.aval.mesh.axis_size(m.names[0])
    d = _own(m, tuple(m.names), n) if m.groups is None else None
    if d is None or d == m.d:
        return None
    x = m.x
    if not m.tiled:                  # the dimension of which each device has one element
        x = m.emit(OPS["reshape"], x, new_sizes=(*x.aval.shape[:m.d], 1, *x.aval.shape[m.d:]),
                   dimensions=None, sharding=None)
    return fit(m, m.emit(OPS["all_to_all"], x, like=m.maker(m.whole), axis_index_groups=None,
                         axis_name=tuple(m.names), axis_size=n, concat_axis=m.d,
                         split_axis=d, tiled=True))


def _with_neighbours(m: Match) -> Atom | None:
    """Of a gathered value, with zeros around it or without, each device's own block with some rows
    of the blocks before and behind it: these exchanged alone.
    """
    padded = m.maker(m.value)
    pads = padded is not None and padded.op.name == "pad"
    gather = m.maker(padded.invars[0]) if padded is not None and pads else padded
    if gather is None or padded is None or gather.op.name not in GATHERS or len(
            gather.axes) != 1 or not gather.params["tiled"] or (
                gather.params.get("axis_index_groups") is not None):
        return None
    d, x = gather.params["all_gather_dimension"], gather.invars[0]
    read, whole, size = m.eqn.outvars[0].aval.shape, m.value.aval.shape, x.aval.shape[d]
    n, around = gather.outvars[0].aval.shape[d] // size, (0, 0, 0)
    if pads:
        fill, config = without_pvary(m, padded.invars[1]), padded.params["padding_config"]
        around = config[d]
        if not isinstance(fill, Literal) or fill.val != 0 or around[2] or any(
                c != (0, 0, 0) for k, c in enumerate(config) if k != d):
            return None
    starts = [by_device(m, a, n, gather.axes) for a in m.eqn.invars[1:]]
    if any(s is None or k != d and (s.any() or read[k] != whole[k]) for k, s in enumerate(starts)):
        return None
    first = np.clip(starts[d], 0, whole[d] - read[d]) - around[0]       # type: ignore[arg-type]
    before = -int(first[0])
    behind_it = read[d] - size - before
    if (first + before != np.arange(n) * size).any() or not (
            0 <= before <= size and 0 <= behind_it <= size and before + behind_it):
        return None

    def sent(start: int, rows: int, perm: Sequence[tuple[int, int]]) -> list[Atom]:
        if not rows:
            return []
        cut = [(start, start + rows) if k == d else (0, s) for k, s in enumerate(x.aval.shape)]
        part = m.emit(OPS["slice"], x, start_indices=tuple([a for a, _ in cut]),
                      limit_indices=tuple([b for _, b in cut]), strides=None)
        return [m.emit(OPS["ppermute"], part, like=gather, axis_name=gather.axes, perm=tuple(perm))]

    parts = [*sent(size - before, before, [(i, i + 1) for i in range(n - 1)]), x,
             *sent(0, behind_it, [(i + 1, i) for i in range(n - 1)])]
    return fit(m, m.emit(OPS["concatenate"], *parts, dimension=d))


# -- what is smaller of the one block that all read -----------------------------------------------

class _OneBlock(MadeOf[Atom]):
    """Makes of each device's own block what is made of the one block that all read of a gather.
    read: gather and device, once they have been met.
    """

    def __init__(self, m: Match) -> None:
        super().__init__(m)
        self.read: tuple[Equation, int] | None = None

    def made(self, eqn: Equation) -> Atom | None:
        """What an equation computes from the own block; None if it reads values that differ between
        devices.
        """
        if eqn.op.name in SUMS:
            return self.sent(eqn)
        if eqn.op.name in ("slice", "dynamic_slice"):
            gather = self.m.maker(eqn.invars[0])
            if gather is not None and gather.op.name in GATHERS:
                return self.taken(eqn, gather)
        if (eqn.op.collective is not None or eqn.op.effect or eqn.op.subprograms
                or eqn.op.multiple_results):
            return None
        parts = [self.of(a) for a in eqn.invars]
        if not any(p is not None for p in parts) or self.read is None:
            return None
        blocks = Blocks(self.m, self.read[0])
        if not all(p is not None or blocks.same(a) for p, a in zip(
                parts, eqn.invars, strict=True)):
            return None
        return self.m.emit(eqn.op, *varying_alike(self.m, [a if p is None else p for p, a in zip(
            parts, eqn.invars, strict=True)]), **eqn.params)

    def sent(self, total: Equation) -> Atom | None:
        """What one device has where the others contribute zeros to a sum."""
        m = self.m
        if len(total.invars) != 1 or total.params.get("axis_index_groups") is not None:
            return None
        chosen = m.maker(without_pvary(m, total.invars[0]))
        if chosen is None or chosen.op.name != "select_n" or len(chosen.invars) != 3:
            return None
        which, *cases = chosen.invars
        while (e := m.maker(which)) is not None and e.op.name in ("broadcast_in_dim", "pvary"):
            which = e.invars[0]
        n = group_size(total.invars[0].aval.mesh, total.axes)
        own = by_device(m, which, n, total.axes)
        for k, x in enumerate(cases):
            if own is not None and (own == k).sum() == 1 and is_zeros(m, cases[1 - k]):
                read = total, int((own == k).argmax())
                self.read = self.read or read
                return x if self.read == read else None
        return None

    def taken(self, eqn: Equation, gather: Equation) -> Atom | None:
        found = sources(self.m, eqn, gather)
        if found is None or len(set(found[0])) != 1:
            return None
        read = gather, found[0][0]
        if self.read not in (None, read):
            return None
        self.read = read
        return own_part(self.m, eqn, gather, found[1])


def _one_smaller_first(m: Match) -> Atom | None:
    """What is made of one device's block, made there, and only that given to all."""
    if m.program.op_names.isdisjoint((*GATHERS, *SUMS)):
        return None
    blocks = _OneBlock(m)
    value = blocks.made(m.eqn)
    if value is None or blocks.read is None:
        return None
    gather, block = blocks.read
    if size_of(m.eqn.outvars[0]) >= size_of(gather.invars[0]):
        return None
    return fit(m, broadcast(m, value, block, gather.axes))


def _blocks_in_zeros(m: Match) -> Atom | None:
    """What each device writes into zeros at its own place, put together."""
    write = m.maker(without_pvary(m, m.x))
    if write is None or write.op.name != "dynamic_update_slice" or len(m.eqn.axes) != 1 or (
            m.eqn.params.get("axis_index_groups") is not None):
        return None
    (base, block, *starts), n = write.invars, m.x.aval.mesh.axis_size(m.eqn.axes[0])
    places = [by_device(m, a, n, m.eqn.axes) for a in starts]
    dims = [d for d, (a, b) in enumerate(zip(base.aval.shape, block.aval.shape, strict=True))
            if a != b]
    if not is_zeros(m, base) or len(dims) != 1 or (
            base.aval.shape[dims[0]] != n * block.aval.shape[dims[0]]) or any(
                at is None or (at != np.arange(n) * block.aval.shape[d] * (d in dims)).any()
                for d, at in enumerate(places)):
        return None
    return fit(m, m.emit(OPS["all_gather_invariant"], block, all_gather_dimension=dims[0],
                         axis_name=m.eqn.axes, axis_size=n, tiled=True))


ONE_BLOCK: tuple[CodeChange, ...] = (
    CodeChange(Rewrite(
        "own first", "out = dynamic_slice value *starts", _own_first,
        why="what each device takes is made of its own block, and of totals or rows of others"),
        "compute each device's own block of its own block instead of gathering"),
    CodeChange(Rewrite(
        "own sum", "out = dynamic_slice value *starts", _own_sum,
        why="each device receives the sum of the block that it reads, and no other"),
        "sum only the block that each device reads"),
    CodeChange(Rewrite(
        "gather last", "out = add|sub|mul|div x y", _gathered_last,
        why="of the sum, each device receives its own block alone"),
        "sum only the own block, combine it with that of the other value, and gather what that "
        "gives,"),
    CodeChange(Rewrite(
        "swapped", GATHERED + "out = dynamic_slice whole *starts", _swapped,
        why="each device receives the part that it reads"),
        "exchange the parts that are read instead of gathering all"),
    CodeChange(Rewrite(
        "neighbours", "out = dynamic_slice value *starts", _with_neighbours,
        why="each device receives the rows next to its own, and no others"),
        "exchange the rows of neighbours that are read instead of gathering all"),
    CodeChange(Rewrite(
        "smaller of one block first",
        "out = dot_general|reduce_sum|reduce_max|reduce_min *operands", _one_smaller_first,
        why="what is smaller is given to all"),
        "compute what is smaller of the one block that is read, and exchange that instead"),
    CodeChange(Rewrite(
        "blocks in zeros", "out = psum|psum_invariant x", _blocks_in_zeros,
        why="each device receives the blocks of the others once"),
        "gather blocks instead of summing what each device writes into zeros"),
)
