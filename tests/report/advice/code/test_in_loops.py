"""Changes of code where a loop, a reshape or other work stands between the exchange and its use.

Each is what a user could have written: it computes the same, device by device, and moves less.
"""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import shardtrace as st
from shardtrace.report.advice.line_diffs import line_diffs

from ....user_files import user_file, user_module
from .explained_code import changed_result, check_typed, explained_code
from .test_changes import HEAD, blocks, values_of


def hops(x, n):
    """What a chain of n steps makes, each of which hands its result to the next device."""
    rows = blocks(x)
    for _ in range(n):
        rows = np.tanh(np.roll(rows, 1, 0) * 0.5)
    return rows.reshape(x.shape)


# body, specs of results, the words of the suggestion, what is computed of whole values
CASES = {
    "the block of the device before, in each step": ("""
    i = lax.axis_index("d")
    def step(state, _):
        return jnp.tanh(lax.all_gather(state, "d")[(i - 1) % 8] * 0.5), None
    return lax.scan(step, x, None, length=6)[0]
""", 'P("d")', "exchange the one block", lambda x: hops(x, 6)),
    "the same by a number from outside": ("""
    before = (lax.axis_index("d") + 7) % 8
    def step(_, state):
        return jnp.tanh(lax.all_gather(state, "d")[before] * 0.5)
    return lax.fori_loop(0, 6, step, x)
""", 'P("d")', "exchange the one block", lambda x: hops(x, 6)),
    "a sum of which each device takes the block of its number": ("""
    total = lax.psum(x, "d")
    return total.reshape(8, -1, 256)[lax.axis_index("d")]
""", 'P("d")', "sum only the block", lambda x: blocks(x).sum(0)),
    "of columns": ("""
    total = lax.psum(x, "d")
    return total.reshape(-1, 8, 32)[:, lax.axis_index("d")]
""", 'P(None, "d")', "sum only the block", lambda x: blocks(x).sum(0)),
    "sums that a loop stacks": ("""
    def step(state, _):
        state = jnp.tanh(state * 0.5)
        return state, lax.psum(state.sum(0), "d")
    return lax.scan(step, x, None, length=6)[1]
""", "P()", "behind the loop", lambda x: np.stack([hops_alone(x, n + 1).sum(0) for n in range(6)])),
    "largest of each step": ("""
    def step(state, _):
        state = jnp.tanh(state * 0.5)
        return state, lax.pmax(state.max(), "d")
    return lax.scan(step, x, None, length=6)[1]
""", "P()", "behind the loop", lambda x: np.stack([hops_alone(x, n + 1).max() for n in range(6)])),
    "means over devices that a loop stacks": ("""
    def step(state, _):
        state = jnp.tanh(state * 0.5)
        return state, lax.pmean(state.sum(0), "d")
    return lax.scan(step, x, None, length=6)[1]
""", "P()", "behind the loop",
        lambda x: np.stack([hops_alone(x, n + 1).sum(0) / 8 for n in range(6)])),
    "means over devices that a loop adds up": ("""
    def step(carry, _):
        state, total = carry
        state = jnp.tanh(state * 0.5)
        return (state, total + lax.pmean(state.sum(0), "d")), None
    return lax.scan(step, (x, jnp.zeros(256)), None, length=6)[0][1]
""", "P()", "behind the loop",
        lambda x: sum([hops_alone(x, n + 1).sum(0) / 8 for n in range(6)])),
    "sums that a loop writes into a buffer": ("""
    def step(carry, n):
        state, made = carry
        state = jnp.tanh(state * 0.5)
        total = lax.psum(state.sum(0), "d")
        return (state, lax.dynamic_update_index_in_dim(made, total, n // 2, 0)), None
    (_, made), _ = lax.scan(step, (x, jnp.zeros((4, 256))), jnp.arange(6))
    return made
""", "P()", "behind the loop", lambda x: np.stack([
        *[hops_alone(x, n + 1).sum(0) for n in (1, 3, 5)], np.zeros(256)])),
    "means that a counted loop sets": ("""
    def step(n, carry):
        state, made = carry
        state = jnp.tanh(state * 0.5)
        return state, made.at[n].set(lax.pmean(state.sum(0), "d"))
    return lax.fori_loop(0, 6, step, (x, jnp.zeros((6, 256))))[1]
""", "P()", "behind the loop",
        lambda x: np.stack([hops_alone(x, n + 1).sum(0) / 8 for n in range(6)])),
    "scaled and narrowed behind the gather": ("""
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return (jnp.tanh(whole) * 0.5).astype(jnp.float16)
""", "P()", "fewer bits", lambda x: (np.tanh(x) * 0.5).astype(np.float16)),
}


