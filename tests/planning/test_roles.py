"""What dimensions are to a program, as the plans with names take them."""
from __future__ import annotations

import shardtrace as st
import shardtrace.numpy as jnp
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


def test_tensor_parallelism_splits_heads_which_no_scores_are_summed_over():
    def loss(p, x, y):
        q, k, v = (jnp.einsum("bsd,dhc->bshc", z, p[w]) for z, w in ((x, "q"), (y, "k"), (y, "v")))
        scores = nn.softmax(jnp.einsum("bqhc,bkhc->bhqk", q, k))
        return jnp.einsum("bhqk,bkhc,hcd->bqd", scores, v, p["o"]).var()

    shapes = {**dict.fromkeys("qkv", (64, 8, 16)), "o": (8, 16, 64)}
    args = st.tree.map(
        lambda s: st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(MESH, P())),
        (shapes, (16, 32, 64), (16, 128, 64)), is_leaf=lambda s: type(next(iter(s))) is int)
    program = inlined(st.jit(st.grad(loss)).trace(*args).jaxpr, padded=False)
    roles = Roles(Groups(program), 2)
    k, o, q, v = map(roles.classes, program.invars[:4])
    heads = {q[1]}
    assert roles.inner_classes == heads == {k[1]} == {v[1]} == {o[0]}
