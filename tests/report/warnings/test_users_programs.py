"""Each warning is given for a program that a user would write, and not for one nearby."""
from __future__ import annotations

import inspect

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.report.warnings.warnings import KINDS
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((2, 4), ("data", "model"))
ROW = AbstractMesh((8,), ("data",))


def struct(shape, *spec, mesh=ROW):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def constrained(x, *spec, mesh=ROW):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


# -- idle-axis: tensor parallelism was forgotten for the weights ----

def mlp(x, up, down):
    return jnp.tanh(x @ up) @ down          # idle-axis


WHOLE = (struct((64, 256), "data", mesh=MESH), struct((256, 512), mesh=MESH),
         struct((512, 256), mesh=MESH))
SPLIT = (WHOLE[0], struct((256, 512), None, "model", mesh=MESH),
         struct((512, 256), "model", mesh=MESH))


# -- silent-replication: a table comes from a checkpoint, as it is ----

def lookup(table, tokens):
    return table[tokens].sum(1)             # silent-replication


TOKENS = st.ShapeDtypeStruct((64, 16), np.int32, sharding=NamedSharding(ROW, P("data")))
LOADED = (st.ShapeDtypeStruct((4096, 64), np.float32), TOKENS)
PLACED = (struct((4096, 64), "data"), TOKENS)


# -- padding: the vocabulary is no multiple of the devices ----

def logits(h, table):
    padded = jnp.pad(table, ((0, -table.shape[0] % 8), (0, 0)))     # padding
    return h @ constrained(padded, "data").T


ODD = (struct((64, 128)), struct((261, 128)))
EVEN = (struct((64, 128)), struct((264, 128)))


# -- redundant-compute: a factorisation that every device does ----

def whitened(x, basis):
    return x @ (basis @ basis.T)            # redundant-compute


def whitened_by_rows(x, basis):
    return x @ constrained(basis @ basis.T, "data")


SQUARE = (struct((512, 256), "data"), struct((256, 256)))


# -- gather-then-slice: the last tokens of a sequence that is split ----

def last_tokens(h):
    def body(h):
        return lax.all_gather(h, "data", tiled=True)[-4:] * 2.0     # gather-then-slice

    return st.shard_map(body, mesh=ROW, in_specs=P("data"), out_specs=P("data"))(h)


def last_tokens_of_all(h):
    def body(h):
        whole = lax.all_gather(h, "data", tiled=True)
        return whole[-4:] * whole.mean(0)

    return st.shard_map(body, mesh=ROW, in_specs=P("data"), out_specs=P("data"))(h)


SEQUENCE = (struct((4096, 64), "data"),)


# -- repeated-gather: two layers by hand, each gathers the weight that they share ----

def shared_weight(x, w):
    def body(x, w):
        h = jnp.tanh(x @ lax.all_gather(w, "data", tiled=True))
        h, w = lax.optimization_barrier((h, w))             # not before the first layer is done
        return h @ lax.all_gather(w, "data", tiled=True)    # repeated-gather

    return st.shard_map(body, mesh=ROW, in_specs=(P("data"), P("data")), out_specs=P("data"))(x, w)


def shared_weight_kept(x, w):
    def body(x, w):
        whole = lax.all_gather(w, "data", tiled=True)
        h, whole = lax.optimization_barrier((jnp.tanh(x @ whole), whole))
        return h @ whole

    return st.shard_map(body, mesh=ROW, in_specs=(P("data"), P("data")), out_specs=P("data"))(x, w)


ROWS = (struct((64, 64), "data"), struct((64, 64), "data"))


# -- loop-invariant: half of the devices compute a layer, in turns ----

def in_turns(x, w):
    def body(x, w):
        def step(h, i):
            def layer(h):
                whole = lax.all_gather(w, "model", axis=0, tiled=True)      # loop-inv
                return jnp.tanh(h @ whole)

            return lax.cond((i + lax.axis_index("data")) % 2 == 0, layer, lambda h: h, h), None

        return lax.scan(step, x, jnp.arange(12))[0]

    return st.shard_map(body, mesh=MESH, in_specs=(P("data"), P("model")), out_specs=P("data"),
                        check_vma=False)(x, w)


def in_turns_gathered_before(x, w):
    def body(x, w):
        whole = lax.all_gather(w, "model", axis=0, tiled=True)

        def step(h, i):
            return lax.cond((i + lax.axis_index("data")) % 2 == 0, lambda h: jnp.tanh(h @ whole),
                            lambda h: h, h), None

        return lax.scan(step, x, jnp.arange(12))[0]

    return st.shard_map(body, mesh=MESH, in_specs=(P("data"), P("model")), out_specs=P("data"),
                        check_vma=False)(x, w)


LONG = (struct((2048, 64), "data", mesh=MESH), struct((64, 64), "model", mesh=MESH))

CASES = {
    "idle-axis": ((mlp, WHOLE), (mlp, SPLIT)),
    "silent-replication": ((lookup, LOADED), (lookup, PLACED)),
    "padding": ((logits, ODD), (logits, EVEN)),
    "redundant-compute": ((whitened, SQUARE), (whitened_by_rows, SQUARE)),
    "gather-then-slice": ((last_tokens, SEQUENCE), (last_tokens_of_all, SEQUENCE)),
    "repeated-gather": ((shared_weight, ROWS), (shared_weight_kept, ROWS)),
    "loop-invariant": ((in_turns, LONG), (in_turns_gathered_before, LONG))}


def test_there_is_a_program_for_each_warning():
    assert set(CASES) == set(KINDS)


@pytest.mark.parametrize("kind", CASES)
def test_a_warning_is_given_with_its_number_and_line(kind):
    f, args = CASES[kind][0]
    (waste, *_) = [w for w in st.explain(f)(*args).warnings if w.kind == kind]
    assert waste.wasted_bytes or waste.wasted_flops
    assert waste.fix
    lines, first = inspect.getsourcelines(f)
    marked = [first + i for i, line in enumerate(lines) if f"# {kind[:8]}" in line]
    if kind != "idle-axis":                     # which is of no line
        assert waste.source.line == marked[0]


@pytest.mark.parametrize("kind", CASES)
def test_it_is_not_given_for_the_program_without_the_waste(kind):
    f, args = CASES[kind][1]
    assert kind not in [w.kind for w in st.explain(f)(*args).warnings]
