"""What dimensions are to a program, as the plans with names take them."""
from __future__ import annotations

import shardtrace as st
from shardtrace import lax, nn
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.planning.groups import Groups
from shardtrace.planning.roles import Roles
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((4, 2), ("data", "model"))


def test_the_inner_dimension_of_a_kernel_is_one_that_axes_divide():
    def f(x, up, down):
        for kernel in (up, down):
            x = nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME",
                                                 dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x

    args = [st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(MESH, P()))
            for s in ((16, 8, 8, 32), (3, 3, 32, 64), (3, 3, 64, 32))]
    program = inlined(st.jit(f).trace(*args).jaxpr, padded=False)
    roles = Roles(Groups(program), 2)
    x, up, down = map(roles.classes, program.invars)
    assert up[3] == down[2] and roles.inner_classes == {up[3]} and roles.batch == x[0]
