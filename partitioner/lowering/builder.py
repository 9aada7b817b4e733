"""Builds a per-device program: equations on blocks, and the local value of each global one.

An equation whose tensors agree runs on blocks as it is, with its params resized. Where a shard
needs more (an iota must count from where its block starts) the op's own emitter is called. A
reduction over a split factor that is not a sum is finished at once (recipes.py).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.inference.infer import infer, inferred
from ...ir.inference.levels import together
from ...ir.meshes.manual_state import ManualState
from ...ir.meshes.memory import DEVICE
from ...ir.meshes.mesh import AbstractMesh, AxisType
from ...ir.op import Op
from ...ir.op_instance import SIGNATURES, Signature
from ...ir.ops.communication.collective import axis_index_p
from ...ir.ops.elementwise.arithmetic import mul_p
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.ops.elementwise.identity import device_put_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.reasons import Reason
from ...ir.shardings.normalized import unsharded
from ...ir.source.location import UNKNOWN, Location
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType, array_type
from ..factors import Axes
from ..policy import OWN, Policy
from ..reasons import paddings
from .recipes import Recipe, recipe_of

_EMPTY: frozenset[str] = frozenset()


@cached(256)
def local_mesh(mesh: AbstractMesh) -> AbstractMesh:
    """The mesh with every axis Manual."""
    if mesh.empty:
        return mesh
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names,
                        (AxisType.Manual,) * len(mesh.axis_names),
                        abstract_device=mesh.abstract_device)


def local_type(aval: ArrayType, mesh: AbstractMesh,
               varying: frozenset[str] | None = None) -> ArrayType:
    """The type of one device's block; it varies over the axes of its spec and of pending sums."""
    key, memo = (mesh, varying), aval.memo
    if key in memo:
        return memo[key]
    if varying is None:
        varying = aval.sharding.spec.unreduced.union(*aval.entries)
    found = memo[key] = array_type(
        aval.local_shape(), aval.dtype, aval.weak_type, unsharded(len(aval.shape), mesh),
        ManualState(varying), aval.memory_space)
    return found


