"""What is computed of gathered values over several lines, put into the user's file as it is shown
of each device's blocks, computes the same and moves less.
"""
from __future__ import annotations

import numpy as np
import pytest

from .test_changes import HEAD
from .test_written_lines import proposed

NN = HEAD.replace("import lax", "import lax, nn")
RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# the loss of each token by gathered logits, and how many lines are shown of it
LOSSES = {
    "in one line": ("""
    total = jnp.sum(jnp.exp(full - full.max(-1, keepdims=True)), -1)
    loss = jnp.log(total) + full.max(-1) - jnp.take_along_axis(full, labels[:, None], -1)[:, 0]
""", 2),
    "by names": ("""
    top = full.max(-1, keepdims=True)
    exps = jnp.exp(full - top)
    lse = jnp.log(exps.sum(-1)) + top[:, 0]
    loss = lse - jnp.take_along_axis(full, labels[:, None], axis=-1)[:, 0]
""", 4),
    "by one-hot rows": ("""
    logp = full - full.max(-1, keepdims=True)
    loss = jnp.log(jnp.exp(logp).sum(-1)) - (logp * (labels[:, None] == jnp.arange(4096))).sum(-1)
""", 0),
    "by functions": ("""
    loss = nn.logsumexp(full, -1) - jnp.take_along_axis(full, labels[:, None], -1)[:, 0]
""", 0)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_gathered_logits_is_computed_of_blocks(name, checked, tmp_path):
    code, lines = LOSSES[name]
    to = ', to="invarying"' if checked else ""
    source = NN + f"""\
def body(h, table, labels):
    logits = h @ table
    full = lax.all_gather(logits, "d", axis=1, tiled=True{to}){code}
    return loss


f = st.shard_map(body, mesh=mesh, in_specs=(P(), P(None, "d"), P()), out_specs=P(),
                 check_vma={checked})
args = (struct((256, 64)), struct((64, 4096), None, "d"), struct((256,), dtype=np.int32))
"""
    given = [drawn(256, 64), drawn(64, 4096), RNG.integers(0, 4096, 256).astype(np.int32)]
    diff = proposed(tmp_path, source, "reduce before the exchange", given, several=True)
    assert len(diff) == lines, diff


# attention to keys and values that are split along their positions, and how many lines are shown
ATTENTION = {
    "by names": ("""
    scores = jnp.einsum("bk,sk->bs", q, keys) / 8
    w = jnp.exp(scores - scores.max(-1, keepdims=True))
    return (w / w.sum(-1, keepdims=True)) @ values
""", 3),
    "by functions": ("""
    return nn.softmax(q @ keys.T / 8) @ values
""", 0)}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_to_gathered_keys_adds_up_what_each_device_attends_to(name, tmp_path):
    code, lines = ATTENTION[name]
    source = NN + f"""\
def body(q, k, v):
    keys = lax.all_gather(k, "d", axis=0, tiled=True)
    values = lax.all_gather(v, "d", axis=0, tiled=True){code}

f = st.shard_map(body, mesh=mesh, in_specs=(P(), P("d"), P("d")), out_specs=P(), check_vma=False)
args = (struct((16, 64)), struct((4096, 64), "d"), struct((4096, 64), "d"))
"""
    given = [drawn(16, 64), drawn(4096, 64), drawn(4096, 64)]
    assert len(proposed(tmp_path, source, "sum the products", given)) == lines


@pytest.mark.parametrize("product", ["h @ down", 'jnp.einsum("nf,fd->nd", h, down)'])
def test_a_product_with_a_whole_weight_is_one_with_its_own_rows(product, tmp_path):
    source = NN + f"""\
def body(x, up, down):
    h = nn.relu(x @ up)
    h = lax.all_gather(h, "d", axis=1, tiled=True)
    return {product}


f = st.shard_map(body, mesh=mesh, in_specs=(P(), P(None, "d"), P()), out_specs=P(), check_vma=False)
args = (struct((512, 128)), struct((128, 2048), None, "d"), struct((2048, 128)))
"""
    given = [drawn(512, 128), drawn(128, 2048), drawn(2048, 128)]
    gone, (_, line) = proposed(tmp_path, source, "sum the products", given)
    assert gone[1] == ""
    assert 'lax.dynamic_slice_in_dim(down, lax.axis_index("d") * 256, 256)' in line
