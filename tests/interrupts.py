"""Interrupts wherever Python lets one come: what a block leaves behind when it does not end."""
from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

CHECKED = ("CALL", "RESUME")


def interrupted(block: Callable[[], Any], n: int, ours: Callable[[CodeType], bool],
                ) -> tuple[bool, int]:
    """Run a block with an interrupt at the n-th place of the code that is `ours`.

    Whether there was one, and how many places were counted. See `places` for what one is.
    """
    seen = 0
    # By the code's identity, since its hash is slow.
    known: dict[int, tuple[CodeType, frozenset[int]]] = {}

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal seen
        code = frame.f_code
        if event == "opcode":
            if frame.f_lasti in known[id(code)][1]:
                seen += 1
                if seen == n:
                    raise KeyboardInterrupt
            return trace
        # Python drops what a finalizer raises, or the callback of a weak reference (`removed` in
        # ir/support/interning.py): nothing to interrupt there.
        if code.co_name in ("__del__", "removed") or not ours(code):
            return None
        if id(code) not in known:
            known[id(code)] = code, places(code)
        frame.f_trace_opcodes = True
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        block()
    except KeyboardInterrupt:
        return True, seen
    finally:
        sys.settrace(before)
    return False, seen


def places(code: CodeType) -> frozenset[int]:
    """Offsets of the bytecodes before which an interrupt may come.

    Python looks for one as a function begins, as a call returns and as a loop turns (left out
    here), and raises it there; a tracer can raise only before the bytecode that follows. So that
    the same handler is found, the two must lie in the same range of the table of handlers: the
    call of a lock's `__exit__` is in none, and an interrupt before it, which Python never sends,
    leaves the lock taken.
    """
    bytecode = dis.Bytecode(code)
    ranges = getattr(bytecode, "exception_entries", ())

    def handler(offset: int) -> int | None:
        return next((e.target for e in ranges if e.start <= offset < e.end), None)

    return frozenset(after.offset for before, after in itertools.pairwise(bytecode)
                     if before.opname.startswith(CHECKED)
                     and handler(before.offset) == handler(after.offset))
