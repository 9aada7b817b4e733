"""`from_jax`: a function written for real JAX as a jitted function of shardtrace."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.extras import need_jax
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.shardings.sharding import Sharding
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import typeof
from ...tracer.staging.signature import Arguments
from ..imported import Imported
from ..jax_values import dtype_of, is_key, mesh_of, sharding_of, struct_of, theirs_of
from ..stablehlo.module import Module
from . import control, special_primitives  # noqa: F401  (they enter their rules)
from .equations import Replay

jax = lazy_import("jax")
core = lazy_import("jax.extend.core")


def from_jax(fun: Any, *args: Any, mesh: Any = None, in_shardings: Any = None,
             out_shardings: Any = None, static_argnums: Any = None, static_argnames: Any = None,
             **kwargs: Any) -> Imported:
    """The program of a JAX function, as a jitted function of shardtrace.

    fun: a function of JAX arrays, jitted or not; what `jax.jit(f).trace(...)` gives, or
      `.lower(...)`, which is read as StableHLO; or a ClosedJaxpr. JAX traces it, and what it makes
      of it (derivatives, batches, loops, regions of
      shard_map) is traced again here, so that types, partition, costs and explanations are those
      of the program that runs there. Equations stand at the user's lines.
    args, kwargs: the arguments, pytrees of JAX's or numpy's arrays or of jax.ShapeDtypeStructs;
      leaves of another kind are a part of the program. Not for a traced function or a jaxpr.
    mesh: where specs stand, of JAX or of shardtrace; shardings of JAX's that name axes of it are
      moved to it. By default each sharding is on a mesh like its own.
    in_shardings, out_shardings: specs or shardings, tree prefixes of the positional arguments and
      of the result, instead of the arguments' own and of those that jax.jit was given.
    static_argnums, static_argnames: arguments that are a part of the program, as given to jax.jit.
    Raises ImportError where JAX is not installed, and NotImplementedError, with the user's line,
    for a primitive that is not known here; `interop.register` makes it known.

    >>> import jax
    >>> step = st.interop.from_jax(lambda a, b: jax.numpy.tanh(a @ b), jax.ShapeDtypeStruct(
    ...     (8, 16), "float32"), jax.ShapeDtypeStruct((16, 4), "float32"),
    ...     mesh=st.make_mesh((8,), ("x",)), in_shardings=(P(None, "x"), P("x")))
    >>> [(c.kind, c.mesh_axes) for c in st.explain(step)().collectives]
    [('all-reduce', ('x',))]
    """
    need_jax("from_jax")
    ours = None if mesh is None else mesh_of(mesh)
    if isinstance(fun, core.ClosedJaxpr | jax.stages.Traced | jax.stages.Lowered):
        if args or kwargs:
            raise TypeError("from_jax: a traced function has its arguments; pass it alone")
        source: Module | _Jaxpr = _of_lowered(fun, ours) if isinstance(
            fun, jax.stages.Lowered) else _of_traced(fun)
    elif callable(fun):
        source = _of_function(fun, args, kwargs, Arguments(
            inspect.unwrap(fun), static_argnums, static_argnames, None, None))
    else:
        raise TypeError(f"from_jax takes a function, what jax.jit(f).trace() gives, or a "
                        f"ClosedJaxpr, not {type(fun).__name__}")
    given = source.shardings if in_shardings is None else _spread(in_shardings, source, False)
    structs = [struct_of(x, ours, s) for x, s in zip(source.leaves, given, strict=True)]
    requested = source.results if out_shardings is None else _spread(out_shardings, source, True)
    results = [sharding_of(s, ours) for s in requested]
    return Imported(source, structs, results, ours)


class _Jaxpr:
    """What JAX made of a function. closed: the jaxpr. leaves: what stands for its arguments, of
    JAX or numpy; names: of them. in_tree, out_tree: of the positional and keyword arguments, and
    of the result; None where these are flat. shardings, results: that jax.jit was given. again: the
    jaxpr for leaves of other shapes. origin: the function.
    """

    def __init__(self, closed: Any, leaves: Sequence[Any], names: Sequence[str], in_tree: Any,
                 out_tree: Any, again: Callable[[Sequence[Any]], Any] | None,
                 origin: Any = None) -> None:
        self.origin = origin
        self.leaves, self.names = leaves, tuple(names)
        self.in_tree, self.out_tree, self.again = in_tree, out_tree, again
        self.shardings: Sequence[Any] = [None] * len(leaves)
        self.results: Sequence[Any] = [None] * len(closed.out_avals)
        self.donated: tuple[int, ...] = ()
        self.name = control.name_of(closed.jaxpr)
        self.closed = self._without_jit(closed)

    def _without_jit(self, closed: Any) -> Any:
        """The program of a jitted function that is all; what it was jitted with is noted."""
        whole = _only_call(closed)
        if whole is None:
            return closed
        params = whole.params
        self.shardings = [_requested(s) for s in params["in_shardings"]]
        self.results = [_requested(s) for s in params["out_shardings"]]
        self.donated = tuple([i for i, d in enumerate(params["donated_invars"]) if d])
        self.name = params["name"]
        return params["jaxpr"]

    def jaxpr(self, types: Sequence[Any]) -> Any:
        """The jaxpr for arguments of these types of ours."""
        if all([t.shape == tuple(v.aval.shape) and t.dtype == dtype_of(v.aval.dtype)
                for t, v in zip(types, self.closed.jaxpr.invars, strict=True)]):
            return self.closed
        if self.again is None:
            raise ValueError("from_jax: a traced function has arguments of its own shapes and "
                             "dtypes; import the function itself to have it for others")
        closed = self.again([x if is_key(v.aval.dtype) else jax.ShapeDtypeStruct(t.shape, t.dtype)
                             for x, t, v in zip(self.leaves, types, self.closed.jaxpr.invars,
                                                strict=True)])
        whole = _only_call(closed)
        return closed if whole is None else whole.params["jaxpr"]

    def hlo(self, structs: Sequence[ShapeDtypeStruct], results: Sequence[Any]) -> str:
        """The HLO that XLA compiles it to, for the shardings of arguments and results."""
        given = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, sharding=theirs_of(s.sharding))
                 for v, s in zip(self.closed.jaxpr.invars, structs, strict=True)]
        requested = [theirs_of(s) for s in results]
        run = jax.jit(core.jaxpr_as_fun(self.closed), donate_argnums=self.donated,
                      out_shardings=requested if any([s is not None for s in requested]) else None)
        return run.lower(*given).compile().as_text()

    def replayed(self, leaves: Sequence[Any], mesh: Mesh | AbstractMesh | None) -> list[Any]:
        """The results for leaves of ours, under our tracing."""
        return Replay(mesh).closed(self.jaxpr([typeof(x) for x in leaves]), leaves)


def _requested(theirs: Any) -> Any:
    return theirs if isinstance(theirs, jax.sharding.Sharding) else None


def _only_call(closed: Any) -> Any:
    """The equation of a jaxpr that does nothing but call a jitted function."""
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].primitive.name not in ("jit", "pjit"):
        return None
    (eqn,) = jaxpr.eqns
    same = list(eqn.invars) == list(jaxpr.invars) and list(eqn.outvars) == list(jaxpr.outvars)
    return eqn if same else None


class _Form(NamedTuple):
    """How arguments are structured. tree: of those that are not static. arrays: which leaves are
    arguments of the program, others: the leaves that are not, None elsewhere. signature: says
    which arguments are static; static: those.
    """
    tree: Any
    arrays: list[bool]
    others: list[Any]
    signature: Arguments
    static: tuple[Any, ...]


def _of_function(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], signature: Arguments
                 ) -> _Jaxpr:
    """The jaxpr of a function on these arguments, with the paths of its arguments. Leaves that are
    no arrays, and static arguments, are closed over.
    """
    given, named, static = signature.split(args, kwargs)
    paths, tree = jax.tree_util.tree_flatten_with_path((given, named))
    arrays = [_is_argument(fun, x) for _, x in paths]
    others = [None if is_array else x for is_array, (_, x) in zip(arrays, paths, strict=True)]

    def flat(*leaves: Any) -> Any:
        values = iter(leaves)
        full = [next(values) if is_array else x for is_array, x in zip(arrays, others, strict=True)]
        given, named = jax.tree_util.tree_unflatten(tree, full)
        own_args, own_kwargs = signature.merge(given, named, static)
        return fun(*own_args, **own_kwargs)

    def again(leaves: Sequence[Any]) -> Any:
        return jax.make_jaxpr(flat)(*leaves)

    leaves = [x for is_array, (_, x) in zip(arrays, paths, strict=True) if is_array]
    if all(arrays) and not static:      # then what is said of arguments names those of `fun`
        closed, shape = jax.make_jaxpr(fun, return_shape=True)(*args, **kwargs)
    else:
        closed, shape = jax.make_jaxpr(flat, return_shape=True)(*leaves)
    found = [_path(signature, path) for is_array, (path, _) in zip(arrays, paths, strict=True)
             if is_array]
    source = _Jaxpr(closed, leaves, found, _Form(tree, arrays, others, signature, static),
                    jax.tree_util.tree_structure(shape), again, inspect.unwrap(fun))
    source.name = getattr(fun, "__name__", source.name)
    return source


def _of_traced(traced: Any) -> _Jaxpr:
    """The jaxpr of what `jax.jit(f).trace(...)` or `jax.make_jaxpr` gave, with the shardings that
    were asked for.
    """
    is_closed = isinstance(traced, core.ClosedJaxpr)
    closed = traced if is_closed else traced.jaxpr
    avals = closed.in_avals
    known = closed.jaxpr.debug_info.arg_names or ()
    names = [n or f"a{i}" for i, n in enumerate(known)] if len(known) == len(avals) else [
        f"a{i}" for i in range(len(avals))]
    out_tree = None if is_closed else jax.tree_util.tree_structure(traced.out_info)
    source = _Jaxpr(closed, avals, names, None, out_tree, None)
    if not is_closed:
        source.name = traced.fun_name
        params = getattr(traced, "_params", {})
        source.shardings = [_requested(s) for s in params.get("in_shardings", source.shardings)]
        source.results = [_requested(s) for s in params.get("out_shardings", source.results)]
    return source


def _of_lowered(lowered: Any, mesh: Mesh | AbstractMesh | None) -> Module:
    """The module of a lowered function. Arguments are those that the program reads."""
    module = Module(lowered.as_text(debug_info=True), mesh)
    module.out_tree = lowered.out_tree
    return module


def _is_argument(fun: Any, x: Any) -> bool:
    """Is a leaf an argument of the program? Truth values are read by Python, and for functions of
    equinox (`filter_jit`) all its scalars.
    """
    if isinstance(x, bool | int | float | complex):
        return not isinstance(x, bool) and type(fun).__module__.partition(".")[0] != "equinox"
    return isinstance(x, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic)


def _path(names: Arguments, path: tuple[Any, ...]) -> str:
    """`params['w']`: what the function calls an argument, and the way to the leaf in it."""
    first, second, *rest = path
    if first.idx == 0:
        known, i = names.positional_names, second.idx
        base = known[i] if i < len(known) else f"{names.rest_name}[{i - len(known)}]"
    else:
        base = str(second.key)
    return base + jax.tree_util.keystr(tuple(rest))


def _spread(requested: Any, source: Module | _Jaxpr, is_result: bool) -> list[Any]:
    """A tree prefix of specs or shardings, one for each leaf."""
    form = source.out_tree if is_result else source.in_tree
    if form is None:
        return list(requested)
    if is_result:
        return _broadcast(requested, jax.tree_util.tree_unflatten(form, range(form.num_leaves)))
    args, kwargs = jax.tree_util.tree_unflatten(form.tree, range(form.tree.num_leaves))
    kwargs_count = len(jax.tree_util.tree_leaves(kwargs))
    found = _broadcast(tuple(requested) if isinstance(requested, list) else requested, args)
    found += [None] * kwargs_count
    return [s for s, is_array in zip(found, form.arrays, strict=True) if is_array]


def _broadcast(prefix: Any, whole: Any) -> list[Any]:
    """A None in a prefix leaves the leaves below it open; a None that has none below is a node."""
    def is_spec(x: Any) -> bool:
        return isinstance(x, PartitionSpec | Sharding)
    said = jax.tree.map(lambda s: _NOTHING if s is None else s, prefix,
                        is_leaf=lambda x: x is None or is_spec(x))
    spread = jax.tree.broadcast(said, whole, is_leaf=is_spec)
    return [None if s is _NOTHING else s for s in jax.tree_util.tree_leaves(spread, is_spec)]


_NOTHING = object()


