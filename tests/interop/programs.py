"""What the tests of imported programs look at."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def equations(program: Any) -> Iterator[Any]:
    """The equations of a program, and of the programs in it."""
    for eqn in program.eqns:
        yield eqn
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            for inner in held if isinstance(held, tuple) else (held,):
                yield from equations(inner)
