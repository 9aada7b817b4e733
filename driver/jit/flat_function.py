"""A function as it is traced: from the leaves of its arguments to the leaves of its results.

    f = FlatFunction(step, arguments, leaves, in_tree, static, None)
    f(*tracers)             # [loss, gradient of w, gradient of b]
    f.out_tree              # of (loss, {"b": ..., "w": ...}), once it was called
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.values.typeof import typeof
from ...tracer.references.frames import Frame
from ...tracer.references.ref import AnyRef, refuse_result
from ...tracer.staging.builder import current_builder
from ...tracer.staging.signature import Arguments, function_name, result_paths
from ...tracer.staging.tracer import Tracer
from ...tracer.trees import tree

_ONE = tree.structure(0)         # of a result that is one array


class FlatFunction:
    """A function of the leaves of its arguments, which returns those of its results.

    in_tree, static: of the call. frame: of the references that it may read, whose last values are
    results then. arg_names: of the leaves. out_tree, paths: the structure and the names of the
    results, once it was called.
    """

    __slots__ = ("arg_names", "arguments", "f", "frame", "in_tree", "is_plain", "out_tree",
                 "paths", "static")

    def __init__(self, f: Callable[..., Any], arguments: Arguments, leaves: Sequence[Any],
                 in_tree: Any, static: tuple[Any, ...], frame: Frame | None) -> None:
        self.f, self.arguments, self.frame = f, arguments, frame
        self.in_tree, self.static = in_tree, static
        self.is_plain = in_tree is tree.structure_of_arrays(len(leaves)) and not static
        self.arg_names = arguments.names_by_position(len(leaves)) if self.is_plain else (
            arguments.leaf_names(*tree.unflatten(in_tree, leaves)))
        self.out_tree: Any = _ONE
        self.paths: Sequence[str] = ()

    def __call__(self, *tracers: Any) -> list[Any]:
        frame = self.frame
        if frame is not None:
            frame.builder = current_builder()
        if self.is_plain:
            results = self.f(*tracers)
        else:
            args, kwargs = tree.unflatten(self.in_tree, tracers)
            args, kwargs = self.arguments.merge(args, kwargs, self.static)
            results = self.f(*args, **kwargs)
        reads = frame is not None and frame.read
        if type(results) is Tracer and not reads:
            return [results]
        out, self.out_tree = tree.flatten(results)
        check_results(self.f, out, self.out_tree)
        self.paths = result_paths(results, len(out))
        if frame is not None and reads:
            out, self.out_tree = tree.flatten((results, frame.arguments_first()))
        return out


def check_results(f: Any, results: Sequence[Any], structure: Any) -> None:
    """Raise TypeError for a result of the traced function `f` that is not an array. structure: the
    pytree of the results.
    """
    for i, x in enumerate(results):
        if type(x) is Tracer:
            continue
        if isinstance(x, AnyRef):
            refuse_result(function_name(f), x, "jit")
        try:
            typeof(x)
        except TypeError:
            code = getattr(f, "__code__", None)
            where = f" at {code.co_filename}:{code.co_firstlineno}" if code else ""
            path = tree.keystr(tree.leaves_with_path(tree.unflatten(structure, results))[i][0])
            place = f" at output component {path}" if path else ""
            fail(TypeError, f"function {function_name(f)}{where} traced for jit "
                 f"returned a value of type {type(x)}{place}, which is not a valid JAX type",
                 code="not-an-array", help="return arrays, or pytrees of arrays, only")
