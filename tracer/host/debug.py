"""Prints the type of every value while a function is traced.

    with st.debug.show_types():
        layer(x, w)

prints, in the order of tracing, the source line, the name, the sharded type and the op of each
value; where the value's mesh has Auto axes it adds that they are still open. SHARDTRACE_DEBUG=trace
does the same for every trace of the process.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

from ...ir.program import Equation, Var
from ...ir.settings.context import STATE, config
from ...ir.support.scopes import override
from ...ir.types import ArrayType


class TypePrinter:
    """Prints one line a value. Equations of one source expression are kept until the next one, when
    it is known which name its value was bound to."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._pending: list[Equation] = []
        self._names: dict[Var, str] = {}
        self._depth = 0

    def begin(self, name: str, args: Sequence[Var]) -> None:
        """A trace of the function `name` starts."""
        self.flush()
        self._write(f"trace {name}")
        self._depth += 1
        for i, v in enumerate(args):
            self._line("", v.name or f"args[{i}]", v.aval, "argument")

    def end(self) -> None:
        """The current trace is over."""
        self.flush()
        self._depth -= 1

    def __call__(self, eqn: Equation) -> None:
        """An equation was recorded."""
        if self._pending and str(eqn.location) != str(self._pending[-1].location):
            self.flush()
        self._pending.append(eqn)

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        for eqn in pending:
            for v in eqn.outvars:
                self._line(str(eqn.location), v.name or "", v.aval, eqn.op.name)

    def _line(self, where: str, name: str, aval: ArrayType, what: str) -> None:
        text = f"{where:<24} {name or '.':<10} {aval!s:<28} {what}{open_axes(aval)}"
        self._write(text.rstrip())

    def _write(self, text: str) -> None:
        print("  " * self._depth + text, file=self._file or sys.stdout)


def open_axes(aval: ArrayType) -> str:
    """`  (open: x, y)` if the partitioner may still shard the value over Auto axes."""
    axes = [str(a) for a in aval.mesh.auto_axes]
    return f"  (open: {', '.join(axes)})" if axes and aval.shape else ""


@contextmanager
def show_types(file: TextIO | None = None) -> Iterator[TypePrinter]:
    """Print the type of every value that is traced within the block, to `file` (stdout)."""
    printer = TypePrinter(file)
    with override(STATE, on_equation=[*STATE.on_equation, printer]):
        try:
            yield printer
        finally:
            printer.flush()


def observing() -> Any:
    """Around every trace: starts the printer that SHARDTRACE_DEBUG=trace asks for."""
    wanted = config.read("shardtrace_debug")
    if wanted and "trace" in str(wanted).split(",") and not STATE.on_equation:
        return show_types(sys.stderr)
    return _NOTHING


_NOTHING = nullcontext()
