"""Checks that types agree: of a loop's carry before and after the body, and of branches' results.

Classes and texts are JAX's; they are followed by where the two types come from, and what to write
instead.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....ir.diagnostics.diagnostic import Help, Label, Remedy, fail
from ....ir.program import Atom, Program
from ....ir.source.location import capture
from ....ir.source.wording import mismatch
from ....ir.types import ArrayType, same_type
from ...staging.tracer import Tracer
from ...trees import tree

_VMA_PAGE = "https://docs.jax.dev/en/latest/notebooks/shard_map.html#scan-vma"


# -- carries ---------------------------------------------------------------------------------------

def check_carry(what: str, f: Callable[..., Any], in_tree: tree.PyTreeDef,
                in_types: Sequence[ArrayType], out_tree: tree.PyTreeDef, program: Program,
                init: Sequence[Any]) -> None:
    """Raise TypeError unless a body returns the carry with the types that it takes.

    what: "scan body" or "while_loop body". out_tree: of the carry as returned, the program's first
    results. init: the values that the loop starts with.
    """
    outputs = program.outvars[:out_tree.num_leaves]
    out_types = [a.aval for a in outputs]
    if in_tree == out_tree and all(map(same_type, in_types, out_types)):
        return
    name = _first_parameter(f)

    def component(path: Sequence[Any]) -> str:
        keys = tree.keystr(path)
        if name:
            return f"the input carry component {name}{keys}" if keys else f"the input carry {name}"
        return f"the input carry at path {keys}" if keys else "the input carry"

    given, got = tree.unflatten(in_tree, in_types), tree.unflatten(out_tree, out_types)
    if in_tree != out_tree:
        found = [f"{component(path)} is a {one} but the corresponding component of the carry "
                 f"output is a {other}, so {why}"
                 for path, one, other, why in structure_differences(given, got)]
        if not found:
            return                     # only what classes keep beside their children differs
        fail(TypeError, f"{what} function carry input and carry output must have the same pytree "
             f"structure, but they differ:\n\n{_listed(found)}\nRevise the function so that the "
             "carry output has the same pytree structure as the carry input.",
             code="carry-structure", label="this loop", help="return the carry as it came in: "
             "the same containers, with the same keys and lengths")
    paths = [path for path, _ in tree.flatten_with_path(given)[0]]
    wrong = [i for i, (a, b) in enumerate(zip(in_types, out_types, strict=True))
             if not same_type(a, b)]
    found = [f"{component(paths[i])} has type {in_types[i].str_short()} but the corresponding "
             f"output carry component has type {out_types[i].str_short()}"
             f"{mismatch(in_types[i], out_types[i])}" for i in wrong]
    casts = [f"applying `jax.lax.pcast(..., {axes}, to='varying')`, to the initial carry value "
             f"corresponding to {component(paths[i])}"
             for i in wrong if (axes := newly_varying(in_types[i], out_types[i]))]
    i = wrong[0]
    start = name + tree.keystr(paths[i]) if name else "carry"
    fail(TypeError, f"{what} function carry input and carry output must have equal types, but "
         f"they differ:\n\n{_listed(found)}\n{_hint(casts)}Revise the function so that all "
         "output types match the corresponding input types.",
         code="carry-type",
         label=f"this loop takes `{start}` as {in_types[i].str_short(True)}",
         others=(*_definition(program, outputs[i],
                              f"leaves the body as {out_types[i].str_short(True)}"),
                 *_definition_outside(init[i], f"enters as {in_types[i].str_short(True)}")),
         notes=("a loop carries one type from start to end",),
         help=_remedies([(paths[i], in_types[i], out_types[i]) for i in wrong]))


def _first_parameter(f: Callable[..., Any]) -> str:
    try:
        return next(iter(inspect.signature(f).parameters), "")
    except (TypeError, ValueError):
        return ""


def _definition(program: Program, atom: Atom, text: str) -> tuple[Label, ...]:
    for eqn in program.eqns:
        if atom in eqn.outvars:
            return (Label(eqn.location, text),)
    return ()


def _definition_outside(x: Any, text: str) -> tuple[Label, ...]:
    if isinstance(x, Tracer):
        for eqn in x.builder.eqns:
            if x.variable in eqn.outvars and str(eqn.location) != str(capture()):
                return (Label(eqn.location, text),)
    return ()


Changed = tuple[Any, ArrayType, ArrayType]     # a path, the type that is there, the one wanted


def _remedies(wrong: Sequence[Changed]) -> tuple[Help, ...]:
    """What makes a carry keep its type: another start, or a body that brings it back."""
    _, start, end = wrong[0]
    if start.shape != end.shape:
        return ("give it one shape: start with the shape that the body returns",)
    axes = newly_varying(start, end)
    begin = _brought("init", wrong, f"let it vary over {', '.join(axes)} from the start, with "
                     "`lax.pcast`" if axes else
                     f"start with the other dtype, {end.dtype.name}" if start.dtype != end.dtype
                     else f"start with the other spec, {end.spec}")
    if axes:
        return (begin,)
    return begin, _brought("body", [(path, b, a) for path, a, b in wrong],
                           f"convert it back to {start.dtype.name} in the body"
                           if start.dtype != end.dtype else
                           f"bring it back to {start.spec} in the body, in every iteration")


def _brought(role: str, changes: Sequence[Changed], what: str) -> Help:
    """The remedy that brings values from one type to another; in words alone where none does."""
    parts = []
    for path, have, wanted in changes:
        axes = newly_varying(have, wanted)
        if have.shape != wanted.shape or have.varying - wanted.varying:
            return what
        template, spec = "@", None
        if have.dtype != wanted.dtype:
            template = f"{{numpy.asarray}}({template}, {wanted.dtype.name!r})"
        if have.spec != wanted.spec or have.entries != wanted.entries:
            template, spec = f"{{reshard}}({template}, $)", wanted.spec
        if axes:
            named = repr(axes[0] if len(axes) == 1 else axes)
            template = f"{{lax.pcast}}({template}, {named}, to='varying')"
        parts.append((tuple(path), template, spec))
    return Remedy(what, role, tuple(parts), changes[0][2].mesh)


# -- branches --------------------------------------------------------------------------------------

def check_branches(what: str, names: tuple[str, str], functions: Sequence[Callable[..., Any]],
                   trees: Sequence[tree.PyTreeDef], types: Sequence[Sequence[ArrayType]],
                   programs: Sequence[Program]) -> None:
    """Raise TypeError unless two branches of a `cond` or `switch` give the same types."""
    if trees[0] == trees[1] and all(map(same_type, *types)):
        return
    one, other = names
    sources = (f"{one} is {_source(functions[0])}\n{other} is {_source(functions[1])}\n\n")

    def at(path: Sequence[Any]) -> str:
        return f" at path {tree.keystr(path)}" if path else ""

    first, second = (tree.unflatten(d, t) for d, t in zip(trees, types, strict=True))
    if trees[0] != trees[1]:
        found = [f"{one} output{at(path)} is a {a} but {other} output{at(path)} is a {b}, so {why}"
                 for path, a, b, why in structure_differences(first, second, "pytree leaf")]
        if not found:
            return
        fail(TypeError, f"{what} branch outputs must have the same pytree structure, but they "
             f"differ:\n\n{sources}{_listed(found, False)}\nRevise {one} and/or {other} so that "
             "they have the same pytree structure.", code="branch-structure",
             help="return the same containers from both")
    wrong = [i for i, (a, b) in enumerate(zip(*types, strict=True)) if not same_type(a, b)]
    paths = [path for path, _ in tree.flatten_with_path(first)[0]]
    found = [f"the output of {one}{at(paths[i])} has type {types[0][i].str_short()} but the "
             f"corresponding output of {other} has type {types[1][i].str_short()}"
             f"{mismatch(types[0][i], types[1][i])}" for i in wrong]
    casts = [f"applying `jax.lax.pcast(..., {axes}, to='varying')` to the output of "
             f"{names[b]}{at(paths[i])}"
             for i in wrong for b in (0, 1)
             if (axes := newly_varying(types[b][i], types[1 - b][i]))]
    i = wrong[0]
    a, b = types[0][i], types[1][i]
    fail(TypeError, f"{what} branches must have equal output types but they differ.\n\n{sources}"
         f"{_listed(found)}\n{_hint(casts)}Revise {one} and/or {other} so that all output types "
         "match.", code="branch-type", label="these branches",
         others=(*_definition(programs[0], programs[0].outvars[i],
                              f"{one} gives {a.str_short(True)}"),
                 *_definition(programs[1], programs[1].outvars[i],
                              f"{other} gives {b.str_short(True)}")),
         help=_branch_remedy(names, [(paths[i], types[0][i], types[1][i]) for i in wrong]))


def _branch_remedy(names: tuple[str, str], wrong: Sequence[Changed]) -> Help:
    """What to write into a branch so that its results agree with those of the other."""
    _, a, b = wrong[0]
    if a.shape != b.shape:
        return "return arrays of one shape from both"
    first = any(newly_varying(x, y) for _, x, y in wrong)
    changes = wrong if first else [(path, y, x) for path, x, y in wrong]
    _, have, wanted = changes[0]
    name = names[0 if first else 1]
    axes = newly_varying(have, wanted)
    what = (f"let its output vary over {', '.join(axes)}, with `lax.pcast`" if axes else
            f"convert its output to {wanted.dtype.name}" if have.dtype != wanted.dtype else
            f"bring its output to {wanted.spec}, with `reshard`")
    role = name if name.endswith("_fun") else f"branches {name.removeprefix('branch').strip()}"
    return _brought(role, changes, f"in {name}: {what}")


def _source(f: Callable[..., Any]) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    f = inspect.unwrap(f)
    code = getattr(f, "__code__", None)
    if code is None:
        return str(f).split(" at 0x")[0].lstrip("<")
    return f"{f.__name__} at {code.co_filename}:{code.co_firstlineno}"


# -- texts -----------------------------------------------------------------------------------------

def newly_varying(a: ArrayType, b: ArrayType) -> tuple[str, ...]:
    """The axes over which `b` varies and `a` does not, in mesh order."""
    more = b.varying - a.varying
    order = b.mesh.axis_names
    return tuple(sorted(more, key=lambda n: (order.index(n) if n in order else len(order), n)))


def _listed(found: Sequence[str], capital: bool = True) -> str:
    if len(found) == 1:
        text = found[0]
        return (text[0].upper() + text[1:] if capital else text) + ".\n"
    return "".join(f"  * {text};\n" for text in found[:-1]) + f"  * {found[-1]}.\n"


def _hint(casts: Sequence[str]) -> str:
    if not casts:
        return ""
    if len(casts) == 1:
        text = f"This might be fixed by {casts[0]}.\n"
    else:
        text = "This might be fixed by:\n" + _listed(casts)
    return text + f"See {_VMA_PAGE} for more information.\n\n"


def structure_differences(a: Any, b: Any, leaf: str = "", path: tuple[Any, ...] = ()
                          ) -> Iterator[tuple[tuple[Any, ...], str, str, str]]:
    """Where two pytrees of types differ: (path, what one is, what the other is, why they differ).

    leaf: how to name a leaf; by default by its class.
    """
    def is_leaf(x: Any) -> bool:
        return isinstance(x, ArrayType)

    def shown(x: Any) -> str:
        return leaf if leaf and is_leaf(x) else str(type(x))

    if is_leaf(a) and is_leaf(b):
        return
    if type(a) is not type(b):
        yield path, shown(a), shown(b), "their Python types differ"
        return
    if isinstance(a, (list, tuple)) and len(a) != len(b):
        kind = type(a).__name__
        yield (path, f"{kind} of length {len(a)}", f"{kind} of length {len(b)}",
               "the lengths do not match")
        return
    children, other = _children(a), _children(b)
    keys, other_keys = [k for k, _ in children], [k for k, _ in other]
    if len(children) != len(other):
        one, two = (f"{type(x)} with {len(c)} child{'ren' if len(c) > 1 else ''}"
                    for x, c in ((a, children), (b, other)))
        only = [k for k in (*keys, *other_keys) if (k in keys) is not (k in other_keys)]
        extra = " ".join(repr(getattr(k, "key", k)) for k in only)
        yield (path, one, two, "the numbers of children do not match"
               + (f", with the symmetric difference of key sets: {{{extra}}}" if only else ""))
        return
    if keys != other_keys:
        names = [[getattr(k, "key", k) for k in ks] for ks in (keys, other_keys)]
        yield (path, f"{type(a)} with pytree metadata {names[0]}",
               f"{type(b)} with pytree metadata {names[1]}",
               "the pytree node metadata does not match")
        return
    for (key, x), (_, y) in zip(children, other, strict=True):
        yield from structure_differences(x, y, leaf, (*path, key))


def _children(x: Any) -> list[tuple[Any, Any]]:
    """Keys and children of the root of a pytree."""
    if x is None or isinstance(x, ArrayType):
        return []
    pairs, _ = tree.flatten_with_path(x, lambda y: y is not x)
    return [(path[0], child) for path, child in pairs if path]
