"""Attributes: what passes tell each other in the memo of a program, by key."""
from __future__ import annotations

from .program import Var
from .source.location import Location
from .support.named_tuple import NamedTuple
from .types import ArrayType


class Requests(NamedTuple):
    """In the memo of a TRACED program: how its arguments are laid out and its results shall be, as
    types on the mesh with all axes Explicit; None for those of which nothing is said.
    """
    arguments: tuple[ArrayType | None, ...]
    results: tuple[ArrayType | None, ...]

    KEY = "requests"


class LayoutConstraints(NamedTuple):
    """In the memo of a RESOLVED program: which results of equations stay as their types say, all if
    `fixed` is None; and where the user constrains values.
    """
    fixed: frozenset[Var] | None
    places: dict[Var, Location]

    KEY = "demands"


# In the memo of a LOCAL program: the pass that is still to come.
NEXT_PASS = "next pass"

# In the memo of a program: the passes that are left out, in alphabetical order.
SKIPPED_PASSES = "without"

# In the memo of a program: what it is partitioned for, (objective, hardware, limit of memory).
OBJECTIVE = "judged by"

# In the memo of a RESHARDED program and what is made of it: whether the planner lets devices
# compute the same.
RECOMPUTES = "repeats"

# In the memo of a program: for each parameter whether results may take its memory.
DONATED = "donated"

# What the text of a program says and only the memo holds.
TEXT_ATTRIBUTES = ("meshes", Requests.KEY, LayoutConstraints.KEY, NEXT_PASS, SKIPPED_PASSES,
                   OBJECTIVE, DONATED)
