"""Draws the programs of the fuzzer: each statement is tried while the program is being traced.

The shapes, dtypes and types that the tracers then have say what can be written next, in bodies of
loops, derivatives and shard_map, too. A statement that is refused is left out, and counted.
"""
from __future__ import annotations

import ast
import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardtrace.ir.inference.infer import infer
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.types import array_type

from ..paths import GOLDEN
from .bodies import BODIES
from .statements import ARRAYS, ENOUGH, MANUAL
from .text import Arg, Body, Case, Statement, samples_of, spec_text, with_names

KINDS = ("arrays", "ops", "surface", "loops", "derivatives", "batches", "shard_map",
         "partly manual", "mixed")
MESHES = ((2,), (4,), (3,), (2, 2), (2, 3), (3, 2), (2, 4), (1, 3), (2, 2, 2), (2, 1, 2))
DTYPES = ["float32"] * 11 + ["int32"] * 3 + ["bool", "bfloat16", "bfloat16", "float16", "complex64",
                                             "uint8"]
DIMS = (1, 2, 3, 4, 4, 5, 6, 6, 8, 8, 12)
SURFACE = GOLDEN / "surface.txt"
LONGEST = 20                                 # statements that are tried for one that is written


class Scope:
    """Where statements are written: the values that they can use, by name."""

    def __init__(self, writer: Writer, values: dict[str, Any], outer: dict[str, Any], depth: int,
                 manual: Sequence[str]) -> None:
        self.writer, self.values, self.depth, self.manual = writer, values, depth, list(manual)
        self.outer, self.rng = outer, writer.rng
        self.functions: dict[str, Any] = {}
        self.bodies: list[Body] = []

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def choice(self, of: Sequence[Any]) -> Any:
        return self.rng.choice(of)

    def pick(self, condition: Callable[[Any], bool] = lambda v: True) -> Any:
        """The name of a value, a late one more often than an early one; None if none will do."""
        found = [n for n, v in self.values.items() if condition(v)]
        return found[-1 - int(self.rng.random() ** 1.5 * len(found))] if found else None

    def dim(self, name: str) -> int:
        return self.rng.randrange(self.values[name].ndim)

    def newest(self, condition: Callable[[Any], bool] = lambda v: True) -> str:
        found = [n for n, v in self.values.items() if condition(v)][-3:]
        return self.choice(found or list(self.values))

    def some_results(self) -> str:
        return ", ".join(dict.fromkeys([self.newest(), self.newest()]))

    def alike(self, name: str) -> str:
        """Something of the same type as this value, itself if there is nothing else."""
        wanted = str(self.values[name].aval)
        found = [n for n, v in self.values.items() if str(v.aval) == wanted and n != name]
        if found and self.chance(0.8):
            return self.choice(found)
        other = self.newest(lambda v: v.dtype != bool)
        if self.values[name].dtype == bool or self.values[other].dtype == bool:
            return name
        return f"{name} + jnp.sum({other}).astype({name}.dtype)"

    def varying(self, name: str) -> frozenset[str]:
        return self.values[name].aval.vma

    def axes_of(self, kind: str) -> list[str]:
        w = self.writer
        return [a for a, k in zip(w.axes, w.axis_types, strict=True)
                if k == kind and a not in self.manual]

    def open_axes(self) -> list[str]:
        return [a for a in self.writer.axes if a not in self.manual]

    def some_axes(self, in_order: bool = False) -> tuple[str, int]:
        """A name of some manual axes, as text, and how many devices they have.

        in_order: that of the mesh.
        """
        axes = self.rng.sample(self.manual, self.rng.randint(1, len(self.manual)))
        if in_order:
            axes.sort(key=self.writer.axes.index)
        n = math.prod(self.writer.size_of[a] for a in axes)
        return repr(axes[0] if len(axes) == 1 else tuple(axes)), n

    def spec(self, shape: tuple[int, ...], kind: str = "", axes: Sequence[str] | None = None,
             uneven: bool = False) -> str | None:
        found = self.writer.entries(shape, self.axes_of(kind) if axes is None else axes, uneven)
        return spec_text(found) if any(found) else None

    spec_text = staticmethod(spec_text)

    def evaluate(self, text: str) -> Any:
        return eval(text, {**self.writer.globals, **self.outer, **self.values, **self.functions})

    def body(self, params: int, finish: Callable[[Scope, list[str]], str], known: int | None = None,
             manual: Sequence[str] = ()) -> str:
        """The name of a new function, which is written when it is first called.

        finish: what it returns. known: how many of its parameters are arrays.
        """
        writer = self.writer
        body = Body(writer.name("f"), [writer.name() for _ in range(params)])
        outer = {**self.outer, **self.values}
        replay: list[Any] = []

        def function(*xs: Any) -> Any:
            if replay:
                return replay[0](*xs)
            held = dict(zip(body.params, xs, strict=True))
            arrays = {n: x for n, x in held.items() if hasattr(x, "aval")}
            if self.chance(0.25):
                arrays = {**dict(list(self.values.items())[-2:]), **arrays}
            inner = Scope(writer, arrays, {**outer, **held}, self.depth + 1,
                          [*self.manual, *manual])
            writer.write(inner, body, self.rng.randint(1, 3))
            body.result = finish(inner, body.params)
            out = inner.evaluate(body.result)
            space = {**writer.globals, **outer}
            exec("\n".join(body.lines()), space)
            replay.append(space[body.name])
            return out

        self.functions[body.name] = function
        self.bodies.append(body)
        return body.name


