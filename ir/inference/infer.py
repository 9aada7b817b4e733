"""From an op, its operand types and params to its result types.

Shape and dtype come from the op's `infer`; the spec from its explicit policy, over Explicit axes
only; unreduced and reduced axes from `pending`; varying axes are the union of the operands'.
Results are cached per op on the operand types (interned, so hashing is by identity) and params: a
rule runs once per distinct instance. Equations with programs in their params are not cached, since
most occur once and would be kept alive. Messages and error classes are JAX's.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..diagnostics.diagnostic import fail
from ..diagnostics.errors import ShardingTypeError
from ..meshes.manual_state import NOT_MANUAL, ManualState
from ..meshes.memory import DEVICE, MemorySpace
from ..meshes.mesh import AbstractMesh, empty_abstract_mesh
from ..op import Op, inference_key
from ..op_instance import SIGNATURES, OpInstance, Signature, instance_of
from ..settings.context import STATE
from ..settings.phases import rule_evaluated
from ..shardings.normalized import unsharded
from ..shardings.sharding import NamedSharding, named_sharding_abstract
from ..spec import spec_from_entries
from ..types import ArrayType, Shape, array_type, short_list
from .explicit import POLICIES, WHOLE_OF_WHOLE, padded
from .factor_conflicts import add_factors
from .unreduced import explicit_pending_axes, is_pending, pending_axes, refuse_pending


def infer(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any],
          context: AbstractMesh = empty_abstract_mesh) -> tuple[ArrayType, ...]:
    """Result types of `op` on operands of these types, under the context mesh `context`."""
    key = inference_key(types, params, context)
    found = op.infer_cache.get(key)
    return infer_anew(op, types, params, context, key) if found is None else found[0]


def inferred(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any], context: AbstractMesh
             ) -> tuple[tuple[ArrayType, ...], OpInstance | None, Signature | None]:
    """`infer`, and what equations of these types have; None where that is not kept."""
    key = inference_key(types, params, context)
    found = op.infer_cache.get(key)
    if found is None:
        found = infer_anew(op, types, params, context, key), None, None
    return found


def infer_anew(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any],
               context: AbstractMesh, key: tuple[Any, ...]) -> tuple[ArrayType, ...]:
    """`infer` for an instance that is not known yet, and from now on is by its `inference_key`."""
    found = _infer(op, types, params, context)
    if STATE.phases is not None:
        rule_evaluated()
    if not op.subprograms:
        instance = instance_of(op, params)
        op.infer_cache[key] = (found, instance if instance.identity is instance else None,
                               SIGNATURES[types, found])
    return found


def _infer(op, types, params, context) -> tuple[ArrayType, ...]:
    """Result types that are not known yet: what the op says of shape and dtype, completed by
    sharding, manual state and memory space. The first half is the frequent case: one result, and
    operands in device memory that vary over the same axes.
    """
    raw = op.infer(*types, **params)
    single = not op.multiple_results
    if single:
        raw = [raw]
    if not raw or isinstance(raw[0], ArrayType):   # ops with subprograms know their whole types
        return tuple(raw)
    weak, usual, manual = bool(types), True, NOT_MANUAL
    if types:
        manual = types[0].manual
        for t in types:
            weak = weak and t.weak_type
            if t.memory_space is not DEVICE or (t.manual is not manual and op.manual is None):
                usual = False
        if manual is not NOT_MANUAL and op.manual is None and (manual.unreduced or manual.reduced):
            usual = False
    if single and usual:       # what varies, and where it is, is with the result as with operands
        sharding, elementwise = None, op.rule == "... -> ..." and op.explicit == "join"
        shape, dtype = raw[0][:2]
        if elementwise:
            sharding = _shared_sharding(op, types, shape, params, context)
        elif type(shape) is not tuple:
            shape = tuple(shape)
        if sharding is None:
            mesh = _whole_mesh(op, types, params, context)
            if mesh is not None:
                sharding = unsharded(len(shape), mesh)
            else:
                (sharding,) = _refused_in_full(op, types, [shape], params, context)
        if op.manual is not None:
            (manual,) = op.manual(op, types, params)
        if len(raw[0]) > 2:
            weak = raw[0][2]
        for t in types:                 # an operand may have this type
            if (t.dtype is dtype and t.weak_type is weak and t.shape == shape
                    and t.sharding is sharding and t.manual is manual):
                return (t,)
        return (array_type(shape, dtype, weak, sharding, manual),)
    usual = usual and manual is NOT_MANUAL and op.manual is None
    outs = [(tuple(r[0]), r[1], weak if len(r) < 3 else r[2]) for r in raw]
    shapes = [o[0] for o in outs]
    shardings = _refused_in_full(op, types, shapes, params, context)
    states = [NOT_MANUAL] * len(outs) if usual else _manual_states(op, types, params, len(outs))
    memory = DEVICE if usual else _memory_space(op, types)
    return tuple([array_type(shape, dtype, weak_type, sharding, state, memory)
                  for (shape, dtype, weak_type), sharding, state
                  in zip(outs, shardings, states, strict=True)])


def _shared_sharding(op: Op, types: Sequence[ArrayType], shape: Shape, params: dict[str, Any],
                     context: AbstractMesh) -> NamedSharding | None:
    """The sharding of the one operand of an elementwise op that is split as the others are, or
    more, where that is all that decides the result's; None where there is more to look at."""
    found = None
    for t in types:
        sharding = t.sharding
        spec = sharding.spec
        if spec.unreduced or spec.reduced:
            return None
        if found is None or sharding is found or not t.shape:
            if t.shape:
                found = sharding
            continue
        have = found.spec.entries
        if have != spec.entries:
            more = less = False
            for a, b in zip(have, spec.entries, strict=True):
                if a != b:
                    if a and b:
                        return None
                    more, less = more or bool(b), less or bool(a)
            if more and less:
                return None
            found = sharding if more else found
        elif found.mesh is empty_abstract_mesh:
            found = sharding
    if found is None or (op.sharding_param and params.get(op.sharding_param) is not None):
        return None
    mesh = found.mesh
    if context is not mesh and context is not empty_abstract_mesh:
        return None
    for t in types:
        if t.sharding.mesh is not mesh and t.sharding.mesh is not empty_abstract_mesh:
            return None
    return found


