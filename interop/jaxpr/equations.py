"""A jaxpr replayed under our tracing: equation by equation, most by the op of the same name."""
from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.op import Op
from ...ir.ops.dialect import OPS
from ...ir.source.location import Location
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from ...ir.support.registry import Registry
from ..jax_values import param_of, value_of
from ..registered import REGISTERED
from ..rules import traced_at
from .locations import location_of

core = lazy_import("jax.extend.core")

rule = Registry()
"""What stands for equations, by their primitives' names; others are the op of the name."""


class Replay:
    """Replays jaxprs. mesh: what NamedShardings of JAX's stand on, if not on a mesh like their own.
    place: of the equations that have none; of all, inside of a library's function.
    """

    def __init__(self, mesh: Mesh | AbstractMesh | None = None) -> None:
        self.mesh = mesh
        self.place: Location | None = None
        self.is_inside_library = False

    def closed(self, closed: Any, operands: Sequence[Any]) -> list[Any]:
        """The results of a ClosedJaxpr, for operands of ours."""
        return self.run(closed.jaxpr, closed.consts, operands)

    def run(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """The results of an open jaxpr."""
        env: dict[Any, Any] = {}
        for v, c in zip(jaxpr.constvars, consts, strict=True):
            env[v] = value_of(c, v.aval)
        env.update(zip(jaxpr.invars, operands, strict=True))
        literal = core.Literal

        def read(atom: Any) -> Any:
            return value_of(atom.val, atom.aval) if isinstance(atom, literal) else env[atom]

        places: dict[Any, Location] = {}        # of what the user's equations compute
        for eqn in jaxpr.eqns:
            given = [read(a) for a in eqn.invars]
            near = next((places[a] for a in eqn.invars
                         if not isinstance(a, literal) and a in places), self.place)
            results, place = self.equation(eqn, given, near)
            env.update(zip(eqn.outvars, results, strict=True))
            if place is not None:
                places.update(dict.fromkeys(eqn.outvars, place))
        return [read(a) for a in jaxpr.outvars]

    def equation(self, eqn: Any, operands: list[Any], near: Location | None
                 ) -> tuple[Sequence[Any], Location | None]:
        """The results of an equation, and its place, at which all stands that is traced meanwhile.

        near: where an equation stands that has no place of the user's.
        """
        outer = self.place
        place = outer if self.is_inside_library else location_of(eqn.source_info, near, outer)
        self.place = place
        try:
            with traced_at(place):
                name = eqn.primitive.name
                if name in REGISTERED:
                    found = REGISTERED[name](*operands, **eqn.params)
                else:
                    found = rule[name](self, eqn, operands) if name in rule else self.same(
                        eqn, operands)
        finally:
            self.place = outer
        return (found if isinstance(found, list | tuple) else [found]), place

    def same(self, eqn: Any, operands: Sequence[Any], **params: Any) -> Any:
        """The op of the primitive's name, with the params that both have. params: instead of those.
        """
        name = eqn.primitive.name
        op = OPS.get(name)
        if op is None or op.subprograms:
            shapes = ", ".join(str(v.aval) for v in eqn.invars)
            fail(NotImplementedError,
                 f"from_jax: there is nothing here for JAX's primitive {name!r}, which is applied "
                 f"to ({shapes})", code="unknown-primitive", location=self.place,
                 help=f"`shardtrace.interop.register({name!r})` says what it computes, by "
                      "functions of shardtrace")
        always, sometimes = taken(op)
        own = {k: param_of(v, self.mesh) for k, v in eqn.params.items()
               if k in always or (k in sometimes and v is not None)}
        return op.bind(*operands, **{**own, **params})


@cached(1024)
def taken(op: Op) -> tuple[frozenset[str], frozenset[str]]:
    """The names of an op's params, and of those that it may have besides."""
    named = {p.name for p in inspect.signature(op.infer).parameters.values()
             if p.kind is p.KEYWORD_ONLY}
    sampled = [set(sample.params) for sample in op.samples()] if op.samples is not None else []
    always = named.union(set.intersection(*sampled)) if sampled else named
    return frozenset(always), frozenset(set().union(*sampled) - always)
