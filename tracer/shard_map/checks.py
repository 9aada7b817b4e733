"""What shard_map refuses: specs that do not fit arguments or results, in JAX's words."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof

Types = Sequence[ArrayType]
Specs = Sequence[PartitionSpec]


def _mesh_text(mesh: AbstractMesh) -> str:
    return (f"The mesh given has shape {mesh.axis_sizes} with corresponding axis names "
            f"{mesh.axis_names}.")


def _bound_to(function: str, index: int, names: Sequence[str]) -> str:
    if names[index].startswith("args["):
        return f"args[{index}]"
    return f"args[{index}], where args[{index}] is bound to {function}'s parameter " \
           f"'{names[index].split('[')[0].split('.')[0]}',"


def check_pending(what: str, spec: PartitionSpec, mesh: AbstractMesh, axes: frozenset[str]
                  ) -> None:
    """Unreduced and reduced axes need a shard_map over all axes, and these Explicit outside."""
    if not spec.unreduced and not spec.reduced:
        return
    if axes != frozenset(mesh.axis_names):
        listed = ", ".join(repr(a) for a in sorted(axes))
        fail(NotImplementedError, f"unreduced/reduced can only be passed to {what} when shard_map "
             f"is in full manual mode. Got mesh axis names {mesh.axis_names}, manual_axes: "
             f"frozenset({{{listed}}}), specs: {spec}. Please file a bug at "
             "https://github.com/jax-ml/jax/issues.", code="pending-spec",
             help="leave `axis_names` out, so that the body is manual over all axes")
    for word, named in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        if any(a in mesh.axis_names and mesh.axis_type(a) is not AxisType.Explicit for a in named):
            fail(ValueError, f"{word} in {what} {spec} can only be used when the mesh passed to "
                 f"shard_map contains axis names all of type `Explicit`. Got mesh {mesh}",
                 code="pending-spec",
                 help=f"`{word}` is part of the types of Explicit axes: make the mesh with "
                      "`axis_types` that are all Explicit")


def check_ranks(function: str, types: Types, specs: Specs, names: Sequence[str]) -> None:
    """Refuse in_specs that have more entries than their arguments have dimensions."""
    bad = [(i, t, s) for i, (t, s) in enumerate(zip(types, specs, strict=True))
           if len(s.entries) > len(t.shape)]
    if not bad:
        return
    lines = []
    for i, t, s in bad:
        extra = ("\n\nFor scalar values (rank 0), consider using an in_specs entry of `P()`, "
                 "where `P = jax.sharding.PartitionSpec`.") if t.ndim == 0 else ""
        lines.append(f"in_specs is {s} which has length {len(s.entries)}, but the passed "
                     f"{_bound_to(function, i, names)} has shape {t}, which has rank {t.ndim} "
                     f"(and {t.ndim} < {len(s.entries)}){extra}")
    text = lines[0] if len(lines) == 1 else "\n\n".join("* " + x for x in lines)
    fail(ValueError, f"shard_map applied to the function '{function}' was given an in_specs "
         "entry which is too long to be compatible with the corresponding input value from the "
         f"function:\n\n{text}\n\nEntries in in_specs must be of length no greater than the "
         "number of axes in the corresponding input value.\n\nEither revise the spec to be "
         f"shorter, or modify '{function}' so that its inputs have sufficient rank.",
         code="spec-too-long")


def check_divisible(function: str, types: Types, specs: Specs, names: Sequence[str],
                    mesh: AbstractMesh) -> None:
    """Refuse arguments whose dimensions the axes of their in_specs do not divide."""
    lines = []
    for i, (t, s) in enumerate(zip(types, specs, strict=True)):
        for d, (n, dim) in enumerate(zip(t.shape, s.entries, strict=False)):
            parts = 1
            for a in dim:
                parts *= mesh.axis_size(a)
            if n % parts:
                over = (f"mesh axis '{dim[0]}' (of size {parts})" if len(dim) == 1 else
                        f"mesh axes {dim} (of total size {parts})")
                lines.append(
                    f"the passed {_bound_to(function, i, names).rstrip(',')} of shape {t}"
                    if names[i].startswith("args[") else
                    f"the passed args[{i}] of shape {t}, where args[{i}] is bound to "
                    f"{function}'s parameter '{names[i].split('[')[0]}',")
                lines[-1] += (f" corresponds to in_specs of value {s}, which maps array axis "
                              f"{d} (of size {n}) to {over}, but {parts} does not evenly "
                              f"divide {n}")
    if lines:
        text = lines[0] if len(lines) == 1 else "\n\n".join("* " + x for x in lines)
        fail(ValueError, f"shard_map applied to the function '{function}' was given argument "
             "arrays with axis sizes that are not evenly divisible by the corresponding mesh "
             f"axis sizes:\n\n{_mesh_text(mesh)}\n\n{text}\n\nArray arguments' axis sizes must "
             "be evenly divisible by the mesh axis or axes indicated by the corresponding "
             "elements of the argument's in_specs entry. Consider checking that in_specs are "
             "correct, and if so consider changing the mesh axis sizes or else padding the "
             f"input and adapting '{function}' appropriately.", code="indivisible",
             help="pad the argument to a multiple of the axis size, or leave the dimension "
                  "whole in in_specs")


def check_out_ranks(function: str, types: Types, specs: Specs, paths: Sequence[str]) -> None:
    """Refuse out_specs that have more entries than their results have dimensions."""
    lines = []
    for t, s, path in zip(types, specs, paths, strict=True):
        if len(s.entries) > t.ndim:
            extra = (" In particular, for rank 0 outputs which are not constant over the mesh, "
                     "add at least one (singleton) axis to them so that they can be "
                     "concatenated using out_specs.") if t.ndim == 0 else ""
            lines.append(f"out_specs is {s} which has length {len(s.entries)}, but "
                         f"{function}(*args){path} has shape {t}, which has rank {t.ndim} "
                         f"(and {t.ndim} < {len(s.entries)}){extra}")
    if lines:
        text = lines[0] if len(lines) == 1 else "\n\n".join("* " + x for x in lines)
        fail(ValueError, f"shard_map applied to the function '{function}' was given an "
             "out_specs entry which is too long to be compatible with the corresponding output "
             f"value from the function:\n\n{text}\n\nEntries in out_specs must be of length no "
             "greater than the number of axes in the corresponding output value.\n\nEither "
             f"revise the spec to be shorter, or modify '{function}' so that its outputs have "
             "sufficient rank.", code="spec-too-long",
             help="give the output a dimension with `jnp.expand_dims`, or keep one in reducing it")


def check_replication(function: str, types: Types, specs: Specs, paths: Sequence[str],
                      mesh: AbstractMesh, axes: frozenset[str]) -> None:
    """Refuse out_specs without an axis over which their result varies, or is a partial sum."""
    lines, first = [], None
    for t, s, path in zip(types, specs, paths, strict=True):
        named = frozenset(s.axes()) | s.unreduced | s.reduced
        claimed = [a for a in mesh.axis_names if a in axes and a not in named]
        wrong = [a for a in claimed
                 if a in t.varying or a in t.manual.unreduced or a in t.manual.reduced]
        if not wrong:
            continue
        first = first or (wrong, path)
        where = f"out_specs{path}"
        if len(claimed) > 1:
            named = ",".join(a for a in mesh.axis_names if a in s.axes())
            inferred = ",".join(a for a in mesh.axis_names if a in t.varying)
            lines.append(
                f"{where} is {s} which implies that the corresponding output value is only "
                f"varying across mesh axes {{{named}}} and not "
                f"{{{','.join(a for a in claimed if a in t.varying)}}}, but it was inferred to "
                f"be possibly varying over {{{inferred}}}")
        else:
            known = [a for a in mesh.axis_names if a in axes and a not in t.varying]
            over = f"{','.join(known)}" if known else "any axes"
            lines.append(
                f"{where} is {s} which implies that the corresponding output value is "
                f"replicated across mesh axis '{claimed[0]}', but could not infer replication "
                f"over {over}")
    if lines and first is not None:
        text = lines[0] if len(lines) == 1 else "\n\n".join("* " + x for x in lines)
        names = ", ".join(repr(a) for a in first[0])
        fail(ValueError, f"shard_map applied to the function '{function}' was given out_specs "
             "which require replication which can't be statically inferred given the mesh:\n\n"
             f"{_mesh_text(mesh)}\n\n{text}\n\nCheck if these output values are meant to be "
             "replicated over those mesh axes. If not, consider revising the corresponding "
             "out_specs entries. If so, consider disabling the check by passing the "
             "check_vma=False argument to `jax.shard_map`.", code="out-specs",
             help=f"sum the output over {names} with `lax.psum` if the blocks are to be summed, or "
                  "name the axis in out_specs if they are to be put together")


def check_concrete(values: Sequence[Any], mesh: AbstractMesh) -> None:
    """Raise unless some argument determines the devices of an abstract mesh."""
    found = False
    for x in values:
        sharding = getattr(x, "sharding", None)
        if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
            continue
        if sharding.mesh.shape_tuple != mesh.shape_tuple:
            fail(ValueError, f"Mesh shape of the input {sharding.mesh.shape_tuple} does not match "
                 f"the mesh shape passed to shard_map  {mesh.shape_tuple} for shape "
                 f"{typeof(x).str_short()}", code="mesh-mismatch",
                 help="move it there with `device_put`")
        found = True
    if not found:
        fail(ValueError, "Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` "
             "when passing `AbstractMesh` to the mesh argument.", code="abstract-mesh",
             help="pass the Mesh itself as `mesh`, or enter it with `set_mesh`")


def check_cast(t: ArrayType, axes: tuple[str, ...]) -> None:
    """Raise unless a result of this type can become a pending sum over the axes."""
    if not t.varying:
        fail(ValueError, "vary_unreduced_cast only accepts inputs that are varying. Got "
             f"{t.str_short(True)}", code="unreduced-output",
             help="a value that is the same on all devices is no sum over them: leave the axes "
                  "out of `unreduced`")
    if not frozenset(axes) <= t.varying:
        fail(ValueError, "vary_unreduced_cast is a Varying->Unreduced collective. This means that "
             "the axis names mentioned in `axes` passed to `vary_unreduced_cast` must be present "
             f"in `jax.typeof(x).mat.varying`. Got axes={axes} and jax.typeof(x).mat.varying="
             f"{set(t.varying) or '{}'}", code="unreduced-output", label=f"the result is {t}",
             help="a value that is the same on all devices is no sum over them: leave the axes "
                  "out of `unreduced`")