class Writer:
    """Writes one program."""

    def __init__(self, rng: random.Random, kind: str, sizes: Sequence[int],
                 axis_types: Sequence[str], names: dict[str, Any]) -> None:
        self.rng, self.kind, self.axis_types = rng, kind, axis_types
        self.axes = ("x", "y", "z")[:len(sizes)]
        self.size_of = dict(zip(self.axes, sizes, strict=True))
        self.globals = names
        self.count = 0
        self.waiting: list[tuple[str, str]] = []         # texts that were drawn beforehand
        self.refused: list[tuple[Exception, str, Body]] = []

    def name(self, prefix: str = "") -> str:
        self.count += 1
        return f"{prefix or 'v'}{self.count}"

    def entries(self, shape: Sequence[int], axes: Sequence[str], uneven: bool = False,
                ) -> tuple[tuple[str, ...], ...]:
        """Some of the axes over dimensions that they divide; uneven: or have rows enough for."""
        out: list[tuple[str, ...]] = [()] * len(shape)
        left = list(shape)
        for a in self.rng.sample(list(axes), len(axes)):
            size = self.size_of[a]
            dims = [d for d, n in enumerate(left) if n % size == 0 or (uneven and n >= size)]
            if dims and self.rng.random() < 0.65:
                d = self.rng.choice(dims)
                left[d] = -(-left[d] // size)
                out[d] = (*out[d], a)
        return tuple(out)

    def write(self, scope: Scope, body: Body, count: int) -> None:
        """Statements into a body."""
        tried = 0
        while len(body.statements) < count and tried < LONGEST:
            tried += 1
            self.statement(scope, body)

    def draw(self, scope: Scope) -> tuple[str, str] | None:
        """The text of a statement, and what it is of."""
        rng, kind = self.rng, self.kind
        if self.waiting and scope.depth == 0:
            return self.waiting.pop()
        wrapped = {"mixed": ["loops", "derivatives", "batches", "calls", "shard_map"],
                   "shard_map": ["shard_map"] * 4 + ["loops", "calls", "derivatives"],
                   "partly manual": ["shard_map"] * 4 + ["loops", "derivatives"],
                   "loops": ["loops"] * 4 + ["calls"],
                   "derivatives": ["derivatives"] * 4 + ["calls"],
                   "batches": ["batches"]}.get(kind)
        deeper, often = (3, 0.4) if kind == "mixed" else (2, 0.2)
        if wrapped and scope.depth < deeper and rng.random() < (often if scope.depth else 0.55):
            text = rng.choice(BODIES[rng.choice(wrapped)])(scope)
            return text and (text, "body")
        if scope.manual and rng.random() < 0.4:
            return (weighted(rng, MANUAL)(scope) or "", "exchange")
        return (weighted(rng, ARRAYS)(scope) or "", "array")

    def statement(self, scope: Scope, body: Body) -> None:
        scope.functions, scope.bodies = {}, []
        text = ""
        try:
            drawn = self.draw(scope)
            text, kind = drawn or ("", "")
            if not text:
                return
            try:
                value = scope.evaluate(text)
            except Exception as error:
                # Explicit axes want to be told: as a user would, gather the operands first.
                if type(error).__name__ != "ShardingTypeError" or scope.bodies:
                    raise
                self.refused.append((error, text, scope_body(body, [])))
                text = with_names(text, lambda n: f"whole({n})" if n in scope.values else None)
                value = scope.evaluate(text)
        except RecursionError:
            raise
        except Exception as error:
            self.refused.append((error, text, scope_body(body, scope.bodies)))
            return
        if isinstance(value, (tuple, list)):
            if len(value) < 2 or not all(hasattr(v, "aval") for v in value):
                value = self.globals["jax"].tree.leaves(value)
                text = f"jax.tree.leaves({text})"
        else:
            value = [value]
        if not value or len(value) > 4 or not all(
                hasattr(v, "aval") and v.size <= ENOUGH for v in value):
            return
        names = [self.name() for _ in value]
        for n, v in zip(names, value, strict=True):
            if v.dtype.kind in "fciub" or v.dtype == "bfloat16":
                scope.values[n] = v
            else:
                scope.outer[n] = v
        body.statements.append(Statement(
            names, text, scope.bodies, [(v.shape, str(v.dtype)) for v in value], kind))


def scope_body(body: Body, bodies: Sequence[Body]) -> Body:
    """What has been written so far, for a report."""
    new = body.copy()
    if bodies:
        new.statements.append(Statement(["none"], "None", [b.copy() for b in bodies], [], "body"))
    return new


def weighted(rng: random.Random, of: Sequence[tuple[int, Any]]) -> Any:
    return rng.choices([f for _, f in of], [w for w, _ in of])[0]


# -- arguments, and what is drawn with them -----------------------------------------------------

def some_args(rng: random.Random, writer: Writer) -> list[Arg]:
    args: list[Arg] = []
    for _ in range(rng.randint(2, 4)):
        rank = rng.choice([0, 1, 1, 2, 2, 2, 2, 3])
        shape: tuple[int, ...] = tuple(rng.choice(DIMS) for _ in range(rank))
        if args and rng.random() < 0.5:
            other = rng.choice(args).shape
            shape = rng.choice([other, other[::-1], other[1:], (*shape[:1], *other[-1:])])
        while math.prod(shape) > 150:
            shape = shape[1:]
        seed = rng.randrange(1000)
        how = rng.choice([seed] * 6 + [("normal", seed), ("special", seed)])
        args.append(Arg(writer.name(), rng.choice(DTYPES), shape,
                        writer.entries(shape, writer.axes), how))
    return args


OPS_WITH_SAMPLES = sorted(n for n in OPS if samples_of(n) and not n.startswith(("random_", "rng_")))
SIZES = (1, 2, 3, 4, 5, 6, 8)


@functools.cache
def resized(op_name: str, i: int, sizes: tuple[int, ...]
            ) -> tuple[tuple[tuple[int, ...], ...], dict[str, Any]] | None:
    """The shapes of a sample's operands, and its params, with its factors of these sizes."""
    op, found = OPS[op_name], samples_of(op_name)[i]
    xs, params = [np.asarray(x) for x in found.operands], dict(found.params)
    types = tuple(array_type(x.shape, x.dtype) for x in xs)
    results = tuple(t.shape for t in infer(op, types, params))
    rule = op.factor_rule(tuple(t.shape for t in types), results, params)
    wanted = [sizes[f] if f < len(sizes) and sizes[f] else factor.size
              for f, factor in enumerate(rule.factors)]

    def cut(shapes: Any, dims: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(wanted[d[0]] if len(d) == 1 and n == rule.factors[d[0]].size else n
                           for n, d in zip(s, ds, strict=True))
                     for s, ds in zip(shapes, dims, strict=True))

    given = cut([t.shape for t in types], rule.operands)
    if not any(sizes):
        return given, params
    try:
        local = params if op.resize is None else op.resize(params, given, cut(results,
                                                                              rule.results))
        infer(op, tuple(array_type(s, x.dtype) for s, x in zip(given, xs, strict=True)), local)
    except (TypeError, ValueError, NotImplementedError, IndexError):
        return None
    return given, dict(local)


def sample(op_name: str, i: int, sizes: tuple[int, ...] = ()) -> Any:
    """The op with the params of one of its samples, made for other sizes."""
    found = resized(op_name, i, sizes)
    assert found is not None
    return functools.partial(OPS[op_name].bind, **found[1])


def op_args(rng: random.Random, writer: Writer, name: str) -> list[Arg]:
    """Arguments for a sample of this op; the text that uses them waits to be written."""
    i = rng.randrange(len(samples_of(name)))
    sizes = tuple(rng.choice([0, 0, *SIZES]) for _ in range(4)) if rng.random() < 0.7 else ()
    if sizes and resized(name, i, sizes) is None:
        sizes = ()
    found = resized(name, i, sizes)
    assert found is not None
    xs = [np.asarray(x) for x in samples_of(name)[i].operands]
    args = [Arg(writer.name(), str(x.dtype), s, writer.entries(s, writer.axes),
                ("sample", name, i, j)) for j, (x, s) in enumerate(zip(xs, found[0], strict=True))]
    op, names = f"sample('{name}', {i}, {sizes})", ", ".join(a.name for a in args)
    floats = tuple(j for j, x in enumerate(xs) if x.dtype.kind == "f")
    texts = [f"{op}({names})"] * 4
    if names:
        stacks = ", ".join(f"jnp.stack([{a.name}] * 2)" for a in args)
        texts += [f"jax.vmap({op})({stacks})",
                  f"lax.scan(lambda c, v: (c, {op}(*v)), 0, ({stacks},))[1]"]
    if floats and samples_of(name)[i].grad:
        texts.append(f"jax.grad(lambda *v: total({op}(*v)), argnums={floats})({names})")
    writer.waiting.append((rng.choice(texts), f"op {name}"))
    return args


@functools.cache
def surface_lines() -> list[tuple[str, list[str]]]:
    """The expressions over the public functions, with the operands that each is about."""
    out = []
    for line in SURFACE.read_text().splitlines():
        text, types = [*line.split("\t"), ""][:2]
        if types.startswith("!") or "key_data" in text:
            continue
        try:
            used = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
        except SyntaxError:
            continue
        operands = sorted(used & set(OPERANDS))
        if operands:
            out.append((text, operands))
    return out


OPERANDS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "f": ("float32", ("n", "n")), "g": ("float32", ("n", "n")), "i": ("int32", ("n", "n")),
    "j": ("int32", ("n", "n")), "b": ("bool", ("n", "n")), "c": ("complex64", ("n", "n")),
    "u": ("uint8", ("n", "n")), "h": ("bfloat16", ("n", "n")), "t": ("float32", (2, "n", "n")),
    "v": ("float32", ("n",)), "vi": ("int32", ("n",)), "s": ("float32", ()), "k": ("int32", ()),
    "p": ("float32", (3, "n", "n")), "q": ("float32", (1, "n", "n")),
    "r": ("float32", (2, 3, "n", "n")), "ng": ("float32", (2, 3))}


