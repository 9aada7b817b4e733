"""Random keys in split arrays, whatever plans are judged by: nobody can add keys up, or pad them
with zeros, so what is looked up in them is not the sum of what each device has."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.ir.support.environment import OBJECTIVES
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..executors import EXECUTORS
from ..rows import rows

MESH = st.make_mesh((4, 2), ("x", "y"))
KEYS = random.split(random.key(7), 64)


def first(keys):
    return jnp.argmax(random.key_data(keys)[:, 0])


FUNCTIONS = {
    "a key": lambda k: k[3], "a key at an index": lambda k: k[first(k)],
    "some keys": lambda k: jnp.take(k, jnp.array([1, 5, 60])), "a slice": lambda k: k[3:5],
    "a slice at an index": lambda k: lax.dynamic_slice(k, (first(k),), (2,)),
    "one or the other": lambda k: jnp.where(jnp.arange(64) > 3, k, k[0]),
    "backwards": lambda k: k[jnp.arange(64)[::-1]], "rolled": lambda k: jnp.roll(k, 3),
    "one set": lambda k: k.at[3].set(k[5]),
    "of pieces that do not divide": lambda k: jnp.concatenate([k[:3], k[7:]]),
    "numbers of keys that do not divide": lambda k: st.vmap(random.uniform)(k[1:])}


@rows("executor", EXECUTORS)
@rows("objective", OBJECTIVES)
@rows("function", FUNCTIONS.values())
def test_split_keys_are_what_whole_ones_are(function, objective, executor) -> None:
    def numbers(keys):
        found = function(keys)
        return found if found.dtype == np.float32 else random.key_data(found)

    with st.config.override(shardtrace_objective=objective, shardtrace_engine=executor):
        found = st.jit(numbers)(st.device_put(KEYS, NamedSharding(MESH, P("x"))))
    with st.disable_jit():
        wanted = numbers(KEYS)
    np.testing.assert_array_equal(found, wanted)
