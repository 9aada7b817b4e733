"""Runtime checks that `checkify` did not turn into values: refused, or dropped if for debugging."""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import fail
from ...ir.program import Equation, Program
from ...ir.rewriting.inside import inside


def drop_checks(program: Program) -> Program:
    """The program without debugging checks. Raises ValueError for any other check."""
    if "check" not in program.effects:
        return program
    program = inside(program, drop_checks)
    return program.replace(eqns=[e for e in program.eqns if not _is_dropped(e)])


def _is_dropped(eqn: Equation) -> bool:
    """Is this a check for debugging? One that has to raise is refused."""
    if eqn.op.effect != "check":
        return False
    if not eqn.params["debug"]:
        fail(ValueError, "Cannot abstractly evaluate a checkify.check which was not "
             "functionalized. This probably means you tried to stage (jit/scan/pmap/...) a `check` "
             "without functionalizing it through `checkify.checkify`.", code="check",
             location=eqn.location, label="this check would have to raise while a program runs",
             help="jit what `checkify` makes of the function, and call `throw` of the error that "
                  "it gives; or use `debug_check`, which is not made elsewhere")
    return True
