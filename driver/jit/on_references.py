"""Jitted functions of references: their contents become arguments and results of another one.

References are among the arguments of a call, or are closed over; the function of their values is
jitted in turn, once per structure of the arguments, and what comes out is written back.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.program import Program
from ...tracer.references.frames import Box, running
from ...tracer.references.passing import passing, refuse_repeated
from ...tracer.references.ref import inner_refs, last_values, references
from ...tracer.staging.signature import Arguments, function_name
from ...tracer.trees import tree
from .boundary import Boundary


class OnValues:
    """A jitted function `(values of references, *others) -> (result, values afterwards)`.

    places: of references among the leaves of arguments. boxes: of those that are closed over.
    traced: the program of the next call, the structure of its result and what it captures, if that
    was traced already.
    """

    __slots__ = ("boxes", "places", "pure", "traced")

    def __init__(self, pure: Any, places: Sequence[int], boxes: Sequence[Box],
                 traced: tuple[Program, Any, list[Any]] | None = None) -> None:
        self.pure, self.places, self.boxes = pure, frozenset(places), boxes
        self.traced = traced

    def arguments(self, leaves: Sequence[Any]) -> list[Any]:
        values = [leaves[i][...] for i in sorted(self.places)]
        return [[*values, *[box.read() for box in self.boxes]],
                *[x for i, x in enumerate(leaves) if i not in self.places]]

    def finish(self, leaves: Sequence[Any], answer: tuple[Any, Sequence[Any]]) -> Any:
        """The result, when the values are written back."""
        result, values = answer
        for i, value in zip(sorted(self.places), values, strict=False):
            leaves[i]._store(value)
        for box, value in zip(self.boxes, values[len(self.places):], strict=True):
            box.write(value)
        return result

    def __call__(self, leaves: Sequence[Any]) -> Any:
        return self.finish(leaves, self._ask(self.pure, leaves))

    def trace(self, leaves: Sequence[Any]) -> Stage:
        return Stage(self._ask(self.pure.trace, leaves), self)

    def _ask(self, call: Callable[..., Any], leaves: Sequence[Any]) -> Any:
        args = self.arguments(leaves)
        self.pure.known = self.traced
        try:
            return call(*args)
        finally:
            self.pure.known = None


class Stage:
    """A stage of such a function: traced, lowered or compiled. Compiled, it takes references."""

    def __init__(self, stage: Any, on_values: OnValues) -> None:
        self._stage, self._on_values = stage, on_values

    @property
    def out_info(self) -> Any:
        return self._stage.out_info[0]

    def lower(self, *args: Any, **kwargs: Any) -> Stage:
        return Stage(self._stage.lower(*args, **kwargs), self._on_values)

    def compile(self, *args: Any, **kwargs: Any) -> Stage:
        return Stage(self._stage.compile(*args, **kwargs), self._on_values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, _ = tree.flatten_call(args, kwargs)
        on_values = self._on_values
        return on_values.finish(leaves, self._stage(*on_values.arguments(leaves)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


def on_arguments(jitted: Any, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
                 ) -> OnValues:
    """For a call with references among its arguments."""
    places = references(leaves)
    names = jitted.arguments.leaf_names(*tree.unflatten(in_tree, leaves))
    given = [leaves[i] for i in places]
    called = [names[i] for i in places]
    refuse_repeated(jitted.origin, "jit", given, called)
    passed = passing(jitted.origin, "jit", dict(zip(given, called, strict=True)))
    count = len(leaves)

    def on_values(values: list[Any], *others: Any) -> Any:
        inner = inner_refs(values, called)
        refs, rest = iter(inner), iter(others)
        with passed:
            return (_run(jitted, in_tree, static, [next(refs) if i in places else next(rest)
                                                   for i in range(count)]),
                    last_values(inner))

    requested = _leaf_shardings(jitted, leaves, in_tree)
    if requested is not None:
        requested = ([requested[i] for i in places],
                     *[spec for i, spec in enumerate(requested) if i not in places])
    return OnValues(_jitted(jitted, (in_tree, static, *places), on_values, requested), places, ())


def on_closed(jitted: Any, traced: tuple[Program, Any, list[Any]], leaves: Sequence[Any],
              in_tree: Any, static: tuple[Any, ...]) -> OnValues:
    """For a call of a function that closes over references, which was traced with them as its first
    arguments and last results."""
    program, out_tree, captured = traced
    boxes = program.memo["references"]
    pure = running(lambda *leaves: _run(jitted, in_tree, static, leaves), boxes)
    requested = _leaf_shardings(jitted, leaves, in_tree)
    return OnValues(_jitted(jitted, (in_tree, static, *boxes), pure,
                            None if requested is None else (None, *requested)), (), boxes,
                    (program.replace(), out_tree, captured))     # one that remembers no references


def _leaf_shardings(jitted: Any, leaves: Sequence[Any], in_tree: Any) -> list[Any] | None:
    """The entry of in_shardings for each leaf, if there are any."""
    boundary = jitted._boundary
    if boundary.in_shardings is None:
        return None
    args, kwargs = tree.unflatten(in_tree, leaves)
    boundary.check_kwargs(kwargs)
    return boundary.argument_prefix(args)


def _run(jitted: Any, in_tree: Any, static: tuple[Any, ...], leaves: Sequence[Any]) -> Any:
    args, kwargs = jitted.arguments.merge(*tree.unflatten(in_tree, leaves), static)
    return jitted.origin(*args, **kwargs)


def _jitted(jitted: Any, key: Any, f: Callable[..., Any], requested: Any) -> Any:
    """`f` jitted as `jitted` is, but for in_shardings; the same one for the same key."""
    found = jitted.on_values.get(key)
    if found is None:
        f.__name__ = function_name(jitted.origin)
        out = jitted._boundary.out_shardings
        boundary = Boundary(requested, None if out is None else (out, None),
                            Arguments(f, None, None, None, None))
        found = jitted.on_values[key] = jitted._rejit(f, boundary)
    return found
