"""The specs of a shard_map: read from in_specs and out_specs, or from the arguments' types, and
made to hold: arguments are brought to in_specs, results cast to what out_specs say of them.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.inference.explicit import spec_entry
from ...ir.meshes.mesh import AbstractMesh, AxisType
from ...ir.op import OPS
from ...ir.ops.control.manual import entering_type
from ...ir.shardings.sharding import NamedSharding, named_sharding_abstract
from ...ir.spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...ir.support.caches import cached
from ...ir.support.named_tuple import NamedTuple
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.signature import paths_of, plain_function
from ..trees import tree
from .checks import (
    check_cast,
    check_divisible,
    check_out_ranks,
    check_pending,
    check_ranks,
    check_replication,
)

Axes = frozenset[str]
Types = tuple[ArrayType, ...]
Specs = tuple[PartitionSpec, ...]


class _Infer:
    """Default of in_specs: read them from the arguments' types."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def braces(names: Any) -> str:
    """A frozenset of names as text, sorted."""
    return "frozenset({" + ", ".join(repr(n) for n in sorted(names)) + "})"


def _is_spec(x: Any) -> bool:
    return isinstance(x, PartitionSpec)


# -- arguments -------------------------------------------------------------------------------------

def plain_specs(prefix: Any, count: int, axes: Axes) -> Specs | None:
    """The specs of so many arrays by position, where each has its own, or one is for all, and they
    just name Manual axes; None where that has to be looked into."""
    if type(prefix) is PartitionSpec:
        specs: Specs = (prefix,) * count
    elif type(prefix) is tuple and len(prefix) == count:
        specs = prefix
    else:
        return None
    for s in specs:
        if type(s) is not PartitionSpec or s.unreduced or s.reduced:
            return None
        used = s.axes()
        if used and (not axes.issuperset(used) or len(used) > 1 and len({*used}) < len(used)):
            return None
        if UNCONSTRAINED in s.entries:
            return None
    return specs


def in_specs_of(prefix: Any, args: tuple[Any, ...], leaves: list[Any], structure: tree.PyTreeDef,
                mesh: AbstractMesh, axes: Axes) -> tuple[Specs, tuple[bool, ...]]:
    """A spec for each leaf of the arguments, and which of the leaves are static."""
    if prefix is Infer:
        return tuple(_inferred(leaves, mesh, axes)), (False,) * len(leaves)
    if isinstance(prefix, list):
        prefix = tuple(prefix)
    flat = _spread(prefix, structure, "in_specs", mesh, axes)
    if flat is None:
        _check_spec_tree(prefix, "in_specs", mesh, axes)
        try:
            flat = tuple(tree.broadcast_prefix(prefix, args, _is_spec, "shard_map in_specs"))
        except tree.PrefixError as e:
            raise ValueError(str(e)) from None
    if None not in flat:
        return flat, (False,) * len(flat)
    return (tuple([PartitionSpec() if s is None else s for s in flat]),
            tuple([s is None for s in flat]))


def _spread(prefix: Any, structure: tree.PyTreeDef, what: str, mesh: AbstractMesh, axes: Axes
            ) -> Specs | None:
    """The spec of each leaf of a structure; None where a spec is faulty, for the caller to report.
    """
    flat, prefix_structure = tree.prefix_leaves(prefix)
    try:
        return _spread_specs(tuple(flat), prefix_structure, structure, what, mesh, axes)
    except (TypeError, ValueError):
        return None


@cached(1024, "in_specs and out_specs for each leaf")
def _spread_specs(flat: tuple[Any, ...], prefix: tree.PyTreeDef, structure: tree.PyTreeDef,
                  what: str, mesh: AbstractMesh, axes: Axes) -> Specs | None:
    """A spec for each leaf, from a tree prefix of them; None if one is wrong, which the caller
    reports.
    """
    out: list[Any] = []
    for s, count in zip(flat, tree.prefix_counts(prefix, structure), strict=True):
        if s is None:
            if what == "out_specs" and count:      # None is a spec of nothing there
                return None
        elif not (_is_spec(s) and _fits(what, s, mesh, axes)):
            return None
        out.extend([s] * count)
    return tuple(out)


