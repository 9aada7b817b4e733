"""What dimensions are to a program, as the plans with names take them."""
from __future__ import annotations

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.planning.joint_changes import moved_together
from shardtrace.planning.model.groups import Groups
from shardtrace.planning.model.model import Model
from shardtrace.planning.named_plans import named_plans
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


def modelled(loss, parameters, x):
    """(program, groups, model, roles) of the gradient of a loss. parameters: shapes by name; x: the
    shape of the batch.
    """
    args = st.tree.map(
        lambda s: st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(MESH, P())),
        (parameters, x), is_leaf=lambda s: type(next(iter(s))) is int)
    program = inlined(st.jit(st.grad(loss)).trace(*args).jaxpr, padded=False)
    groups = Groups(program)
    return program, groups, Model(groups, MESH, Objective.of("time", "v5p")), Roles(groups, 2)


def test_an_axis_moves_to_the_dimension_that_most_parameters_have():
    """Experts over `model`, and FSDP over `data`: along their largest dimension, the hidden one, or
    along the width, which the projection and the gate have as well.
    """
    def loss(p, x):
        x = x + jnp.tanh(x @ p["in"]) @ p["out"]
        gate = nn.softmax(x @ p["gate"])
        h = nn.relu(jnp.einsum("bd,edh->beh", x, p["up"]))
        return (x + jnp.einsum("beh,ehd,be->bd", h, p["down"], gate)).var()

    shapes = {"in": (128, 64), "out": (64, 128), "gate": (128, 8), "up": (8, 128, 512),
              "down": (8, 512, 128)}
    program, groups, model, roles = modelled(loss, shapes, (512, 128))
    (own,) = [n.choice for n in named_plans(model, roles)
              if n.name == "FSDP (data) x tensor parallel (model)"]

    def laid_out(choice):
        found = {}
        for name, v in zip(sorted(shapes), program.invars, strict=False):
            g = model.number[groups.of[v]]
            found[name] = model.entries(v, model.layouts[g][choice[g]])
        return found

    up, down = (("model",), (), ("data",)), (("model",), ("data",), ())
    assert (laid_out(own)["up"], laid_out(own)["down"]) == (up, down)
    others = [laid_out(choice) for choice in moved_together(model, roles, own)]
    assert any((found["up"], found["down"]) == (down, up) for found in others)


def test_small_parameters_are_split_with_the_others_but_scales_are_not():
    """A plan with a name holds the small one whole; over `model` it is split along its rows."""
    def loss(p, x):
        return (jnp.tanh(x @ p["up"]) @ p["down"] * p["scale"] @ p["small"]).var()

    shapes = {"up": (128, 512), "down": (512, 128), "scale": (128,), "small": (128, 8)}
    program, groups, model, roles = modelled(loss, shapes, (4096, 128))
    number = {name: model.number[groups.of[v]] for name, v in zip(
        sorted(shapes), program.invars, strict=False)}
    (own,) = [n.choice for n in named_plans(model, roles)
              if n.name == "data parallel (data) x FSDP (model)"]

    def laid_out(choice, name):
        return model.layouts[number[name]][choice[number[name]]]

    assert not any(laid_out(own, "small")) and laid_out(own, "up") == ((), ("model",))
    first = moved_together(model, roles, own)[0]
    assert laid_out(first, "small") == (("model",), ())
    assert not any(laid_out(first, "scale")) and laid_out(first, "up") == laid_out(own, "up")
    assert moved_together(model, roles, [len(x) - 1 for x in model.layouts]) == []