def hops_alone(x, n):
    for _ in range(n):
        x = np.tanh(x * 0.5)
    return x


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_stands_between_is_looked_through(name, checked, tmp_path) -> None:
    body, out, words, reference = CASES[name]
    if checked and out == "P()" and "gather" in name:
        out = 'P("d")'                      # what is gathered is not known to be the same on all
    source = HEAD + f"""\
def body(x):{body}

f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs={out}, check_vma={checked})
args = (struct((4096, 256), "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        costliest = max(found.collectives, key=lambda c: c.total_time)
        best = next((s for s in costliest.suggestions if words in s.text and len(s.changes) == 1),
                    None)
        assert best is not None, [s.text for s in costliest.suggestions]
        assert best.time < found.time and best.received_bytes <= found.received_bytes
        after = st.explain(best.apply())(*module.args)
        assert (after.time, after.received_bytes) == (best.time, best.received_bytes)
        given = values_of(module.args)
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    wanted = reference(*given)
    if out != "P()" and len(changed) > len(wanted):
        wanted = np.concatenate([wanted] * 8)
    np.testing.assert_allclose(changed, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("at", "start", "reader"), [
    ("lax.axis_index('d') % 4", "jnp.zeros((4, 256))", "made"),      # on each device another row
    ("n % 4", "jnp.ones((4, 256))", "made"), ("n % 4", "jnp.zeros((4, 256))", "made + made.max()")])
def test_what_is_written_is_summed_behind_where_it_is_the_same(at, start, reader, tmp_path) -> None:
    source = HEAD + f"""\
def body(x):
    def step(carry, n):
        state, made = carry
        total = lax.psum(jnp.tanh(state * 0.5).sum(0), "d")
        made = lax.dynamic_update_index_in_dim({reader}, total, {at}, 0)
        return (state, made), None
    return lax.scan(step, (x, {start}), jnp.arange(6))[0][1]


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
args = (struct((4096, 256), "d"),)
"""
    with explained_code(tmp_path, source, "behind the loop") as (_, _, best):
        assert best is None


@pytest.mark.parametrize("checked", [False, True])
def test_all_that_reads_a_gather_is_changed_together(checked, tmp_path) -> None:
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=1, tiled=True)
    most = whole.max(1, keepdims=True)
    return jnp.exp(x - most) / jnp.exp(whole - most).sum(1, keepdims=True)


specs = P(None, "d")
f = st.shard_map(body, mesh=mesh, in_specs=specs, out_specs=specs, check_vma={checked})
args = (struct((512, 8192), None, "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        (gather,) = found.collectives
        best = gather.suggestions[0]
        at = gather.source.line
        assert best.text == ("reduce before the exchange instead of gathering at lines "
                             f"{at + 1} and {at + 2}") and best.removes
        assert best.received_bytes < found.received_bytes / 100
        (given,) = values_of(module.args)
        placed = st.device_put(given, module.args[0].sharding)
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(placed))
    wanted = np.exp(given - given.max(1, keepdims=True))
    np.testing.assert_allclose(changed, wanted / wanted.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("product", ["x @ w", 'jnp.einsum("bsm,fm->bsf", x, w.T)'])
def test_heads_over_the_minor_part_are_split_off_the_weight(product, tmp_path) -> None:
    source = HEAD + f"""\
def f(x, w):
    q = {product}
    q = q.reshape(*x.shape[:2], 64, 16)
    q = lax.with_sharding_constraint(q, NamedSharding(mesh, P("data", None, None, "model")))
    return jnp.einsum("bsdh,btdh->bhst", q, q)


mesh = st.make_mesh((2, 4), ("data", "model"))
args = struct((32, 512, 1024), "data"), struct((1024, 1024), None, "model")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = max(found.collectives, key=lambda c: c.total_time).suggestions[0]
        assert best.text.startswith("reshape the weight instead of its product")
        assert best.received_bytes < found.received_bytes / 4 and best.flops <= found.flops
        x, w = [v / 32 for v in values_of(module.args)]
        given = x[:4, :16], w                     # which are enough to compare values
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        f = best.apply()
        ops = [e.primitive.name for e in f.trace(*placed).jaxpr.eqns]
        assert ops.index("reshape") < ops.index("dot_general")
        np.testing.assert_allclose(np.asarray(f(*placed)), np.asarray(st.jit(module.f)(*placed)),
                                   rtol=1e-4, atol=1e-4)


def test_a_number_that_changes_in_the_loop_names_no_block(tmp_path) -> None:
    source = HEAD + """\
def body(x):
    i = lax.axis_index("d")
    def step(n, state):
        return jnp.tanh(lax.all_gather(state, "d")[(i + n) % 8])
    return lax.fori_loop(0, 6, step, x)


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
args = (struct((16384, 256), "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        assert not [s for c in found.collectives for s in c.suggestions if "one block" in s.text]


def test_a_sum_that_the_loop_reads_stays_in_it(tmp_path) -> None:
    source = HEAD + """\
