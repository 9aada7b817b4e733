"""Advice for a sharding error: the paths of the axes involved, and changes that help.

A change is found by search and proved by trial: the user's failing expression is edited (an operand
resharded with `reshard`, or `out_sharding=` added), and the edited text is traced at the types in
the frame, together with the whole function where that can run again (rerun.py). Only changes that
then type-check are suggested, with the resulting type, ordered by the bytes that each device would
receive. Expressions whose evaluation might have an effect are left alone. The search is bounded, so
an error costs milliseconds.
"""
from __future__ import annotations

import ast
import inspect
import itertools
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...ir.diagnostics.diagnostic import PRICES, Diagnostic, Fix, Remedy
from ...ir.diagnostics.errors import ShardingTypeError
from ...ir.settings.context import STATE
from ...ir.support.immutable import immutable, replace
from ...ir.support.scopes import override
from ...ir.types import ArrayType, Entries
from ...ir.values.array import Array
from ..staging.builder import Builder
from ..staging.staging import trace_to_program
from ..staging.tracer import Tracer
from ..trees import tree
from .names import Names
from .other_specs import aligned_entries, other_entries, received
from .provenance import axis_path
from .remedies import tried
from .rerun import Rerun, traced
from .user_code import (
    Place,
    current_place,
    enclosing,
    is_pure,
    is_update,
    operands,
    resolved_function,
)

_TRIALS = 48          # expressions traced in search of one that type-checks
_SHOWN = 2            # changes that are shown in full
_MOST = 6             # changes that are found
_CODES = ("unreduced-operand", "reduced-operand")
_BUSY = threading.local()


