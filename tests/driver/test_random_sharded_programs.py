"""Random numpy programs: whatever the mesh, the specs and the axis types, the values are numpy's.

A program is a list of steps over a pool of values. It runs once with numpy and once, traced and
partitioned, with shardtrace.numpy; where an Explicit axis makes a step ambiguous, its operands are
gathered over the Explicit axes, as a user would do it.
"""
from __future__ import annotations

import random
import warnings
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import shardtrace
import shardtrace.numpy as jnp
from shardtrace import lax, runtime
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

MESHES = ((8,), (2, 4), (2, 2, 2), (2, 3), (4, 2))
SHAPES = ((8, 8), (24, 8), (16,), (4, 6, 8), (12, 24), (24,), (8, 1), (5, 8))


class Step(NamedTuple):
    """One step: a function of numpy by name, the places of its operands, and its arguments."""
    name: str
    operands: tuple[int, ...]
    rest: tuple[Any, ...] = ()


def random_steps(rng: random.Random, shapes: list[tuple[int, ...]]) -> list[Step]:
    """Steps over values of these shapes; the shapes of their results are appended."""
    steps = []
    for _ in range(rng.randint(2, 9)):
        step = random_step(rng, shapes)
        out = apply(np, step, [np.zeros(s, np.float32) for s in shapes])
        if out.size <= 5000:
            steps.append(step)
            shapes.append(out.shape)
    return steps


