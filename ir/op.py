"""Ops: what an equation does, declared once.

`defop` makes an `Op` from one declaration, whose arguments stand in the order of this table in
every file of ops; every stage reads the fields it needs, and no stage has a table of its own:

    field             says                                            read by
    doc               what the op computes, in one sentence           help, documentation
    infer             shape and dtype of the results                  inference, verifier
    multiple_results  whether there is a list of them                 all
    subprograms       params that hold programs                       passes, executors
    region            what is one value inside and outside            partitioner
                      (ir/ops/control/region.py)
    rule              factor rule (ir/rules/rule.py)                  typing, propagation,
                                                                      lowering, batching, cost
    explicit          entries of the results on Explicit axes         inference
    pending           unreduced and reduced axes of the results       inference, optimiser
    sharding_param    the param that overrides the result's sharding  inference
    manual            what varies over Manual axes                    inference, verifier
    linear            operand sets in which it is (jointly) linear    optimiser, autodiff
    passes_sums       where partial sums of these pass it unfinished  layout choice
    jvp, transpose    derivative                                      autodiff
    batch             batching, where the factor rule does not do     vmap
    evaluate          meaning in numpy, with leading device dims      executors, reference
    arithmetic        False for data movement                         executors
    facts             what it is (ir/facts.py)                        passes, executors, cost
    cost              what else it costs (ir/facts.py)                cost
    collective        exchange between the devices of a group         lowering, executors, cost
    resize            params for other (local) shapes                 lowering, executors
    padded            the op on padded operands, where the factor     uneven dimensions
                      rule does not do
    localize          emitter where a shard needs more than that      lowering
    effect            what the host sees of it                        passes, executors
    jax               the function of JAX, where it is not lax.NAME   XLA engine
    samples           operands and params to test it with             tests

A linear op of one operand, complete:

    double_p = defop(
        "double", doc="Twice x.",
        infer=lambda x: (x.shape, x.dtype), rule="... -> ...", explicit="join", pending="keep",
        linear=((0,),), jvp="linear", transpose=lambda ct, x: [double_p.bind(ct)],
        evaluate=lambda lead, x: x + x,
        samples=lambda: [Sample((np.ones((2, 3), np.float32),))])

Ops that share most of this are declared by a function beside them (`unary`, `nary`,
`declare_reduction`) that takes what differs, in the same order.

`op.bind(*operands, **params)` is the one way an op is used by Python code: it hands the op to the
current interpreter of the thread, which records an equation or runs it.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from .facts import DeviceCost, facts_of
from .rules.rule import FactorRule, Pattern, rule_of_text
from .settings.context import STATE, Interpreter
from .support.caches import tables
from .support.immutable import immutable
from .support.interning import Uncopied
from .types import ArrayType, Shape
from .values.typeof import typeof


@immutable
class Sample:
    """One use of an op for tests: numpy arrays as operands, and params.

    grad: whether derivatives are tested on it.
    """
    operands: tuple[Any, ...]
    params: Mapping[str, Any] = MappingProxyType({})
    grad: bool = True


@immutable
class Evaluator:
    """The evaluator of an op that is more than a function.

    function: as `evaluate` of `defop`.
    prepare: (lead, shapes, dtypes, params) of the operands -> the function of such arrays alone,
      for which what these decide is decided once; None where there is none.
    write_over: as `function`, but the result may take the memory of the first operand.
    ufunc: (dtype of the first operand, params) -> the numpy ufunc that `function` is then, or None;
      an executor may give the buffer of the result to it.
    narrowed: numbers of the results that are read -> further params, with which `function` gives
      None for others that take time of their own.
    """
    function: Callable[..., Any]
    prepare: Callable[..., Callable[..., Any] | None] | None = None
    write_over: Callable[..., Any] | None = None
    ufunc: Callable[[np.dtype, dict[str, Any]], np.ufunc | None] | None = None
    narrowed: Callable[[Sequence[int]], dict[str, Any]] | None = None


def only(number: int, said: str) -> Callable[[Sequence[int]], dict[str, Any]]:
    """`narrowed` of a function with a param `said`: True where only result `number` is read."""
    return lambda read: {said: True} if [*read] == [number] else {}


@immutable
class Collective:
    """What makes an op a collective: it exchanges data along the mesh axes named by its params.

    axes: params -> the mesh axes of its replica groups, major first.
    evaluate: (x, lead, size, **params) -> result. `x` has `lead` leading device dimensions, the
      last of which is the replica group with `size` members (in the order of `axes`); the result
      has the same leading dimensions, the last of size 1 where all members get the same. None for
      one of which every engine has a function of its own.
    wire: (local operand type, size, params) -> bytes received by each device (ring algorithms).
    kind: as hardware calls it: "all-reduce", "all-gather", "reduce-scatter", "all-to-all",
      "collective-permute", or "retile" for one of these or a mixture, by its params; "" where no
      byte moves.
    reduces: the operator by which blocks are combined ("sum", "max", ...), if they are.
    local: each device takes its result from its own block, and waits for nobody.
    invariant: the result no longer varies over the axes.
    sent: as wire, bytes that the busiest device sends, of an exchange in which that is not all of
      its operand.
    """
    axes: Callable[[dict[str, Any]], tuple[str, ...]]
    evaluate: Callable[..., np.ndarray] | None
    wire: Callable[[ArrayType, int, dict[str, Any]], int]
    kind: str
    reduces: str = ""
    local: bool = False
    invariant: bool = False
    sent: Callable[[ArrayType, int, dict[str, Any]], int] | None = None


class LocalizeContext(Protocol):
    """What a `localize` emitter sees of the equation that is lowered for one device.

    operands: local atoms (Literal operands stay Literals). params: those of the global equation.
    operand_types, result_types: global types. local_operand_shapes, local_result_shapes: of blocks.
    rule: the factor rule. axes_of_factor: factor number -> mesh axes that split it (absent or ()
      where it is whole). result_entries: per result, the mesh axes that split each dimension.
    permutes: whether rows of other devices are to come by permutations alone.
    """
    operands: Sequence[Any]
    params: dict[str, Any]
    operand_types: Sequence[ArrayType]
    result_types: Sequence[ArrayType]
    local_operand_shapes: Sequence[Shape]
    local_result_shapes: Sequence[Shape]
    rule: FactorRule
    axes_of_factor: Mapping[int, tuple[str, ...]]
    result_entries: Sequence[tuple[tuple[str, ...], ...]]
    permutes: bool

    def emit(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        """Append an equation; operands may vary over different axes, the results vary over all."""
        ...

    def block_offset(self, axes: tuple[str, ...], block_size: int) -> Any:
        """int32 scalar: block_size times the device's linear index over `axes` (major first)."""
        ...


