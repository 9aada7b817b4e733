"""Environment variables: their names and values; unknown ones are refused.

A misspelt SHARDTRACE_DUMP would silently write nothing, so all names that begin with SHARDTRACE_
are checked when a setting is first read.
"""
from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .spelling import close_match, none_such

_YES, _NO = ("1", "true", "on", "yes"), ("0", "", "false", "off", "no")

ENGINES = ("simulated", "per_device", "jax", "mpi")
"""What can run programs (engines/engine.py)."""

OBJECTIVES = ("time", "bytes", "memory", "xla")
"""What plans can be judged by; "xla": the plan that XLA makes, whatever it costs."""


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError("write 1 or 0")
    return text.lower() in _YES


def _count(text: str, what: str = "number of devices, such as 8") -> int | None:
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise ValueError(f"write a {what}")
    return int(text)


def _entries(text: str) -> int | None:
    return _count(text, "number of entries, such as 256")


def _debug(text: str) -> str:
    if any(word not in ("", "trace") for word in text.split(",")):
        raise ValueError("write trace")
    return text


def _one_of(names: tuple[str, ...], what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(none_such(text, names, f"{what} called"))
        return text
    return read


def _bytes(text: str) -> float:
    if not 0 <= float(text) < math.inf:
        raise ValueError("write a number of bytes, such as 80e9")
    return float(text)


VARIABLES: dict[str, tuple[Callable[[str], Any], str]] = {
    "SHARDTRACE_ALLOW_EXCESS_PRECISION": (
        _flag, "0: every result in bfloat16 or float16 is rounded, also where none is written"),
    "SHARDTRACE_CACHE_SIZE": (_entries, "the most entries of any cache, such as 256"),
    "SHARDTRACE_CHECK": (_flag, "0: no verifier after the passes"),
    "SHARDTRACE_DEBUG": (_debug, "trace: print the type of every value as it is traced"),
    "SHARDTRACE_DUMP": (str, "a folder for the program of every stage"),
    "SHARDTRACE_ENGINE": (_one_of(ENGINES, "engine"),
                          "what runs programs: simulated, per_device, jax or mpi"),
    "SHARDTRACE_HARDWARE": (str, "whose time plans are judged by, such as h100"),
    "SHARDTRACE_MEMORY_LIMIT": (_bytes, "the most bytes that a device may hold, such as 80e9"),
    "SHARDTRACE_NUM_DEVICES": (_count, "how many devices are simulated"),
    "SHARDTRACE_OBJECTIVE": (_one_of(OBJECTIVES, "objective"),
                             "what plans are judged by: time, bytes, memory or xla"),
    "SHARDTRACE_PROFILE": (_flag, "1: where the time of the process went, when it ends"),
    "SHARDTRACE_PROGRESS": (_flag, "0: no progress bars"),
    "SHARDTRACE_SKIP": (str, "passes to leave out, such as rematerialize,optimize"),
}


def read(name: str, default: Any) -> Any:
    """The value of a variable, `default` where it is not set. Raises ValueError for a wrong one."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = VARIABLES[name][0](text)
    except ValueError as problem:
        raise ValueError(f"{name}={text!r}: {problem} ({VARIABLES[name][1]})") from None
    return default if value is None else value


def check(environ: Mapping[str, str]) -> None:
    """Raise ValueError for an unknown variable that begins with SHARDTRACE_."""
    for name in environ:
        if name.startswith("SHARDTRACE_") and name not in VARIABLES:
            listed = "\n".join(f"    {known}: {text}" for known, (_, text) in VARIABLES.items())
            hint = close_match(name, VARIABLES)
            raise ValueError(f"there is no environment variable {name}{', ' + hint if hint else ''}"
                             f"\n{listed}")


def device_count() -> int:
    """Devices to simulate: SHARDTRACE_NUM_DEVICES, or what XLA_FLAGS asks XLA for, or 8."""
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)",
                     os.environ.get("XLA_FLAGS", ""))
    return read("SHARDTRACE_NUM_DEVICES", int(flag[1]) if flag else 8)
