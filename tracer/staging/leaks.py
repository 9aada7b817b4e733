"""`check_tracer_leaks`: find traced values that outlive the function that was traced."""
from __future__ import annotations

import gc
from typing import Any

from ...ir.diagnostics.errors import LeakedTracerError
from ...ir.settings.context import STATE, config
from .tracer import Tracer


def watching() -> bool:
    """Whether leaks are looked for in this thread."""
    overrides = STATE.overrides
    if overrides and "jax_check_tracer_leaks" in overrides:
        return overrides["jax_check_tracer_leaks"]
    return config._values["jax_check_tracer_leaks"]


def check(builder: Any) -> None:
    """Raise LeakedTracerError if tracers of a builder whose trace has ended are still held."""
    gc.collect()
    held = [x for x in gc.get_referrers(builder) if type(x) is Tracer]
    if not held:
        return
    lines = [f"{x.aval.str_short(True)}: {builder.describe(x.variable)}" for x in held]
    raise LeakedTracerError(
        f"Leaked trace {type(builder).__name__} of `{builder.name}`. Leaked tracer(s):\n\n"
        + "\n".join(f"  {line}" for line in lines)
        + "\n\nA traced value was kept beyond the function, in an outer variable, list or "
        "attribute. Return it instead.")
