"""The interface between `source.py`, which writes a program, and the writers of equations."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...ir.program import Equation, Program, Var


class ProgramWriter(Protocol):
    """A program that is being written. sizes: the axes of JAX's mesh, in its order."""
    sizes: dict[str, int]

    def axis_names(self, names: Any) -> tuple[str, ...]:
        """The axes of JAX's mesh that these axes, or parts of axes, are."""
        ...

    def axes(self, names: Any) -> str:
        """`axis_names` as text: a tuple of strings."""
        ...

    def all_axes(self) -> str:
        """All axes of the mesh, as text."""
        ...

    def constant(self, text: str, wish: str) -> str:
        """The name of a table that stands before the function."""
        ...

    def fresh(self, wish: str) -> str:
        """A name that nothing has yet."""
        ...

    def name(self, var: Var) -> str:
        """The name of a variable, given to it now."""
        ...

    def bind(self, variables: Iterable[Var]) -> list[str]:
        """The names of several."""
        ...

    def alias(self, variables: Sequence[Var], texts: Sequence[str]) -> None:
        """Variables that are what these texts say."""
        ...

    def line(self, text: str, e: Equation | None = None) -> None:
        """Write a line, which an equation is the reason for."""
        ...

    def assign(self, e: Equation, text: str) -> None:
        """Write that the results of an equation are this."""
        ...

    def function(self, name: str, parameters: Sequence[str]) -> AbstractContextManager[None]:
        """What is written inside is the body of this function."""
        ...

    def body(self, program: Program) -> list[str]:
        """Write the equations of a program; the texts of its results."""
        ...

    def callback(self, e: Equation) -> str:
        """The function of the host that an equation calls."""
        ...

    def last_call(self) -> str:
        """The name of the token of the previous host call."""
        ...

    def called(self, token: str) -> None:
        """Set the token of the last host call."""
        ...