def body(x):
    def step(state, _):
        total = lax.psum(state.sum(0), "d")
        return jnp.tanh(state + total), total
    return lax.scan(step, x, None, length=6)[1]


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)
args = (struct((16384, 256), "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        assert not [s for c in found.collectives for s in c.suggestions
                    if "behind the loop" in s.text]


AHEAD = {
    "looked up": ("""
    def step(state, i):
        found = jnp.take_along_axis(scores[i], labels, 1)
        return jnp.tanh(state + found), found.max()
""", lambda scores, labels, i: np.take_along_axis(scores[i], labels, 1)),
    "of what other lines compute": ("""
    def step(state, i):
        own = scores[i]
        own = own * 2
        found = jnp.take_along_axis(own, labels, 1)
        return jnp.tanh(state + found), found.max()
""", lambda scores, labels, i: 2 * np.take_along_axis(scores[i], labels, 1)),
    "summed up, last step first": ("""
    def step(state, i):
        total = scores[i].sum(1, keepdims=True) + labels
        return jnp.tanh(state + total), total.max()
""", lambda scores, labels, i: scores[i].sum(1, keepdims=True) + labels)}


@pytest.mark.parametrize("name", AHEAD)
def test_what_no_step_takes_from_the_one_before_is_computed_ahead(name, tmp_path) -> None:
    step, found_in = AHEAD[name]
    reverse = "last" in name
    source = HEAD + f"""\
def f(scores, labels):
    def over(xs):
        return lax.scan(step, jnp.zeros((64, 32)), xs, reverse={reverse})
{step}
    state, largest = over(jnp.arange(64))
    return state + largest.sum()


mesh = st.make_mesh((2, 4), ("data", "model"))
args = (struct((64, 64, 4096), None, "data", "model"),
        struct((64, 32), "data", dtype=np.int32))
"""
    with explained_code(tmp_path, source, "ahead of the loop") as (module, found, best):
        assert best is not None and best.time < found.time * 0.7
        given = values_of(module.args)
        changed = changed_result(best, module.args, given)
        assert "lax.map(" in str(best.diff)
        typed = check_typed(tmp_path, source, best, given, changed, rtol=1e-3, atol=1e-3)
        assert typed == best.received_bytes
    state, total = np.zeros((64, 32), np.float32), np.float32(0)
    for i in reversed(range(64)) if reverse else range(64):
        here = found_in(*given, i)
        state, total = np.tanh(state + here), total + here.max()
    np.testing.assert_allclose(changed, state + total, rtol=1e-3, atol=1e-3)


PRODUCTS = {
    "what is read first": ("x @ w", lambda x, w: x @ w),
    "what is read last": ("jnp.einsum('ki,kj->ij', w, x)", lambda x, w: w.T @ x),
    "last step first, of two": ("x @ w + jnp.einsum('bi,ij->bj', x, w * 2)",
                                lambda x, w: 3 * (x @ w))}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_steps_read_is_multiplied_for_all_of_them_at_once(name, tmp_path) -> None:
    code, product = PRODUCTS[name]
    reverse = "last step" in name
    source = HEAD + f"""\
def f(xs, w):
    def step(state, x):
        state = jnp.tanh(state + {code})
        return state, state.sum(1)
    return lax.scan(step, jnp.zeros((256, 256)), xs, reverse={reverse})[1]


args = struct((32, 256, 256), None, None, "d"), struct((256, 256), "d")
"""
    if "x @" not in code:
        source = source.replace('None, None, "d"', 'None, "d"')
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        candidates = found.search.candidates
        change = next(c for one in found.collectives for c in candidates.of_code(
            one.record, one.cause) if len(c) == 1 and "for all of them at once" in c[0].text)
        changed_function = found.search.subject.apply(change)
        after = st.explain(changed_function, suggest_seconds=0)(*module.args)
        if name == "what is read first":         # the others are exchanged otherwise then
            assert sum(c.count for c in found.collectives) > sum(c.count for c in after.collectives)
        given = [v / 32 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(changed_function(*placed))
        shown = SimpleNamespace(diff=tuple(line_diffs(change)))
        assert "st.vmap(lambda x: " in str(shown.diff)
        typed = check_typed(tmp_path, source, shown, given, changed, rtol=2e-3, atol=2e-3)
        assert typed == after.received_bytes
    xs, w = given
    state, wanted = np.zeros((256, 256), np.float32), np.zeros((32, 256), np.float32)
    for i in reversed(range(32)) if reverse else range(32):
        state = np.tanh(state + product(xs[i], w))
        wanted[i] = state.sum(1)
    np.testing.assert_allclose(changed, wanted, rtol=2e-3, atol=2e-3)


def test_a_loop_that_carries_nothing_takes_all_steps_at_once(tmp_path):
    """Steps come one after the other along the dimension that is split: every device does all."""
    source = HEAD + """\
def f(x, w):
    def normed(row):
        row = row - row.mean(0)
        return jnp.flip(row, 0) @ w, row.max()
    y, top = lax.map(normed, x)
    return y + top[:, None, None]


args = struct((64, 32, 128), "d"), struct((128, 128))
"""
    with explained_code(tmp_path, source, "take all steps at once, with `vmap`") as (
            module, found, best):
        assert found.collectives[0].suggestions[0] is best
        assert best.received_bytes == 0 and best.flops < found.flops / 4
        given = values_of(module.args)
        np.testing.assert_allclose(
            changed_result(best, module.args, given), np.asarray(st.jit(module.f)(*given)),
            rtol=1e-4, atol=1e-4)
