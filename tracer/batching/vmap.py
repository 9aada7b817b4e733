"""vmap: a function of one example made into a function of a stack of them.

The function is called once, on tracers of one example (interpreter.py); ops on them are bound
batched (rules.py). Outside of jit unmapped arguments, and all that is computed from them, are
concrete: Python control flow and printing work on them. Here is what surrounds that: which
dimension of which argument is mapped, and JAX's checks and messages about it.
Source: JAX's `jax.vmap`.
"""
from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.inference.unreduced import is_pending, refuse_pending
from ...ir.settings.context import STATE, config
from ...ir.values.typeof import typeof
from ..lax.control.mapping import VMAP
from ..references import transformations
from ..staging import leaks
from ..trees import tree
from . import callbacks as batching_callbacks
from . import collectives as batching_collectives
from . import control as batching_control
from . import custom as batching_custom
from . import memoized as batching_composed
from . import regions as batching_regions
from .interpreter import VmapBuilder, call_mapped, mapped_argument, unmapped
from .rules import MappedAxis, to_dim

_RULES = (batching_callbacks, batching_collectives, batching_composed, batching_control,
          batching_custom, batching_regions)  # on import


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0,
         axis_name: Hashable | None = None, axis_size: int | None = None,
         spmd_axis_name: str | tuple[str, ...] | None = None) -> Callable[..., Any]:
    """`fun` mapped over a dimension of its arguments, without a loop.

    in_axes: the dimension of each positional argument that is mapped, an int or None (the same for
      all), or a tuple with a tree prefix of them for each argument; keyword arguments are mapped
      along dimension 0. out_axes: where the mapped dimension goes in the results (a tree prefix);
      None for results that are the same for all.
    axis_name: what collectives in `fun` (`lax.psum`, ...) call the mapped dimension.
    axis_size: its size, needed where no argument is mapped.
    spmd_axis_name: mesh axes over which constraints and shard_maps in `fun` split it.
    On Explicit meshes all mapped dimensions are split alike; so is that of every result, and what
    `fun` says about shardings is about the other dimensions.

    Raises ValueError where mapped sizes differ, and over Explicit axes where mapped dimensions
    are not split alike.

    Sharding
      Auto: a mapped dimension is split or not like any other.
      Explicit: all mapped dimensions are split alike, and so is that of every result; what `fun`
        says of shardings is about the other dimensions.
      Manual: maps over a dimension of each device's block; collectives over mesh axes go through.

    >>> st.vmap(jnp.dot, in_axes=(0, None))(jnp.ones((5, 3)), jnp.ones(3)).shape
    (5,)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if isinstance(spmd_axis_name, str):
        spmd_axis_name = (spmd_axis_name,)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if in_axes is not None and type(in_axes) not in (int, tuple):
        raise TypeError("vmap in_axes must be an int, None, or a tuple of entries corresponding to "
                        f"the positional arguments passed to the function, but got {in_axes}.")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(d) is int for d in tree.leaves(axes)):
            raise TypeError(f"vmap {what} must be an int, None, or (nested) container with those "
                            f"types as leaves, but got {axes}.")

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return _call(fun, args, kwargs, in_axes, out_axes, axis_name, axis_size, spmd_axis_name)

    mapped.__doc__ = (f"Vectorized version of {getattr(fun, '__name__', fun)}: takes its arguments "
                      "with one more dimension, over which it is mapped.")
    if fun.__doc__:
        mapped.__doc__ += f"\n\nOriginal documentation:\n\n{fun.__doc__}"
    return mapped


@transformations.mapped
def _call(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], in_axes: Any,
          out_axes: Any, axis_name: Hashable, axis_size: int | None,
          spmd: tuple[str, ...] | None) -> Any:
    """The results of `vmap(fun)` on these arguments: which dimensions are mapped, the function on
    tracers of one example, and its results put where `out_axes` says.
    """
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding "
                         "to the positional arguments passed to the function, but got "
                         f"len(in_axes)={len(in_axes)}, len(args)={len(args)}")
    leaves, treedef = tree.flatten((args, kwargs))
    if not kwargs:
        dims = _prefix("vmap in_axes", in_axes, args, len(leaves))
    else:
        named = len(tree.leaves(kwargs))
        dims = [*_prefix("vmap in_axes", in_axes, args, len(leaves) - named), *[0] * named]
    size = _axis_size(fun, args, kwargs, leaves, dims, axis_size)
    axis = _mapped_axis(leaves, dims, size, axis_name, spmd)
    builder = VmapBuilder(getattr(fun, "__name__", type(fun).__name__), STATE.interpreter, axis)
    inner_args, inner_kwargs = tree.unflatten(treedef, [
        x if d is None else mapped_argument(builder, x, d)
        for x, d in zip(leaves, dims, strict=True)])
    results = _results(builder, call_mapped(builder, fun, *inner_args, **inner_kwargs), out_axes)
    if (STATE.overrides or not config.unwatched) and leaks.watching():
        del inner_args, inner_kwargs
        leaks.check(builder)
    return results


def _prefix(what: str, axes: Any, full: Any, count: int) -> list[Any]:
    """The entry of `axes`, a prefix of `full`, for each of its `count` leaves."""
    if axes is None or type(axes) is int:
        return [axes] * count
    try:
        return tree.broadcast_prefix(axes, full, name=what)
    except tree.PrefixError as e:
        raise ValueError(f"{what} specification must be a tree prefix of the corresponding value; "
                         f"\n  Mismatch details (1 found):\n  {e}") from None


def _results(builder: VmapBuilder, results: Any, out_axes: Any) -> Any:
    """Results with the mapped dimension where `out_axes` has it; one that is not mapped is repeated
    there. Refuses a mapped result at None.
    """
    leaves, treedef = tree.flatten(results)
    # the first is what the user knows of
    inner = isinstance(out_axes, transformations.OutAxesWithReferences)
    places = _prefix("vmap out_axes", tuple(out_axes) if inner else out_axes, results, len(leaves))
    given = out_axes[0] if inner else out_axes
    out = []
    for i, (x, place) in enumerate(zip(leaves, places, strict=True)):
        try:
            t = typeof(x)
        except TypeError:
            raise TypeError(f"Output from batched function {x!r} with type {type(x)} is not a "
                            "valid JAX type") from None
        x, dim = unmapped(builder, x)
        if place is None:
            if dim is not None:
                where = ""
                if isinstance(given, (tuple, list, dict)):
                    where = tree.keystr(tree.leaves_with_path(results)[i][0][inner:])
                name = builder.axis.name
                fail(ValueError, f"vmap has mapped output (axis_name={name}) but out_axes is None"
                     if given is None and name is not None else
                     f"at vmap out_axes{where}, got axis spec None but output was "
                     f"batched on axis {dim}", code="mapped-output",
                     label="this result differs from example to example",
                     help="give it a dimension in out_axes")
            out.append(x)
            continue
        if not -t.ndim - 1 <= place <= t.ndim:
            raise ValueError(f"axis {place} is out of bounds for array of dimension {t.ndim + 1}")
        out.append(to_dim(x, dim, place % (t.ndim + 1), builder.axis))
    return tree.unflatten(treedef, out)


# -- the mapped axis -------------------------------------------------------------------------------

def _mapped_axis(leaves: Sequence[Any], dims: Sequence[int | None], size: int, name: Hashable,
                 spmd: tuple[str, ...] | None) -> MappedAxis:
    """The axis, with the Explicit mesh axes that split it: the same ones in every mapped leaf."""
    mapped = [(typeof(x), d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    if any(is_pending(t) for t, _ in mapped):
        refuse_pending("vmap", [t for t, _ in mapped])
    entries = [t.entries[d] for t, d in mapped]
    for entry in entries[1:]:
        if entry != entries[0]:
            fail(ValueError, "Mapped away dimension of inputs passed to vmap should be sharded the "
                 f"same. Got inconsistent axis specs: {_text(entries[0])} vs {_text(entry)}",
                 code="mapped-sharding",
                 label=", ".join(f"{t.str_short(True)} along {d}" for t, d in mapped),
                 help="bring the mapped dimensions to one sharding with `reshard`")
    entry = entries[0] if entries else ()
    if not entry:
        return MappedAxis(size, name, spmd=spmd or ())
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            t = typeof(x)
            if {a for e in t.entries for a in e} & set(entry):
                fail(ValueError, "Unmapped values passed to vmap cannot be sharded along the mesh "
                     f"axis you are vmapping over. Got type: {t.str_short(True)}, in_axes: None "
                     f"and vmapped mesh axis: {entry}", code="unmapped-sharding",
                     help="bring the unmapped value to another sharding with `reshard`")
    if spmd is not None and spmd != entry:
        fail(ValueError, "Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis "
             f"type is allowed. Got spmd_axis_name={spmd} and arrays sharded on "
             f"explicit_mesh_axis={entry}", code="spmd-axis",
             help="leave spmd_axis_name out: the arrays say how they are split")
    return MappedAxis(size, name, entry, mapped[0][0].mesh)


def _text(entry: tuple[str, ...]) -> Any:
    return None if not entry else entry[0] if len(entry) == 1 else entry


def _axis_size(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
               leaves: Sequence[Any], dims: Sequence[int | None], given: int | None) -> int:
    """The size of the mapped axis. Raises JAX's ValueError where arguments have none, or differ."""
    if not leaves:
        if given is not None:
            return given
        raise ValueError("vmap wrapped function must be passed at least one argument containing an "
                         "array or axis_size must be specified, got empty "
                         f"*args={args} and **kwargs={kwargs}")
    sizes: list[int | None] = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            sizes.append(None)
            continue
        shape = typeof(x).shape
        if not -len(shape) <= d < len(shape):
            raise ValueError(
                f"vmap was requested to map its argument along axis {d}, which implies that its "
                f"rank should be at least {d + 1 if d >= 0 else -d}, but is only {len(shape)} "
                f"(its shape is {shape})")
        sizes.append(shape[d])
    found = {n for n in sizes if n is not None}
    if given is not None:
        found.add(given)
    if not found:
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must "
                         "be specified")
    if len(found) == 1:
        return found.pop()
    names = _leaf_names(fun, args, kwargs)
    lines = [] if given is None else [f"  * the `axis_size` argument was {given}"]
    counts = collections.Counter(n for n in sizes if n is not None).most_common()
    for i, (n, count) in enumerate(counts):
        first = sizes.index(n)
        place = f"axis {dims[first]} of {names[first]} of type {typeof(leaves[first]).str_short()}"
        if count == 1:
            lines.append(f"  * one axis had size {n}: {place}")
        else:
            many = "some" if i else "most"
            lines.append(f"  * {many} axes ({count} of them) had size {n}, e.g. {place}")
    raise ValueError("vmap got inconsistent sizes for array axes to be mapped:\n"
                     + ";\n".join(lines))


def _leaf_names(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> list[str]:
    """What messages call each leaf of the arguments: by parameter where the signature is known."""
    try:
        parameters = list(inspect.signature(fun).bind(*args, **kwargs).signature.parameters)
    except (TypeError, ValueError):
        parameters = []
    names = []
    for path, _ in tree.leaves_with_path(args):
        i = path[0].idx
        names.append(f"argument {parameters[i]}{tree.keystr(path[1:])}" if i < len(parameters)
                     else f"args{tree.keystr(path)}")
    return names + [f"kwargs{tree.keystr(path)}" for path, _ in tree.leaves_with_path(kwargs)]


VMAP[:] = [vmap]
