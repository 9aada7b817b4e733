"""What was asked for, what an op needs, and what the partitioner preferred are told apart.

Expected kinds are argued for by hand: an op that works along a split dimension, or whose blocks
would not be contiguous, needs what it gets; two operands that are split differently can meet in
either layout; and what was asked for goes when the annotation goes.
"""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.partitioner.collectives import collectives
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("X", "Y"))


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def asked(x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(MESH, P(*spec)))


def kinds(f, *args, **options):
    program = st.jit(f, **options).lower(*args).compile().program
    found = [(c.kind, c.reason_kind) for c in collectives(program)]
    again = collectives(parse_program(print_program(program)))
    assert [(c.kind, c.reason_kind) for c in again] == found         # the text keeps them
    return sorted(set(found))


NEEDED = {
    "cumsum": (lambda x: jnp.cumsum(x, 0), "all-gather", struct((16, 8), "X")),
    "flip": (lambda x: jnp.flip(x, 0), "collective-permute", struct((16, 8), "X")),
    "argmax": (lambda x: jnp.argmax(x, 0), "all-gather", struct((16, 8), "X")),
    "merge": (lambda x: x.reshape(-1), "all-gather", struct((16, 8), None, "Y")),
    "split": (lambda x: x.reshape(3, 8, 2), "all-gather", struct((48,), "Y")),
    "sum then tanh": (lambda x: jnp.tanh(x.sum(0)), "all-reduce", struct((16, 8), "X")),
    "maximum": (lambda x: x.max(0), "all-reduce", struct((16, 8), "X")),
    "product": (lambda x: x.prod(0), "all-reduce", struct((16, 8), "X")),
    "mean": (lambda x: x.mean(), "all-reduce", struct((16, 8), "X", "Y")),
    "norm": (lambda x: x / jnp.sqrt((x * x).sum(1, keepdims=True)), "all-reduce",
             struct((16, 8), "X", "Y")),
    "convolution": (lambda x: jnp.convolve(x, jnp.ones(3)), "collective-permute",
                    struct((16,), "X")),
    "contraction": (lambda x, w: jnp.tanh(x @ w), "all-reduce", struct((16, 256), None, "Y"),
                    struct((256, 8), "Y")),
}
CHOSEN = {
    "column after column": (lambda x, w: x @ w, "all-gather", struct((16, 8), "X", "Y"),
                            struct((8, 16), None, "Y")),
    "add": (lambda x, y: x + y, "all-to-all", struct((16, 8), "X"), struct((16, 8), None, "X")),
    "multiply": (lambda x, y: x * y, "all-to-all", struct((16, 8), "Y"),
                 struct((16, 8), None, "Y")),
    "maximum of two": (lambda x, y: jnp.maximum(x, y), "all-to-all", struct((16, 8), "X"),
                       struct((16, 8), None, "X")),
}
ASKED = {
    "whole": ((), {}),
    "another dimension": ((None, "X"), {}),
    "another axis": (("Y",), {}),
    "result": (None, {"out_shardings": NamedSharding(MESH, P())}),
    "result elsewhere": (None, {"out_shardings": NamedSharding(MESH, P(None, "X"))}),
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_an_op_needs(name):
    f, kind, *args = NEEDED[name]
    assert kinds(f, *args) == [(kind, "needed")]


@pytest.mark.parametrize("name", CHOSEN)
def test_what_the_partitioner_preferred(name):
    f, kind, *args = CHOSEN[name]
    assert kinds(f, *args) == [(kind, "chosen")]
    # the other operand may be the one that stays: then nothing is moved but the first one
    for spec in {a.sharding.spec for a in args}:
        settled = [st.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(MESH, spec))
                   for a in args]
        if name != "column after column":
            assert kinds(f, *settled) == []


@pytest.mark.parametrize("name", ASKED)
def test_what_was_asked_for_goes_with_the_annotation(name):
    spec, options = ASKED[name]
    x = struct((16, 8), "X")
    f = (lambda x: jnp.sin(x)) if spec is None else (lambda x: asked(jnp.sin(x), *spec))
    assert {k for _, k in kinds(f, x, **options)} == {"asked"}
    assert kinds(lambda x: jnp.sin(x), x) == []


def test_a_collective_that_the_user_wrote_was_asked_for():
    f = st.shard_map(lambda b: lax.psum(b, "X"), mesh=MESH, in_specs=P("X"), out_specs=P())
    assert kinds(f, struct((16, 8), "X")) == [("all-reduce", "asked")]


def test_explanations_have_the_kind_as_data():
    f, _, *args = CHOSEN["add"]
    (c,) = st.explain(st.jit(f))(*args).collectives
    assert c.reason_kind == c.to_dict(suggestions=False)["reason_kind"] == "chosen"
    assert "takes dimension" in c.reason