def _inferred(leaves: list[Any], mesh: AbstractMesh, axes: Axes) -> list[PartitionSpec]:
    """in_specs from the arguments' types, which have the Explicit axes."""
    open_axes = [a for a in mesh.axis_names
                 if a in axes and mesh.axis_type(a) is not AxisType.Explicit]
    if open_axes:
        kinds = ", ".join(str(mesh.axis_type(a)) for a in mesh.axis_names if a in axes)
        fail(TypeError, "shard_map in_specs argument must be a pytree of "
             "`jax.sharding.PartitionSpec` instances, but it was `None` when axis_names="
             f"{braces(axes)} are of type {kinds}", code="no-in-specs",
             help="pass `in_specs`: over Auto axes the arguments' types do not say how they "
                  "are cut")
    return [PartitionSpec(*(spec_entry(tuple(a for a in dim if a in axes))
                            for dim in t.entries),
                          unreduced=t.spec.unreduced & axes, reduced=t.spec.reduced & axes)
            for t in map(typeof, leaves)]


def _check_spec_tree(specs: Any, what: str, mesh: AbstractMesh, axes: Axes) -> None:
    """Refuse a tree of specs with other leaves, or with axes that are not Manual here. what:
    "in_specs" or "out_specs".
    """
    static = what == "in_specs"     # elsewhere None is an empty subtree, as in a result

    def is_leaf(x: Any) -> bool:
        return _is_spec(x) or (static and x is None)

    if all([s is None or _is_spec(s) and _fits(what, s, mesh, axes)
            for s in tree.leaves(specs, is_leaf)]):
        return
    for path, s in tree.leaves_with_path(specs, is_leaf):
        where = what + tree.keystr(path)
        if s is None and static:
            continue
        if not isinstance(s, PartitionSpec):
            raise TypeError(
                f"shard_map {what} argument must be a pytree of `jax.sharding.PartitionSpec` "
                f"instances, but:\n\n  {where} is {s} of type {type(s).__name__}, \n\nCheck "
                f"the {what} values passed to shard_map.")
        for a in s.axes():
            if a not in axes and a not in mesh.manual_axes:
                raise ValueError(
                    f"shard_map {what} argument must refer to an axis marked as manual "
                    f"({braces(axes)}), but:\n\n  {where} refers to {a!r}\n\nCheck the {what} "
                    "values passed to shard_map.")
        _check_spec(what, s, mesh, axes)


@cached(1024)
def _fits(what: str, s: PartitionSpec, mesh: AbstractMesh, axes: Axes) -> bool:
    """Whether a spec speaks of Manual axes only. Raises where it has another fault."""
    if not all(a in axes or a in mesh.manual_axes for a in s.axes()):
        return False
    _check_spec(what, s, mesh, axes)
    return True


def _check_spec(what: str, s: PartitionSpec, mesh: AbstractMesh, axes: Axes) -> None:
    check_pending(what, s, mesh, axes)
    NamedSharding(mesh.update_axis_types(dict.fromkeys(mesh.axis_names, AxisType.Explicit)),
                  s)                             # duplicates, unknown unreduced axes


class Entry(NamedTuple):
    """What arguments of some types undergo as they enter a region with some specs.

    targets: what each is brought to first, None for those that are as the spec says; () where all
    are. blocks: the types inside, of arguments that have been brought there.
    """
    targets: tuple[NamedSharding | None, ...]
    blocks: Types


@cached(4096)
def _entry(types: Types, specs: Specs, mesh: AbstractMesh, axes: Axes, check_vma: bool
           ) -> Entry | None:
    """How arguments enter; None where the specs do not cut them evenly."""
    try:
        check_ranks("", types, specs, ("",) * len(types))
        check_divisible("", types, specs, ("",) * len(types), mesh)
    except ValueError:
        return None
    targets = tuple([_reshard_target(t, s, mesh, axes) for t, s in zip(types, specs, strict=True)])
    return Entry(targets if any(targets) else (),
                 tuple([entering_type(t, s, mesh, axes, check_vma)
                        for t, s in zip(types, specs, strict=True)]))


