"""custom_partitioning: a user's function that is split by a rule, and runs on blocks.

    @custom_partitioning
    def scaled(x, w):
        return kernel(x, w)

    scaled.def_partition(sharding_rule="i k, k j -> i j | k:sum")

The rule names the factors of every dimension; operands and results that share one are split alike
along it, in Auto mode by propagation. On each device the function runs on blocks, or what
`partition` returns does. After `jax.experimental.custom_partitioning`.
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.api_boundary import bound_class
from ..ir.diagnostics.diagnostic import fail
from ..ir.meshes.mesh import AbstractMesh, AxisType, empty_abstract_mesh
from ..ir.ops.control.user_partitioned import custom_partitioning_p
from ..ir.program import Program
from ..ir.rules.factor import HALO, KINDS, PASS, REDUCERS, REPLICATE
from ..ir.rules.notation import rule_text
from ..ir.rules.parse import RuleError, kinds_of
from ..ir.rules.rule import make_rule
from ..ir.settings.context import STATE, config
from ..ir.shardings.normalized import unsharded
from ..ir.shardings.sharding import NamedSharding
from ..ir.spec import PartitionSpec, spec_from_entries
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.spelling import close_match
from ..ir.types import ArrayType, Entries, array_type
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..ir.values.typeof import typeof
from .sharding_rules import SdyShardingRule
from .staging.staging import trace_to_program
from .trees import tree

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_WORDS = {"reduction_factors": "sum", "need_replication_factors": REPLICATE,
          "permutation_factors": HALO}
COMBINED = tuple([word for word in REDUCERS if not word.startswith("arg")])


@bound_class
class custom_partitioning:
    """`fun` with a factor rule of the user's.

    static_argnums: positions of arguments that are no arrays. Before it is called, `def_partition`
    says how it may be split. Values that it needs are arguments; it has no derivative and no vmap
    (wrap it in `custom_vjp`).

    >>> from shardtrace.experimental.custom_partitioning import custom_partitioning
    >>> @custom_partitioning
    ... def product(x, w):
    ...     return x @ w
    >>> product.def_partition(sharding_rule="i k, k j -> i j", reduction_factors=("k",))
    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Auto,))
    >>> x = st.device_put(jnp.ones((16, 8)), st.sharding.NamedSharding(mesh, P("x")))
    >>> st.jit(product)(x, jnp.ones((8, 4))).sharding.spec
    P('x',)
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Sequence[int] = ()) -> None:
        self.fun = fun
        self.static_argnums = tuple(static_argnums)
        self.defined = self.by_callbacks = False
        self.partition: Callable[..., Any] | None = None
        self.sharding_rule: Any = None
        self.kinds: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            value = getattr(fun, name, None)
            if value is not None:
                setattr(self, name, value)

    def def_partition(self, partition: Callable[..., Any] | None = None,
                      infer_sharding_from_operands: Any = None,
                      propagate_user_sharding: Any = None, decode_shardings: bool = True,
                      sharding_rule: Any = None, *,
                      reduction_factors: Sequence[str] = (),
                      need_replication_factors: Sequence[str] = (),
                      permutation_factors: Sequence[str] = (), **factor_sizes: int
                      ) -> Callable[..., Any] | None:
        """Say how the function is split.

        sharding_rule: "i k, k j -> i j": the factors of each dimension of each argument and result
          (`...` for any number of them, `(a b)` for a dimension of two, whose sizes are keyword
          arguments), and after `|` the kinds of some, as in the rule of any op:
          "i k -> i | k:max" for partial results that are combined by max, `k:replicate` for what
          nothing may split. Or the same as Shardy writes it, "([i, k],[k, j])->([i, j])
          {i=8, k=4, j=2} reduction={k}". Or a `SdyShardingRule`. Or a function of (mesh, argument
          shapes, result shapes) that returns one of these. Without one nothing may be split.
        reduction_factors: those along which partial results are to be added up.
          need_replication_factors: those along which nothing may be split. permutation_factors:
          those whose blocks depend on others; `partition` exchanges what is needed.
        partition: (mesh, argument shapes, result shapes) -> (mesh, function on blocks, result
          shardings, argument shardings); shapes are ShapeDtypeStructs with the sharding that was
          come to. The function adds up partial results itself (`lax.psum` over axes of the mesh).
          Without it `fun` itself runs on blocks, and partial results are added up after it; then
          only factors that argument and result share, or reductions, are split.
        infer_sharding_from_operands, propagate_user_sharding, decode_shardings: of the way before
          sharding rules; they have no effect. With the first two and no rule a call raises
          NotImplementedError, as in JAX (unless the setting `jax_use_shardy_partitioner` is off).

        Returns `partition`. Raises ValueError for factors that the rule does not name.
        """
        special = {"reduction_factors": reduction_factors,
                   "need_replication_factors": need_replication_factors,
                   "permutation_factors": permutation_factors}
        if isinstance(sharding_rule, SdyShardingRule):
            factor_sizes = {**sharding_rule.factor_sizes, **factor_sizes}
            sharding_rule = sharding_rule.text()
        kinds: dict[str, str] = {}
        for name, factors in special.items():
            for factor in factors:
                if factor in kinds:
                    raise ValueError(f"factor {factor!r} is given twice: as one of {name} too")
                kinds[factor] = name
        if not isinstance(sharding_rule, str):
            given = [n for n, f in special.items() if f] + list(factor_sizes)
            if given:
                raise ValueError(f"Unknown keyword arguments: {', '.join(given)}; they go with a "
                                 "sharding_rule that is a text")
        else:
            try:
                rule, sizes = rule_text(sharding_rule)
            except RuleError as problem:
                raise ValueError(str(problem)) from None
            factor_sizes = {**sizes, **factor_sizes}
            names = set(_NAME.findall(rule.partition("|")[0]))
            unknown = sorted({*kinds, *factor_sizes} - names)
            if unknown:
                raise ValueError(f"sharding_rule {sharding_rule!r} has no factor "
                                 f"{', '.join(map(repr, unknown))}")
        self.by_callbacks = sharding_rule is None and not (
            infer_sharding_from_operands is None and propagate_user_sharding is None)
        self.partition, self.sharding_rule = partition, sharding_rule
        self.kinds, self.sizes, self.defined = kinds, dict(factor_sizes), True
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.defined:
            fail(ValueError, f"custom_partitioning: `{self._name()}` is called before "
                 "`def_partition`", code="no-partition",
                 help="say how it is split, with `def_partition` and a `sharding_rule`")
        if self.by_callbacks and config.jax_use_shardy_partitioner:
            fail(NotImplementedError, "Shardy is used, but sharding propagation callbacks instead "
                 "of sharding_rule are provided. Need to provide sharding_rule to migrate to "
                 "Shardy.", code="no-partition",
                 help="give `def_partition` a `sharding_rule`")
        if kwargs:
            bound = inspect.signature(self.fun).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        static = [i % len(args) for i in self.static_argnums]
        dynamic = tuple(x for i, x in enumerate(args) if i not in static)
        leaves, in_tree = tree.flatten(dynamic)
        fun = self._with_static(args, static)
        types = [typeof(x) for x in leaves]
        bare = [array_type(t.shape, t.dtype, t.weak_type) for t in types]
        out: list[Any] = []

        def flat(*values: Any) -> list[Any]:
            found, out_tree = tree.flatten(fun(*tree.unflatten(in_tree, values)))
            out.append(out_tree)
            return found

        program = _traced(flat, bare, self._name(), empty_abstract_mesh)
        results = tuple(program.out_avals)
        call = _Call(self, fun, flat, tuple(args[i] for i in static), in_tree, out[0])
        try:
            rule = call.rule(bare, results)
        except RuleError as problem:
            fail(ValueError, f"custom_partitioning of `{self._name()}`: {problem}",
                 code="sharding-rule",
                 help="correct the `sharding_rule` of its `def_partition`, such as "
                      "'... i -> ... i'")
        leaves = custom_partitioning_p.bind(
            *leaves, call=call, rule=rule, sizes=tuple(sorted(call.sizes.items())),
            result_avals=results)
        return tree.unflatten(out[0], leaves)

    def _name(self) -> str:
        return getattr(self.fun, "__name__", type(self.fun).__name__)

    def _with_static(self, args: tuple, static: Sequence[int]) -> Callable[..., Any]:
        def fun(*dynamic: Any) -> Any:
            rest = iter(dynamic)
            return self.fun(*[a if i in static else next(rest) for i, a in enumerate(args)])
        return fun


