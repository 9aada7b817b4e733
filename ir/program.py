"""Programs: what a traced function is, at every stage from traced to per-device.

A program is straight-line code over immutable variables: each equation applies one op to variables
or literals and binds new variables, each with its sharded type. Structure is frozen data without
behaviour; what is computed from it lives in the passes.

The four levels, each a promise that the verifier checks (ir/verify.py):

    TRACED     types as the user sees them: Explicit axes decided, Auto axes open
    RESOLVED   every sharding known: the mesh is frozen (Auto axes became Explicit)
    RESHARDED  operands of every equation agree; each change of spec is a `reshard` equation, and a
               contraction over a sharded factor has an unreduced result
    LOCAL      the per-device program: local shapes, Manual axes, collectives, varying sets
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .facts import POSITION
from .meshes.mesh import AbstractMesh, empty_abstract_mesh
from .op import Op
from .op_instance import SIGNATURES, OpInstance, Signature, instance_of
from .reasons import Reason
from .source.location import UNKNOWN, Location
from .types import ArrayType

_NO_EFFECTS: frozenset[str] = frozenset()
_NO_ATTRIBUTES: Mapping[str, Any] = {}


# What writes programs, by notation, and types, for messages. Set by ir/__init__.py: the files in
# text/ import this one.
WRITERS: dict[str, Callable[..., str]] = {}


class Level(enum.Enum):
    __hash__ = object.__hash__          # members are single, and equal to themselves alone

    TRACED = "traced"
    RESOLVED = "resolved"
    RESHARDED = "resharded"
    LOCAL = "local"


class Var:
    """A variable, bound once. Equality is identity; `name` is a hint for printing."""

    __slots__ = ("aval", "name")

    def __init__(self, aval: ArrayType, name: str | None = None) -> None:
        self.aval = aval
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name or '_'}:{self.aval.str_short(True)}"


class Literal:
    """A scalar constant standing where a variable could: a numpy scalar and its type."""

    __slots__ = ("aval", "val")

    def __init__(self, val: Any, aval: ArrayType) -> None:
        self.val = val
        self.aval = aval

    def __repr__(self) -> str:
        return f"{self.val}:{self.aval.str_short(True)}"


Atom = Var | Literal

# In the memo of a program: each variable is bound once, and before its use; literals are right.
SOUND_NAMES = "sound_names"


class Equation:
    """One use of an op.

    location: the user's expression it comes from. reason: why it exists (ir/reasons.py); () where
    that is the user's expression itself, and not a pass that inserted a reshard or collective.
    instance: the op with these params, where stages keep what they know of such equations;
    TypeError if a param cannot be hashed. It is found when first asked for, and then is an
    attribute as others.
    known_types: `types`, where they have been asked for.
    """

    __slots__ = ("instance", "invars", "known_types", "location", "op", "outvars", "params",
                 "reason")

    known_types: Signature | None
    instance: OpInstance

    def __init__(self, op: Op, invars: Sequence[Atom], outvars: Sequence[Var],
                 params: dict[str, Any], location: Location = UNKNOWN, reason: Reason = ()) -> None:
        self.op = op
        self.invars: tuple[Atom, ...] = invars if type(invars) is tuple else tuple(invars)
        self.outvars: tuple[Var, ...] = outvars if type(outvars) is tuple else tuple(outvars)
        self.params = params
        self.location = location
        self.reason = reason
        self.known_types = None

    @property
    def types(self) -> Signature:
        """The types of operands and of results."""
        found = self.known_types
        if found is None:
            found = self.known_types = SIGNATURES[tuple([a.aval for a in self.invars]),
                                                  tuple([v.aval for v in self.outvars])]
        return found

    def __getattr__(self, name: str) -> Any:
        if name == "instance":
            instance = self.instance = instance_of(self.op, self.params)
            return instance
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def primitive(self) -> Op:
        """The op, under the name it has in JAX's programs."""
        return self.op

    @property
    def effects(self) -> frozenset[str]:
        """What the host sees of it, or of the programs it holds; see `Program.effects`."""
        op = self.op
        if op.effect in ("debug", "io", "check"):
            ordered = self.params.get("ordered")
            return frozenset((f"ordered {op.effect}" if ordered else op.effect,))
        if not op.subprograms:
            return _NO_EFFECTS
        return frozenset().union(*[p.effects for _, p in subprograms_in(op, self.params)])

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes along which it exchanges, says where a device is, or calls the host for
        each place; none of equations that do nothing of this.
        """
        op, params = self.op, self.params
        if op.collective is not None:
            names = op.collective.axes(params)
        else:
            names = params["axis_name"] if POSITION in op.facts else (
                params.get("axes", ()) if op.effect else ())
        return tuple(names) if isinstance(names, (tuple, list)) else (names,)

    def subprograms(self) -> list[tuple[str, Program]]:
        """The programs that it holds, each with the param that it is in."""
        return subprograms_in(self.op, self.params)

    def walk(self) -> Iterator[Equation]:
        """It, and the equations of the programs that it holds."""
        yield self
        for _, program in self.subprograms():
            yield from program.walk()

    def replace(self, *, op: Op | None = None, invars: Sequence[Atom] | None = None,
                outvars: Sequence[Var] | None = None, params: dict[str, Any] | None = None,
                location: Location | None = None, reason: Reason | None = None) -> Equation:
        """A copy of the equation with these fields replaced."""
        new = Equation.__new__(Equation)
        new.op = op or self.op
        new.invars = self.invars if invars is None else tuple(invars)
        new.outvars = self.outvars if outvars is None else tuple(outvars)
        new.params = self.params if params is None else params
        new.location = self.location if location is None else location
        new.reason = self.reason if reason is None else reason
        new.known_types = self.known_types if invars is None and outvars is None else None
        if op is None and params is None:
            try:
                new.instance = self.instance
            except TypeError:
                pass                       # a param cannot be hashed: the verifier will say so
        return new

    def with_operands(self, invars: Sequence[Atom], outvars: Sequence[Var],
                      instance: OpInstance | None = None) -> Equation:
        """An equation with this op instance, or `instance`, on other operands and results."""
        new = Equation.__new__(Equation)        # most equations of a program by far are made here
        new.op, new.location, new.reason = self.op, self.location, self.reason
        new.invars, new.outvars = tuple(invars), tuple(outvars)
        new.known_types = None
        if instance is not None:
            new.params, new.instance = instance.params, instance
            return new
        new.params = self.params
        try:
            new.instance = self.instance
        except TypeError:
            pass                           # as in `replace`
        return new

    def __repr__(self) -> str:
        return f"{list(self.outvars)} = {self.op.name} {list(self.invars)}"


class Program:
    """A function of typed arrays.

    invars, outvars: parameters and results (results may be literals or parameters).
    consts: captured arrays, as (variable, value) pairs bound before the first equation.
    mesh: the abstract mesh of its types (empty where no mesh is involved).
    global_in, global_out: at level LOCAL, the sharded types of the whole values whose blocks the
      parameters and results are; () at the other levels.
    arg_names, result_names: paths for messages ("x", "params['w']", "[0]").
    attributes: what else its text says, and what passes tell later ones of it (ir/passes.py).
    memo: a cache of what was computed from it.
    """

    __slots__ = ("arg_names", "attributes", "consts", "eqns", "global_in", "global_out", "invars",
                 "level", "memo", "mesh", "name", "outvars", "result_names")

    def __init__(self, name: str, invars: Sequence[Var], eqns: Sequence[Equation],
                 outvars: Sequence[Atom], *, consts: Sequence[tuple[Var, Any]] = (),
                 mesh: AbstractMesh = empty_abstract_mesh, level: Level = Level.TRACED,
                 global_in: Sequence[ArrayType] = (), global_out: Sequence[ArrayType] = (),
                 arg_names: Sequence[str] = (), result_names: Sequence[str] = (),
                 attributes: Mapping[str, Any] = _NO_ATTRIBUTES) -> None:
        self.name = name
        self.invars = tuple(invars)
        self.eqns = tuple(eqns)
        self.outvars = tuple(outvars)
        self.consts = tuple(consts)
        self.mesh = mesh
        self.level = level
        self.global_in = tuple(global_in)
        self.global_out = tuple(global_out)
        self.arg_names = tuple(arg_names)
        self.result_names = tuple(result_names)
        self.attributes: dict[str, Any] = {**attributes}
        self.memo: dict[Any, Any] = {}

    @property
    def jaxpr(self) -> Program:
        """Itself: programs are closed, so JAX's two classes are one here."""
        return self

    @property
    def constvars(self) -> tuple[Var, ...]:
        return tuple([v for v, _ in self.consts]) if self.consts else ()

    @property
    def literals(self) -> list[Any]:
        """The values of its constants."""
        return [x for _, x in self.consts]

    @property
    def in_avals(self) -> tuple[ArrayType, ...]:
        return tuple([v.aval for v in self.invars])

    @property
    def out_avals(self) -> tuple[ArrayType, ...]:
        return tuple([v.aval for v in self.outvars])

    @property
    def result_types(self) -> tuple[ArrayType, ...]:
        """The types of what its equations give, each once, in the order of first appearance."""
        memo = self.memo
        if "result_types" not in memo:
            memo["result_types"] = tuple(dict.fromkeys(
                [v.aval for e in self.eqns for v in e.outvars]))
        return memo["result_types"]

    @property
    def result_meshes(self) -> tuple[AbstractMesh, ...]:
        """The meshes that these types are on, each once."""
        memo = self.memo
        if "result_meshes" not in memo:
            memo["result_meshes"] = tuple(dict.fromkeys(
                [t.mesh for t in self.result_types]))
        return memo["result_meshes"]

    @property
    def ops(self) -> frozenset[Op]:
        """The ops of its equations, those of the programs that they hold not included."""
        memo = self.memo
        if "ops" not in memo:
            memo["ops"] = frozenset([e.op for e in self.eqns])
        return memo["ops"]

    @property
    def op_names(self) -> frozenset[str]:
        """The names of the ops in `ops`."""
        memo = self.memo
        if "op_names" not in memo:
            memo["op_names"] = frozenset([op.name for op in self.ops])
        return memo["op_names"]

    @property
    def all_op_names(self) -> frozenset[str]:
        """The names of the ops of its equations and of those of the programs that they hold."""
        memo = self.memo
        if "all_op_names" not in memo:
            own = self.op_names
            memo["all_op_names"] = own if not self.holds_programs else own.union(
                *[inner.all_op_names for _, _, inner in self.subprograms()])
        return memo["all_op_names"]

    @property
    def holds_programs(self) -> bool:
        """Do equations hold programs in their params?"""
        memo = self.memo
        if "holds_programs" not in memo:
            memo["holds_programs"] = any([op.subprograms for op in self.ops])
        return memo["holds_programs"]

    @property
    def effects(self) -> frozenset[str]:
        """What the host sees of it besides results: "debug", "io", and "ordered debug" and so on;
        "check" for errors that are to be raised.
        """
        memo = self.memo
        if "effects" not in memo:
            memo["effects"] = frozenset().union(
                *[e.effects for e in self.eqns if e.op.effect or e.op.subprograms])
        return memo["effects"]

    def replace(self, **changes: Any) -> Program:
        """A copy of the program with these fields replaced. Its attributes stay unless it gets
        another level; of its memo what was computed from equations stays if these do.
        """
        new = Program.__new__(Program)
        new.name, new.invars, new.eqns, new.outvars = (
            self.name, self.invars, self.eqns, self.outvars)
        new.consts, new.mesh, new.level = self.consts, self.mesh, self.level
        new.global_in, new.global_out = self.global_in, self.global_out
        new.arg_names, new.result_names = self.arg_names, self.result_names
        for name, value in changes.items():
            if name not in _FIELDS:
                raise TypeError(f"a Program has no field {name!r}")
            setattr(new, name, value if name in _SINGLE else tuple(value))
        if "attributes" not in changes:
            new.attributes = {} if "level" in changes else {**self.attributes}
        new.memo = {}
        if "eqns" not in changes:
            known = _OF_EQUATIONS if _WITH_NAMES.isdisjoint(changes) else _OF_EQUATIONS[1:]
            new.memo.update([(fact, self.memo[fact]) for fact in known if fact in self.memo])
        return new

    def subprograms(self) -> Iterator[tuple[Equation, str, Program]]:
        """Programs held in params of this program's equations (not of theirs)."""
        for eqn in self.eqns:
            if eqn.op.subprograms:
                for name, program in subprograms_in(eqn.op, eqn.params):
                    yield eqn, name, program

    def walk(self) -> Iterator[Equation]:
        """The equations, each followed by those of the programs that it holds."""
        for eqn in self.eqns:
            yield eqn
            if eqn.op.subprograms:
                for _, program in eqn.subprograms():
                    yield from program.walk()

    def pretty_print(self, *, source_info: bool = False, print_shapes: bool = True,
                     use_color: bool = False, **_: Any) -> str:
        """The program in JAX's notation, for reading. (`str` gives the text that is read back.)

        source_info: with source lines. print_shapes: with types. use_color and what else JAX
        takes is of no effect.

        >>> print(st.make_jaxpr(lambda x: jnp.sin(x) * 2)(np.ones(3, np.float32)).pretty_print())
        { lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }
        """
        return WRITERS["jax"](self, print_shapes=print_shapes, source_info=source_info)

    def __str__(self) -> str:
        return WRITERS["text"](self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return WRITERS["html"](str(self))

    def __repr__(self) -> str:
        return str(self)


def subprograms_in(op: Op, params: Mapping[str, Any]) -> list[tuple[str, Program]]:
    """The programs that an equation of this op holds in these params."""
    found = []
    for name in op.subprograms:
        held = params[name]
        for program in held if held.__class__ is tuple else (held,):
            if program.__class__ is Program:
                found.append((name, program))
    return found


_FIELDS = frozenset(Program.__slots__) - {"memo"}
_SINGLE = frozenset(("attributes", "level", "mesh", "name"))
_WITH_NAMES = frozenset(("consts", "invars", "outvars"))
_OF_EQUATIONS = (SOUND_NAMES, "ops", "op_names", "all_op_names", "holds_programs",      # in memo
                 "result_types", "result_meshes", "effects")