def surface_args(rng: random.Random, writer: Writer) -> list[Arg]:
    n = rng.choice([4, 4, 4, 6, 8])
    used: dict[str, None] = {}
    for _ in range(rng.randint(1, 4)):
        text, operands = rng.choice(surface_lines())
        writer.waiting.append((text, "surface"))
        used.update(dict.fromkeys(operands))
    args = []
    for name in used:
        dtype, dims = OPERANDS[name]
        shape = tuple(n if d == "n" else int(d) for d in dims)
        seed = rng.randrange(1000)
        how: Any = ("below", seed, n) if name in ("vi", "k") else ("special", seed) if (
            name == "ng") else rng.choice([seed, ("normal", seed)])
        args.append(Arg(name, dtype, shape, writer.entries(shape, writer.axes), how))
    return args


def mesh_of(rng: random.Random) -> tuple[tuple[int, ...], tuple[str, ...]]:
    sizes = rng.choice(MESHES)
    kinds = rng.choice(["Auto"] * 5 + ["Explicit"] * 3 + ["mixed"] * 3)
    return sizes, tuple(rng.choice(["Auto", "Explicit"]) if kinds == "mixed" else kinds
                        for _ in sizes)


class Refused(NamedTuple):
    """What was not written, and why. whole: the case is a program, else a part of one."""
    error: Exception
    case: Case
    whole: bool


