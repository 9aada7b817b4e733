"""Programs one number or one op away from those that are planned on wholes do what they say."""
import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.arrays.storage import Stored
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Literal
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
RNG = np.random.default_rng(0)
DATA = RNG.integers(-9, 9, (16, 512)).astype(np.float32)
PART = RNG.normal(size=(16, 40)).astype(np.float32)
OTHERS = {"ge": "gt", "lt": "le", "and": "or", "or": "and", "add": "sub", "sub": "add",
          "eq": "ne", "max": "min", "reduce_max": "reduce_min", "reduce_min": "reduce_max",
          "argmax": "argmin", "argmin": "argmax"}

PROGRAMS = {
    "argmax": lambda x, part, i: jnp.argmax(x, 1),
    "argmin": (lambda x, part, i: jnp.argmin(x, 1)),
    "update": (lambda x, part, i: lax.dynamic_update_slice(x, part, (0, i))),
    "set": (lambda x, part, i: x.at[:, 130].set(7)),
    "roll": lambda x, part, i: jnp.roll(x, 3, 1),
    "set element": (lambda x, part, i: x.at[3, i].set(7)),
    "add rows": (lambda x, part, i: x.at[2:9, 100:140].add(part[2:9])),
    "set at values": (lambda x, part, i: x.at[:, i + jnp.array([3, 500, 3, -1])].add(
        part[:, :4])),
    "set rows": (lambda x, part, i: x.at[:, 100:140].set(part)),
}


@functools.cache
def compiled(name):
    x = st.device_put(DATA, st.NamedSharding(MESH, P("x", "y")))
    return st.jit(PROGRAMS[name]).lower(x, PART, np.int32(0)).compile().program


def changed(program):
    """Programs with one integer more or less by one, or one op in place of another."""
    for k, eqn in enumerate(program.eqns):
        found = []
        for i, a in enumerate(eqn.invars):
            if isinstance(a, Literal) and a.aval.dtype.kind == "i":
                for by in (-1, 1):
                    other = Literal(a.aval.dtype.type(a.val + by), a.aval)
                    found.append(eqn.with_operands((*eqn.invars[:i], other, *eqn.invars[i + 1:]),
                                        eqn.outvars))
        if eqn.op.name == "ppermute":
            perm = eqn.params["perm"]
            found += [eqn.replace(params={**eqn.params, "perm": other})
                      for other in (perm[1:], tuple([(b, a) for a, b in perm]))]
        if eqn.op.name in OTHERS:
            found.append(eqn.replace(op=OPS[OTHERS[eqn.op.name]]))
        for new in found:
            yield program.replace(eqns=(*program.eqns[:k], new, *program.eqns[k + 1:]))


@pytest.mark.parametrize("start", [0, 120, 300])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_executors_agree_on_what_is_close(name, start, run_both):
    program = compiled(name)
    values = [Stored(DATA), Stored(PART), Stored(np.array(start, np.int32))]
    want = run_both(program, MESH.abstract_mesh, values)
    different = 0
    for other in changed(program):
        got = run_both(other, MESH.abstract_mesh, values)
        different += not np.array_equal(got[0].data, want[0].data)
    assert different
