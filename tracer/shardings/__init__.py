"""How users place values: the context mesh, `out_sharding=`, reshard and the axes' modes.

`mesh_context.py` is the mesh that specs refer to; `out_sharding.py` reads the argument of that
name, `sharding_functions.py` has reshard, auto_axes and explicit_axes, and `auto_mode.py` runs a
part with all axes Auto. `eager_mesh.py` tells the devices of constants where there is no trace.
"""