class _RecipeKey:
    """A key for tables of recipes, one for each mesh, hashed by identity."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh


_recipe_key = cached(256)(_RecipeKey)


class _Blocks(dict[Atom, Atom]):
    """From global to local values. A scalar literal gets a type on the mesh of this program, over
    which it may vary.
    """

    __slots__ = ("mesh", "types")

    def __init__(self, mesh: AbstractMesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.types: dict[ArrayType, ArrayType] = {}       # of scalar constants, on the mesh

    def __missing__(self, atom: Atom) -> Atom:
        if atom.__class__ is not Literal:
            raise KeyError(atom)
        aval = atom.aval
        if aval.mesh is self.mesh:
            return atom
        types = self.types
        if aval not in types:
            types[aval] = local_type(aval, self.mesh, _EMPTY)
        return Literal(atom.val, types[aval])                           # type: ignore[union-attr]


class Special(NamedTuple):
    """Equations that are not lowered to the same op on blocks.

    is_special: (op, in the body of a shard_map) -> is it one? lower: appends such an equation;
    returns False if it is none after all.
    """
    is_special: Callable[[Op, bool], bool]
    lower: Callable[[Lowering, Equation], bool]


class Lowering:
    """Appends the equations of a per-device program.

    special: how other modules lower their equations.
    """

    def __init__(self, mesh: AbstractMesh, special: Special, manual: bool = False,
                 policy: Policy = OWN) -> None:
        self.mesh, self.special, self.policy = mesh, special, policy
        self.recipe_key = _recipe_key(mesh)
        self.manual = manual              # inside the body of a shard_map
        self.bodies: dict[tuple, Program] = {}            # lowered bodies of loops and branches
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.env = _Blocks(mesh)
        self.location: Location = UNKNOWN
        self.reason: Reason = ()
        self.exchange_reason: Reason = ()       # of the collectives that an op's emitter makes
        self.only_direct = True           # has every equation so far been `direct`?

    # -- building ----------------------------------------------------------------------------

    def bind_all(self, variables: Sequence[Var], atoms: Sequence[Atom]) -> None:
        self.env.update(zip(variables, atoms, strict=True))

    def atom(self, atom: Atom) -> Atom:
        return self.env[atom]

    def constants(self, program: Program) -> None:
        for var, value in program.consts:
            local = Var(local_type(var.aval, self.mesh, frozenset()), var.name)
            self.consts.append((local, value))
            self.env[var] = local

    def emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any],
             names: Sequence[str | None] = ()) -> list[Atom]:
        """Append an equation; its results vary over all axes over which an operand does."""
        operands = [self.env[v] if v.__class__ is Literal else v for v in operands]
        if any([v.aval.memory_space is not DEVICE for v in operands]):
            operands = self.in_one_space(operands)
        given = tuple([v.aval for v in operands])
        types = together(given) if op.manual is None else given
        results, instance, own = inferred(op, types, params, self.mesh)
        out = [Var(t, names[i] if i < len(names) else None) for i, t in enumerate(results)]
        reason = self.reason
        if not reason and op.collective is not None:
            reason = self.exchange_reason
        eqn = Equation(op, operands, out, params, self.location, reason)
        if instance is not None:
            eqn.instance = instance
        if types is given:
            eqn.known_types = own
        self.eqns.append(eqn)
        return list(out)

    def in_one_space(self, operands: Sequence[Atom]) -> list[Atom]:
        """The operands, with indices and masks made by lowering moved to host memory if the value
        is there.
        """
        space = next(s for v in operands if (s := v.aval.memory_space) is not DEVICE)
        return [self.emit(device_put_p, [v], {"memory_space": space.value})[0]
                if v.aval.shape and v.aval.memory_space is DEVICE else v for v in operands]

    def block_offset(self, axes: Axes, block_size: int) -> Atom:
        """int32 scalar: the first element of the device's block."""
        index = self.emit(axis_index_p, [], {"axis_name": tuple(axes), "varying": True})[0]
        if block_size == 1:
            return index
        size = Literal(np.int32(block_size), array_type((), np.dtype(np.int32)))
        return self.emit(mul_p, [index, size], {})[0]

    def nested(self) -> Lowering:
        """A `Lowering` for a program inside this one."""
        inside = Lowering(self.mesh, self.special, self.manual, self.policy)
        inside.bodies = self.bodies
        return inside

    def block_type(self, aval: ArrayType, axes: frozenset[str]) -> ArrayType:
        """The type of a block of a value of this type that varies over `axes`."""
        return local_type(aval, self.mesh, axes)

    # -- equations ---------------------------------------------------------------------------

    def body(self, program: Program) -> None:
        """Lower all equations. One that runs on blocks as it is, which most do, is written down
        here without a call, since this loop is where lowering spends its time.
        """
        env, key, eqns = self.env, self.recipe_key, self.eqns
        is_special, manual = self.special.is_special, self.manual
        usual = {op for op in program.ops if not is_special(op, manual)}
        for eqn in program.eqns:
            op = eqn.op
            if op in usual:
                instance = eqn.instance
                operands: tuple[Atom, ...]
                if len(eqn.invars) == 2:            # as are most
                    first, second = eqn.invars
                    operands = first, second = env[first], env[second]
                    types = first.aval, second.aval
                else:
                    operands = tuple([env[a] for a in eqn.invars])
                    types = tuple([a.aval for a in operands])
                try:
                    recipe = instance.tables[key][eqn.known_types]
                except KeyError:
                    recipe = self.recipe(eqn)
                if recipe.direct:         # most equations by far; `direct` written out
                    made = recipe.made
                    known = made[types] if types in made else self.results(eqn, types, recipe)
                    new = Equation.__new__(Equation)
                    if len(known[1]) == 1:
                        (var,) = eqn.outvars
                        result = Var.__new__(Var)
                        (result.aval,), result.name = known[1], var.name
                        env[var] = result
                        new.outvars = (result,)
                    else:
                        new.outvars = self.bound(eqn, known[1])
                    if recipe.instance is not None:
                        instance = recipe.instance
                        new.params = instance.params
                    else:
                        new.params = eqn.params
                    new.op, new.invars = op, operands
                    new.instance, new.known_types = instance, known
                    new.location, new.reason = eqn.location, eqn.reason
                    eqns.append(new)
                    continue
                self.only_direct = False
                self.location, self.reason = eqn.location, eqn.reason
                self.equation(eqn, operands, recipe)
                continue
            self.only_direct = False
            self.location, self.reason = eqn.location, eqn.reason
            if not self.special.lower(self, eqn):
                self.equation(eqn, [self.atom(a) for a in eqn.invars], self.recipe(eqn))

    def equation(self, eqn: Equation, operands: Sequence[Atom], recipe: Recipe) -> None:
        """Lower one equation by its recipe: the op on blocks or the op's own emitter, the
        collectives that finish the results, and a conversion where these are weakly typed and
        should not be.
        """
        if recipe.direct:
            self.direct(eqn, operands, recipe)
            return
        if recipe.emitter:
            assert eqn.op.localize is not None
            # why its blocks exchange something is no reason for the rest of it
            self.exchange_reason, self.reason = eqn.reason or recipe.exchange, ()
            if recipe.exchange and any(paddings(eqn.reason)):   # why there is padding: a remark
                self.exchange_reason = (*recipe.exchange, *eqn.reason)
            results = list(eqn.op.localize(Context(self, eqn, operands, recipe)))
            self.exchange_reason = ()
        else:
            params = eqn.params if recipe.instance is None else recipe.instance.params
            results = self.emit(eqn.op, operands, params)
        for op, parts, reason in recipe.finish:
            self.reason = eqn.reason or reason
            for axes in reversed(parts) if self.policy.sums_by_dimension else (
                    sum(parts, ()),):
                results = [self.emit(op, [r], {"axes": axes})[0] for r in results]
        _check_shapes(eqn, recipe, [r.aval for r in results])
        for var, result in zip(eqn.outvars, results, strict=True):
            if result.aval.weak_type is not var.aval.weak_type:     # what it is made of was not
                result = self.emit(convert_element_type_p, [result], {
                    "new_dtype": var.aval.dtype, "weak_type": var.aval.weak_type,
                    "sharding": None})[0]
            if isinstance(result, Var) and result.name is None:
                result.name = var.name
            self.env[var] = result

    def direct(self, eqn: Equation, operands: Sequence[Atom], recipe: Recipe) -> None:
        """Append an equation that is the same op on blocks."""
        types = tuple([a.aval for a in operands])
        known = recipe.made.get(types) or self.results(eqn, types, recipe)
        new = eqn.with_operands(operands, self.bound(eqn, known[1]), recipe.instance)
        new.known_types = known
        self.eqns.append(new)

    def bound(self, eqn: Equation, types: Sequence[ArrayType]) -> tuple[Var, ...]:
        """Bind the results of an equation on blocks; returns their variables."""
        results = tuple([Var(t, v.name) for t, v in zip(types, eqn.outvars, strict=True)])
        self.env.update(zip(eqn.outvars, results, strict=True))
        return results

    def results(self, eqn: Equation, types: tuple[ArrayType, ...], recipe: Recipe) -> Signature:
        """The types of an equation on blocks: operands (as given), then results."""
        varying: frozenset[str] | None = _EMPTY if eqn.op.manual is None else None
        for t in types:
            state = t.manual
            if (varying is None or state.unreduced or state.reduced
                    or t.memory_space is not DEVICE):
                varying = None
                break
            varying = varying | state.varying
        if varying is not None:                 # they vary over all that the operands vary over
            made = tuple([self.block_type(v.aval, varying) for v in eqn.outvars])
        else:
            taken = together(types) if eqn.op.manual is None else types
            params = recipe.instance.params if recipe.instance else eqn.params
            made = infer(eqn.op, taken, params, self.mesh)
            _check_shapes(eqn, recipe, made)
        found = recipe.made[types] = SIGNATURES[types, made]
        return found

    def recipe(self, eqn: Equation) -> Recipe:
        types, instance, key = eqn.known_types or eqn.types, eqn.instance, self.recipe_key
        known = instance.tables[key] if key in instance.tables else instance.table(key)
        if types not in known:
            known[types] = recipe_of(instance, *types, eqn.params)
        return known[types]


def _check_shapes(eqn: Equation, recipe: Recipe, results: Sequence[ArrayType]) -> None:
    for aval, shape in zip(results, recipe.result_shapes, strict=True):
        assert aval.shape == shape, (
            f"`{eqn.op.name}` on blocks of shapes {recipe.operand_shapes} gives "
            f"{aval.shape}, not {shape}: its params do not fit")


class Context:
    """The `LocalizeContext` (ir/op.py) that an op's `localize` gets."""

    def __init__(self, lowering: Lowering, eqn: Equation, operands: Sequence[Atom],
                 recipe: Recipe) -> None:
        self.operands = tuple(operands)
        self.params = eqn.params
        self.operand_types = tuple(a.aval for a in eqn.invars)
        self.result_types = tuple(v.aval for v in eqn.outvars)
        self.local_operand_shapes = recipe.operand_shapes
        self.local_result_shapes = recipe.result_shapes
        self.result_entries = recipe.result_entries
        self.rule = recipe.rule
        self.axes_of_factor = recipe.axes_of
        self.emit = lowering.emit
        self.block_offset = lowering.block_offset
        self.permutes = lowering.policy.halos_by_permutes

