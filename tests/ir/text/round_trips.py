"""Types and programs for tests of the text form."""
from __future__ import annotations

from typing import Any

import numpy as np

from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.program import Program
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.types import ArrayType, array_type

E, A, M = AxisType.Explicit, AxisType.Auto, AxisType.Manual
MESH = AbstractMesh((2, 4), ("X", "Y"), (E, E))
F32 = np.dtype("float32")


def t(shape: Any, spec: Any = (), mesh: AbstractMesh = MESH, dtype: Any = F32,
      **kwargs: Any) -> ArrayType:
    spec = spec if isinstance(spec, P) else P(*spec)
    return array_type(shape, dtype, sharding=NamedSharding(mesh, spec), **kwargs)


def round_trip(program: Program, **kwargs: Any) -> Program:
    """Print and read: the same program, and the same text again."""
    text = str(program)
    again = parse_program(text, **kwargs)
    assert programs_equal(again, program), text
    assert str(again) == text
    return again
