"""Collectives that a `shard_map` body does not need: gathers of an operand, sums of equal values.

An operand that the body gathers first may be passed whole: the axes leave its `in_specs`, and the
gather goes away. A `psum` over devices that all hold the same value is a multiplication by their
number, without communication. Neither changes any value.
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
class Ungather:
    """Let the `shard_map` at a place take an operand whole instead of gathering it in the body.

    gather: the equation in the body; spec: the operand's new entry of in_specs.
    """
    place: Place
    gather: int
    operand: int
    spec: PartitionSpec
    location: Location = field(default=UNKNOWN, compare=False)
    shown: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return (f"take out the `all_gather` at line {self.location.line}, and take operand "
                f"{self.operand} of the `shard_map` as {self.shown} in in_specs")

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,)

    def made(self, eqn: Equation) -> Equation:
        """The `shard_map` with the change."""
        body: Program = eqn.params["jaxpr"]
        gather = body.eqns[self.gather]
        gone = set(gather.axes)
        result = gather.outvars[0]
        state = result.aval.manual
        whole = Var(result.aval.update(manual=ManualState(
            state.varying - gone, state.unreduced, state.reduced)),
            body.invars[self.operand].name)
        invars = list(body.invars)
        invars[self.operand] = whole
        eqns = [e for i, e in enumerate(body.eqns) if i != self.gather]
        first = []
        new = whole
        if state.varying & gone:
            new = Var(result.aval, result.name)
            first = [Equation(OPS["pvary"], (whole,), (new,),
                              {"axes": tuple(sorted(state.varying & gone))}, gather.location)]
        body = substituted(body.replace(invars=invars, eqns=eqns), {result: new})
        specs = list(eqn.params["in_specs"])
        specs[self.operand] = self.spec
        return eqn.replace(params={**eqn.params, "in_specs": tuple(specs),
                                   "jaxpr": body.replace(eqns=[*first, *body.eqns])})


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
                 ) -> Iterator[Ungather | Unsum]:
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
        if (name in _GATHERS and x in body.invars and inner.params.get("tiled")
                and inner.params.get("axis_index_groups") is None
                and sum(x is a for e in body.eqns for a in e.invars) == 1
                and x not in body.outvars):
            k = body.invars.index(x)
            dim = inner.params["all_gather_dimension"]
            entries = list(eqn.params["in_specs"][k].padded(x.aval.ndim).entries)
            gone = inner.axes
            if tuple(entries[dim][-len(gone):]) == gone:
                entries[dim] = tuple(entries[dim][:-len(gone)])
                spec = spec_from_entries(entries)
                yield Ungather(place, n, k, spec, inner.location, spec_text(spec))
