"""What a loop of stages (passing/stages.py) carries from iteration to iteration, told apart.

It may be a counter, what is passed on to the next device, an array into which results are written,
or a sum.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.named_tuple import NamedTuple
from ...ir.ops.collective import ppermute_p
from ...ir.ops.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from ...ir.ops.indexing import GatherScatterMode
from ...ir.program import Atom, Equation, Literal, Var
from ..rewrites.equations import is_blank
from .followed import COUNTING

if TYPE_CHECKING:
    from ..simulation.executor import Planner
    from .stages import Stages

# Ops whose result is their operand, if it is one element.
SAME = frozenset({"pvary", "broadcast_in_dim", "reshape", "squeeze", "copy"})
DEEPEST = 10            # equations that are looked through for what a place is computed from


class Passed(NamedTuple):
    """What is sent to the next device, and what that receives."""
    sent: Atom
    received: Var


class Written(NamedTuple):
    """A carried array, by number, in which an iteration writes `part`, where `which` has the value
    `case` (None: always).

    starts: where it begins along the dimensions; None for the first place. sizes: of what is
    written. added: dimensions of it, of size 1, that `part` lacks. drops: whether what does not lie
    inside is left out, rather than moved inside. blank: whether it is zeros at first.
    """
    carry: int
    part: Atom
    which: Atom | None
    case: int
    starts: tuple[Atom | None, ...]
    sizes: tuple[int, ...]
    added: tuple[int, ...]
    drops: bool
    blank: bool


class Added(NamedTuple):
    """A carried array, by number, to which an iteration adds `term`."""
    carry: int
    term: Atom


def sort_carries(p: Planner, eqn: Equation, s: Stages) -> bool:
    """Enter what each carried value is; False if one is something else."""
    flat, params = s.flat, eqn.params
    nc, nk = params["num_consts"], params["num_carry"]
    readers: dict[Any, list[Equation]] = {}
    made: dict[Any, Equation] = {}
    for e in flat.eqns:
        for a in e.invars:
            readers.setdefault(a, []).append(e)
        for v in e.outvars:
            made[v] = e
    outs = list(flat.outvars)
    permutes = {id(e) for e in flat.eqns if e.op is ppermute_p}
    after = set(p.flat.outvars).union(*[e.invars for e in p.flat.eqns])
    for i, (c, o) in enumerate(zip(flat.invars[nc:nc + nk], outs[:nk], strict=True)):
        mine, maker = readers.get(c, []), made.get(o)
        start = s.invars[nc + i]
        read_after = eqn.outvars[i] in after
        alone = o is not c and outs.count(o) == 1 and not readers.get(o)
        if o is c:
            s.fixed.append(i)
        elif _counts(maker, c) and type(start) is Literal and not read_after:
            s.counters.append(c)
        elif (maker is not None and maker.op is ppermute_p and alone and not read_after
              and is_blank(start, p.maker)):
            s.passed.append(Passed(maker.invars[0], c))
            permutes.discard(id(maker))
        elif (len(mine) == 1 and mine[0].op is ppermute_p and c not in outs and not read_after
              and is_blank(start, p.maker) and type(o) is Var):
            s.passed.append(Passed(o, mine[0].outvars[0]))
            permutes.discard(id(mine[0]))
        elif maker is not None and alone and c not in outs:
            written = _written(i, c, maker, mine, made, is_blank(start, p.maker))
            if written is not None:
                s.written.append(written)
            elif maker.op.name in ("add", "add_any") and mine == [maker] and (
                    maker.invars[0] is not maker.invars[1]) and is_blank(start, p.maker) and (
                    o.aval.dtype.kind in "fc" and o.aval.dtype.itemsize >= 4):
                a, b = maker.invars
                s.added.append(Added(i, b if a is c else a))
            else:
                return False
        else:
            return False
    return bool(s.passed) and not permutes


def _counts(maker: Equation | None, c: Var) -> bool:
    """Is it the equation that counts c on?"""
    return (maker is not None and maker.op.name == "add" and not c.aval.shape
            and c.aval.dtype.kind == "i" and maker.invars[0] is c
            and type(maker.invars[1]) is Literal)


def _written(i: int, c: Var, maker: Equation, readers: Sequence[Equation],
             made: Mapping[Any, Equation], blank: bool) -> Written | None:
    """How an equation writes into what is carried, if that is all that it does."""
    update: Equation | None = maker
    which, case, used = None, 1, [maker]
    if maker.op.name == "select_n" and len(maker.invars) == 3 and c in maker.invars[1:]:
        case = 1 if maker.invars[1] is c else 0                 # all of it, or all as it was
        which, update = maker.invars[0], made.get(maker.invars[1 + case])
        used.append(update)         # type: ignore[arg-type]
    place = None if update is None or update.invars[0] is not c else _place(update)
    if place is None:
        return None
    part, starts, sizes, drops = place
    if which is None:
        choice = made.get(_without_ones(part, made))
        if choice is not None and choice.op.name == "select_n" and len(choice.invars) == 3 and (
                not choice.invars[0].aval.shape):
            for k in (0, 1):                                    # the part, or the part as it was
                old = made.get(_without_ones(choice.invars[2 - k], made))
                if old is not None and old.op is dynamic_slice_p and old.invars[0] is c and (
                        old.params["slice_sizes"] == sizes):
                    which, case, part = choice.invars[0], k, choice.invars[1 + k]
                    before = tuple(old.invars[1:])
                    used.append(old)
                    if not _alike(before, starts, made):
                        return None
                    break
    part = _without_ones(part, made)
    added = _added_ones(part.aval.shape, sizes)
    if added is None or {id(e) for e in readers} != {id(e) for e in used if c in e.invars}:
        return None
    return Written(i, part, which, case, starts, sizes, added, drops, blank)


def _place(update: Equation) -> tuple[Atom, tuple[Atom | None, ...], tuple[int, ...], bool] | None:
    """What an equation writes, where it starts, of which sizes, and whether it may be dropped."""
    if update.op is dynamic_update_slice_p:
        _, part, *starts = update.invars
        return part, tuple(starts), part.aval.shape, False
    if update.op.name != "scatter":
        return None
    x, at, part = update.invars
    n, mode = update.params["dimension_numbers"], update.params["mode"]
    rank = x.aval.ndim
    if (at.aval.shape != (1,) or n.operand_batching_dims
            or n.inserted_window_dims != n.scatter_dims_to_operand_dims
            or n.update_window_dims != tuple(range(rank - 1))):
        return None
    (d,) = n.inserted_window_dims
    sizes = (*x.aval.shape[:d], 1, *x.aval.shape[d + 1:])
    if part.aval.shape != (*sizes[:d], *sizes[d + 1:]):
        return None
    return part, tuple([at if k == d else None for k in range(rank)]), sizes, (
        mode not in (GatherScatterMode.CLIP, GatherScatterMode.ONE_HOT))


def _without_ones(atom: Atom, made: Mapping[Any, Equation]) -> Atom:
    """What a value is but for dimensions of size 1."""
    while True:
        maker = made.get(atom)
        if maker is None or maker.op.name not in SAME or maker.op.name == "pvary":
            return atom
        source = maker.invars[0]
        if source.aval.size != atom.aval.size or [m for m in source.aval.shape if m != 1] != [
                m for m in atom.aval.shape if m != 1]:
            return atom
        atom = source


def _added_ones(have: Sequence[int], want: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions of size 1 that make shape `have` to `want`."""
    added, j = [], 0
    for i, n in enumerate(want):
        if j < len(have) and have[j] == n:
            j += 1
        elif n == 1:
            added.append(i)
        else:
            return None
    return tuple(added) if j == len(have) else None


def _alike(a: Sequence[Atom | None], b: Sequence[Atom | None], made: Mapping[Any, Equation]
           ) -> bool:
    """Are these the same places, for all that equations tell?"""
    return all([_index(x, made) == _index(y, made) for x, y in zip(a, b, strict=True)])


def _index(atom: Atom | None, made: Mapping[Any, Equation], depth: int = DEEPEST) -> Any:
    """What a place is computed from: the same for equal places of equal equations."""
    if atom is None:
        return 0
    if type(atom) is Literal:
        return int(atom.val)
    maker = made.get(atom)
    if maker is None or atom.aval.size != 1 or not depth:
        return atom
    if maker.op.name in SAME or maker.op.name == "convert_element_type" and (
            maker.invars[0].aval.dtype.kind == "i"):
        return _index(maker.invars[0], made, depth - 1)
    if maker.op.name not in COUNTING or maker.params:
        return atom
    return (maker.op.name, *[_index(a, made, depth - 1) for a in maker.invars])
