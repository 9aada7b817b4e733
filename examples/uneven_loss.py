"""Sizes that axes do not divide: a next-token loss over a split sequence, before and after.

`h[:, :-1] @ w` has 4,095 positions, which eight devices do not divide. They are padded to 4,096,
and the last is left out of the loss: no device gathers the sequence. `SHARDTRACE_SKIP=pad-uneven`
shows what happens otherwise.
"""
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import config, nn
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

mesh = st.make_mesh((8,), ("seq",))


def struct(shape, dtype, *spec):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def loss(h, w, tokens):
    logits = h[:, :-1] @ w
    found = jnp.take_along_axis(nn.log_softmax(logits), tokens[:, 1:, None], -1)
    return -found.mean()


ARGUMENTS = (struct((4, 4096, 512), jnp.float32, None, "seq"), struct((512, 1024), jnp.float32),
             struct((4, 4096), jnp.int32, None, "seq"))

padded = st.explain(loss)(*ARGUMENTS)
print(padded)
with config.override(shardtrace_skip="pad-uneven"):
    whole = st.explain(st.jit(lambda *args: loss(*args)))(*ARGUMENTS)
print(f"received per device: {whole.received_bytes:,} bytes without padding, "
      f"{padded.received_bytes:,} with it")
