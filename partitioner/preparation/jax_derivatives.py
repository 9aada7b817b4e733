"""Derivatives as JAX writes them, where that affects the plan that XLA makes.

Here a cotangent enters by one product whose other factor is known, and comes first. JAX lets it
meet what the function was made of, one after the other, and writes the factors of a product in the
order in which the product has them. Where these are laid out otherwise than the cotangent, they are
what XLA moves.
"""
from __future__ import annotations

from ...ir.ops.elementwise.arithmetic import mul_p
from ...ir.ops.elementwise.transcendental import tanh_p
from ...ir.program import Equation, Program
from ...ir.rewriting.inside import inside
from ...ir.rewriting.rewrite import Match, Rewrite, Rewrites


def as_jax_derives(program: Program) -> Program:
    """The program, nested ones included, with such derivatives as JAX writes them."""
    return _SLOPES(_factors_in_order(inside(program, as_jax_derives)))


def _factors_in_order(program: Program) -> Program:
    """The program with a cotangent behind the factor that comes first in the product."""
    first = {(eqn.invars[0], eqn.location.place) for eqn in program.eqns
             if _is_product(eqn) and not _is_transposed(eqn)}
    behind = [eqn for eqn in program.eqns if first and _is_product(eqn) and _is_transposed(eqn)
              and (eqn.invars[1], eqn.location.place) in first]
    if not behind:
        return program
    turned = {eqn: eqn.replace(invars=eqn.invars[::-1]) for eqn in behind}
    return program.replace(eqns=[turned.get(eqn, eqn) for eqn in program.eqns])


def _is_product(eqn: Equation) -> bool:
    """Does it multiply two values?"""
    return eqn.op is mul_p and eqn.invars[0] is not eqn.invars[1]


def _is_transposed(eqn: Equation) -> bool:
    return eqn.location.transform.startswith("transpose")


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