def random_step(rng: random.Random, shapes: list[tuple[int, ...]]) -> Step:
    i = rng.randrange(len(shapes))
    shape = shapes[i]
    alike = [k for k, s in enumerate(shapes) if s == shape]
    if 0 in shape or not shape:
        return Step(rng.choice(["tanh", "square"]), (i,))
    d = rng.randrange(len(shape))
    n = shape[d]
    products = [k for k, s in enumerate(shapes) if len(shape) == len(s) == 2 and shape[1] == s[0]]
    start = rng.randrange(n)
    choices = [
        Step("tanh", (i,)), Step("add", (i, rng.choice(alike))),
        Step("multiply", (i, rng.choice(alike))),
        Step("where", (i, rng.choice(alike))), Step("sum", (i,), (d,)), Step("max", (i,), (d,)),
        Step("mean", (i,), (d,)), Step("argmax", (i,), (d,)), Step("cumsum", (i,), (d,)),
        Step("sort", (i,), (d,)), Step("argsort", (i,), (d,)), Step("flip", (i,), (d,)),
        Step("roll", (i,), (rng.choice([-3, -1, 1, 2, 5]), d)),
        Step("pad", (i,), (d, rng.choice([(1, 1), (0, 2), (3, 0)]))),
        Step("slice", (i,), (d, start, rng.randint(start + 1, n), rng.choice([1, 1, 2]))),
        Step("reverse", (i,), (d,)), Step("take", (i,), (d, tuple(rng.choices(range(n), k=4)))),
        Step("concatenate", (i, rng.choice(alike)), (d,)), Step("diff", (i,), (d,)),
        Step("repeat", (i,), (2, d)), Step("tile", (i,), (2,)), Step("ravel", (i,)),
        Step("transpose", (i,), (tuple(rng.sample(range(len(shape)), len(shape))),)),
        Step("softmax", (i,), (d,)), Step("set", (i,), (d, start)), Step("scan", (i,)),
        Step("split", (i,), (d,)), Step("stack", (i, rng.choice(alike)), (d,)),
    ]
    size = int(np.prod(shape))
    choices += [Step("reshape", (i,), ((k, size // k),)) for k in (2, 3, 4, 8) if size % k == 0]
    if len(shape) >= 2:
        choices += [Step("tril", (i,)), Step("swapaxes", (i,), (-1, -2)),
                    Step("gram", (i,), (rng.choice(["...ab,...ac->...bc", "...ab,...cb->...ac"]),))]
    choices += [Step("matmul", (i, k)) for k in products] * 3
    return rng.choice(choices)


def apply(lib: Any, step: Step, values: list[Any]) -> Any:
    """The result of a step in numpy, or in shardtrace.numpy."""
    name, rest = step.name, step.rest
    xs = [values[k] for k in step.operands]
    x = xs[0]
    if name == "where":
        return lib.where(x > xs[1], x, xs[1] * 2)
    if name in ("argmax", "argsort"):
        return (getattr(lib, name)(x, rest[0]) if name == "argmax" or lib is jnp else
                np.argsort(x, rest[0], kind="stable")).astype(np.float32)
    if name == "pad":
        return lib.pad(x, [rest[1] if k == rest[0] else (0, 0) for k in range(x.ndim)])
    if name in ("slice", "reverse"):
        index = slice(*rest[1:]) if name == "slice" else slice(None, None, -1)
        return x[(slice(None),) * rest[0] + (index,)]
    if name == "take":
        return lib.take(x, np.array(rest[1]), axis=rest[0])
    if name in ("diff", "softmax"):
        if name == "diff":
            return lib.diff(x, axis=rest[0])
        shifted = lib.exp(x - lib.max(x, rest[0], keepdims=True))
        return shifted / lib.sum(shifted, rest[0], keepdims=True)
    if name in ("concatenate", "stack"):
        return getattr(lib, name)(xs, axis=rest[0])
    if name == "split":
        half = x.shape[rest[0]] // 2
        parts = lib.split(x, [half], axis=rest[0])
        return parts[-1]
    if name == "gram":
        return lib.einsum(rest[0], x, x) / x.size
    if name == "matmul":
        return lib.matmul(*xs) / x.shape[-1]
    if name == "cumsum":
        return lib.cumsum(x, axis=rest[0]) / x.shape[rest[0]]
    if name == "set":
        index = (slice(None),) * rest[0] + (slice(rest[1], rest[1] + 2),)
        if lib is jnp:
            return x.at[index].set(1.5)
        x = x.copy()
        x[index] = 1.5
        return x
    if name == "scan":
        if lib is jnp:
            mean = x.sum() / x.size
            return lax.scan(lambda c, _: (jnp.tanh(c) + mean, None), x, None, length=3)[0]
        out = x
        for _ in range(3):
            out = np.tanh(out) + x.sum() / x.size
        return out
    return getattr(lib, name)(*xs, *rest)


def gathered(x: Any) -> Any:
    """The value, whole over the Explicit axes."""
    return reshard(x, P()) if x.aval.sharding.mesh.explicit_axes else x


def run(steps: list[Step], values: list[Any], specs: list[P | None]) -> list[Any]:
    """The values that nobody names, all of them: a list that grows by one with each step."""
    values = list(values)
    for step, spec in zip(steps, specs, strict=True):
        try:
            out = apply(jnp, step, values)
        except (ShardingTypeError, NotImplementedError, ValueError):
            whole = [gathered(v) if k in step.operands else v for k, v in enumerate(values)]
            out = apply(jnp, step, whole)
        if spec is not None:
            out = lax.with_sharding_constraint(out, spec)
        values.append(out)
    return values


def random_spec(rng: random.Random, shape: tuple[int, ...], mesh: Any, kind: AxisType | None = None
                ) -> P:
    """A spec that divides the shape; only of axes of a kind, where one is given."""
    entries: list[tuple[str, ...]] = [()] * len(shape)
    left = list(shape)
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    for a in rng.sample(mesh.axis_names, len(mesh.axis_names)):
        if not shape or rng.random() < 0.4 or kind not in (None, kinds[a]):
            continue
        d = rng.randrange(len(shape))
        if left[d] % mesh.shape[a] == 0:
            left[d] //= mesh.shape[a]
            entries[d] = (*entries[d], a)
    return P(*entries)


def example(seed: int) -> tuple:
    """A mesh, the global arguments and their specs, the steps and constraints on their results."""
    rng = random.Random(seed)
    sizes = rng.choice(MESHES)
    names = ("x", "y", "z")[:len(sizes)]
    kinds = tuple(rng.choice([AxisType.Auto, AxisType.Explicit]) for _ in sizes)
    if rng.random() < 0.4:
        kinds = (AxisType.Auto,) * len(sizes)
    mesh = shardtrace.make_mesh(sizes, names, axis_types=kinds,
                                devices=shardtrace.devices()[:int(np.prod(sizes))])
    shapes = [rng.choice(SHAPES) for _ in range(rng.randint(1, 3))]
    numbers = np.random.default_rng(seed)
    args = [numbers.standard_normal(s).astype(np.float32) for s in shapes]
    specs = [random_spec(rng, s, mesh) for s in shapes]
    steps = random_steps(rng, shapes)
    wanted = [random_spec(rng, s, mesh, AxisType.Auto) if rng.random() < 0.2 else None
              for s in shapes[len(args):]]
    wanted = [None if w is None or not w.axes() else w for w in wanted]
    return mesh, args, specs, steps, wanted


def check(seed: int) -> None:
    mesh, args, specs, steps, wanted = example(seed)
    want = list(args)
    for step in steps:
        want.append(apply(np, step, want))
    with shardtrace.set_mesh(mesh), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = [shardtrace.device_put(a, NamedSharding(mesh, s))
                 for a, s in zip(args, specs, strict=True)]
        f = shardtrace.jit(lambda *values: run(steps, list(values), wanted)[len(args):])
        got = f(*given)
        with shardtrace.config.override(shardtrace_engine="per_device"):
            alone = f(*given)
        for name, a, b, w in zip(steps, got, alone, want[len(args):], strict=True):
            assert a.sharding.is_equivalent_to(b.sharding, a.ndim)
            for which, x in (("simulated", a), ("per device", b)):
                np.testing.assert_allclose(np.asarray(x), w, rtol=2e-4, atol=2e-4,
                                           err_msg=f"{which}: {name} of seed {seed}")
        compiled = f.lower(*given).compile()
        for told, seen in zip(compiled.collectives(), runtime.measure(compiled, *given),
                              strict=True):
            assert (told.kind, told.total) == (seen.kind, seen.busiest)


@settings(max_examples=max(40, settings().max_examples))
@given(st.integers(0, 10 ** 6))
def test_values_are_those_of_numpy(seed):
    check(seed)


BY_ROW = ("tanh", "add", "multiply", "where", "sum", "max", "mean", "argmax", "cumsum", "sort",
          "argsort", "flip", "roll", "pad", "slice", "reverse", "take", "concatenate", "diff",
          "repeat", "softmax", "set", "stack")


@settings(max_examples=max(40, settings().max_examples))
@given(st.integers(0, 10 ** 6))
def test_work_on_each_row_needs_no_exchange(seed):
    rng = random.Random(seed)
    sizes = rng.choice(MESHES)
    names = ("x", "y", "z")[:len(sizes)]
    kind = rng.choice([AxisType.Auto, AxisType.Explicit])
    mesh = shardtrace.make_mesh(sizes, names, axis_types=(kind,) * len(sizes),
                                devices=shardtrace.devices()[:int(np.prod(sizes))])
    spec = P(tuple(rng.sample(names, rng.randint(1, len(names)))))
    shapes: list[tuple[int, ...]] = [(24, 6), (24, 4, 3), (24, 6)]
    want = [np.random.default_rng(seed).standard_normal(s).astype(np.float32) for s in shapes]
    steps = []
    while len(steps) < 6:
        step = random_step(rng, shapes)
        # within a row: a dimension is named, and it is not the first
        elementwise = step.name in ("tanh", "add", "multiply", "where")
        if step.name not in BY_ROW or not elementwise and 0 in (
                step.rest[-1:] if step.name in ("roll", "repeat") else step.rest[:1]):
            continue
        steps.append(step)
        want.append(apply(np, step, want))
        shapes.append(want[-1].shape)
    with shardtrace.set_mesh(mesh):
        given = [shardtrace.device_put(a, NamedSharding(mesh, spec)) for a in want[:3]]
        f = shardtrace.jit(lambda *values: run(steps, list(values), [None] * len(steps))[3:])
        assert f.lower(*given).compile().collectives() == [], seed
        for got, expected in zip(f(*given), want[3:], strict=True):
            np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-4, atol=2e-4)