def _whole_mesh(op: Op, types: Sequence[ArrayType], params: dict[str, Any], context: AbstractMesh
                ) -> AbstractMesh | None:
    """The mesh of a result that is whole since all operands are, or since no axis is Explicit;
    None where there is more to look at."""
    if op.sharding_param and params.get(op.sharding_param) is not None:
        return None
    mesh = context
    for t in types:
        of_type: Any = t.sharding.mesh
        if of_type is not mesh and of_type is not empty_abstract_mesh:
            if mesh is not empty_abstract_mesh:
                return None
            mesh = of_type
    if mesh is empty_abstract_mesh or not mesh.explicit_axes:
        return mesh
    if op.explicit not in WHOLE_OF_WHOLE:
        return None
    for t in types:
        spec = t.sharding.spec
        if spec.unreduced or spec.reduced or spec.axes():
            return None
    return mesh


def _memory_space(op: Op, types: Sequence[ArrayType]) -> MemorySpace:
    """The memory space of the results: that of the operands, scalars aside, which must agree."""
    for t in types:
        if t.memory_space is not DEVICE:
            for other in types:
                if other.shape and other.memory_space is not t.memory_space:
                    fail(ValueError,
                         f"memory_space of all inputs passed to `{op.name}` must be the same. Got "
                         f"one operand with type: {t} and another operand with type: {other}",
                         code="memory-space",
                         help="move one of them with `device_put`, to `memory.Space.Device`")
            return t.memory_space
    return DEVICE


def _refused_in_full(op: Op, types: tuple[ArrayType, ...], shapes: Sequence[Shape],
                     params: dict[str, Any], context: AbstractMesh) -> list[NamedSharding]:
    """`result_shardings`, with errors that say what became of each dimension."""
    try:
        return result_shardings(op, types, shapes, params, context)
    except ShardingTypeError as refused:
        add_factors(refused, op, types, shapes, params)
        raise


