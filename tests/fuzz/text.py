"""Programs of the fuzzer as text: statements over jnp, lax and jax that both libraries run.

A `Case` is a mesh, arguments with their specs, and a `Body` of statements; statements such as
loops hold bodies in turn. `Case.text()` is the whole program, to be read and run again.
"""
from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from shardtrace.ir.op import Sample
from shardtrace.ir.ops.dialect import OPS

PRELUDE = '''\
def whole(x):
    return jax.sharding.reshard(x, P())

def total(tree):
    return sum(jnp.sum(x) for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating))

def with_vjp(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda *xs: (f(*xs), xs), lambda xs, ct: jax.vjp(f, *xs)[1](ct))
    return g

def with_jvp(f):
    g = jax.custom_jvp(f)
    g.defjvp(lambda xs, ts: jax.jvp(f, xs, ts))
    return g
'''
_WORD = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")


class Arg(NamedTuple):
    """One argument: `how` its elements are made, see `elements`."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    entries: tuple[tuple[str, ...], ...]
    how: Any


class Body:
    """A function: its name, parameters, statements, and the expression that it returns."""

    def __init__(self, name: str, params: Sequence[str]) -> None:
        self.name, self.params = name, list(params)
        self.statements: list[Statement] = []
        self.result = ""

    def lines(self, depth: int = 0) -> list[str]:
        pad = "    " * (depth + 1)
        inner = [line for s in self.statements for line in s.lines(depth + 1)]
        return [f"{pad[4:]}def {self.name}({', '.join(self.params)}):", *inner,
                f"{pad}return {self.result}"]

    def copy(self) -> Body:
        new = Body(self.name, self.params)
        new.statements, new.result = [s.copy() for s in self.statements], self.result
        return new

    def all(self) -> Iterator[Body]:
        """This body and those in it."""
        yield self
        for s in self.statements:
            for body in s.bodies:
                yield from body.all()


class Statement:
    """`outs = text`, after the functions that the text uses. types: shapes and dtypes of outs."""

    def __init__(self, outs: Sequence[str], text: str, bodies: Sequence[Body],
                 types: Sequence[tuple[tuple[int, ...], str]], kind: str) -> None:
        self.outs, self.text, self.bodies = list(outs), text, list(bodies)
        self.types, self.kind = list(types), kind

    def lines(self, depth: int) -> list[str]:
        target = ", ".join(self.outs) + ("," if self.outs and self.text.startswith("jax.tree.")
                                         and len(self.outs) == 1 else "")
        return [*(line for b in self.bodies for line in b.lines(depth)),
                f"{'    ' * depth}{target} = {self.text}"]

    def copy(self) -> Statement:
        return Statement(self.outs, self.text, [b.copy() for b in self.bodies], self.types,
                         self.kind)

    def words(self) -> set[str]:
        """All names in it."""
        found = set(_WORD.findall(self.text))
        for body in self.bodies:
            found |= body_words(body)
        return found

    def renamed(self, old: str, new: str) -> None:
        self.text = with_names(self.text, {old: new}.get)
        for body in self.bodies:
            body.result = with_names(body.result, {old: new}.get)
            for s in body.statements:
                s.renamed(old, new)


def with_names(text: str, instead: Callable[[str], str | None]) -> str:
    """An expression with other expressions for some of the names that it reads."""
    tree = ast.parse(text, mode="eval")
    bound = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            new = None if node.id in bound else instead(node.id)
            return node if new is None else ast.parse(new, mode="eval").body

    return ast.unparse(Names().visit(tree))


def body_words(body: Body) -> set[str]:
    found = set(_WORD.findall(body.result))
    for s in body.statements:
        found |= s.words()
    return found


def pruned(body: Body) -> Body:
    """Without the statements whose results nobody uses."""
    new, kept = body.copy(), []
    needed = set(_WORD.findall(new.result))
    for s in reversed(new.statements):
        if needed.intersection(s.outs):
            for i, inner in enumerate(s.bodies):
                s.bodies[i] = pruned(inner)
            kept.append(s)
            needed |= s.words()
    new.statements = kept[::-1]
    return new


class Case(NamedTuple):
    """A program to be judged. specials: arguments with NaN, infinities and the like."""
    seed: int
    kind: str
    sizes: tuple[int, ...]
    axis_types: tuple[str, ...]
    args: tuple[Arg, ...]
    body: Body

    @property
    def axes(self) -> tuple[str, ...]:
        return ("x", "y", "z")[:len(self.sizes)]

    def source(self) -> str:
        """The functions alone."""
        return PRELUDE + "\n" + "\n".join(self.body.lines()) + "\n"

    def text(self) -> str:
        """All that is needed to see it again."""
        kinds = ", ".join(f"{a}={n} {k}" for a, n, k in
                          zip(self.axes, self.sizes, self.axis_types, strict=True))
        lines = [f"# seed {self.seed}, {self.kind}; mesh {kinds}"]
        for a in self.args:
            lines.append(f"# {a.name}: {a.dtype}{list(a.shape)} over {spec_text(a.entries)}, "
                         f"elements {a.how}")
        used = {w for b in self.body.all() for w in body_words(b)}
        prelude = [d for d in PRELUDE.split("\n\n") if d.split("(")[0].removeprefix("def ") in used]
        return "\n".join([*lines, *prelude, *self.body.lines()])

    def arrays(self) -> list[np.ndarray]:
        return [elements(a) for a in self.args]


def spec_text(entries: Sequence[Sequence[str]]) -> str:
    parts = [repr(e[0]) if len(e) == 1 else repr(tuple(e)) if e else "None" for e in entries]
    return f"P({', '.join(parts)})"


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, 1e15, np.inf, -np.inf, np.nan]


def elements(arg: Arg) -> np.ndarray:
    """The elements of an argument, the same for the same seed everywhere.

    how: a seed, for multiples of 1/8 whose sums are exact; ("normal", seed); ("special", seed);
    ("below", seed, n) for indices; ("sample", op, i, j), the j-th operand of a sample of an op.
    """
    how, shape = arg.how, arg.shape
    dtype = np.dtype(getattr(ml_dtypes, arg.dtype, None) or arg.dtype)
    if isinstance(how, tuple) and how[0] == "sample":
        _, op, i, j = how
        return np.resize(samples_of(op)[i].operands[j], shape).astype(dtype)
    kind, seed, *rest = how if isinstance(how, tuple) else ("eighths", how)
    rng = np.random.default_rng(seed)
    if kind == "below":
        return rng.integers(0, rest[0], shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -6, 9, shape).astype(dtype)
    if kind == "special" and dtype.kind != "c":
        with np.errstate(over="ignore"):
            return rng.choice(SPECIAL, shape).astype(dtype)

    def part() -> np.ndarray:
        return rng.standard_normal(shape) if kind == "normal" else rng.integers(
            -16, 17, shape) / 8
    x = part()
    return (x + 1j * part() if dtype.kind == "c" else x).astype(dtype)


@functools.cache
def samples_of(op: str) -> list[Sample]:
    """What the declaration of the op shows of it."""
    made = OPS[op].samples
    return list(made()) if made else []


# -- what a program is made of ------------------------------------------------------------------

CLASSES: dict[str, tuple[str, ...]] = {
    "arrays alone": (),
    "derivative": ("grad", "value_and_grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev",
                   "hessian"),
    "batch": ("vmap",), "loop": ("scan", "fori_loop", "while_loop", "map", "associative_scan"),
    "branch": ("cond", "switch"), "shard_map": ("shard_map",),
    "checkpoint": ("checkpoint", "remat"), "custom rule": ("with_vjp", "with_jvp"),
    "call": ("jit", "named_call"), "callback": ("pure_callback", "io_callback", "callback"),
    "one in another": ()}


def calls_in(text: str) -> set[str]:
    """What an expression calls, as it is written there."""
    found = set()
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Call):
            f = node.func
            if isinstance(f, ast.Name) and f.id == "sample":
                found.add(ast.unparse(node.args[0]))
            elif isinstance(f, ast.Name):
                found.add(f.id)
            elif isinstance(f, ast.Attribute):
                dotted = re.fullmatch(r"(?:jax|jnp|lax|nn|np)\.[\w.]+", ast.unparse(f))
                found.add(dotted.group() if dotted else f".{f.attr}")
        elif isinstance(node, (ast.BinOp, ast.Compare, ast.UnaryOp)):
            found.add(type(node.op if not isinstance(node, ast.Compare) else node.ops[0]).__name__)
        elif isinstance(node, ast.Subscript):
            found.add("[]")
    return found


def calls_of(case: Case) -> set[str]:
    """What the statements of a program call, but for its own functions."""
    own = {b.name for b in case.body.all()} | {"whole", "total", "tuple", "jax.tree.leaves"}
    texts = [s.text for b in case.body.all() for s in b.statements]
    return set().union(*map(calls_in, texts)) - own if texts else set()


def transformations(case: Case) -> set[str]:
    """The classes of transformations that a program has, of CLASSES."""
    found: set[str] = set()

    def visit(body: Body, inside: bool) -> None:
        for s in body.statements:
            words = {c.rsplit(".", 1)[-1] for c in calls_in(s.text)}
            made = {name for name, of in CLASSES.items() if words & {*of}}
            found.update(made)
            if made and inside or len(made) > 1:
                found.add("one in another")
            for b in s.bodies:
                visit(b, bool(made) or inside)
    visit(case.body, False)
    return found or {"arrays alone"}
