"""A plan under optimisation: the input and output of passes over calls.

The planner appends calls to a draft. The passes of plans/passes.py run on it when it is planned,
those of plans/generated.py when it is written out as a function.
"""
from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.passes import Pass, run_passes, skipped
from ...ir.settings.context import config
from ...ir.support.named_tuple import NamedTuple
from ...ir.support.scopes import override
from ..calls.call import Call


class _Recorder(threading.local):
    """Collects the plans that this thread makes, within `recording_plans`."""

    texts: list[tuple[str, str]] | None = None


_RECORDER = _Recorder()


class Draft(NamedTuple):
    """Calls, and how their slots connect to the outside.

    carried: of a loop's body, the inputs whose next value is the output at the same position.
    small: reuse the memory of small arrays, too. used: set by a pass, the slots of `carried` that
    are overwritten.
    """
    calls: Sequence[Call]
    outputs: Sequence[int]
    constants: dict[int, Any]
    carried: Sequence[int] = ()
    small: bool = False
    used: Sequence[int] = ()

    @property
    def next_values(self) -> dict[int, int]:
        """From each carried input to its value in the next iteration."""
        return dict(zip(self.carried, self.outputs, strict=False))

    def of(self, calls: Sequence[Call], **others: Any) -> Draft:
        """The draft with other calls; the same object if they are the same."""
        if len(calls) == len(self.calls) and all(map(operator.is_, calls, self.calls)):
            return self
        return self._replace(calls=calls, **others)

    @property
    def eqns(self) -> Sequence[Call]:
        """The calls, which is what phases count."""
        return self.calls

    def text(self) -> str:
        """The draft as text, a line for each call."""
        return "\n".join([
            *[f"v{s} = constant {_type(x)}" for s, x in self.constants.items()], *map(_line,
            self.calls), f"return {_slots(self.outputs)}", ""])


def _type(x: Any) -> str:
    return f"{getattr(x, 'dtype', type(x).__name__)}{list(getattr(x, 'shape', ()))}"


def _slots(slots: Sequence[int]) -> str:
    return ", ".join([f"v{s}" for s in slots])


def _line(call: Call) -> str:
    function, kernel = call.function, call.kernel
    name = getattr(function, "__name__", None) or type(function).__name__
    parts = getattr(function, "equations", None) or (() if call.eqn is None else (call.eqn,))
    ops = " + ".join([e.op.name for e in parts])
    where = f"{parts[0].location}" if parts and parts[0].location.line else ""
    kind = "" if kernel is None else f": {kernel.dtypes[-1]}{list(kernel.shapes[-1])}"
    comment = ", ".join(filter(None, (ops, "in place" if call.changes else "", where)))
    return (f"{_slots(call.outputs) or '_'}{kind} = {name}({_slots(call.inputs)})"
            f"{'  # ' + comment if comment else ''}")


def optimized(draft: Draft, steps: Iterable[Pass]) -> Draft:
    """The draft after these passes, without those that `SHARDTRACE_SKIP` names."""
    names, texts = config.read("shardtrace_skip"), _RECORDER.texts

    def changed(number: int, step: Pass, before: Draft, after: Draft) -> Draft:
        if texts is not None:
            texts.append((step.name, f"after {step.name}; {step.doc}\n{after.text()}"))
        return after

    draft = run_passes(steps, draft, skip=skipped(names), changed=changed)
    if texts is not None:
        texts.append(("planned", draft.text()))
    return draft


@contextlib.contextmanager
def recording_plans() -> Iterator[list[tuple[str, str]]]:
    """Yields a list that collects the plans made in the block: for each pass that changed a plan
    its name and the text it left, then ("planned", text). Plans of loop bodies come first.
    """
    texts: list[tuple[str, str]] = []
    with override(_RECORDER, texts=texts):
        yield texts
