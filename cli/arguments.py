"""Arguments of a function as given on the command line: expressions, types, specs, meshes."""
from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..ir.diagnostics.errors import ShardtraceError
from ..ir.dtypes import parse_short
from ..ir.meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ..ir.shardings.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from ..ir.support.spelling import close_match, none_such
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..partitioner.cost.hardware import DEFAULT_HARDWARE, hardware_names
from .problems import Problem, failure

_TYPE = re.compile(r"\s*(\w+)\[(.*)\]\s*")
_STEP = re.compile(r"""\[(?:'[^']*'|"[^"]*"|\d+)\]|\.\w+""")
_PART = re.compile(rf"(\w+)((?:{_STEP.pattern})+)")
_KINDS = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


class Given(NamedTuple):
    """Arguments, positional and by name. origin: the name or the words in the file that give them;
    "" where they are not from the file, or from several places of it.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    origin: str = ""


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The options that give a function its arguments."""
    group = sub.add_argument_group("arguments of the function, where the file has none")
    group.add_argument("--args", metavar="EXPRESSION",
                       help="the arguments, an expression in the names of the file")
    group.add_argument("--arg", action="append", default=[], metavar="NAME=TYPE",
                       help="the type of a parameter, or of a part: x=bf16[64@data,512], "
                            "params['w']=f32[64,64], state.step=i32[]")
    group.add_argument("--mesh", metavar="SIZES",
                       help="the mesh of --arg: data=8,model=4 or 'data=8 explicit,model=4'")
    group.add_argument("--jax", action="store_true",
                       help="the file is written for real JAX, which must be installed: what it "
                            "gives to jax.jit is traced by JAX and imported, and not run")
    group.add_argument("--in", dest="specs", action="append", default=[], metavar="NAME=SPEC",
                       help="how a parameter of a traced program (.st) is split: x=P('X', None)")


def add_hardware(sub: argparse.ArgumentParser, what: str) -> None:
    """The option that names a device: the one that is `what`."""
    names = hardware_names()
    sub.add_argument("--hardware", choices=names, metavar="NAME",
                     help=f"the device {what}: {', '.join(names)} (default {DEFAULT_HARDWARE})")


def count(text: str) -> int:
    """A whole number that is not negative, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of things; write 0, 1, 2, ...")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not count(text):
        raise argparse.ArgumentTypeError("it must be 1 at least")
    return int(text)


def amount(text: str) -> float:
    """A finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return value


def parse_mesh(text: str) -> AbstractMesh:
    """`data=8,model=4 explicit` as a mesh."""
    sizes: dict[str, int] = {}
    kinds = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"(\w+)\s*=\s*(\d+)(?:\s+(auto|explicit))?", part)
        if not match or match[1] in sizes or match[2] == "0":
            raise Problem(f"--mesh {text!r}: {part!r} is no axis and its size; write "
                          "data=8,model=4 (or `data=8 explicit`)")
        sizes[match[1]] = int(match[2])
        kinds.append(_KINDS[match[3] or "auto"])
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), tuple(kinds))


def parse_argument_type(text: str, mesh: Mesh | AbstractMesh) -> ShapeDtypeStruct:
    """`bf16[64@data,512@(a,b)]` as a type. Raises ValueError that says what is wrong with it."""
    match = _TYPE.fullmatch(text)
    if not match:
        raise ValueError("write a dtype and dimensions, such as f32[64@data,512]")
    try:
        dtype = parse_short(match[1])
    except (TypeError, ValueError, KeyError) as problem:
        raise ValueError(f"{match[1]!r} is no dtype; write f32, bf16, i32, ...") from problem
    shape, entries = [], []
    for dim in re.findall(r"[^,(]+(?:\([^)]*\))?", match[2]):
        n, _, axes = dim.strip().partition("@")
        if not n.strip().isdigit():
            raise ValueError(f"{dim.strip()!r} is no dimension; write 512 or 512@data")
        shape.append(int(n))
        entries.append(tuple(a.strip() for a in axes.strip("() ").split(",") if a.strip()))
    unknown = [a for e in entries for a in e if a not in mesh.axis_names]
    if unknown:
        there = close_match(unknown[0], mesh.axis_names) or (
            f"the mesh has {', '.join(map(str, mesh.axis_names))}" if mesh.axis_names else
            f"there is no mesh; give --mesh {unknown[0]}=8")
        raise ValueError(f"{unknown[0]!r} is no mesh axis: {there}")
    sharding = NamedSharding(mesh, PartitionSpec(*entries)) if mesh.axis_names else None
    try:
        struct = ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)
        if sharding is not None:
            sharding.shard_shape(tuple(shape))
        return struct
    except (ValueError, ShardtraceError) as problem:
        raise ValueError(str(problem).split("\n")[0]) from problem


def mesh_for(options: argparse.Namespace, namespace: dict[str, Any]) -> Mesh | AbstractMesh:
    """The mesh of `--mesh`, else the one that the file defines, else none."""
    if options.mesh:
        return parse_mesh(options.mesh)
    meshes = module_meshes(namespace)
    return meshes[0] if meshes else empty_abstract_mesh


