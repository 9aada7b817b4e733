"""The driver: the only code that sees tracer, partitioner and runtime together.

`jit` and its stages (jit.py, stages.py), what makes a program run (executable.py), and the default
interpreter, which runs an op outside of any trace (eager.py). Importing it gives arrays their
operators and methods.
"""
from ..ir.collector import collector_paused

with collector_paused():             # what modules are made of stays
    from ..ir.api_boundary import bound_class
    from ..ir.mesh import AbstractMesh, Mesh
    from ..ir.shape_struct import ShapeDtypeStruct
    from ..ir.shardings.sharding import NamedSharding, SingleDeviceSharding
    from ..ir.spec import PartitionSpec
    from ..tracer.advice import advisers
    from ..tracer.arrays import array_methods
    from . import eager, fix_prices, progress_bars
    from .jit import eval_shape, jit, make_jaxpr
    from .stages import Compiled, Lowered, Traced

eager.install()
advisers.install()
fix_prices.install()
progress_bars.install()
for _cls in (AbstractMesh, Mesh, NamedSharding, PartitionSpec, ShapeDtypeStruct,
             SingleDeviceSharding):
    bound_class(_cls)

__all__ = [
    "Compiled", "Lowered", "Traced", "array_methods", "eval_shape", "jit", "make_jaxpr",
]
