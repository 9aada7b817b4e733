"""`Mesh` where older programs import it from, and `xmap`, which says what took its place."""
from shardtrace.driver.jit.older_pjit import xmap
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.ir.meshes.mesh import Mesh

__all__ = ["Mesh", "xmap"]
_bound_names(globals())