class _Ops(dict[str, "Op"]):
    """Ops by name. One that is not declared yet is looked up again once `declare_all` has run."""

    declare_all: Callable[[], None]     # set by ir/__init__.py: files of ops import this one

    def __missing__(self, name: str) -> Op:
        self.declare_all()
        return dict(self)[name]


OPS = _Ops()
_NAMES: defaultdict[str, set[str]] = defaultdict(set)
DEFAULT_INTERPRETER: list[Interpreter] = []   # set by the driver: runs an op at once


_INFERRED = tables("ir.op.Op.infer_cache", "types of results, by those of operands", 4096)
_INSTANCES = tables("ir.op.Op.instances", "an op with its params", 4096)
_RULES = tables("ir.op.Op.factor_rule", "factor rules of an op, by shapes", 4096)


class Op(Uncopied):
    """A primitive operation. Make one with `defop`; see the module docstring for the fields."""

    __slots__ = ("_rule_cache", "arithmetic", "batch", "collective", "cost", "doc", "effect",
                 "evaluate", "evaluator", "explicit", "facts", "infer", "infer_cache", "instances",
                 "jax", "jvp", "linear", "localize", "manual", "multiple_results", "name", "padded",
                 "passes_sums", "pending", "region", "resize", "rule", "samples", "sharding_param",
                 "subprograms", "transpose")

    def __init__(self, name: str) -> None:
        self.name = name
        self._rule_cache: dict[Any, FactorRule] = _RULES()
        # result types, and the op instance if interned (ir/op_instance.py), by `inference_key`
        self.infer_cache: dict[Any, tuple[tuple[ArrayType, ...], Any, Any]] = _INFERRED()
        self.instances: dict[tuple, Any] = _INSTANCES()   # by params (ir/op_instance.py)

    def bind(self, *operands: Any, **params: Any) -> Any:
        """Use the op: its result (a list of results if `multiple_results`)."""
        interpreter = STATE.interpreter
        if interpreter is None:
            interpreter = DEFAULT_INTERPRETER[0]
        try:
            results = interpreter.process(self, operands, params)
        except TypeError:
            self._check_values(operands)
            raise
        return results if self.multiple_results else results[0]

    def _check_values(self, operands: Sequence[Any]) -> None:
        """Raise JAX's TypeError for an operand that no array can hold."""
        for position, x in enumerate(operands):
            try:
                typeof(x)
            except TypeError as error:
                if "is not a valid JAX type" in str(error):
                    raise TypeError(
                        f"Error interpreting argument to {self.name} as a JAX value. The "
                        f"problematic value is of type {type(x)} and was passed to {self.name} at "
                        f"position {position}.") from None
                raise

    __call__ = bind

    def forget(self) -> None:
        """Forget what is known of the op's equations."""
        self.infer_cache.clear()
        self.instances.clear()
        self._rule_cache.clear()

    def factor_rule(self, operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...],
                    params: dict[str, Any]) -> FactorRule:
        """The factor rule of an equation with these shapes and params."""
        rule = self.rule
        if rule.__class__ is str:             # one for all params, and for all ops of this text
            return rule_of_text(rule, operand_shapes, result_shapes)  # type: ignore[arg-type]
        key = (operand_shapes, result_shapes, *params.items())
        found = self._rule_cache.get(key)
        if found is None:
            found = rule(operand_shapes, result_shapes, **params)  # type: ignore[operator]
            if found.__class__ is Pattern:
                found = found.rule(operand_shapes, result_shapes)
            elif found.__class__ is str:
                found = rule_of_text(found, operand_shapes, result_shapes)
            self._rule_cache[key] = found
        return found

    def linear_sets(self, count: int, types: Sequence[ArrayType] = (),
                    params: Mapping[str, Any] | None = None) -> tuple[tuple[int, ...], ...]:
        """The operand sets in which the op is jointly linear, for an equation with `count`.

        types, params: those of the equation; without them the answer may be that there is none.
        """
        if callable(self.linear):
            return self.linear(count, types, params or {})
        return (tuple(range(count)),) if self.linear == "all" else self.linear

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self):
        return _op_named, (self.name,)