class Blocks(NamedTuple):
    """What runs on blocks: a program, the layouts that it takes and gives, and a name for it."""
    program: Program
    operands: tuple[Entries, ...]
    results: tuple[Entries, ...]
    name: str


class _Call:
    """One call: the callable param of an equation."""

    def __init__(self, owner: custom_partitioning, fun: Callable[..., Any],
                 flat: Callable[..., list[Any]], static: tuple, in_tree: Any, out_tree: Any
                 ) -> None:
        self.owner, self.fun, self.flat = owner, fun, flat
        self.static, self.in_tree, self.out_tree = static, in_tree, out_tree
        self.partition, self.sizes = owner.partition, dict(owner.sizes)
        self.__module__ = getattr(owner.fun, "__module__", "")
        self.__qualname__ = getattr(owner.fun, "__qualname__", owner._name())

    def __call__(self, *args: Any) -> Any:
        return self.fun(*args)

    def rule(self, operands: Sequence[ArrayType], results: Sequence[ArrayType]) -> str:
        """The rule in the notation of factor rules, checked against these types."""
        owner = self.owner
        shapes = [t.shape for t in operands], [t.shape for t in results]
        text: Any = owner.sharding_rule
        if callable(text):
            structs = [[ShapeDtypeStruct(t.shape, t.dtype) for t in ts]
                       for ts in (operands, results)]
            text = text(STATE.abstract_mesh, *structs)
        said_sizes = getattr(text, "factor_sizes", {})
        if isinstance(text, SdyShardingRule):
            text = text.text()
        text, sizes = rule_text(_private(*shapes) if text is None else text)
        self.sizes = {**sizes, **said_sizes, **owner.sizes}
        body, _, tail = text.partition("|")
        said: dict[str, str] = {}
        for factor, _, kind in [item.partition(":") for item in kinds_of(tail)]:
            if said.keys() & {factor.rstrip("!"), f"{factor.rstrip('!')}!"}:
                raise RuleError(f"rule {text!r} says {factor.rstrip('!')!r} twice")
            said[factor] = kind
        self._check_kinds(said, body, text)
        left, arrow, right = body.partition("->")
        if not arrow:
            raise RuleError(f"rule {text!r} has no `->`")
        of_operands, of_results = set(_NAME.findall(left)), set(_NAME.findall(right))
        kinds = []
        for factor in dict.fromkeys(_NAME.findall(left) + _NAME.findall(right)):
            mark = "!" if f"{factor}!" in said else ""
            kind = said.get(factor + mark, "") or _WORDS.get(owner.kinds.get(factor, ""), "")
            shared = factor in of_operands and factor in of_results
            if self.partition is not None:
                kind = kind if kind == REPLICATE and owner.sharding_rule is not None else ""
                kind = REPLICATE if owner.sharding_rule is None else kind
            elif kind in REDUCERS and (factor not in of_operands or shared):
                kind = REPLICATE
            elif kind not in REDUCERS and (kind not in ("", PASS) or not shared):
                kind = REPLICATE
            if kind or mark:
                kinds.append(f"{factor}{mark}:{kind or PASS}")
        rule = body.strip() + (f" | {' '.join(kinds)}" if kinds else "")
        make_rule(rule, *shapes, self.sizes)
        return rule

    def _check_kinds(self, said: dict[str, str], body: str, text: str) -> None:
        """Raise RuleError for unknown kinds of factors, or factors that the rule does not have."""
        unknown = sorted({name.rstrip("!") for name in said} - {*_NAME.findall(body)})
        if unknown:
            raise RuleError(f"rule {text!r} has no factor {', '.join(map(repr, unknown))}")
        allowed = (PASS, REPLICATE, HALO, *COMBINED)
        for factor, word in said.items():
            if word not in allowed:
                why = "is for ops that know it" if word.partition("(")[0] in KINDS + REDUCERS else (
                    f"is unknown; {close_match(word, allowed)}".rstrip("; "))
                raise RuleError(f"kind {word!r} of factor {factor!r} in rule {text!r} {why}; one "
                                f"of {', '.join(allowed)}")

    def on_blocks(self, operands: Sequence[ArrayType], results: Sequence[ArrayType]) -> Blocks:
        """What runs on one device, for operands and results with these layouts."""
        mesh = next((t.mesh for t in (*results, *operands) if not t.mesh.empty), None)
        ins, outs = tuple(t.entries for t in operands), tuple(t.entries for t in results)
        flat = self.flat
        if self.partition is not None and mesh is not None:
            flat, ins, outs = self._requested(mesh, operands, results)
        manual = empty_abstract_mesh if mesh is None else AbstractMesh(
            mesh.axis_sizes, mesh.axis_names, (AxisType.Manual,) * len(mesh.axis_names))
        local = [_block(t, e, manual) for t, e in zip(operands, ins, strict=True)]
        name = self.owner._name()
        return Blocks(_traced(flat, local, name, manual), ins, outs, name)

    def _requested(self, mesh: AbstractMesh, operands: Sequence[ArrayType],
                   results: Sequence[ArrayType]) -> tuple[Callable[..., Any], tuple, tuple]:
        """What `partition` says: the function on blocks, and the layouts that it is for."""
        def shapes(types: Sequence[ArrayType], structure: Any) -> Any:
            return tree.unflatten(structure, [
                ShapeDtypeStruct(t.shape, t.dtype, sharding=NamedSharding(
                    mesh, spec_from_entries(t.entries))) for t in types])

        assert self.partition is not None
        found = self.partition(*self.static, mesh, shapes(operands, self.in_tree),
                               shapes(results, self.out_tree))
        if not isinstance(found, tuple) or len(found) != 4:
            fail(TypeError, "custom_partitioning: `partition` returns (mesh, function on blocks, "
                 f"result shardings, argument shardings), not {found!r}", code="partition-result",
                 help="return four: the mesh, the function, the shardings of results, those of "
                      "arguments")
        _, lower, result_shardings, arg_shardings = found

        def flat(*blocks: Any) -> list[Any]:
            return tree.flatten(lower(*tree.unflatten(self.in_tree, blocks)))[0]
        return (flat, _layouts(arg_shardings, operands, "argument"),
                _layouts(result_shardings, results, "result"))