def advise(cls: type[Exception], diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic of a sharding error, with paths and changes; of any other, as it is."""
    sharding = issubclass(cls, ShardingTypeError) or diagnostic.code in _CODES
    remedies = any(isinstance(h, Remedy) for h in diagnostic.help)
    if not (sharding or remedies) or getattr(_BUSY, "active", False):
        return diagnostic
    try:
        with override(_BUSY, active=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")      # they are about the trials
            place = current_place()
            if place is None:
                return diagnostic
            if remedies:
                diagnostic = tried(place, diagnostic)
            elif is_pure(place.node, place):
                diagnostic = _advised(place, diagnostic)
            return diagnostic
    except Exception:                # of objects of the user's: the mistake is theirs
        return diagnostic


def _advised(place: Place, diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic with the paths of its axes, and the cheapest changes that type-check."""
    search = Search(place)
    because = diagnostic.because or tuple(search.paths())
    fixes = search.fixes("out_sharding" in diagnostic.message)
    if not fixes:
        return replace(diagnostic, because=because)
    notes = diagnostic.notes
    if len(fixes) > _SHOWN:
        others = "\n".join(text.split(":\n")[0] for _, text in fixes[_SHOWN:])
        notes = (*notes, f"what else type-checks:\n{others}")
    return replace(diagnostic, because=because, notes=notes, fixes=tuple(f for f, _ in fixes),
                   help=tuple(text for _, text in fixes[:_SHOWN]))


@immutable
class Edit:
    """One way to write the expression. cost: about how many bytes a device receives for it."""
    text: str
    cost: int
    what: str
    imports: tuple[str, ...] = ()


class Search:
    """Finds edits of the expression at `place` that type-check."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.trials = 0
        self.names = names = Names(place.scope(), place.lines)
        self.reshard, self.import_reshard = names.of("reshard")
        self.arrays: list[tuple[ast.expr, Any]] = []
        for node in operands(place):
            if isinstance(node, ast.Starred):      # several operands, and no expression
                continue
            value = self._value(compile(ast.Expression(node), place.file, "eval"), ())
            if isinstance(value, Array):
                self.arrays.append((node, value))
        self.spec_of, self.import_spec = "%s", names.of("P")[1]
        if STATE.abstract_mesh.empty:
            self._name_mesh()

    # -- names ---------------------------------------------------------------------------------
    def _name_mesh(self) -> None:
        """A specification alone means nothing without a mesh: name that of the operands."""
        node, value = next(((n, v) for n, v in self.arrays if v.aval.mesh.axis_names), (None, None))
        if node is None or value is None:
            return
        sharding, imported = self.names.of("NamedSharding")
        mesh = self.names.mesh(value.aval.mesh)
        if mesh is None:
            typeof_, more = self.names.of("typeof")
            imported += more
            mesh = f"{typeof_}({self.place.text(node)}).sharding.mesh"
        self.spec_of = f"{sharding}({mesh}, %s)"
        self.import_spec = tuple(dict.fromkeys(imported + self.import_spec))

    def _spec_text(self, entries: Entries) -> str:
        return self.names.spec(entries)[0]

    def _sharding_text(self, entries: Entries) -> str:
        """What can be passed as a sharding here: the spec, with a mesh where none is set."""
        return self.spec_of % self._spec_text(entries)

    # -- trial ---------------------------------------------------------------------------------
    def _scope(self, imports: tuple[str, ...]) -> dict[str, Any]:
        frame = self.place.frame
        return {**frame.f_globals, **(self.names.imported if imports else {}), **frame.f_locals}

    def _value(self, code: Any, imports: tuple[str, ...]) -> Any:
        """What an expression gives when it is traced here; None where it is refused."""
        try:
            return traced(lambda: eval(code, self._scope(imports)))   # it is pure, see user_code.py
        except Exception:
            return None

    def _type_checks(self, edit: Edit, whole: ast.AST) -> ArrayType | None:
        """The type of the edited expression, if it and `whole`, of which it is a part, trace."""
        self.trials += 1
        node = self.place.node
        value = self._traced(edit.text, edit.imports)
        if value is None or whole is node:
            return value
        text = self.place.edited(whole, {node: edit.text})
        return value if self._traced(text, edit.imports) is not None else None

    def _traced(self, text: str, imports: tuple[str, ...]) -> ArrayType | None:
        value = self._value(compile(f"({text}\n)", "<edited>", "eval"), imports)
        if isinstance(value, (tuple, list)):
            value = next((v for v in value if isinstance(v, Array)), None)
        return value.aval if isinstance(value, Array) else None

    def _price(self, edit: Edit) -> int | None:
        """Bytes that a device receives to evaluate the edited expression; None if not known."""
        code, scope = compile(f"({edit.text}\n)", "<edited>", "eval"), self._scope(edit.imports)
        observers, STATE.on_equation = STATE.on_equation, []
        try:
            program, _ = trace_to_program(lambda: tree.leaves(eval(code, scope)), (), name="fix")
            return PRICES[-1](program) if PRICES else edit.cost
        except Exception:        # a part of a larger program that is none by itself
            return edit.cost or None
        finally:
            STATE.on_equation = observers

    # -- edits ---------------------------------------------------------------------------------
    def fixes(self, result_first: bool) -> list[tuple[Fix, str]]:
        """The changes that type-check, as data and in words; at most a few, best first.

        result_first: whether the error asks for `out_sharding=`.
        """
        for whole in enclosing(self.place):
            self.trials = 0
            found = self._accepted(self._operand_edits(), whole)
            self.trials = 0
            results = self._accepted(self._result_edits([aval for _, aval in found]), whole)
            ordered = results + found if result_first else found + results
            kept = self._carries()
            if any(aval in kept for _, aval in ordered):     # others would change a carry's type
                results, found, ordered = ([(e, a) for e, a in some if a in kept]
                                           for some in (results, found, ordered))
            if ordered:
                fixes = [(edit, self._fix(edit, aval)) for edit, aval in ordered[:_MOST]]
                if not self._carries():
                    first = {id(edit) for edit, _ in ordered[:len(results if result_first
                                                                  else found)]}
                    fixes.sort(key=lambda f: (id(f[0]) not in first, f[1][0].received_bytes or 0))
                return self._those_that_run([fix for _, fix in fixes])
        return []

    def _those_that_run(self, fixes: list[tuple[Fix, str]]) -> list[tuple[Fix, str]]:
        """The fixes with which the whole function runs; else those that leave a mistake further
        down.
        """
        again = Rerun(self.place, self.names.imported)
        last = self.place.region()[1]
        ways = [again.runs(fix, last + fix.text.count("\n")) for fix, _ in fixes]
        return [fix for fix, runs in zip(fixes, ways, strict=True)
                if runs is (True if True in ways else None)]

    def _carries(self) -> dict[ArrayType, int]:
        """The types of what a loop's body, if this is one, may carry, the first one highest."""
        interpreter = STATE.interpreter
        body = interpreter if isinstance(interpreter, Builder) and interpreter.parent else None
        return {v.aval: -i for i, v in enumerate(body.args)} if body is not None else {}

    def _accepted(self, edits: Iterable[Edit], whole: ast.AST) -> list[tuple[Edit, ArrayType]]:
        """The first edits that type-check, one of those that read alike; in a loop's body, those
        that keep a carry's type."""
        kept = self._carries()
        found: list[tuple[Edit, ArrayType]] = []
        for edit in edits:
            if self.trials >= _TRIALS or len(found) >= _MOST:
                break
            if any(edit.what == other.what for other, _ in found):
                continue
            aval = self._type_checks(edit, whole)
            if aval is not None:
                found.append((edit, aval))
        return sorted(found, key=lambda item: -kept.get(item[1], -len(kept)))

    def _operand_edits(self) -> list[Edit]:
        """One operand brought to another spec; all to that of one; or any two to others."""
        choices = []
        for node, value in self.arrays:
            others = [v.aval for n, v in self.arrays if n is not node]
            choices.append([(node, e, received(value.aval, e))
                            for e in other_entries(value.aval, others)])
        singles = [self._edit([c]) for per_operand in choices for c in per_operand]
        singles.sort(key=lambda e: e.cost)
        alike = []
        for _, model in self.arrays:
            wanted = [(n, v.aval, aligned_entries(v.aval, model.aval)) for n, v in self.arrays]
            changes = [(n, e, received(a, e)) for n, a, e in wanted if e != a.entries]
            if len(changes) > 1:
                alike.append(self._edit(changes))
        pairs = [self._edit(list(pair))
                 for a, b in itertools.combinations(choices, 2) for pair in itertools.product(a, b)]
        pairs.sort(key=lambda e: e.cost)
        return [*singles[:_TRIALS // 2], *alike, *pairs]

    def _edit(self, changes: list[tuple[ast.expr, Entries, int]]) -> Edit:
        """The expression with parts brought to other specs, each (part, axes, bytes that this
        moves).
        """
        place = self.place
        replaced: dict[ast.AST, str] = {
            node: f"{self.reshard}({place.text(node)}, {self._sharding_text(entries)})"
            for node, entries, _ in changes}
        text = self._whole(replaced)
        what = " and ".join(f"bring `{place.text(node)}` to {self._spec_text(entries)}"
                            for node, entries, _ in changes)
        return Edit(text, sum(c for _, _, c in changes), what,
                    tuple(dict.fromkeys(self.import_reshard + self.import_spec)))

    def _whole(self, replaced: Mapping[ast.AST, str]) -> str:
        """The expression with parts replaced; of `a += b` the sum `a + b`."""
        place = self.place
        node = place.node
        if isinstance(node, ast.AugAssign):
            operator = type(node.op)
            target = place.text(node.target)
            text = place.edited(node, replaced)
            value = text[len(target):].lstrip()
            sign = value[:value.index("=")]
            assert issubclass(operator, ast.operator)
            return f"{target} {sign} {value[len(sign) + 1:].lstrip()}"
        return place.edited(node, replaced)

    def _result_edits(self, avals: list[ArrayType]) -> Iterator[Edit]:
        """`out_sharding=` given: what the operand edits lead to, and less."""
        write, imports = self._with_out_sharding()
        if write is None:
            return
        wanted: list[Entries] = [a.entries for a in avals]
        if isinstance(self.place.node, ast.Call) and is_update(self.place.node.func):
            wanted.insert(0, self.arrays[0][1].aval.entries)     # an update keeps the spec
        ranks = {len(a.shape) for a in avals} or {v.aval.ndim for _, v in self.arrays}
        wanted += [((),) * rank for rank in sorted(ranks)]
        for entries in dict.fromkeys(wanted):
            yield Edit(write(self._sharding_text(entries)), 0,
                       f"say how the result is split, here {self._spec_text(entries)}",
                       tuple(dict.fromkeys(imports + self.import_spec)))

    def _with_out_sharding(self) -> tuple[Any, tuple[str, ...]]:
        """A function from a sharding's text to the expression with `out_sharding=` it, or None; and
        what has to be imported for it.
        """
        place, node = self.place, self.place.node
        if isinstance(node, ast.Subscript):
            value, index = place.text(node.value), place.text(node.slice)
            return lambda spec: f"{value}.at[{index}].get(out_sharding={spec})", ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            matmul, imports = self.names.of("numpy.matmul")
            a, b = place.text(node.left), place.text(node.right)
            return lambda spec: f"{matmul}({a}, {b}, out_sharding={spec})", imports
        if not isinstance(node, ast.Call) or any(k.arg == "out_sharding" for k in node.keywords):
            return None, ()
        if not (is_update(node.func) or _takes_out_sharding(resolved_function(place))):
            return None, ()
        text = place.text(node)
        body = text[:-1].rstrip().removesuffix(",")
        comma = "" if body.endswith("(") else ", "
        return lambda spec: f"{body}{comma}out_sharding={spec})", ()

    def _fix(self, edit: Edit, aval: ArrayType) -> tuple[Fix, str]:
        """An edit as data and as the text of a suggestion, with its result's type and the bytes it
        moves.
        """
        place, node, text = self.place, self.place.node, edit.text
        if isinstance(node, ast.AugAssign):
            text = f"{place.text(node.target)} = {text}"
        fix = replace(place.fix(node, text, edit.imports), result=aval.str_short(True),
                      received_bytes=self._price(edit))
        cost = fix.received_bytes
        moved = "" if cost is None else (
            f", which moves {cost:,} B to each device" if cost else ", which moves nothing")
        return fix, place.printed(fix, node, f"{edit.what}{moved} (gives {fix.result})")

    # -- paths ---------------------------------------------------------------------------------
    def paths(self) -> Iterator[str]:
        """For each operand, where its axes come from."""
        for node, value in self.arrays:
            if not isinstance(value, Tracer) or not value.aval.mesh.axis_names:
                continue
            name = self.place.text(node)
            name = f"`{name}`" if len(name) <= 40 and "\n" not in name else "an operand"
            grouped: dict[str, list[str]] = {}
            for d, axes in enumerate(value.aval.entries):
                for axis in axes:
                    path = axis_path(value.builder, value.variable, d, axis)
                    if path is not None:
                        grouped.setdefault(str(path), []).append(f"{axis} on dimension {d}")
            for path, carried in grouped.items():
                verb = "comes" if len(carried) == 1 else "come"
                yield f"{' and '.join(carried)} of {name} {verb} from {path}"


def _takes_out_sharding(function: Any) -> bool:
    try:
        return function is not None and "out_sharding" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


