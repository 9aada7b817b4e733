"""A mesh axis that a `shard_map` makes Manual, but neither its specs nor its body mention, is left
to the partitioner: nothing is gathered over it then, and values stay as they are.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st

from ....user_files import user_file, user_module
from .explained_code import changed_result

HEAD = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((4, 2), ("data", "model"))
spec = P(None, "model")


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def kernel(q, k):
    a = nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k), -1)
    return jnp.einsum("bhqk,bhkd->bhqd", a, k)


"""
TAIL = """

f, args = {}, (struct((64, 8, 128, 16), "data", "model"), struct((64, 8, 128, 16), "data", "model"))
"""
BOUND = """\
flash = st.shard_map(kernel, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma={})


def attend(q, k):
    return flash(q, k) * 2
"""
# the text, the lines that show the change
CASES = {
    "bound to a name": (BOUND.format("False") + TAIL.format("attend"),
                        'check_vma=False, axis_names={"model"})'),
    "checked": (BOUND.format("True") + TAIL.format("attend"),
                'check_vma=True, axis_names={"model"})'),
    "called at once": ("""\
def attend(q, k):
    return st.shard_map(kernel, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(q, k) * 2
""" + TAIL.format("attend"), 'out_specs=spec, axis_names={"model"})(q, k) * 2'),
    "with a sum over the other axis": ("""\
def body(q, k):
    return lax.psum(kernel(q, k).sum(1), "model")


def attend(q, k):
    return st.shard_map(body, mesh=mesh, in_specs=(spec, spec), out_specs=P())(q, k) * 2
""" + TAIL.format("attend"), 'out_specs=P(), axis_names={"model"})(q, k) * 2'),
    "with gradients": (BOUND.format("True") + """

def loss(q, k):
    return (attend(q, k) ** 2).sum()
""" + TAIL.format("st.grad(loss)"), 'axis_names={"model"})'),
    "with gradients, unchecked": (BOUND.format("False") + """

def loss(q, k):
    return (attend(q, k) ** 2).sum()
""" + TAIL.format("st.grad(loss)"), 'axis_names={"model"})')}


@pytest.mark.parametrize("name", CASES)
def test_an_axis_that_a_body_does_without_is_left_to_the_partitioner(name, tmp_path):
    code, shown = CASES[name]
    source = HEAD + code
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = found.root_causes[0].groups[0][0].suggestions[0]
        assert "leave `data` to the partitioner" in best.text
        given = [np.random.default_rng(n).standard_normal(a.shape).astype(np.float32)
                 for n, a in enumerate(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        wanted = np.asarray(st.jit(module.f)(*placed))
        np.testing.assert_allclose(
            changed_result(best, module.args, given), wanted, rtol=1e-4, atol=1e-4)
        ((old, new),) = best.diff
    assert shown in new and source.count(old) == 1
    with user_module(user_file(tmp_path, source.replace(old, new))) as module:
        assert st.explain(module.f)(*module.args).received_bytes == best.received_bytes
        assert best.received_bytes < found.received_bytes / 2
        np.testing.assert_allclose(np.asarray(st.jit(module.f)(*placed)), wanted,
                                   rtol=1e-4, atol=1e-4)


NEEDED = {
    "its position": ('q * lax.axis_index("data")', "P(None, 'model')"),
    "a gather over it": ('kernel(q, k) + lax.all_gather(q, "data").sum(0)', "P(None, 'model')"),
    "a spec of the result": ('kernel(q, k)', "P('data', 'model')")}


@pytest.mark.parametrize("name", NEEDED)
def test_an_axis_that_a_body_needs_stays(name, tmp_path):
    code, out = NEEDED[name]
    source = HEAD + f"""\
def body(q, k):
    return {code}


def attend(q, k):
    return st.shard_map(body, mesh=mesh, in_specs=(spec, spec), out_specs={out},
                        check_vma=False)(q, k)
""" + TAIL.format("attend")
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        assert found.received_bytes
        assert not [s.text for c in found.collectives for s in c.suggestions
                    if "to the partitioner" in s.text]
