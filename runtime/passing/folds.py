"""Loops that fold what travels around a ring, executed as one fold of all blocks.

In each iteration each device folds the block that it just has into what it carries, and sends the
block on; after as many iterations as there are devices it has folded each block once. Where what
is folded is a sum, a least or a largest value, the blocks can be folded together: attention whose
keys and values travel is one attention to all of them. A running maximum by which sums are scaled
(a softmax that is computed block by block) is known at once then, and the scales are those from
the first maximum to the last one.

The body's equations are written once for all blocks, which are a dimension of values that depend
on them (passing/blocks_of_body.py), and sums and extremes go over this dimension too. Results are
the same numbers, but that sums are taken in another order. Hardware overlaps pieces; where devices
are simulated nothing does. What would hold too much at once is left in pieces.
"""
from __future__ import annotations

from collections.abc import Callable
from math import gcd, isinf

from ...ir.named_tuple import NamedTuple
from ...ir.ops.collective import ppermute_p
from ...ir.ops.control import scan_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ..rewrites.equations import is_zeros
from ..rewrites.flatten import FlatProgram, needed
from .blocks_of_body import BlockBody, Unknown
from .unrolled import Body, Loop, unrolled_rings

_EXTREMES = frozenset({"max", "min"})
_ADD = frozenset({"add", "add_any"})
_FOLDS = {"max": "reduce_max", "min": "reduce_min", "add": "reduce_sum", "add_any": "reduce_sum"}
# Finite where their operands are; the others where these are not even known.
_FINITE = frozenset({
    "add", "broadcast_in_dim", "convert_element_type", "copy", "integer_pow", "max", "min", "mul",
    "neg", "pvary", "reduce_max", "reduce_min", "reduce_sum", "reshape", "select_n", "square",
    "squeeze", "sub", "transpose"})
_BOUNDED = frozenset({"dot_general", "logistic", "sign", "tanh"})
_REPEATING = frozenset({"broadcast_in_dim", "copy", "pvary"})
_SCALED = frozenset({"mul", "div", "neg", "convert_element_type", "pvary", "copy"})


class Tag(NamedTuple):
    """What a value of the body has to do with carries.

    kind: "old" (a carry itself), "new" (an extreme so far), "drop" (old minus new extreme),
    "scale" (its exponential), "shifted" (something minus the new extreme), "part" (its exponential,
    or what is linear in that), "kept" (a carried sum, scaled), "done" (a new sum).
    of: the carry; for parts and scales, that of the extreme. dims: which dimensions of the value
    are those of the extreme. power: the op of the exponential. sum: the carry that is scaled.
    """
    kind: str
    of: int
    dims: tuple[int, ...] = ()
    power: str = ""
    sum: int = -1


def fold_rings(flat: FlatProgram, inside: Callable[[Program], FlatProgram]) -> None:
    """Replace the loops of a program that fold what travels around a ring.

    inside: gives the programs of loops without calls.
    """
    eqns: list[Equation] = []
    gone: list[Equation] = []
    if ppermute_p in flat.ops:
        _fold_unrolled(flat)
    for eqn in flat.eqns if scan_p in flat.ops else ():
        new = None
        if eqn.op.name == "scan":
            body = inside(eqn.params["jaxpr"])
            if ppermute_p in body.ops:
                new = _folded(flat, eqn, body)
        eqns += [eqn] if new is None else new
        if new is not None:
            gone.append(eqn)
    if gone:
        flat.keep_exchanges(gone)
        flat.rewrite(needed(eqns, flat.outvars))


def _fold_unrolled(flat: FlatProgram) -> None:
    """The same of rings that are written step by step."""
    gone: set[Equation] = set()
    instead: dict[Equation, list[Equation]] = {}
    for ring in unrolled_rings(flat):
        new = _folded(flat, ring.loop, ring.body)
        if new is not None:
            gone |= ring.gone
            instead[ring.last] = [*ring.before, *new]
    if gone:
        flat.keep_exchanges()
        flat.rewrite(needed([n for e in flat.eqns for n in (
            instead.get(e, ()) if e in gone else (e,))], flat.outvars))


