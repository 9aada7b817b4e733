"""Derivatives as JAX writes them, where that affects the plan that XLA makes.

Here a cotangent is multiplied first by one product of all that is known. JAX multiplies it by the
known factors one after the other, and in the order of the original product: for `x * y` it writes
`g * y` and `x * g`. If the factors are laid out unlike the cotangent, XLA moves them.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ....ir.ops.elementwise.arithmetic import mul_p
from ....ir.ops.elementwise.transcendental import tanh_p
from ....ir.program import Atom, Equation, Program
from ....ir.rewriting.inside import inside
from ....ir.rewriting.rewrite import Match, Rewrite, Rewrites
from ...regions import has_region, region_of

Product = tuple[Atom, Atom, tuple]          # two values, and the place in the source


def as_jax_derives(program: Program) -> Program:
    """The program, nested ones included, with such derivatives as JAX writes them."""
    made: dict[Atom, Atom] = {}
    products: dict[Product, int] = {}                   # and which comes first
    behind: dict[tuple, set[Atom]] = defaultdict(set)
    for x, y, place in [*_products(program, made)]:
        x, y = _origin(x, made), _origin(y, made)
        products.setdefault((x, y, place), len(products))
        behind[x, place].add(y)

    def comes_second(eqn: Equation) -> bool:
        place, (g, f) = eqn.location.place, [_origin(a, made) for a in eqn.invars]
        return any([products[f, y, place] < products.get((g, y, place), 0)
                    for y in behind.get((f, place), ())])

    def written(program: Program) -> Program:
        program = inside(program, written)
        turned = {eqn: eqn.replace(invars=eqn.invars[::-1]) for eqn in program.eqns
                  if _is_product(eqn) and eqn.location.transform.startswith("transpose")
                  and comes_second(eqn)}
        return _SLOPES(program.replace(eqns=[turned.get(eqn, eqn) for eqn in program.eqns])
                       if turned else program)
    return written(program)


def _products(program: Program, made: dict[Atom, Atom]) -> Iterator[Product]:
    """The products of a program and those in it. made: gets, for what loops stack and read again,
    what it is in the loop that makes it.
    """
    for eqn in program.eqns:
        if _is_product(eqn):
            yield eqn.invars[0], eqn.invars[1], eqn.location.place
        elif has_region(eqn):
            region = region_of(eqn)
            for slot in region.slots:
                if slot.stacked and slot.operand >= 0:
                    made[region.body_atoms(slot)[0]] = eqn.invars[slot.operand]
                elif slot.stacked:
                    made[eqn.outvars[slot.result]] = region.body_atoms(slot)[-1]
            for _, _, body in region.programs:
                yield from _products(body, made)


def _origin(atom: Atom, made: Mapping[Atom, Atom]) -> Atom:
    while atom in made:
        atom = made[atom]
    return atom


def _is_product(eqn: Equation) -> bool:
    """Does it multiply two values?"""
    return eqn.op is mul_p and eqn.invars[0] is not eqn.invars[1]


def _is_of_tanh(m: Match) -> bool:
    made = m.maker(m.h)
    return made is not None and made.op is tanh_p and m.h.aval == m.eqn.outvars[0].aval


_SLOPES = Rewrites(
    Rewrite("slope-of-tanh", """
            low = sub 1 h
            high = add 1 h
            slope = mul low high
            out = mul g slope""", """
            part = mul g low
            more = mul part h
            out = add_any part more""", where=_is_of_tanh,
            why="JAX multiplies by 1 - tanh, then by tanh"),
    Rewrite("slope-of-quotient", """
            first = div x y
            second = div first y
            slope = neg second
            out = mul g slope""", """
            inverse = integer_pow y {y=-2}
            part = mul g inverse
            more = mul part x
            out = neg more""", where=lambda m: m.g.aval == m.x.aval == m.eqn.outvars[0].aval,
            why="JAX multiplies by the square of the inverse, then by what was divided"))
