"""Interrupts at any bytecode: what a block leaves behind when it does not come to its end."""
from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any


def interrupted(block: Callable[[], Any], n: int, ours: Callable[[CodeType], bool],
                ) -> tuple[bool, int]:
    """Run a block with an interrupt at the n-th bytecode of the code that is `ours`.

    Whether there was one, and how many of these bytecodes were counted.
    """
    seen = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal seen
        # Python drops what a finalizer raises, or the callback of a weak reference (`removed` in
        # ir/support/interning.py): nothing to interrupt there.
        if frame.f_code.co_name in ("__del__", "removed") or not ours(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == n:
                raise KeyboardInterrupt
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
