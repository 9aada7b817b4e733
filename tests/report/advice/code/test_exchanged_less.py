"""What is read of an exchange is taken before it, what is exchanged back is not sent, what is sent
on is sent once, and what is smaller is exchanged: as the user would write it.
"""
from __future__ import annotations

import numpy as np
import pytest

from .explained_code import check_change
from .test_changes import HEAD, blocks, values_of

BEFORE = "take what is read before the exchange"
ONCE = "send at once, by one ppermute"
REDUCED = "reduce before the sum over devices"
BACK = "leave out an exchange and the one that undoes it"
NARROW = "convert to fewer bits before the exchange"
ONE = "compute what is smaller of the one block"
PRODUCTS = "multiply what each device adds"
COSINES = np.cos(np.arange(4096.0)).reshape(4, 1024)
SCATTERED = "sum what each device has, and scatter the sums"
GATHERED = "gather blocks instead of summing"
OWN = "sum only the block that each device reads"
ROW = "read the row on the device that has it"
ROWS = "multiply the rows of all devices by each device's own block"
BEHIND = "sum over devices once, behind the loop"


def total(x):
    """Of rows of eight devices, what each has then of the sum of their blocks."""
    return np.broadcast_to(blocks(x).sum(0), (8, len(x) // 8, x.shape[1]))


def on_all(value):
    return np.concatenate([*value])


def eliminated(x):
    for n in range(3, 300):
        x = x - x[n, 5] / 99
    return x


# lines of a body, the words of the change, what is computed of whole values, are lines shown
CASES = {
    "columns of a value with the sum": ("""
    h = x + lax.psum(jnp.tanh(x), "d")
    return h[:, :4] * 2
""", BEFORE, lambda x: on_all(2 * (blocks(x) + total(np.tanh(x)))[..., :4]), True),
    "the largest of rows at an index": ("""
    h = jnp.exp(lax.pmax(x, "d") * 0.5)
    return lax.dynamic_slice(h, (jnp.arange(9).sum(), 0), (1, 1024))
""", BEFORE, lambda x: on_all([np.exp(0.5 * blocks(x).max(0))[[36]]] * 8), True),
    "what is combined with the sum, for each column": ("""
    h = lax.psum(x, "d") - jnp.sin(jnp.arange(1024.0)) * 2
    return h[3:4]
""", BEFORE, lambda x: on_all(total(x)[:, 3:4] - 2 * np.sin(np.arange(1024.0))), False),
    "rows at an index of each device": ("""
    h = lax.psum(x, "d")
    return h[lax.axis_index("d")][None]
""", BEFORE, None, False),
    "the last row of the device before": ("""
    h = lax.ppermute(x, "d", [(i, i + 1) for i in range(7)])
    h = jnp.cos(h)
    return x + h[-1:]
""", BEFORE, lambda x: on_all(blocks(x) + np.concatenate([
    np.ones((1, 1, 1024)), np.cos(blocks(x)[:-1, -1:])])), True),
    "a row of another device at an index of the own": ("""
    h = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    return h[lax.axis_index("d")][None]
""", BEFORE, None, False),
    "three devices on": ("""
    h = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    return lax.ppermute(h, "d", [(i, (i + 2) % 8) for i in range(8)])
""", ONCE, lambda x: on_all(np.roll(blocks(x), 3, 0)), True),
    "two devices on, where there are any": ("""
    for _ in range(2):
        x = lax.ppermute(x, "d", [(i, i + 1) for i in range(7)])
    return x
""", ONCE, lambda x: on_all([*np.zeros((2, 64, 1024)), *blocks(x)[:6]]), False),
    "a product with what a sum is taken from": ("""
    h = x / 64
    total = lax.psum(h.T @ h, "d")
    w = jnp.eye(1024) - 2 * total.T - 1
    return jnp.cos(jnp.arange(4096.0)).reshape(4, 1024) @ w
""", PRODUCTS, lambda x: on_all([COSINES @ (np.eye(1024) - x.T @ x / 2048 - 1)] * 8), True),
    "a product with what is taken from a mean": ("""
    h = x / 64
    w = 2 * lax.pmean(h.T @ h, "d").T - jnp.eye(1024)
    return jnp.cos(jnp.arange(4096.0)).reshape(4, 1024) @ w
""", PRODUCTS, lambda x: on_all([COSINES @ x.T @ x / 4 / 64 ** 2 - COSINES] * 8), True),
    "a product of each device's own with a sum": ("""
    return x[:4] @ lax.psum(x.T @ x, "d")
""", PRODUCTS, None, False),
    "sums of the columns that each device gets": ("""
    columns = lax.all_to_all(x, "d", 1, 0, tiled=True)
    return (jnp.sin(columns) ** 2).mean(0)[:, None]
""", SCATTERED, lambda x: (np.sin(x) ** 2).mean(0)[:, None], True),
    "sums along what is cut": ("""
    columns = lax.all_to_all(x, "d", 1, 0, tiled=True)
    return columns.sum(1)
""", SCATTERED, None, False),
    "sums of columns with a number of each device": ("""
    columns = lax.all_to_all(x, "d", 1, 0, tiled=True)
    return (columns * lax.axis_index("d")).sum(0)
""", SCATTERED, None, False),
    "blocks that are written into zeros": ("""
    y = x[:, :512].T
    whole = lax.psum(lax.dynamic_update_slice(
        jnp.zeros((512, 512)), y, (0, lax.axis_index("d") * 64)), "d")
    return whole @ x[0, 256:768]
""", GATHERED, lambda x: on_all([x[:, :512].T @ b[0, 256:768] for b in blocks(x)]), False),
    "blocks that are written where others are": ("""
    whole = lax.psum(lax.dynamic_update_slice(
        jnp.zeros((512, 1024)), x, (lax.axis_index("d") // 2 * 64, 0)), "d")
    return whole @ x[0]
""", GATHERED, None, False),
    "blocks that are written into ones": ("""
    whole = lax.psum(lax.dynamic_update_slice(
        jnp.ones((512, 1024)), x, (lax.axis_index("d") * 64, 0)), "d")
    return whole @ x[0]
""", GATHERED, None, False),
    "means over devices that are averaged": ("""
    return lax.pmean(x, "d").mean(0, keepdims=True)
""", REDUCED, lambda x: on_all([blocks(x).mean((0, 1))[None]] * 8), True),
    "fewer bits in the next line": ("""
    whole = lax.all_gather(x[:4] * 2, "d", axis=0, tiled=True)
    return whole.astype(np.float16)
""", NARROW, lambda x: on_all([2 * blocks(x)[:, :4].reshape(32, 1024)] * 8), True),
    "fewer bits of what is exchanged, scaled": ("""
    columns = lax.all_to_all(jnp.sin(x), "d", 1, 0, tiled=True)
    return (columns * 2).astype(np.float16)
""", NARROW, lambda x: on_all(2 * np.sin(blocks(x)).reshape(8, 64, 8, 128).transpose(
    2, 0, 1, 3).reshape(8, 512, 128)), True),
    "fewer bits of what some get": ("""
    h = lax.ppermute(x, "d", [(i, i + 1) for i in range(7)])
    return h.astype(np.float16)
""", NARROW, lambda x: on_all([0 * x[:64], *blocks(x)[:-1]]), True),
    "fewer bits of cosines of what some get": ("""
    h = lax.ppermute(x, "d", [(i, i + 1) for i in range(7)])
    return jnp.cos(h).astype(np.float16)
""", NARROW, None, False),
    "a few rows by what is gathered of the rows of a weight": ("""
    whole = lax.all_gather(x / 64, "d", axis=0, tiled=True)
    return jnp.tanh(x[:2, :512]) @ whole
""", ROWS, lambda x: on_all([np.tanh(b[:2, :512]) @ x / 64 for b in blocks(x)]), True),
    "a few rows by what is gathered of the columns of a weight": ("""
    whole = lax.all_gather(x / 64, "d", axis=1, tiled=True)
    return jnp.einsum("io,ri->or", whole, jnp.tanh(x[:1, :64]))
""", ROWS, lambda x: on_all([np.hstack([*blocks(x)]).T @ np.tanh(b[:1, :64]).T / 64
                             for b in blocks(x)]), True),
    "as many rows as what is gathered has": ("""
    whole = lax.all_gather(x[:, :64], "d", axis=0, tiled=True)
    return jnp.tanh(x[:, :512]) @ whole
""", ROWS, None, False),
    "own rows of a mean of what is gathered": ("""
    every = lax.all_gather(jnp.tanh(x), "d")
    return lax.dynamic_slice_in_dim(every.mean(0) * 2, lax.axis_index("d") * 8, 8, 0)
""", OWN, lambda x: 2 * blocks(np.tanh(x)).mean(0), True),
    "own rows of products of what is gathered": ("""
    whole = lax.all_gather(x / 64, "d", axis=0, tiled=True)
    return lax.dynamic_slice_in_dim(whole[:, :64].T @ whole, lax.axis_index("d") * 8, 8, 0)
""", OWN, lambda x: x[:, :64].T @ x / 64 ** 2, True),
    "own rows of the largest that is gathered": ("""
    every = lax.all_gather(jnp.tanh(x), "d")
    return lax.dynamic_slice_in_dim(every.max(0), lax.axis_index("d") * 8, 8, 0)
""", OWN, None, False),
    "the mean of the rows of one device": ("""
    every = lax.all_gather(x, "d")
    return every[2].mean(0, keepdims=True)
""", ONE, lambda x: on_all([blocks(x)[2].mean(0)[None]] * 8), True),
    "the mean of what one device gives to all": ("""
    h = jnp.tanh(x)
    whole = lax.psum(jnp.where(lax.axis_index("d") == 7, h, 0), "d")
    return jnp.square(whole - 1).sum(0)[None]
""", ONE, lambda x: on_all([((np.tanh(blocks(x)[7]) - 1) ** 2).sum(0)[None]] * 8), True),
    "the mean of what all but one give": ("""
    whole = lax.psum(jnp.where(lax.axis_index("d") == 7, 0, x), "d")
    return jnp.square(whole).mean(0, keepdims=True)
""", ONE, None, False),
    "the mean of what one device has where others have ones": ("""
    whole = lax.psum(jnp.where(lax.axis_index("d") == 7, x, 1), "d")
    return jnp.square(whole).mean(0, keepdims=True)
""", ONE, None, False),
    "rows at an index in a loop": ("""
    def step(n, x):
        whole = lax.all_gather(x, "d", axis=0, tiled=True)
        return x - whole[n, 5] / 99
    return lax.fori_loop(3, 300, step, x)
""", ROW, eliminated, True),
    "a row of what is computed of the gather, counted from the end": ("""
    whole = jnp.tanh(lax.all_gather(x, "d", axis=0, tiled=True))
    return whole[jnp.arange(4).sum() - 9][None]
""", ROW, lambda x: on_all([np.tanh(x[[-3]])] * 8), False),
    "a row of each device's own": ("""
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return whole[x.sum().astype(int)][None]
""", ROW, None, False),
    "sums that a loop writes": ("""
    def step(made, n):
        total = lax.psum(x * n, "d")
        return lax.dynamic_update_slice(made, total[None], (n // 4, 0, 0)), None
    made, _ = lax.scan(step, jnp.zeros((2, *x.shape)), jnp.arange(8))
    return made[1]
""", BEHIND, lambda x: on_all(7 * total(x)), True),
    "there and back": ("""
    h = lax.all_to_all(x * 2, "d", 1, 0, tiled=True)
    h = jnp.tanh(h)
    return lax.all_to_all(h, "d", 0, 1, tiled=True)
""", BACK, lambda x: np.tanh(2 * x), True),
    "around the ring and back": ("""
    h = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    return lax.ppermute(jnp.tanh(h) * 3, "d", [((i + 1) % 8, i) for i in range(8)])
""", BACK, lambda x: 3 * np.tanh(x), True),
    "on": ("""
    h = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    return lax.ppermute(jnp.tanh(h), "d", [(i, (i + 1) % 8) for i in range(8)])
""", BACK, None, False),
    "to some and back": ("""
    h = lax.ppermute(x, "d", [(i, i + 1) for i in range(7)])
    return lax.ppermute(jnp.tanh(h), "d", [(i + 1, i) for i in range(7)])
""", BACK, None, False),
    "with what others have": ("""
    h = lax.all_to_all(x, "d", 1, 0, tiled=True)
    return lax.all_to_all(h * lax.axis_index("d"), "d", 0, 1, tiled=True)
""", BACK, None, False)}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_needed_is_not_exchanged(name, tmp_path):
    lines, words, wanted, shown = CASES[name]
    source = HEAD + f"""\
def body(x):{lines}

f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
args = (struct((512, 1024), "d"),)
"""
    close = 1e-3 if words == NARROW else 1e-4
    check_change(tmp_path, source, words, 1.9, values_of, wanted, shown, rtol=close, atol=close)


def test_weights_of_several_layers_are_not_gathered_for_a_few_rows(tmp_path):
    source = HEAD + """\
def body(x, layers):
    for w in layers:
        whole = lax.all_gather(w["w"] / 16, "d", tiled=True)
        x = jnp.tanh(x @ whole)
    return x


f = st.shard_map(lambda x, *w: body(x, [{"w": one} for one in w]), mesh=mesh, in_specs=P("d"),
                 out_specs=P("d"))
args = (struct((16, 512), "d"), *[struct((512, 512), "d")] * 3)
"""

    def wanted(x, *layers):
        for w in layers:
            x = np.tanh(x @ w / 16)
        return x

    _, best = check_change(tmp_path, source, ROWS, 4, values_of, wanted, rtol=1e-2, atol=1e-2)
    assert 'lax.axis_index("d") * 64, 64, 1) @ (w["w"] / 16)' in best.diff[0][1]


@pytest.mark.parametrize(("result", "given", "specs", "written"), [
    ("whole", "made(x)", "P(), check_vma=False", 'out_specs=P(None, "d")'),
    ("whole", "made(x)", "P()", 'out_specs=P(None, "d")'),
    ("whole, x.sum(1)", "made(x)[0]", '(P(), P("d"))', 'out_specs=(P(None, "d"), P("d"))'),
    ("whole - whole.mean(1, keepdims=True)", "made(x)", "P(), check_vma=False", "")])
def test_what_is_gathered_for_a_result_is_given_by_blocks(result, given, specs, written, tmp_path):
    """Not where something else in the body reads it."""
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=1, tiled=True{', to="invarying"' * ("vma" not in specs)})
    return {result}


made = st.shard_map(body, mesh=mesh, in_specs=P(None, "d"), out_specs={specs})
args = (struct((256, 4096), None, "d"),)


def f(x):
    return {given}[:10] * 2
"""
    _, best = check_change(tmp_path, source, "and give result 0 of", 99, values_of,
                           (lambda x: 2 * x[:10]) if written else None)
    assert not written or any(written in now for _, now in best.diff)