def module_meshes(namespace: dict[str, Any]) -> list[Mesh | AbstractMesh]:
    """The meshes that a file defines at its top, the one called `mesh` first."""
    named = [(k.lower() != "mesh", i, v) for i, (k, v) in enumerate(namespace.items())
             if isinstance(v, Mesh | AbstractMesh) and v.axis_names]
    return [v for *_, v in sorted(named, key=lambda item: item[:2])]


def given_arguments(fun: Callable[..., Any], namespace: dict[str, Any],
                    options: argparse.Namespace) -> Given | None:
    """The arguments that the options give, positional and by name; None where they give none."""
    if options.args:
        try:
            found = eval(options.args, namespace)
        except Exception as error:
            raise failure(error, f"--args {options.args!r}") from error
        return Given(found if isinstance(found, tuple) else (found,), {})
    if not options.arg:
        return None
    mesh = mesh_for(options, namespace)
    named: dict[str, Any] = {}
    signature = inspect.signature(fun)
    for text in options.arg:
        name, equals, type_text = text.rpartition("=")
        name = name.strip()
        if not equals:
            raise Problem(f"--arg {text!r}: write NAME=TYPE, such as x=f32[64@data,512]")
        takes_more = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        part = _PART.fullmatch(name)
        whole = part[1] if part else name
        if whole not in signature.parameters and not takes_more:
            raise Problem(f"--arg {text!r}: {none_such(whole, signature.parameters, 'parameter')}")
        try:
            value = parse_argument_type(type_text, mesh)
        except ValueError as problem:
            raise Problem(f"--arg {text!r}: {problem}") from problem
        steps = [ast.literal_eval(s[1:-1]) if s[0] == "[" else s
                 for s in _STEP.findall(part[2])] if part else []
        _set(named, [whole, *steps], value, text)
    try:
        named = {name: _built(value, name, fun, namespace) for name, value in named.items()}
        bound = signature.bind(**named)
    except TypeError as problem:
        raise Problem(f"{problem}; give --arg {_first_missing(signature, named)}=f32[...] too"
                      ) from problem
    return Given(bound.args, bound.kwargs)


def _set(tree: dict[Any, Any], path: Sequence[Any], value: Any, text: str) -> None:
    """Put a type at a path of a tree of dictionaries."""
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            raise Problem(f"--arg {text!r}: a type was given for the whole of it already")
    if path[-1] in tree:
        raise Problem(f"--arg {text!r}: it was given already")
    tree[path[-1]] = value


def _built(value: Any, name: str, fun: Callable[..., Any], namespace: dict[str, Any]) -> Any:
    """The containers of a tree of parts: dicts of names, tuples of numbers, records of fields."""
    if not isinstance(value, dict):
        return value
    parts = {key: _built(part, str(key), fun, namespace) for key, part in value.items()}
    if all(isinstance(key, int) for key in parts):
        if sorted(parts) != list(range(len(parts))):
            raise Problem(f"--arg: `{name}` has parts {sorted(parts)}, and some before are missing")
        return tuple(parts[i] for i in range(len(parts)))
    fields = [key[1:] for key in parts if isinstance(key, str) and key[:1] == "."]
    if len(fields) < len(parts):
        return parts
    made = _record(name, fields, fun, namespace)
    return made(**{key[1:]: part for key, part in parts.items()})


def _record(name: str, fields: Sequence[str], fun: Callable[..., Any], namespace: dict[str, Any]
            ) -> Any:
    """The class of a parameter by its annotation, else one of the file that has these fields."""
    note = getattr(inspect.unwrap(fun), "__annotations__", {}).get(name)
    classes = [namespace.get(note) if isinstance(note, str) else note, *namespace.values()]
    for found in classes:
        known = getattr(found, "_fields", None) or getattr(found, "__dataclass_fields__", ())
        if isinstance(found, type) and set(fields) == set(known):
            return found
    raise Problem(f"--arg: no class of the file has the fields {', '.join(fields)}; give the "
                  "arguments with --args")


def _first_missing(signature: inspect.Signature, named: dict[str, Any]) -> str:
    return next((p.name for p in signature.parameters.values()
                 if p.name not in named and p.default is p.empty), "NAME")


def specs_of(names: Sequence[str], given: Sequence[str]) -> list[PartitionSpec | None]:
    """`x=P('X', None)` for each parameter that was named."""
    specs: list[PartitionSpec | None] = [None] * len(names)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            hint = f"; {none_such(name, names, 'parameter')}" if equals else ""
            raise Problem(f"--in {text!r}: write NAME=P(...), NAME one of {', '.join(names)}{hint}")
        specs[names.index(name)] = parse_spec(value, f"--in {text!r}")
    return specs


def parse_spec(text: str, where: str) -> PartitionSpec:
    """`P('X', None)` as a spec. where: the option that the error names if it is not one."""
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                and call.func.id == "P" and not call.keywords):
            raise ValueError
        return PartitionSpec(*(ast.literal_eval(a) for a in call.args))
    except (SyntaxError, ValueError, TypeError) as problem:
        raise Problem(f"{where}: {text!r} is no spec; write P('X', None)") from problem
