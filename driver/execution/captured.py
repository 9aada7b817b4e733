"""A warning where a jitted function captures arrays of many bytes: they are in its program."""
from __future__ import annotations

from ...ir.program import Program
from ...ir.settings.context import config
from ...ir.source.wording import warn


def warn_of_captured(program: Program) -> None:
    """Warn if what the program captures is of `jax_captured_constants_warn_bytes`, or more."""
    limit = config.read("jax_captured_constants_warn_bytes")
    sizes = [getattr(x, "nbytes", 0) for _, x in program.consts]
    total = sum(sizes)
    if limit == -1 or total < limit:
        return
    largest, _ = program.consts[sizes.index(max(sizes))]
    user = next((e for e in program.eqns if largest in e.invars), None)
    used = "" if user is None else f", which `{user.location.text()}` uses, on line {user.location}"
    warn(f"A large amount of constants were captured during lowering ({total:,} bytes total). "
         "If this is intentional, disable this warning by setting "
         f"JAX_CAPTURED_CONSTANTS_WARN_BYTES=-1. The largest is {largest.aval.str_short(True)}"
         f"{used}. Passed as an argument of the function, it would not be in its program.")
