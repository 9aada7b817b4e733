"""What a measured program is, and the names that it is written in.

A program is one function of a *library*: shardtrace or JAX, told apart by name alone, or plain
numpy, which ignores shardings. `Program.plain` is the same computation as one would write it in
numpy by hand, where the function itself cannot run there (gradients, loops, shard_map).
"""
from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

GRID, LINE, CUBE = {"X": 2, "Y": 4}, {"X": 8}, {"X": 2, "Y": 2, "Z": 2}


class Placed(NamedTuple):
    """An argument: its whole value, and the mesh axes (None, a name, names) of each dimension."""
    value: np.ndarray
    spec: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """make(lib) -> the function. arguments(rng) -> the arguments, pytrees of `Placed`.

    mesh: sizes by name. explicit: axis types are Explicit, else Auto. plain: by hand in numpy, on
    the arguments' values; None where `make` can be run with numpy's names. wide: a mesh of 512
    devices on which the same arguments are as well split, if there is one. equal: largest absolute
    difference of results, as a part of the largest absolute value. timed: whether runs count
    towards the means (a program that is all dispatch has a row of its own).
    """
    name: str
    mesh: dict[str, int]
    explicit: bool
    make: Callable[[Any], Callable[..., Any]]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    plain: Callable[..., Any] | None = None
    wide: dict[str, int] | None = None
    equal: float = 2e-5
    timed: bool = True


PROGRAMS: list[Program] = []


def program(name: str, mesh: dict[str, int], explicit: bool,
            arguments: Callable[[np.random.Generator], tuple[Any, ...]],
            **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the program that the decorated `make` gives."""
    def add(make: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(name, mesh, explicit, make, arguments, **options))
        return make
    return add


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """float32, standard normal times `scale`."""
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 weights of a layer: the first dimension but of the last two is a stack of layers."""
    return normal(rng, *shape, scale=1 / math.sqrt(shape[-2]))


def map_tree(f: Callable[[Any], Any], tree: Any) -> Any:
    """`f` on the leaves of tuples, lists and dicts."""
    if isinstance(tree, Placed) or not isinstance(tree, (tuple, list, dict)):
        return f(tree)
    if isinstance(tree, dict):
        return {k: map_tree(f, v) for k, v in tree.items()}
    return type(tree)(map_tree(f, v) for v in tree)


def leaves(tree: Any) -> list[Any]:
    """Leaves, dicts by sorted key (as both libraries flatten them)."""
    if isinstance(tree, dict):
        return [x for k in sorted(tree) for x in leaves(tree[k])]
    if isinstance(tree, (tuple, list)) and not isinstance(tree, Placed):
        return [x for v in tree for x in leaves(v)]
    return [tree]


def plain_value(x: Any) -> np.ndarray:
    """What plain numpy has for an argument or a result: narrow floats in float32."""
    value = x.value if isinstance(x, Placed) else x
    return value.astype(np.float32) if value.dtype.kind in "Vf" and value.itemsize <= 2 else value


class Library:
    """The names that programs use, of shardtrace or of jax, on one mesh."""

    def __init__(self, name: str, mesh: dict[str, int], explicit: bool, abstract: bool = False,
                 ) -> None:
        self.name, self.explicit = name, explicit
        self.root = importlib.import_module(name)
        self.jnp = importlib.import_module(f"{name}.numpy")
        self.lax = importlib.import_module(f"{name}.lax")
        self.nn = importlib.import_module(f"{name}.nn")
        self.random = importlib.import_module(f"{name}.random")
        self.sharding = importlib.import_module(f"{name}.sharding")
        self.P = self.sharding.PartitionSpec
        kind = self.sharding.AxisType.Explicit if explicit else self.sharding.AxisType.Auto
        sizes, names = tuple(mesh.values()), tuple(mesh)
        make = self.sharding.AbstractMesh if abstract else self.root.make_mesh
        self.mesh = make(sizes, names, axis_types=(kind,) * len(sizes))
        self.abstract = abstract

    def context(self) -> Any:
        """Under which programs are traced and run."""
        if self.abstract:
            return self.sharding.use_abstract_mesh(self.mesh)
        return self.root.set_mesh(self.mesh)

    def put(self, x: Placed) -> Any:
        """On the mesh; on an abstract one its type only."""
        sharding = self.sharding.NamedSharding(self.mesh, self.P(*x.spec))
        if self.abstract:
            return self.root.ShapeDtypeStruct(x.value.shape, x.value.dtype, sharding=sharding)
        return self.root.device_put(x.value, sharding)

    def dot(self, a: Any, b: Any, *spec: Any) -> Any:
        """`a @ b`; spec: of the result, which Explicit axes ask for where the sum is split."""
        return self.jnp.dot(a, b, out_sharding=self.P(*spec)) if self.explicit else a @ b

    def einsum(self, text: str, *operands: Any, spec: Sequence[Any]) -> Any:
        """einsum; spec: of the result over Explicit axes."""
        if self.explicit:
            return self.jnp.einsum(text, *operands, out_sharding=self.P(*spec))
        return self.jnp.einsum(text, *operands)

    def reshard(self, x: Any, *spec: Any) -> Any:
        """`x` with another layout."""
        if self.explicit:
            return self.sharding.reshard(x, self.P(*spec))
        return self.lax.with_sharding_constraint(x, self.P(*spec))

    def shard_map(self, f: Any, in_specs: Any, out_specs: Any) -> Any:
        return self.root.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs)


@dataclass
class Numpy:
    """numpy under the names of a library: what is local runs, what moves data does nothing."""
    jnp: Any = np
    nn: Any = field(default_factory=lambda: importlib.import_module(".programs.plain", __package__))

    def dot(self, a: Any, b: Any, *spec: Any) -> Any:
        return a @ b

    def einsum(self, text: str, *operands: Any, spec: Sequence[Any]) -> Any:
        return np.einsum(text, *operands, optimize=True)

    def reshard(self, x: Any, *spec: Any) -> Any:
        return x


def plain_function(p: Program) -> Callable[..., Any]:
    """The program in numpy, a function of the arguments' values."""
    return p.plain or p.make(Numpy())
