"""The work that compiling takes, counted: what the times depend on, and no machine can blur.

Counted are Python calls and evaluations (of factor rules, propagation steps, checks, recipes for
blocks, decisions of the planner) from a traced program to a plan that runs. What is known of an
equation is kept by its op, params and types, so that a program of more equations of the same
kinds costs look-ups alone.

Where a limit is exceeded: `python -m cProfile -s tottime` on the program of the test shows which
function is called oftener than before. If the calls are needed, raise the limit to the new count
and a tenth, in a change that says what is bought with them.
"""
import sys

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir import verify
from shardtrace.ir.inference import levels
from shardtrace.ir.rules import rule
from shardtrace.partitioner.lowering import builder
from shardtrace.partitioner.propagation import fixed_point
from shardtrace.runtime.simulation import executor
from shardtrace.runtime.simulation.executor import compile_simulated
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding, use_abstract_mesh
from shardtrace.sharding import PartitionSpec as P

from ..python_calls import python_calls

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit

pytestmark = pytest.mark.usefixtures("empty_caches")


def mesh_of(sizes, kind=AUTO):
    return AbstractMesh(sizes, tuple("abcdef"[:len(sizes)]), (kind,) * len(sizes))


def struct(mesh, shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def traced(mesh, f, *args):
    with use_abstract_mesh(mesh):
        return st.jit(f).trace(*args)


def chain(mesh, layers):
    """Four elementwise equations a layer, each reading the one before."""
    def f(x):
        for _ in range(layers):
            x = jnp.sin(jnp.tanh(x * 1.5 + x))
        return x
    return traced(mesh, f, struct(mesh, (64, 32), "a"))


def network(mesh, layers):
    """Products whose partial sums are finished, and their gradients: about 20 equations a layer."""
    def loss(w, v, x):
        for _ in range(layers):
            x = jnp.tanh(jnp.tanh(x @ w) @ v)
        return jnp.sum(x * x)
    b = "b" if mesh.auto_axes else None         # Explicit typing leaves no sum open by itself
    return traced(mesh, st.grad(loss, (0, 1)), struct(mesh, (64, 64), None, b),
                  struct(mesh, (64, 64), b), struct(mesh, (64, 64), "a"))


def compiled(stage):
    part = stage.lower()._executable.partitioned
    compile_simulated(part.local, part.mesh)
    return part


def calls_per_equation(program, mesh):
    """Of the equations by which a long program exceeds a short one of the same kinds."""
    short, long = program(mesh, 20), program(mesh, 60)
    for stage in (short, long):
        compiled(stage)
    more = len(long.jaxpr.eqns) - len(short.jaxpr.eqns)
    return (python_calls(compiled, long) - python_calls(compiled, short)) / more


@pytest.mark.parametrize("program, sizes, kind, limit", [
    (chain, (8,), EXPLICIT, 42), (chain, (8,), AUTO, 87), (chain, (2, 2, 2), AUTO, 87),
    (network, (2, 4), AUTO, 190), (network, (2, 4), EXPLICIT, 87)])
def test_an_equation_takes_few_calls_to_partition_and_plan(program, sizes, kind, limit):
    found = calls_per_equation(program, mesh_of(sizes, kind))
    assert found <= limit, f"{found:.1f} calls an equation; the first lines of this file say on"


EVALUATED = ((rule.Pattern, "rule"), (fixed_point._Propagation, "step"), (verify, "check_use"),
             (levels, "_bare_results"), (builder, "recipe_of"), (executor, "equation_plan"))


@pytest.fixture
def evaluations(monkeypatch):
    """How often what is remembered per (op, params, types) was found out anew, by function."""
    found = {}
    for owner, name in EVALUATED:
        old = getattr(owner, name)

        def counting(*args, _old=old, _name=name):
            found[_name] = found.get(_name, 0) + 1
            return _old(*args)

        monkeypatch.setattr(owner, name, counting)
    return found


@pytest.mark.parametrize("program", [chain, network])
def test_evaluations_do_not_grow_with_equations_of_the_same_kinds(evaluations, program):
    counts = []
    for layers in (30, 60):     # more plans are made for exchanges of 1 MB, and steps of 20 us
        st.clear_caches()
        evaluations.clear()
        compiled(program(mesh_of((2, 4)), layers))
        counts.append(dict(evaluations))
    short, long = counts
    assert set(short) >= {"step", "check_use", "_bare_results", "recipe_of", "equation_plan"}
    for name in long:
        assert long[name] <= short[name] + 2, name


def test_a_program_that_came_before_is_not_evaluated_again(evaluations):
    for _ in range(2):
        evaluations.clear()
        compiled(network(mesh_of((2, 4)), 5))
    assert evaluations == {}


def test_evaluations_are_forgotten_with_the_caches(evaluations):
    compiled(chain(mesh_of((2, 4)), 3))
    st.clear_caches()
    evaluations.clear()
    compiled(chain(mesh_of((2, 4)), 3))
    assert evaluations["check_use"] > 3
    assert evaluations["step"] > 3


def test_calls_do_not_grow_with_the_number_of_devices():
    counts = []
    for sizes in ((2, 4), (256, 256)):
        mesh = mesh_of(sizes)
        stage = traced(mesh, lambda w, x: jnp.sum(jnp.tanh(x @ w)),
                       struct(mesh, (65536, 65536), None, "b"), struct(mesh, (65536, 65536), "a"))
        stage.lower()
        counts.append(python_calls(stage.lower))
    assert counts[1] <= 1.05 * counts[0]


def test_calls_hardly_grow_with_the_number_of_mesh_axes():
    counts = []
    for rank in range(2, 7):
        stage = network(mesh_of((2, 4, 2, 2, 2, 2)[:rank]), 5)
        compiled(stage)
        counts.append(python_calls(stage.lower))
    assert max(counts) <= 1.25 * counts[0]


def test_no_pass_recurses_over_a_chain_of_equations():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)             # which deep traces of other tests may have raised
    try:
        part = compiled(chain(mesh_of((8,)), 1000))
    finally:
        sys.setrecursionlimit(before)
    assert len(part.local.eqns) == 4000


def loops(mesh, depth):
    """The gradient of a product in loops within loops, whose carries come to vary."""
    def level(k, w, x):
        if k == 0:
            return jnp.tanh(x @ w)
        return lax.scan(lambda c, _: (level(k - 1, w, c), None), x, None, length=2)[0]

    return traced(mesh, st.grad(lambda w, x: jnp.sum(level(depth, w, x))),
                  struct(mesh, (16, 16), "b"), struct(mesh, (16, 16), "a", "b"))


def test_loops_within_loops_do_not_double_the_work():
    counts = []
    for depth in (2, 4, 6):
        stage = loops(mesh_of((2, 4)), depth)
        compiled(stage)
        counts.append(python_calls(compiled, stage))
    assert counts[2] - counts[1] <= 2.5 * (counts[1] - counts[0]), counts
