"""Converts arguments and results between their stored form and the layouts of a plan.

Outside a plan a value is one whole array, with leading dimensions for stacked axes. How it is
stored depends on its type alone, and is kept by mesh.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms, mesh_atoms
from ...ir.kernels.key_data import storage_dtype
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Atom, Literal
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ..layout import Atoms, Layout, Shape, array_shape
from .workspace import Kind, Value, Workspace, kind_of


class StoredArgument(NamedTuple):
    """How an argument is stored. shape, dtype: of its array. functions: applied to it first."""
    shape: Shape
    dtype: np.dtype
    layout: Layout
    uniform: tuple[bool, ...]
    kind: Kind
    functions: tuple[Callable[..., Any], ...]


class StoredResult(NamedTuple):
    """How a result is stored. index: the array without its padding; None if there is none."""
    stack: Atoms
    split: tuple[Atoms, ...]
    index: tuple[slice, ...] | None


def usual_lead(t: ArrayType, mesh: AbstractMesh) -> tuple[str, ...]:
    """The leading axes that an argument of this type usually has: those of its partial sum."""
    unreduced = t.sharding.spec.unreduced
    atoms = mesh_atoms(mesh, unreduced)
    return atoms.sort(atoms.of_all(sorted(unreduced)))


def stored_argument(p: Workspace, aval: ArrayType, t: ArrayType, lead: tuple[str, ...]
                    ) -> StoredArgument:
    """How an argument of global type `t` and local type `aval` is stored."""
    atoms = p.atoms
    split = tuple([atoms.of_all(axes) for axes in t.entries])
    stack = atoms.sort(atoms.of_all(lead))
    layout = Layout(stack, split)
    sizes = tuple([atoms.mesh.axis_size(a) for a in lead])
    uniform = (False,) * len(aval.shape)
    functions: list[Callable[..., Any]] = []
    padded = array_shape(Layout((), split), aval.shape, atoms.size)
    if padded != t.shape:
        widths = (*((0, 0),) * len(lead),
                  *[(0, n - m) for m, n in zip(t.shape, padded, strict=True)])
        functions.append(lambda x: np.pad(x, widths))
    named = tuple([atoms.of(name) for name in lead])
    if named != tuple([(a,) for a in stack]):
        value = Value(aval, layout, -1)
        functions.extend(p.steps(value, value.dims, have=(*named, *Layout((), split).dims)))
    found = atoms.borders[aval, t, lead] = StoredArgument(
        sizes + t.shape, storage_dtype(t.dtype), layout, uniform, kind_of(aval, layout, uniform),
        tuple(functions))
    return found


def stored_result(p: Workspace, atom: Atom, value: Value, t: ArrayType
                  ) -> tuple[int, tuple[str, ...]]:
    """The slot of a whole result of global type `t`, and its leading axes."""
    if type(atom) is Literal:
        value = Value(atom.aval, value.layout, value.slot)
    known = p.atoms.borders
    key = value.kind, t
    stack, split, index = known.get(key) or _result_form(p.atoms, key, value, t)
    layout, slot = value.layout, value.slot
    if split != layout.split or stack != layout.stack:
        slot = p.view(value, stack, split)
    if index is not None:
        slot = p.call(lambda x: x[index], slot)
    return slot, stack


def _result_form(atoms: MeshAtoms, key: tuple[Kind, ArrayType], value: Value, t: ArrayType
                 ) -> StoredResult:
    split = tuple([atoms.of_all(axes) for axes in t.entries])
    inside = {a for axes in split for a in axes}
    pending = atoms.of_all(sorted(t.sharding.spec.unreduced))
    stack = atoms.sort((value.layout.atoms | {*pending}) - inside)
    index = None
    if array_shape(Layout((), split), value.aval.shape, atoms.size) != t.shape:
        index = (*[slice(None)] * len(stack), *[slice(0, n) for n in t.shape])
    atoms.borders[key] = found = StoredResult(stack, split, index)
    return found
