"""What stands for the array of a constant that a program's text left out."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..diagnostics.diagnostic import fail
from ..types import ArrayType


class MissingConstant:
    """Stands for an array that the text left out; `digest` is its content hash."""

    __slots__ = ("aval", "digest", "name")

    def __init__(self, name: str, aval: ArrayType, digest: str) -> None:
        self.name, self.aval, self.digest = name, aval, digest

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        fail(LookupError,
             f"constant {self.name} ({self.aval.str_short(True)}) is not in the program's text, "
             "which holds only its content hash", code="missing-constant",
             help=f"give `parse_program` an array for {self.name!r} in `constants`, or write "
                  "the program with `save_program`, which keeps its arrays")