def entered(function: str, values: list[Any], specs: Specs, names: Sequence[str],
            mesh: AbstractMesh, axes: Axes, check_vma: bool) -> tuple[list[Any], Types]:
    """Arguments, resharded where the specs require it, and the types of their blocks."""
    types = tuple([typeof(v) for v in values])
    entry = _entry(types, specs, mesh, axes, check_vma)
    if entry is None:
        check_ranks(function, types, specs, names)
        check_divisible(function, types, specs, names, mesh)
        raise AssertionError("the specs fit after all")
    if not entry.targets:
        return values, entry.blocks
    values = [v if target is None else OPS["reshard"].bind(v, dst_sharding=target)
              for v, target in zip(values, entry.targets, strict=True)]
    return values, tuple([entering_type(typeof(v), s, mesh, axes, check_vma)
                          for v, s in zip(values, specs, strict=True)])


def _reshard_target(t: ArrayType, s: PartitionSpec, mesh: AbstractMesh, axes: Axes
                    ) -> NamedSharding | None:
    """Over Explicit axes a spec must equal the argument's type, or be got by a reshard to this."""
    own = t.sharding.spec
    entries = s.entries + ((),) * (len(t.shape) - len(s.entries))
    if t.entries == entries and s.unreduced == own.unreduced and s.reduced == own.reduced:
        return None
    explicit = [a for a in mesh.explicit_axes if a in axes]
    if not explicit:
        return None
    whole = axes == frozenset(mesh.axis_names) and len(explicit) == len(axes)
    have = tuple(tuple(a for a in dim if a in axes) for dim in t.entries)
    same_sets = s.unreduced == t.spec.unreduced and s.reduced == t.spec.reduced
    if whole and not (have == entries and same_sets):
        fail(ValueError, f"in_specs passed to shard_map: {s.padded(t.ndim)} does not match "
             f"the specs of the input: {t.spec} for arg: {t}. `in_specs` is an optional "
             "argument so you can omit specifying it and shard_map will infer the in_specs "
             "from the arguments. If you want to reshard your inputs, you can use "
             "`jax.reshard` on the arguments and then pass those args to shard_map.",
             code="in-specs", help=f"bring the argument to {s.padded(t.ndim)} with `reshard`")
    for word, said, own in (("unreduced", s.unreduced, t.spec.unreduced),
                            ("reduced", s.reduced, t.spec.reduced)):
        if said != own:
            fail(ValueError, f"in_specs containing {word} {s} passed to shard_map should be "
                 f"equal to the {word} present on the in_aval {t.str_short(True)}",
                 code="in-specs", help="finish the sum with `reshard` before, or give the spec "
                 + (f"{word}={set(own)}" if own else f"no `{word}`"))
    if have == entries:
        return None
    rest = tuple(tuple(a for a in dim if a not in axes) for dim in t.entries)
    return named_sharding_abstract(mesh, spec_from_entries(
        tuple(e + r for e, r in zip(entries, rest, strict=True))))


def leaf_names(f: Callable[..., Any], count: int, structure: tree.PyTreeDef | None
               ) -> tuple[str, ...]:
    """The paths of the leaves of `count` arguments: parameter names, or `args[i]`.

    structure: that of the arguments; None where each is an array.
    """
    plain = plain_function(f)
    if plain is not None:
        code = plain.__code__
        known = code.co_varnames[:code.co_argcount]
        if not code.co_flags & inspect.CO_VARARGS:       # which would stand between the two
            known = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    else:
        try:
            parameters = list(inspect.signature(f).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        known = tuple([f"args[{i}]" if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) else p.name
                       for i, p in enumerate(parameters)])
    if structure is None:
        return (*known[:count], *[f"args[{i}]" for i in range(len(known), count)])
    return _paths(known[:count], structure)


@cached(1024)
def _paths(known: tuple[str, ...], structure: tree.PyTreeDef) -> tuple[str, ...]:
    """The paths of the leaves of arguments, of which the first ones have these names."""
    args = tree.unflatten(structure, range(structure.num_leaves))
    return tuple([name for i, x in enumerate(args)
                  for name in paths_of(x, known[i] if i < len(known) else f"args[{i}]")])


