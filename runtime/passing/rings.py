"""Rings that are written by hand, executed as the collectives that they amount to.

In a ring, blocks go from neighbour to neighbour, and each device computes with what it just has: a
product while the next block is on its way, say. What such a program computes is an `all_gather` and
a product, a product and a `reduce_scatter`, or a `psum`, in as many pieces as there are devices.
Hardware overlaps the pieces; where devices are simulated nothing does, and many small products cost
two to three times one large one. So a program is followed (passing/followed.py), and a value to
which every device of the group contributes once is computed by the collective. What nobody reads
then is left out.

Where devices are a grid, rings go along its rows and its columns, or one device of each gives its
block to all of them in turn: what meets then are blocks of two whole arrays.

The executor does this to the programs that it plans; types, costs and the per-device executor keep
to what was written. Results are the same numbers, but that sums are taken in another order, as a
`psum` may. Sums of floats of less than four bytes are left as they are: there one would see it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...ir.ops.arithmetic import add_any_p, add_p
from ...ir.ops.collective import ppermute_p
from ...ir.ops.control import scan_p
from ...ir.ops.dynamic_slicing import dynamic_update_slice_p
from ...ir.ops.select import select_n_p
from ...ir.program import Atom, Equation, Program, Var
from ..axes import axis_names
from ..rewrites.flatten import FlatProgram, every_equation, needed
from .followed import SUMS, Follower, Values, ways_of
from .raised import Raised
from .travelling import Moved, Put, Sent, Sum

# What is replaced of what loops give, and of what other equations give.
_OF_LOOPS = frozenset({Sum, Sent, Put, Moved, Var})
_OF_OTHERS = frozenset({Sum, Sent, Put})
# What adds a contribution to others, or puts it beside them.
_JOIN = frozenset({add_p, add_any_p, dynamic_update_slice_p})


def raise_rings(flat: FlatProgram, inside: Callable[[Program], FlatProgram]) -> None:
    """Replace the rings of a program by collectives, where that is less work.

    inside: gives the programs of loops without calls.
    """
    for axes, sizes in _groups(flat):
        _raise_along(axes, sizes, flat, inside)


def _raise_along(axes: tuple[str, ...], sizes: tuple[int, ...], flat: FlatProgram,
                 inside: Callable[[Program], FlatProgram]) -> None:
    """The same for rings along these axes."""
    if scan_p not in flat.ops and sum([e.op in _JOIN for e in flat.eqns]) < max(sizes) - 1:
        return                      # too few for one contribution of each device
    reads = set(flat.outvars).union(*[e.invars for e in flat.eqns])
    follower = Follower(axes, sizes, reads, inside)
    at: Values = {}
    follower.follow(ways_of(flat.eqns), at, False)
    raised: dict[Var, list[Equation]] = {}
    for eqn, out in _ends(flat, at):
        new = Raised(follower, eqn)
        if new.compute(out, at[out]):
            raised[out] = new.eqns
    if not raised:
        return
    eqns, work = flat.eqns, _work(flat.eqns)
    for part in (raised, *[{v: e} for v, e in raised.items()]):     # all of them, or those that pay
        changed = _replaced(eqns, part, flat.outvars)
        less = _work(changed)
        if less < work:
            eqns, work = changed, less
            if part is raised:
                break
    if eqns is not flat.eqns:
        flat.keep_exchanges([e for e in set(flat.eqns).difference(eqns) if e.op.subprograms])
        flat.rewrite(eqns)


def _groups(flat: FlatProgram) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """The axes along which rings go, and their sizes: of each while there are any, and then of all
    together, if they are several."""
    sizes, eqns = flat.program.mesh.shape, None
    seen: list[tuple[str, ...]] = []
    while True:
        if eqns is not flat.eqns:
            eqns = flat.eqns
            found = [a for a in dict.fromkeys(_axes(eqns)) if all([n in sizes for n in a])]
        new = next((a for a in found if a not in seen), ())
        if not new and len(found) > 1:
            new = tuple(dict.fromkeys([n for a in sorted(found, key=len, reverse=True) for n in a]))
        if not new or new in seen:
            return
        seen.append(new)
        if any([sizes[n] > 1 for n in new]):
            yield new, tuple([sizes[n] for n in new])


def _axes(eqns: Sequence[Equation]) -> list[tuple[str, ...]]:
    """Along which axes values go to neighbours, or from one device to all."""
    axes: list[tuple[str, ...]] = []
    chosen = set()
    for e in every_equation(eqns):
        if e.op is ppermute_p:
            axes.append(e.params["axis_name"])
        elif e.op is select_n_p and not e.invars[0].aval.shape:
            chosen.add(e.outvars[0])
        elif e.op in SUMS and e.invars[0] in chosen:
            axes.append(axis_names(e.params["axes"]))
    return axes


def _ends(flat: FlatProgram, at: Values) -> list[tuple[Equation, Var]]:
    """Values that are followed, and read by what is not, with the equations that give them."""
    found = []
    wanted = set(flat.outvars).union(*[e.invars for e in flat.eqns
                                       if any([v not in at for v in e.outvars])])
    for eqn in flat.eqns:
        kinds = _OF_LOOPS if eqn.op.name == "scan" else _OF_OTHERS
        found += [(eqn, v) for v in eqn.outvars if type(at.get(v)) in kinds and v in wanted]
    return found


def _replaced(eqns: Sequence[Equation], raised: Mapping[Var, Sequence[Equation]],
              outvars: Sequence[Atom]) -> list[Equation]:
    """The equations with these values computed otherwise, and what is needed then."""
    found: list[Equation] = []
    for eqn in eqns:
        new = [v for v in eqn.outvars if v in raised]
        if new:
            found.append(eqn.on(eqn.invars, [Var(v.aval) if v in raised else v
                                             for v in eqn.outvars]))
            for v in new:
                found += raised[v]
        else:
            found.append(eqn)
    return needed(found, outvars)


def _work(eqns: Iterable[Equation]) -> int:
    """Multiplications, and elements written, by all equations."""
    total = 0
    for eqn in eqns:
        if eqn.op.name == "scan":
            total += eqn.params["length"] * _work(eqn.params["jaxpr"].eqns)
            continue
        size = sum([v.aval.size for v in eqn.outvars])
        total += size
        if eqn.op.name == "dot_general":
            contracted = eqn.params["dimension_numbers"][0][0]
            for d in contracted:
                size *= eqn.invars[0].aval.shape[d]
            total += size
    return total
