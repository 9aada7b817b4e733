"""Collectives that a `shard_map` body does not need: gathers of an operand or result, sums of equal
values.

An operand that the body gathers first may be passed whole: the axes leave its `in_specs`, and the
gather goes away. What it gathers last may be given as it is: the axes enter `out_specs`. A `psum`
over devices that all hold the same value is a multiplication by their number, without
communication. None of them changes any value.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ....ir.meshes.manual_state import ManualState
from ....ir.op import OPS
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rewriting.substitution import substituted
from ....ir.source.location import UNKNOWN, Location
from ....ir.spec import PartitionSpec, spec_from_entries
from ....ir.types import array_type
from ...reasons.value_paths import Place
from ...words import spec_text

_GATHERS = ("all_gather", "all_gather_invariant")
_SUMS = ("psum", "psum_invariant")
_CASTS = ("pvary",)


@dataclass(frozen=True)
class Given:
    """What the `shard_map` at a place takes, or gives, otherwise than by a gather in its body.

    gather: the equation in the body; number: of the operand, or result; spec: its new entry of
    in_specs or out_specs, which has `count`; call: where the user calls what the `shard_map` gives.
    """
    place: Place
    gather: int
    number: int
    spec: PartitionSpec
    location: Location = field(default=UNKNOWN, compare=False)
    call: Location = field(default=UNKNOWN, compare=False)
    count: int = field(default=0, compare=False)
    keyword = "in_specs"
    verb = "take operand"

    @property
    def text(self) -> str:
        return (f"take out the `all_gather` at line {self.location.line}, and {self.verb} "
                f"{self.number} of the `shard_map` as {spec_text(self.spec)} in {self.keyword}")

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,)

    def made(self, eqn: Equation) -> Equation:
        """The `shard_map` with the change."""
        raise NotImplementedError


class Ungather(Given):
    """Take an operand whole instead of gathering it."""

    def made(self, eqn: Equation) -> Equation:
        body: Program = eqn.params["jaxpr"]
        gather = body.eqns[self.gather]
        gone = set(gather.axes)
        result = gather.outvars[0]
        state = result.aval.manual
        whole = Var(result.aval.update(manual=ManualState(
            state.varying - gone, state.unreduced, state.reduced)),
            body.invars[self.number].name)
        invars = list(body.invars)
        invars[self.number] = whole
        eqns = [e for i, e in enumerate(body.eqns) if i != self.gather]
        first = []
        new = whole
        if state.varying & gone:
            new = Var(result.aval, result.name)
            first = [Equation(OPS["pvary"], (whole,), (new,),
                              {"axes": tuple(sorted(state.varying & gone))}, gather.location)]
        body = substituted(body.replace(invars=invars, eqns=eqns), {result: new})
        specs = list(eqn.params["in_specs"])
        specs[self.number] = self.spec
        return eqn.replace(params={**eqn.params, "in_specs": tuple(specs),
                                   "jaxpr": body.replace(eqns=[*first, *body.eqns])})


class GiveBlocks(Given):
    """Give a result by its blocks instead of gathering it."""
    keyword = "out_specs"
    verb = "give result"

    def made(self, eqn: Equation) -> Equation:
        body: Program = eqn.params["jaxpr"]
        outvars, specs = list(body.outvars), list(eqn.params["out_specs"])
        outvars[self.number] = body.eqns[self.gather].invars[0]
        specs[self.number] = self.spec
        return eqn.replace(params={**eqn.params, "out_specs": tuple(specs), "jaxpr": body.replace(
            outvars=outvars, eqns=[e for i, e in enumerate(body.eqns) if i != self.gather])})


@dataclass(frozen=True)
class Unsum:
    """Replace a sum of equal values in the body of the `shard_map` at a place by a multiplication
    by the number of devices.
    """
    place: Place
    sum: int
    count: int
    location: Location = field(default=UNKNOWN, compare=False)

    @property
    def text(self) -> str:
        return (f"multiply by {self.count} instead of the sum at line {self.location.line}: its "
                f"operand is the same on all {self.count} devices")

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,)

    def made(self, eqn: Equation) -> Equation:
        """The `shard_map` with the change."""
        body: Program = eqn.params["jaxpr"]
        summed = body.eqns[self.sum]
        eqns = multiplied(_before_casts(body, summed), self.count, summed)
        return eqn.replace(params={**eqn.params, "jaxpr": body.replace(
            eqns=[*body.eqns[:self.sum], *eqns, *body.eqns[self.sum + 1:]])})


def multiplied(operand: Atom, count: int, summed: Equation) -> list[Equation]:
    """What gives the result of a sum of so many equal values by a multiplication."""
    scalar = array_type((), operand.aval.dtype)
    factor: Literal | Var = Literal(np.asarray(count, operand.aval.dtype)[()], scalar)
    eqns = []
    varying = operand.aval.manual.varying
    if varying:
        whole, factor = factor, Var(scalar.update(sharding=operand.aval.sharding.update(
            spec=PartitionSpec()), manual=operand.aval.manual))
        eqns = [Equation(OPS["pvary"], (whole,), (factor,), {"axes": tuple(sorted(varying))},
                         summed.location)]
    return [*eqns, Equation(OPS["mul"], (operand, factor), summed.outvars, {}, summed.location)]


def _before_casts(body: Program, eqn: Equation) -> Var:
    """The operand of an equation, as it was before it was regarded as varying."""
    made = {v: e for e in body.eqns for v in e.outvars}
    operand = eqn.invars[0]
    assert isinstance(operand, Var)
    while operand in made and made[operand].op.name in _CASTS:
        source = made[operand].invars[0]
        if not isinstance(source, Var):
            break
        operand = source
    return operand


def body_changes(place: Place, eqn: Equation, location: Location, equal: bool
                 ) -> Iterator[Ungather | GiveBlocks | Unsum]:
    """Changes of a `shard_map` that avoid the collective that its body runs at a location.

    equal: whether the devices over which it sums hold the same value.
    """
    body: Program = eqn.params["jaxpr"]
    for n, inner in enumerate(body.eqns):
        if str(inner.location) != str(location) or not inner.invars or inner.location.transform:
            continue                                # nor what a derivative adds
        x = inner.invars[0]
        name = inner.op.name
        if name in _SUMS and equal and inner.params.get("axis_index_groups") is None:
            before = _before_casts(body, inner)
            if not before.aval.manual.varying & set(inner.axes):
                count = 1
                for a in inner.axes:
                    count *= body.mesh.axis_size(a)
                yield Unsum(place, n, count, inner.location)
        if name not in _GATHERS or not inner.params.get("tiled") or (
                inner.params.get("axis_index_groups") is not None):
            continue
        given = [k for k, v in enumerate(body.outvars) if v is inner.outvars[0]]
        if len(given) == 1 and not any(inner.outvars[0] is a for e in body.eqns for a in e.invars):
            dim, ndim = inner.params["all_gather_dimension"], x.aval.ndim
            entries = list(eqn.params["out_specs"][given[0]].padded(ndim).entries)
            entries[dim] = (*entries[dim], *inner.axes)
            yield GiveBlocks(place, n, given[0], spec_from_entries(entries), inner.location,
                             eqn.location, len(body.outvars))
        if (x in body.invars and x not in body.outvars
                and sum(x is a for e in body.eqns for a in e.invars) == 1):
            k = body.invars.index(x)
            dim = inner.params["all_gather_dimension"]
            entries = list(eqn.params["in_specs"][k].padded(x.aval.ndim).entries)
            gone = inner.axes
            if tuple(entries[dim][-len(gone):]) == gone:
                entries[dim] = tuple(entries[dim][:-len(gone)])
                spec = spec_from_entries(entries)
                yield Ungather(place, n, k, spec, inner.location, eqn.location,
                               len(body.invars))