def _layouts(shardings: Any, types: Sequence[ArrayType], what: str) -> tuple[Entries, ...]:
    """The axes of each dimension, from the shardings that `partition` gives. what: "argument" or
    "result".
    """
    leaves = tree.leaves(shardings, is_leaf=lambda s: s is None or isinstance(
        s, (NamedSharding, PartitionSpec)))
    if len(leaves) != len(types):
        fail(ValueError, f"custom_partitioning: `partition` gives {len(leaves)} {what} shardings "
             f"for {len(types)} values", code="partition-result",
             help=f"give a tree with one sharding for each {what}, None for one that is whole")
    out = []
    for s, t in zip(leaves, types, strict=True):
        spec = s.spec if isinstance(s, NamedSharding) else s or PartitionSpec()
        out.append(spec.padded(t.ndim).entries)
    return tuple(out)


def _block(t: ArrayType, entries: Entries, manual: AbstractMesh) -> ArrayType:
    """The type of a device's block of a value of this type."""
    if manual.empty:
        return array_type(t.shape, t.dtype, t.weak_type)
    size = manual.axis_size
    shape = list(t.shape)
    for d, axes in enumerate(entries):
        for a in axes:
            shape[d] //= size(a)
    return array_type(tuple(shape), t.dtype, t.weak_type, unsharded(t.ndim, manual))


def _private(operands: Sequence[tuple], results: Sequence[tuple]) -> str:
    """A rule in which no dimension corresponds to another."""
    count = 0
    sides = []
    for shapes in (operands, results):
        maps = []
        for shape in shapes:
            maps.append(" ".join(f"f{count + d}" for d in range(len(shape))))
            count += len(shape)
        sides.append(", ".join(maps))
    return " -> ".join(sides)


def _traced(f: Callable[..., Any], types: Sequence[ArrayType], name: str, mesh: AbstractMesh
            ) -> Program:
    """The program of `f`, which may read nothing but its arguments, without checks of varying."""
    outer, check = STATE.interpreter, STATE.check_vma
    STATE.check_vma = False
    try:
        program, captured = trace_to_program(f, types, name=name, mesh=mesh)
    finally:
        STATE.interpreter, STATE.check_vma = outer, check
    if captured:
        fail(ValueError, f"custom_partitioning: `{name}` reads a value of the program around it: "
             f"{captured[0].aval.str_short(True)}", code="captured-array",
             help="pass it as an argument, with its place in the sharding rule")
    return program