def make(seed: int, kind: str, names: dict[str, Any], trace: Callable[[Case, Any], Any],
         op: str = "") -> tuple[Case, list[Refused]]:
    """The program of a seed, and what was refused while it was written.

    names: what programs use (jax, jnp, lax, ...). trace(case, function): traces a function of the
    case's arguments on its mesh. op: for programs of ops, the one whose sample is taken.
    """
    rng = random.Random(f"{seed} {kind}")
    sizes, axis_types = mesh_of(rng)
    writer = Writer(rng, kind, sizes, axis_types, names)
    if kind == "ops":
        args = op_args(rng, writer, op or rng.choice(OPS_WITH_SAMPLES))
    elif kind == "surface":
        args = surface_args(rng, writer)
    else:
        args = some_args(rng, writer)
    if not args:
        args = [Arg(writer.name(), "float32", (4, 6), writer.entries((4, 6), writer.axes), seed)]
    body = Body("f", [a.name for a in args])
    case = Case(seed, kind, sizes, axis_types, tuple(args), body)
    count = len(writer.waiting) + rng.randint(0 if writer.waiting else 2, 4)

    def written(*xs: Any) -> Any:
        scope = Scope(writer, dict(zip(body.params, xs, strict=True)), {}, 0, ())
        writer.write(scope, body, count)
        return xs[0]

    trace(case, written)
    outs = [n for s in body.statements for n, (_, d) in zip(s.outs, s.types, strict=True)
            if not d.startswith("key")]
    body.result = "(" + "".join(f"{n}, " for n in (outs or body.params)[-5:]) + ")"
    refused = []
    for error, text, before in writer.refused:
        before.statements.append(Statement(["out"], text, [], [((), "")], "refused"))
        before.result = "(out,)"
        refused.append(Refused(error, case._replace(body=before), before.name == body.name))
    return case, refused