def _folded(flat: FlatProgram, eqn: Equation | Loop, body: FlatProgram | Body
            ) -> list[Equation] | None:
    try:
        return _Fold(flat, eqn, body).equations()
    except Unknown:
        return None


class _Fold:
    """One loop, and the equations that are executed for it."""

    def __init__(self, flat: FlatProgram, eqn: Equation | Loop, body: FlatProgram | Body) -> None:
        params = eqn.params
        self.flat, self.eqn, self.body = flat, eqn, body
        self.nc, self.nk = params["num_consts"], params["num_carry"]
        self.carries = body.invars[self.nc:self.nc + self.nk]
        self.made = {v: e for e in body.eqns for v in e.outvars}
        self.place: dict[Atom, int] = {v: k for k, v in enumerate(self.carries)}
        self.tags: dict[Atom, Tag] = {}
        self.around: dict[Var, Equation] = {}   # what makes the values of the program around
        self.late: set[Equation] = set()        # sums that are folded where they are added
        self.readers: dict[Atom, int] = {}
        for a in (*body.outvars, *[a for e in body.eqns for a in e.invars]):
            self.readers[a] = self.readers.get(a, 0) + 1

    def equations(self) -> list[Equation]:
        """Those that give the loop's results; Unknown if it is no such loop."""
        eqn, body, nc, nk = self.eqn, self.body, self.nc, self.nk
        axes, count, step = self._ring()
        if eqn.params["length"] != count or eqn.params["reverse"] or len(eqn.outvars) > nk:
            raise Unknown
        given = eqn.invars[nc:nc + nk]
        b = self.blocks = BlockBody(eqn.location, axes, count, step, self.flat.program.mesh)
        for var, atom in zip(body.invars[:nc], eqn.invars[:nc], strict=True):
            b.enter(var, atom)
        ends: dict[int, Atom] = {}
        for k, (var, out) in enumerate(zip(self.carries, body.outvars, strict=True)):
            maker = self._maker(out)
            if out is var:
                b.enter(var, given[k])
                ends[k] = given[k]
            elif maker is not None and maker.op is ppermute_p and maker.invars[0] is var:
                b.travels(var, given[k])
                ends[k] = given[k]
            elif (step_ := _counted(maker, var)) is not None:
                ends[k] = b.counts(var, given[k], step_)
            else:
                b.enter(var, given[k])
                self.tags[var] = Tag("old", k, _own_dims(var))
                self._ends_as(maker, var)
        iotas = {e.outvars[0] for e in self.flat.eqns if e.op.name == "iota"}
        for var, atom in zip(body.invars[nc + nk:], eqn.invars[nc + nk:], strict=True):
            if atom not in iotas or var.aval.shape or var.aval.dtype.kind != "i":
                raise Unknown
            b.counts(var, None, 1)
        for e in body.eqns:
            if e.op is not ppermute_p:
                self._step(e)
        for k, out in enumerate(body.outvars):
            if k not in ends:
                tag = self.tags.get(out)
                if tag is None or tag.kind not in ("new", "done") or tag.of != k:
                    raise Unknown
                ends[k] = b.whole(out)
        known = {v for v, _ in self.flat.consts}
        self.flat.consts += [c for c in body.consts if c[0] not in known]
        return b.finish([ends[k] for k in range(nk)], eqn.outvars)

    def _ring(self) -> tuple[tuple[str, ...], int, int]:
        """Axes and number of devices of the ring, and how far a block goes in each iteration."""
        sends = [e for e in self.body.eqns if e.op is ppermute_p]
        axes, perm = sends[0].params["axis_name"], sends[0].params["perm"]
        sizes, count = self.flat.program.mesh.shape, 1
        for a in axes:
            if a not in sizes:
                raise Unknown
            count *= sizes[a]
        step = (perm[0][1] - perm[0][0]) % count if perm else 0
        if (gcd(step, count) != 1 or len(perm) != count
                or {(s, d) for s, d in perm} != {(i, (i + step) % count) for i in range(count)}):
            raise Unknown
        for e in sends:
            k = self.place.get(e.invars[0])
            if (e.params["axis_name"], e.params["perm"]) != (axes, perm) or k is None or (
                    self.body.outvars[k] is not e.outvars[0]
                    or self.readers[e.outvars[0]] != 1):
                raise Unknown
        return axes, count, step

    def _ends_as(self, maker: Equation | None, var: Var) -> None:
        """Note where what is folded may be folded over all blocks as soon as it is made."""
        if maker is None or len(maker.invars) != 2:
            raise Unknown
        t = var.aval
        if t.dtype.kind not in "iuf" or t.dtype.kind == "f" and t.dtype.itemsize < 4:
            raise Unknown
        name = maker.op.name
        for one, other in (maker.invars, maker.invars[::-1]):
            scaled = self._maker(one)
            if one is var or name in _ADD and scaled is not None and scaled.op.name == "mul" and (
                    var in scaled.invars):
                if name not in _FOLDS:
                    raise Unknown
                how = _FOLDS[name]
                while self.readers.get(other) == 1:
                    made = self._maker(other)
                    if made is None or made.op.name not in ("transpose", "broadcast_in_dim"):
                        break
                    other = made.invars[0]
                if self.readers.get(other) == 1 and other in self.made:
                    self.blocks.early[other] = how      # type: ignore[index]
                elif how == "reduce_sum":
                    self.late.add(maker)
                return
        raise Unknown

    # -- equations of the body ---------------------------------------------------------------------
    def _step(self, e: Equation) -> None:
        """Write an equation for all blocks, and tag its result."""
        tags = [self.tags.get(a) for a in e.invars]
        if not any(tags):
            self.blocks.write(e)
            return
        tag = self._tag(e, e.op.name, tags)
        if tag is None:
            raise Unknown
        self.tags[e.outvars[0]] = tag
        if e.op.name in _FOLDS:
            how = _FOLDS[e.op.name]
            folded = [self.blocks.folded_value(a, how) for a in e.invars]
            if e in self.late and folded == list(e.invars):
                raise Unknown               # what is alike for all blocks counts once for each
            e = e.on(folded, e.outvars)
        self.blocks.write(e)

    def _tag(self, e: Equation, name: str, tags: list[Tag | None]) -> Tag | None:
        """What the result of an equation on tagged values is; None for what is not known."""
        out = e.outvars[0]
        if len(tags) == 2:
            a, b = tags
            if name in _EXTREMES or name in _ADD:
                if b is not None and (a is None or b.kind in ("old", "kept")):
                    a, b = b, a
                assert a is not None
                return self._joined(name, a, b, out)
            if name == "sub" and b is not None and b.kind == "new":
                # Of nothing but infinity as yet, the loop takes infinity away: that is no number.
                if not self._starts_finite(b.of) and not self._is_finite(
                        self.body.outvars[b.of], self.carries[b.of]):
                    return None
                if a is None:
                    return Tag("shifted", b.of, b.dims)
                same = a.kind == "old" and a.of == b.of and b.dims == _own_dims(out)
                return Tag("drop", b.of, b.dims) if same else None
            if name == "mul" and a is not None and b is not None:
                a, b = (a, b) if a.kind == "old" else (b, a)
                if a.kind == "old" and b.kind == "scale":
                    return Tag("kept", b.of, b.dims, b.power, a.of)
                return None
        if name in _SCALED and [t for t in tags[1:] if t] == [] or name == "mul" and not tags[0]:
            (tag,) = [t for t in tags if t]
            fine = tag.kind == "part" and out.aval.dtype.itemsize >= 4
            return tag if fine or name in ("pvary", "copy") and tag.kind != "old" else None
        (tag, *more) = [t for t in tags if t]
        if name == "select_n" and len(tags) == 3 and not tags[0] and not more and (
                tag.kind == "part"):                # a mask: zeros, or what is linear
            other = e.invars[1 if tags[2] else 2]
            return tag if is_zeros(other, self._known) else None
        if more or tag.kind in ("old", "kept", "done", "drop", "shifted") and not (
                name in ("exp", "exp2") and tag.kind in ("drop", "shifted")):
            return None
        if name in ("exp", "exp2"):
            kinds = {"drop": "scale", "shifted": "part"}
            return tag._replace(kind=kinds[tag.kind], power=name) if tag.kind in kinds else None
        dims = _moved_dims(e, tags.index(tag), tag.dims)
        if dims is None or tag.kind != "part" and name in ("reduce_sum", "dot_general"):
            return None
        return tag._replace(dims=dims)

    def _starts_finite(self, k: int) -> bool:
        """Is a carry a finite number at first?"""
        made = self._made_around()
        atom = self.eqn.invars[self.nc + k]
        while atom in made and made[atom].op.name in _REPEATING:
            atom = made[atom].invars[0]                 # type: ignore[index]
        return type(atom) is Literal and not isinf(float(atom.val))

    def _is_finite(self, atom: Atom, carry: Var) -> bool:
        """Is what is folded into a carry finite, but for operands that are not and for overflow?"""
        if type(atom) is Literal:
            return not isinf(float(atom.val))
        if atom is carry or atom.aval.dtype.kind in "iub":
            return True
        made = self._known(atom)
        return made is not None and (made.op.name in _BOUNDED or made.op.name in _FINITE and all(
            [self._is_finite(a, carry) for a in made.invars]))

    def _maker(self, atom: Atom) -> Equation | None:
        return self.made.get(atom)                              # type: ignore[call-overload]

    def _known(self, atom: Atom) -> Equation | None:
        """What makes a value, in the body, or around it by repeating another."""
        made = self._maker(atom)
        if made is None and type(atom) is Var:
            made = self._made_around().get(atom)
            if made is not None and made.op.name not in _REPEATING:
                return None
        return made

    def _made_around(self) -> dict[Var, Equation]:
        if not self.around:
            self.around = {v: e for e in self.flat.eqns for v in e.outvars}
        return self.around

    def _joined(self, name: str, a: Tag, b: Tag | None, out: Var) -> Tag | None:
        """A carry, scaled or not, and what is folded into it."""
        if name in _EXTREMES:
            if a.kind != "old" or b is not None:
                return None
            return Tag("new" if name == "max" else "done", a.of, a.dims)
        if a.kind == "old":
            return Tag("done", a.of) if b is None else None
        if a.kind != "kept" or b is None or b.kind != "part":
            return None
        return Tag("done", a.sum) if a[1:4] == b[1:4] else None


