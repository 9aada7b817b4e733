"""The cause of a collective as data: paths of its axes, what pins a value, and the sentences."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ir.ops.communication.sharding import reshard_p, sharding_constraint_p
from ...ir.program import Equation
from ...ir.reasons import ASKED, CHOSEN, Alternative
from ...ir.source.location import UNKNOWN, Location
from ...ir.source.wording import duration
from ..words import quantity
from .calls import NO_CALLS, Calls

AS_WRITTEN = ("", "jvp")       # results have the values and shapes of the user's code


@dataclass(frozen=True)
class Path:
    """How an axis came to a value.

    root: the annotation where it begins; argument: its position, if it is one. steps: the equations
    that passed it on, the one nearest to the annotation first. tensors: the values on the way.
    planned: the last step is the planner's, not propagation's. wanted: the moved value is to have
    it, by an annotation. calls: those that tell places apart.
    """
    axis: str
    dim: int
    value: str
    root: str
    root_location: Location
    steps: tuple[tuple[str, Location], ...]
    tensors: tuple[int, ...] = field(default=(), compare=False)
    planned: bool = field(default=False, compare=False)
    calls: Calls = field(default=NO_CALLS, compare=False, repr=False)
    argument: int = field(default=-1, compare=False)
    wanted: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        on = f" on dimension {self.dim} of {self.value}" if self.dim >= 0 else f" in {self.value}"
        text = f"{self.axis}{on} comes from {self.root}"
        if self.root_location.line:
            text += f" at {self.calls.own_line(self.root_location)}"
        if self.steps:
            ways = [f"`{name}` {self.calls.line(at)}" if at.line else f"`{name}`"
                    for name, at in self.steps]
            if len(ways) > 4:
                ways = [*ways[:2], "...", *ways[-1:]]
            text += f" through {', '.join(ways)}"
        return text


@dataclass(frozen=True)
class Hold:
    """A value that an annotation keeps in one layout. tensor: as in propagation."""
    value: str
    spec: str
    root: str
    root_location: Location
    axes: frozenset[str] = frozenset()
    tensor: int = field(default=-1, compare=False)
    calls: Calls = field(default=NO_CALLS, compare=False, repr=False)

    def __str__(self) -> str:
        at = f" at {self.calls.own_line(self.root_location)}" if self.root_location.line else ""
        return f"{self.value} is held as {self.spec} by {self.root}{at}"


@dataclass(frozen=True)
class Step:
    """One step back: through `equation` (None: the end of the program), from dimension `dim` of
    `tensor`. detour: against the direction of the program, or by a derivative.
    """
    equation: Equation | None
    tensor: int
    dim: int
    detour: bool = False

    @property
    def shown(self) -> tuple[str, Location]:
        """The name of the op, and where it is."""
        eqn = self.equation
        return ("the result", UNKNOWN) if eqn is None else (eqn.op.name, eqn.location)


@dataclass(frozen=True)
class Asked:
    """Who asked for a layout or an exchange: the user's expression, in backquotes, or an argument
    of `jit`. location: of the expression; line 0 if there is none. result: for out_shardings, the
    number of the result, -1 where that is not known.
    """
    text: str
    location: Location
    result: int = -1

    def __str__(self) -> str:
        at = self.location
        return f"asked for by {self.text}" + (f" at {at.short_file}:{at.line}" if at.line else "")


@dataclass(frozen=True)
class Cause:
    """Why a collective is there.

    move: the `reshard` of the RESHARDED program; None if the user wrote the collective itself.
    equation: the one that needs its operand in another layout, or leaves a pending sum. text: the
    reason, with names. paths: where the axes come from. holds: what keeps a value from having them.
    asked: where the user asked for the layout, if the exchange only brings a finished sum to it.
    kind: "asked", "needed" or "chosen", with asked_by, rule (of the equation) or alternative.
    """
    move: Equation | None
    equation: Equation | None
    text: str
    paths: tuple[Path, ...] = ()
    holds: tuple[Hold, ...] = ()
    asked: Location | None = None
    kind: str = ASKED
    asked_by: Asked | None = None
    rule: str = ""
    alternative: Alternative | None = None

    @property
    def verdict(self) -> str:
        """The kind in a sentence: "chosen: cheaper than bringing `x` to P() (4 us) by 1.5 us"."""
        if self.kind == ASKED:
            return str(self.asked_by) if self.asked_by is not None else "asked for"
        if self.kind != CHOSEN:
            return f"needed by the rule of {self.rule}" if self.rule else "needed"
        other = self.alternative
        assert other is not None
        price, saved = (quantity(n, "B") if other.unit == "B" else duration(n * 1e-9)
                        for n in (other.price, abs(other.saved)))
        if other.saved > 0:
            return f"chosen: cheaper than {other.text} ({price}) by {saved}"
        if other.saved < 0:
            return (f"chosen: {saved} more expensive here than {other.text} ({price}), and cheaper "
                    "in what follows")
        return f"chosen: no more expensive than {other.text} ({price})"

    @property
    def subjects(self) -> tuple[Path | Hold | None, ...]:
        """What the sentences of the reason are about: first none of these, if it has a text. Of
        several that read alike, such as those of `q`, `k` and `v`, one.
        """
        unlike = {str(one): one for one in (*self.paths, *self.holds)}
        return (*((None,) if self.text else ()), *unlike.values())

    def lines(self) -> list[str]:
        """The reason in sentences, the nearest cause first."""
        return [self.text if one is None else str(one) for one in self.subjects]

    def __str__(self) -> str:
        return "; ".join(self.lines())


def whole_axes(axes: Iterable[str]) -> frozenset[str]:
    """The mesh axes that these axes are, or are parts of."""
    return frozenset([str(a).partition(":")[0] for a in axes])


def where(location: Location) -> tuple:
    """Equal for equal places, whoever called the function there."""
    return (location.file, location.line, location.column, location.end_line,
            location.end_column, location.transform)


def reached(location: Location) -> tuple:
    """Equal for places that are reached by equal calls."""
    return (*where(location), location.chain)


def sharding_key(eqn: Equation) -> str:
    """The param that holds the sharding of an equation's result; "" if there is none."""
    if eqn.op is sharding_constraint_p:
        return "sharding"
    if eqn.op is reshard_p:
        return "dst_sharding"
    key = eqn.op.sharding_param
    return key if key is not None and eqn.params.get(key) is not None else ""