def _op_named(name: str) -> Op:
    return OPS[name]


_BY_FACTORS = DeviceCost()


def inference_key(types: tuple[ArrayType, ...], params: dict[str, Any], context: Any) -> tuple:
    """The key of `Op.infer_cache` (written out where equations are recorded, to save the call)."""
    return (types, context, *params.items())


def params_key(params: dict[str, Any]) -> tuple:
    """A hashable key of params; raises TypeError if a value is not hashable."""
    return tuple(params.items())


def defop(name: str, *, doc: str = "",
          infer: Callable[..., Any], multiple_results: bool = False,
          subprograms: tuple[str, ...] = (), region: Callable[..., Any] | None = None,
          rule: str | Callable[..., Any],
          explicit: str | Callable[..., Any] = "join", pending: str | Callable[..., Any] = "none",
          sharding_param: str | None = None, manual: Callable[..., Any] | None = None,
          linear: Iterable[Iterable[int]] | str | Callable[..., Any] = (),
          passes_sums: str | Callable[..., bool] = "always", jvp: Any = None,
          transpose: Callable[..., Any] | None = None, batch: Callable[..., Any] | None = None,
          evaluate: Callable[..., Any] | Evaluator | None = None, arithmetic: bool = True,
          facts: Iterable[str] = (), cost: DeviceCost = _BY_FACTORS,
          collective: Collective | None = None,
          resize: Callable[..., dict[str, Any]] | None = None,
          padded: Callable[[Any], Any] | None = None,
          localize: Callable[..., Any] | None = None, effect: str = "",
          jax: str | Callable[..., str] = "",
          samples: Callable[[], Sequence[Sample]] | None = None) -> Op:
    """Declare an op and enter it into `OPS`.

    infer(*types, **params) -> (shape, dtype) or (shape, dtype, weak_type); a list of these if
      `multiple_results`. Raises TypeError/ValueError with JAX's text on bad operands. The weak flag
      defaults to "all operands are weak" (False without operands).
    subprograms: params that hold Programs. region: equation -> `Region`.
    rule: text, or (operand_shapes, result_shapes, **params) -> text, Pattern or FactorRule.
    explicit: "join" (operands that carry a factor agree or are whole), "equal" (all operands have
      the same spec), "follow" (operand 0's axes, through the rule), "unsharded" (result whole), or
      (op, types, result_shapes, params) -> one entries tuple per result; only called when an
      Explicit axis is around.
    pending: for unreduced/reduced operands: "none" (unreduced is an error, reduced must agree and
      is kept), "keep" (both kept: structural ops), "carry"
      (the same, and on meshes that mix axis types too), "indexed" or "iterated" (neither is taken,
      with JAX's error about looking into a spec), or (op, types, params, unreduced, reduced) ->
      (unreduced, reduced) axis sets of the result.
    sharding_param: the param that overrides the result's sharding (out_sharding), if any.
    manual(op, types, params) -> one ManualState per result, for ops that change what varies.
    linear: operand index sets; in each set alone the op is jointly linear. "all" for ops with any
      number of operands that are jointly linear in all of them; or (count, types, params) -> sets,
      where it depends on these. Ask `op.linear_sets(count, types, params)`.
    passes_sums: whether finite partial sums of a linear set give the result's partial sums:
      "always"; "constants", if the other operands are finite constants other than zero; "never" (a
      zero term with an infinite other operand is NaN); or (types, params) -> bool.
    jvp: "linear" (the op itself on the tangents of its linear set), "zero" (no derivative, e.g.
      floor), a tuple with one (g, out, *operands, **params) -> contribution or None per operand, or
      a function (operands, tangents, **params) -> (out, tangent), tangents being None where zero.
      None: not differentiable, an error.
    transpose(ct, *operands, **params) -> cotangents, one per operand, None where there is none;
      operands in which it is linear come as `LinearOperand` (they have `.aval`). `ct` is a list if
      `multiple_results`, with None for results without a cotangent (never all).
    batch(operands, dims, size, **params) -> (results, dims), two sequences with an item per result,
      where the default does not hold. dims[i] is the batch dimension of operand i or None. See
      `in_front` and `in_place` of ir/ops/derivatives.py.
    evaluate(lead, *arrays, **params) -> array (list of arrays if `multiple_results`): arrays have
      `lead` leading device dimensions (each of full size or 1); params count dimensions from the
      local rank, so dimension d of the op is dimension lead + d of the array. Result dtype as
      inferred. None for collectives and ops with subprograms. Or an `Evaluator`.
    arithmetic: False for data movement; narrow floats are then not widened.
    facts: of those in ir/facts.py. cost: what the factor rule does not say of it.
    resize(params, operand_shapes, result_shapes) -> params for the same op on blocks of these
      shapes, where only factors that pass through are split.
    padded(context) -> results on operands with rows appended, or None to have them cut off first;
      see `PaddedContext` (ir/padded.py). By default what the kinds of factors say.
    localize(context) -> list of local result variables; see `LocalizeContext`.
    effect: "" for a computation; for ops that call a function of the host "host" if only their
      results matter, "debug" or "io" if the call itself does: such equations are neither dropped,
      nor repeated, nor moved. "check" for errors that are raised, which only traced programs have.
    jax: the function that a program for JAX calls with the op's params, if not that of `lax` of the
      op's name: "jnp.trunc", "linalg.qr_p.bind", or where JAX has none "roll_rows", one of
      engines/xla/helpers.py; "lax.sort(*)" and "lax.dynamic_slice(x, *)" where it takes operands as
      one tuple: all, or those after the first; or (equation, texts of operands) -> expression.
    """
    if name in OPS:
        raise ValueError(f"op {name!r} is declared twice")
    if not re.fullmatch(r"[a-z][a-z0-9_\-]*", name):
        raise ValueError(f"op name {name!r}: use lower case letters, digits and _")
    op = Op(name)
    op.doc, op.infer, op.multiple_results = doc, infer, multiple_results
    op.subprograms, op.region, op.rule = subprograms, region, rule
    op.explicit, op.pending = explicit, pending
    op.sharding_param, op.manual = sharding_param, manual
    op.linear = (linear if linear == "all" or callable(linear)
                 else tuple(tuple(s) for s in linear))
    op.passes_sums = passes_sums
    op.jvp, op.transpose, op.batch = jvp, transpose, batch
    by = evaluate if isinstance(evaluate, Evaluator) or evaluate is None else Evaluator(evaluate)
    op.evaluator, op.evaluate = by, None if by is None else by.function
    op.arithmetic, op.collective = arithmetic, collective
    op.facts, op.cost = facts_of(facts), cost
    op.resize, op.padded, op.localize = resize, padded, localize
    op.effect, op.jax, op.samples = effect, jax, samples
    OPS[name] = op
    for fact in op.facts:
        _NAMES[fact].add(name)
    return op


def names_with(fact: str) -> AbstractSet[str]:
    """The names of the ops that have a fact; ops declared later join them."""
    return _NAMES[fact]


class LinearOperand:
    """Stands in a transpose rule for the operand whose cotangent is wanted."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"LinearOperand({self.aval})"