# -- results ---------------------------------------------------------------------------------------


def out_specs_of(prefix: Any, results: Any, structure: tree.PyTreeDef, mesh: AbstractMesh,
                 axes: Axes) -> Specs:
    """A spec for each leaf of the results."""
    if isinstance(prefix, list):
        prefix = tuple(prefix) if isinstance(results, tuple) else prefix
    flat = _spread(prefix, structure, "out_specs", mesh, axes)
    if flat is not None:
        return flat
    _check_spec_tree(prefix, "out_specs", mesh, axes)
    try:
        return tuple(tree.broadcast_prefix(prefix, results, _is_spec, "shard_map out_specs"))
    except tree.PrefixError as e:
        raise ValueError(str(e)) from None


def leave(name: str, outs: list[Any], specs: Specs, mesh: AbstractMesh, axes: Axes,
          results: Any, check_vma: bool) -> list[Any]:
    """Results as they leave the region of the function `name`: cast to what their specs say."""
    types = tuple([typeof(x) for x in outs])
    for t, s in zip(types, specs, strict=True):
        m, used = t.manual, s.axes()
        if (m.unreduced or m.reduced or s.unreduced or s.reduced or len(used) != len(m.varying)
                or not m.varying.issuperset(used) or len(s.entries) > len(t.shape)):
            break       # there is more to say than that it varies over the axes it is cut over
    else:
        if check_vma:
            return outs
    if _leave_as_they_are(types, specs, mesh, axes, check_vma):
        return outs
    paths = paths_of(results)
    check_out_ranks(name, types, specs, paths)
    if not check_vma:
        return outs
    left = []
    for x, t, s in zip(outs, types, specs, strict=True):
        pending, missing = _leaving_casts(t, s, mesh)
        if pending:
            check_cast(t, pending)
            x = OPS["vary_unreduced_cast_p"].bind(x, axes=pending)
        if missing:
            x = OPS["pvary"].bind(x, axes=missing)
        left.append(x)
    _check_left(name, tuple([typeof(x) for x in left]), specs, paths, mesh, axes)
    return left


def _leaving_casts(t: ArrayType, s: PartitionSpec, mesh: AbstractMesh
                   ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes over which a result becomes a pending sum, and those that it begins to vary over."""
    pending = s.unreduced - t.manual.unreduced
    missing = frozenset(s.axes()) - (t.varying - pending)
    order = mesh.axis_names
    return tuple([a for a in order if a in pending]), tuple([a for a in order if a in missing])


@cached(4096)
def _leave_as_they_are(types: Types, specs: Specs, mesh: AbstractMesh, axes: Axes,
                       check_vma: bool) -> bool:
    """Whether results of these types have nothing to be cast, and are what the specs say."""
    paths = [""] * len(types)
    try:
        check_out_ranks("", types, specs, paths)
        if not check_vma:
            return True
        if any([_leaving_casts(t, s, mesh) != ((), ()) for t, s in zip(types, specs, strict=True)]):
            return False
        _check_left("", types, specs, paths, mesh, axes)
    except ValueError:
        return False
    return True


def _check_left(name: str, types: Types, specs: Specs, paths: Sequence[str], mesh: AbstractMesh,
                axes: Axes) -> None:
    """Raise unless results of these types, cast, are what the specs say."""
    check_replication(name, types, specs, paths, mesh, axes)
    for t, s, path in zip(types, specs, paths, strict=True):
        for word in ("unreduced", "reduced"):
            have = getattr(t.manual, word) & axes
            if have != getattr(s, word):
                names = ", ".join(map(repr, sorted(have)))
                fail(ValueError, f"out_specs passed to shard_map should be equal to the {word} "
                     f"present on the out_aval. Got out_specs={s} and "
                     f"out_aval={t.str_short(True)}", code="pending-output",
                     label=f"of out_specs{path}",
                     help=f"write {word}={{{names}}} in that spec" if have else
                     f"leave `{word}` out of that spec: the output has no such axes")