def result_shardings(op: Op, types: tuple[ArrayType, ...], shapes: Sequence[Shape],
                     params: dict[str, Any], context: AbstractMesh) -> list[NamedSharding]:
    """The shardings of the results by the op's explicit policy, checked."""
    mesh = common_mesh(op, types, context)
    wanted = params.get(op.sharding_param) if op.sharding_param else None
    if wanted is not None and wanted.mesh is not mesh and wanted.mesh.explicit_axes:
        mesh = wanted.mesh                       # e.g. a reshard to another mesh
    if mesh is empty_abstract_mesh:
        return [unsharded(len(s)) for s in shapes]
    if not mesh.explicit_axes:
        return [unsharded(len(s), mesh) for s in shapes]
    if op.pending in ("indexed", "iterated") and any(is_pending(t) for t in types):
        refuse_pending(op.name, types, op.pending == "iterated")
    if callable(op.explicit):
        entries = op.explicit(op, types, shapes, params)
    elif wanted is not None:
        entries = [padded(wanted.spec.entries, len(shapes[0]))]
    else:
        entries = POLICIES[op.explicit](op, types, shapes, params)
    for shape, dims in zip(shapes, entries, strict=True):
        # a policy may decide unreduced axes as well
        if type(dims) is not NamedSharding and sum(map(len, dims)) > 1:
            _check_no_duplicates(op, types, shape, dims, mesh)
    unreduced, reduced = explicit_pending_axes(op, types, params)
    if wanted is not None and not callable(op.explicit):
        unreduced, reduced = wanted.spec.unreduced, wanted.spec.reduced
    return [dims if isinstance(dims, NamedSharding) else
            named_sharding_abstract(mesh, spec_from_entries(dims, unreduced, reduced))
            for dims in entries]


def common_mesh(op: Op, types: Sequence[ArrayType], context: AbstractMesh) -> AbstractMesh:
    """The mesh of the results: the context's if there is one, else the operands'."""
    mesh = context
    for t in types:
        m: AbstractMesh = t.sharding.mesh  # type: ignore[assignment]
        if m is mesh or m is empty_abstract_mesh:
            continue
        if mesh is empty_abstract_mesh:
            mesh = m
        elif m.are_all_axes_auto and (mesh.are_all_axes_auto or _around(m, mesh)):
            continue
        elif context is not empty_abstract_mesh:
            fail(ValueError,
                 f"For primitive {op.name}, context mesh {context} should match the aval mesh {m} "
                 f"for shape {t}. This error occurs at source: ",
                 code="mesh-mismatch", label=f"operand {t.str_short(True)} is on mesh {m}",
                 help="bring the operand to the context mesh with `device_put`, or enter its mesh "
                      "with `set_mesh`")
        else:
            fail(ValueError,
                 f"Mesh for all inputs should be equal. Got one mesh: {mesh} and another mesh: {m}",
                 code="mesh-mismatch", label=f"operands of `{op.name}` live on different meshes",
                 help="move one operand to the other's mesh with `device_put`")
    return mesh


def _around(outer: AbstractMesh, inner: AbstractMesh) -> bool:
    """Is `inner` the mesh of a manual region in `outer`? What it closes over is whole inside."""
    return bool(inner.manual_axes) and not inner.explicit_axes and (
        outer.shape_tuple == inner.shape_tuple)


def _check_no_duplicates(op, types, shape, dims, mesh) -> None:
    """Refuse a result that the policy would split twice over one axis. dims: the axes of its
    dimensions.
    """
    seen: dict[str, int] = {}
    for d, axes in enumerate(dims):
        for a in axes:
            if a in seen:
                text = ",".join(f"{n}@{x[0]}" if len(x) == 1 else
                                f"{n}@({','.join(x)})" if x else str(n)
                                for n, x in zip(shape, dims, strict=True))
                out = f"{types[0].str_short(True).split('[')[0] if types else ''}[{text}]"
                fail(ShardingTypeError,
                     f"{op.name} operation with inputs: {short_list(types)} produces an illegally "
                     f"sharded result: {out}",
                     code="axis-reused",
                     label=f"dimensions {seen[a]} and {d} would both be split over {a}",
                     notes=("a mesh axis may shard at most one dimension of an array",),
                     help=f"gather one operand over {a} first, with `reshard`")
            seen[a] = d


def _manual_states(op: Op, types, params, count: int) -> list[ManualState]:
    """For each result, over which Manual axes it varies or is unreduced: as the op says, or else as
    all operands do, which must agree.
    """
    if op.manual is not None:
        return list(op.manual(op, types, params))
    states = [t.manual for t in types]
    if all([m is NOT_MANUAL for m in states]):
        return [NOT_MANUAL] * count
    varying = states[0].varying
    if any([m.varying != varying for m in states]):
        sets = ", ".join("{" + ",".join(sorted(t.varying)) + "}" for t in types)
        fail(ValueError,
             f"Primitive {op.name} requires varying manual axes to match, but got [{sets}].",
             code="varying-mismatch", label=f"operands are {short_list(types)}",
             help="cast the operands with `jax.lax.pcast`")
    if any([m.unreduced or m.reduced for m in states]):
        u, r = pending_axes(op, types, params, [m.unreduced for m in states],
                            [m.reduced for m in states])
        return [ManualState(varying, u, r)] * count
    return [ManualState(varying)] * count