def _own_dims(v: Var) -> tuple[int, ...]:
    return tuple([d for d, n in enumerate(v.aval.shape) if n != 1])


def _counted(maker: Equation | None, var: Var) -> int | None:
    """By how much a carry grows in each iteration, if it counts."""
    if maker is None or maker.op.name != "add" or var.aval.shape or var.aval.dtype.kind != "i":
        return None
    a, b = maker.invars
    step = b if a is var else a if b is var else None
    return int(step.val) if type(step) is Literal else None


def _moved_dims(e: Equation, which: int, dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where the dimensions of an operand are in the result of what is linear in it; None if one of
    them is summed up."""
    name, params = e.op.name, e.params
    if name == "transpose":
        order = params["permutation"]
        return tuple([order.index(d) for d in dims])
    if name == "broadcast_in_dim":
        return tuple([params["broadcast_dimensions"][d] for d in dims])
    if name in ("reduce_sum", "squeeze"):
        axes = params["axes" if name == "reduce_sum" else "dimensions"]
        if not set(axes).isdisjoint(dims):
            return None
        return tuple([d - sum([a < d for a in axes]) for d in dims])
    if name == "dot_general":
        contracted, batch = params["dimension_numbers"]
        ranks = [a.aval.ndim for a in e.invars]
        free = [[d for d in range(n) if d not in contracted[k] and d not in batch[k]]
                for k, n in enumerate(ranks)]
        places = {d: i for i, d in enumerate(batch[which])}
        start = len(batch[0]) + len(free[0]) * which
        places.update({d: start + i for i, d in enumerate(free[which])})
        return tuple([places[d] for d in dims]) if set(dims) <= places.keys() else None
    return None
