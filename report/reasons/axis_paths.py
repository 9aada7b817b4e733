"""Traces a mesh axis on a value back to an annotation, through the equations that propagated it."""
from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from ...ir.ops.communication.sharding import reshard_p
from ...ir.program import Atom, Equation, Var
from ...ir.rules.rule import ELEMENTWISE
from ...ir.spec import spec_from_entries
from ...partitioner.propagation.graph import Root
from ...partitioner.regions import has_region, region_of
from ..words import spec_text
from .causes import Hold, Path, Step
from .forward_paths import ForwardPaths, is_detour

_WITHIN = 8                             # values made of one, of which annotations are looked for
_Asked = tuple[Var, int, str]           # a value, one of its dimensions, and an axis


class AxisPaths(ForwardPaths):
    """Follows the axes of one partitioned program back to annotations."""

    @functools.cached_property
    def known(self) -> dict[_Asked, Path | None]:
        """Paths found so far: many values have theirs from the same one."""
        return {}

    def sum_paths(self, operand: Atom, summed: frozenset[str]) -> Iterator[Path]:
        """Where the axes of a pending sum come from: the operands that are split there."""
        made = self.made.get(operand) if isinstance(operand, Var) else None
        seen = 0
        while made is not None and seen < 20:
            seen += 1
            hits = [(v, d, a) for v in made.invars if isinstance(v, Var)
                    for d, axes in enumerate(v.aval.entries) for a in axes if a in summed]
            if hits:
                for v, d, a in hits:
                    path = self.path(v, d, a)
                    if path is not None:
                        yield path
                return
            made = next((self.made.get(v) for v in made.invars if isinstance(v, Var)
                         and v.aval.sharding.spec.unreduced & summed), None)

    def operand_paths(self, eqn: Equation, axes: frozenset[str]) -> Iterator[Path]:
        """Where those of these axes come from that operands of the equation have."""
        for v in dict.fromkeys(eqn.invars):
            if isinstance(v, Var):
                for d, own in enumerate(v.aval.entries):
                    for a in own:
                        path = self.path(v, d, a) if a in axes else None
                        if path is not None:
                            yield path

    def layout_paths(self, operand: Atom, result: Var, equation: Equation | None
                     ) -> Iterator[Path]:
        """Where the axes come from that a value has, and those that it is to have."""
        if not isinstance(operand, Var):
            return
        before, after = operand.aval.entries, result.aval.entries
        for d, (have, want) in enumerate(zip(before, after, strict=True)):
            for a in have:
                if a not in want:
                    path = self.path(operand, d, a)
                    if path is not None:
                        yield path
        if equation is None:
            return
        if result not in equation.invars:       # an annotation wants it in another layout
            for d, (have, want) in enumerate(zip(before, after, strict=True)):
                found = [self.path(result, d, a) for a in want if a not in have]
                yield from [replace(path, wanted=True) for path in found
                            if path is not None and path.root_location.line]
        moved = {a for d, axes in enumerate(before) for a in axes
                 if a not in after[d]} | {a for d, axes in enumerate(after) for a in axes
                                          if a not in before[d]}
        for v in self.read_with(result, equation):
            for d, axes in enumerate(v.aval.entries):
                for a in axes:
                    if a in moved:
                        path = self.path(v, d, a)
                        if path is not None:
                            yield path

    def read_with(self, var: Var, equation: Equation) -> Iterator[Var]:
        """The other operands, and the results, of an equation that reads a value; for one that
        holds programs, those of its inner equations.
        """
        if not has_region(equation) or var not in equation.invars:
            yield from [v for v in (*equation.invars, *equation.outvars)
                        if isinstance(v, Var) and v is not var]
            return
        region = region_of(equation)
        waiting = [region.programs[p][2].invars[i] for slot in region.slots
                   if slot.operand >= 0 and equation.invars[slot.operand] is var
                   for p, i in slot.inputs]
        while waiting:
            parameter = waiting.pop()
            for reader in self.readers.get(parameter, ()):
                if reader.op is reshard_p:
                    waiting += reader.outvars
                else:
                    yield from self.read_with(parameter, reader)

    def nearby_paths(self, operand: Atom, result: Var, equation: Equation | None,
                     axes: frozenset[str]) -> Iterator[Path]:
        """Where axes come from that only the partitioner placed: those that propagation gave to any
        dimension of the moved value, or of one that is read with it.
        """
        near = [result, operand, *(equation.invars if equation is not None else ())]
        for v in dict.fromkeys(self.source(a) for a in near if isinstance(a, Var)):
            whole = self.of_tensor.get(self.tensor(v), v)
            for d, own in enumerate(whole.aval.entries):
                for axis in own:
                    path = self.path(v, d, axis) if str(axis) in axes else None
                    if path is not None:
                        yield path

    def path(self, var: Var, dim: int, axis: str) -> Path | None:
        """The path of an axis from an annotation to this value."""
        known, first = self.known, (var, dim, axis)
        if first in known:
            return known[first]
        known[first] = found = None          # a value that comes from itself
        waiting = [(first, self.traced_path(*first))]
        while waiting:
            key, search = waiting[-1]
            try:
                asked = search.send(found)
            except StopIteration as end:
                found = known[key] = end.value
                waiting.pop()
            else:
                found = known.get(asked)
                if asked not in known:
                    known[asked] = None
                    waiting.append((asked, self.traced_path(*asked)))
        return found

    def traced_path(self, var: Var, dim: int, axis: str
                    ) -> Generator[_Asked, Path | None, Path | None]:
        """The path of an axis, as a generator: it yields the values whose paths it needs, and is
        sent these.
        """
        name = self.name(var)
        source = self.source(var)
        if self.origins is None:
            return None
        tensor = self.tensor(source)
        # a sum has its axes once it is finished
        whole = self.of_tensor.get(tensor, source)
        if tensor < 0 or not any(dim < v.aval.ndim and axis in v.aval.entries[dim]
                                 for v in (source, whole)):
            made = self.made.get(var)
            if made is not None and made.op is reshard_p and not made.reason:
                return Path(axis, dim, name, "`reshard`", made.location, (), calls=self.calls)
            planned = yield from self.planned(source, dim, axis, tensor)
            if planned is not None:
                return planned
            # the partitioner moved it here from another dimension
            other = [d for d, own in enumerate(whole.aval.entries) if d != dim and axis in own]
            return (yield source, other[0], axis) if other and tensor >= 0 else None
        steps: list[Step] = []
        first, at, detour = tensor, dim, False
        seen: set[tuple[int, int]] = set()
        while (tensor, at) not in seen:
            seen.add((tensor, at))
            back = self.back(tensor, at, axis)
            if back is None:
                return None if steps else (yield from self.planned(source, dim, axis, tensor))
            if isinstance(back, Step):
                detour = detour or back.detour
                tensor, at = back.tensor, back.dim
                steps.append(back)
                continue
            made = self.made.get(source)
            if detour and back.argument >= 0 and (      # of a derivative, its way is through it
                    made is None or "transpose" not in made.location.transform):
                steps = self.forward(tensor, first, dim, axis) or steps
            return Path(axis, dim, name, back.text, back.location,
                        tuple([step.shown for step in reversed(steps)]),
                        (first, *[step.tensor for step in steps]), calls=self.calls,
                        argument=back.argument)
        return None

    def planned(self, var: Var, dim: int, axis: str, tensor: int
                ) -> Generator[_Asked, Path | None, Path | None]:
        """The path of an axis that a value has by its strategy rather than by propagation: that of
        the operand which passes it on.
        """
        made = self.made.get(var)
        if made is None or made.op.subprograms or made.op.collective is not None or (
                dim >= var.aval.ndim or axis not in var.aval.entries[dim]):
            return None
        for operand, d in _handing_on(made, var, dim, axis):
            # the operand itself, not a layout to which it was resharded
            if axis in self.source(operand).aval.entries[d]:
                path = yield operand, d, axis
                if path is not None:
                    return Path(axis, dim, self.name(var), path.root, path.root_location,
                                (*path.steps, (made.op.name, made.location)),
                                (*([tensor] if tensor >= 0 else ()), *path.tensors), True,
                                calls=self.calls, argument=path.argument)
        return None

    def back(self, tensor: int, dim: int, axis: str) -> Step | Root | None:
        """One step back for an axis of a tensor, or the annotation at which it begins."""
        assert self.origins is not None
        graph = self.origins.solution.graph
        note = self.origins.solution.origins.get((tensor, dim, axis))
        if note is not None:
            node, tensor, dim = note
            return Step(node.equation, tensor, dim, is_detour(node, tensor))
        root = graph.root(tensor, dim, axis)
        if root is None:
            return None
        if root.text == "its type":
            return self.typed(tensor, dim, axis)
        return root._replace(text=self.root(root.text, root.argument))

    def typed(self, tensor: int, dim: int, axis: str) -> Step | Root:
        """One step back through the types of a program with Explicit axes, or the annotation."""
        assert self.origins is not None
        var = self.of_tensor.get(tensor)
        if var is None:
            return Root("its type")
        if var in self.argument_of:
            i = self.argument_of[var]
            return Root(self.root(f"argument `{self.resolved.arg_names[i]}`", i), argument=i)
        eqn = self.made.get(var)
        if eqn is None:
            return Root("its type")
        if eqn.op.subprograms or eqn.op.collective is not None:
            return Root(f"`{eqn.op.name}`", eqn.location)
        for a, d in _handing_on(eqn, var, dim, axis):
            t = self.origins.tensors.get(a, -1)
            if t >= 0:
                return Step(eqn, t, d)
        word = "`reshard`" if eqn.op is reshard_p else f"the sharding asked of `{eqn.op.name}`"
        return Root(word, eqn.location)

    def argument(self, i: int) -> str:
        """The name of an argument; "" for -1."""
        return self.resolved.arg_names[i] if i >= 0 else ""

    def root(self, text: str, argument: int) -> str:
        """The text of a root; of an argument with its position in in_shardings."""
        return text if argument < 0 else f"`in_shardings[{argument}]`, {text}"

    # -- what holds a value -----------------------------------------------------------------------

    def holds(self, move: Equation, about: Sequence[Equation | None], axes: frozenset[str]
              ) -> Iterator[Hold]:
        """The annotations that keep a nearby value from being split over the axes. about: equations
        that the reason mentions.
        """
        near = [*move.invars, *move.outvars]
        for equation in about:
            if equation is not None:
                near += [*equation.outvars, *equation.invars]
        for atom in near:
            if isinstance(atom, Var):
                yield from (h for h in self.held(atom) if not axes <= h.axes)
        for equation in about:
            if equation is not None:
                yield from (h for v in self.elementwise_of(equation.outvars)
                            for h in self.held(v) if not axes & h.axes)

    def elementwise_of(self, values: Sequence[Var]) -> Iterator[Var]:
        """What elementwise ops make of values, the nearest first: laid out as these are."""
        waiting, seen = [*values], set(values)
        while waiting and len(seen) <= _WITHIN:
            for eqn in self.readers.get(waiting.pop(0), ()):
                if eqn.op.rule == ELEMENTWISE and not seen.issuperset(eqn.outvars):
                    seen.update(eqn.outvars)
                    waiting += eqn.outvars
                    yield from eqn.outvars

    def held(self, var: Var) -> Iterator[Hold]:
        """Annotations, other than of arguments, that fix the layout of a value."""
        if self.origins is None:
            return
        graph = self.origins.solution.graph
        t = self.tensor(var)
        for at in (t, *self.leaving(t)):
            root = graph.asked.get(at)
            if root is None or not graph.layouts[at].shape or root.argument >= 0:
                continue
            entries = graph.layouts[at].entries
            yield Hold(self.name(var), spec_text(spec_from_entries(entries)), root.text,
                       root.location, frozenset(str(a) for e in entries for a in e), at,
                       self.calls)

    def leaving(self, tensor: int) -> Iterator[int]:
        """The tensors of the same value as a constraint, or the end of the program, lays it out
        again.
        """
        assert self.origins is not None
        for node in self.neighbours.get(tensor, ()):
            op = node.equation.op.name if node.equation is not None else ""
            if op in ("sharding_constraint", "") and node.tensors[0] == tensor:
                yield from node.tensors[1:]


def _handing_on(eqn: Equation, var: Var, dim: int, axis: str) -> Iterator[tuple[Var, int]]:
    """The operands from which, by the rule, a result can have an axis on a dimension."""
    rule = eqn.op.factor_rule(tuple(a.aval.shape for a in eqn.invars),
                              tuple(v.aval.shape for v in eqn.outvars), eqn.params)
    factors = rule.results[eqn.outvars.index(var)][dim]
    for a, operand in zip(eqn.invars, rule.operands, strict=True):
        for d, own in enumerate(operand):
            if isinstance(a, Var) and set(own) & set(factors) and axis in a.aval.entries[d]:
                yield a, d
