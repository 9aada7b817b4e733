"""Staging: run a Python function on tracers, and keep what it did as a program.

`trace_to_program(f, types)` calls `f` once with one tracer per type, under a `Builder`, the
interpreter that records an equation for every op (builder.py).

A function traced inside another (a nested jit, a loop body) may use tracers and arrays of the outer
one; these become extra parameters of the inner program, its `captured` values, in front of its own.
Only the outermost program has constants.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Program, Var
from ...ir.settings.context import STATE, config
from ...ir.support.collector import collector_paused
from ...ir.types import ArrayType
from . import leaks
from .builder import Builder
from .nesting import refuse
from .tracer import Tracer


def trace_to_program(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType], *, name: str,
                     arg_names: Sequence[str] = (), mesh: AbstractMesh | None = None,
                     capture_type: Callable[[ArrayType], ArrayType] | None = None,
                     make: Callable[..., Builder] = Builder) -> tuple[Program, list[Tracer]]:
    """Trace `f(*tracers)`, which returns a flat sequence of values.

    mesh: the context mesh for the body (default: the current one). make: what makes the builder.
    Returns the program and the captured values of enclosing traces, which are the first
    `len(captured)` parameters of the program.
    """
    outer = STATE.interpreter
    if type(outer) is Builder:       # the trace around it has paused the collector
        return _trace(f, types, name, arg_names, mesh, make(name, outer, capture_type), outer)
    with collector_paused():
        return _trace(f, types, name, arg_names, mesh, make(name, outer, capture_type), outer)


def _trace(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str,
           arg_names: Sequence[str], mesh: AbstractMesh | None, builder: Builder, outer: Any
           ) -> tuple[Program, list[Tracer]]:
    """Run `f` on tracers of these types under a builder, and let it finish its program. outer: the
    interpreter to go back to.
    """
    state = STATE
    saved = state.abstract_mesh
    context = saved if mesh is None else mesh
    state.interpreter, state.abstract_mesh = builder, context
    try:
        given = len(arg_names)
        builder.args = [Var(t, arg_names[i] if i < given else None) for i, t in enumerate(types)]
        args = [Tracer(builder, v) for v in builder.args]
        observers = state.on_equation
        for observer in observers:
            observer.begin(name, builder.args)
        results = f(*args)
        outvars = [r.variable if type(r) is Tracer and r.builder is builder else builder.result(r)
                   for r in results]
        builder.watch.end()
        for observer in observers:
            observer.end()
    except RecursionError as error:
        refuse(error, builder)
    finally:
        builder.watch.end()
        state.interpreter, state.abstract_mesh = outer, saved
    parent = builder.parent
    if parent is not None and builder.meshes:
        parent.meshes += [m for m in builder.meshes if m not in parent.meshes]
    mesh_of_types = context
    if not mesh_of_types.axis_names:
        for v in [*builder.args, *(v for v, _ in builder.consts), *builder.captured_vars]:
            if v.aval.mesh.axis_names:
                mesh_of_types = v.aval.mesh
                break
    program = builder.finish(outvars, mesh_of_types, arg_names=arg_names)
    if (state.overrides or not config.unwatched) and leaks.watching():
        del args, results
        leaks.check(builder)
    return program, builder.captured if parent is not None else []
