"""Programs that are all dispatch: what a call costs before it computes."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import LINE, Placed, normal, program


@program("dispatch, one small array", LINE, True, lambda rng: (
    Placed(normal(rng, 8, 8), ("X",)),), timed=False)
def _tiny(lib: Any) -> Any:
    return lambda x: x + 1


def _leaves(rng: np.random.Generator) -> tuple:
    return ({f"w{i:03}": Placed(normal(rng, 8, 8), ("X",)) for i in range(100)},)


@program("dispatch, 100 leaves", LINE, True, _leaves, timed=False)
def _hundred(lib: Any) -> Any:
    return lambda tree: {name: x + 1 for name, x in tree.items()}
