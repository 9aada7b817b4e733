"""What is made of gathered blocks with values that all devices have is made of each block first."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.report.advice.code.changes import sites

from ....user_files import user_file, user_module
from .explained_code import changed_result, check_change, explained_code
from .test_changes import HEAD, values_of

SMALLER, PRODUCTS, REDUCED, OWN, ONE = (
    "compute what is smaller of each block", "sum the products of each",
    "reduce before the exchange", "compute each device's own block",
    "compute what is smaller of the one block")
# what is made of it; the same in numpy; the words of the change; what is typed in
CASES = {
    "a product": ("whole @ w", lambda x, w: x @ w, SMALLER,
                  'lax.all_gather(x @ w, "d", axis=0, tiled=True)'),
    "a product, behind another": ("(jnp.tanh(whole) @ w) @ w[:8]",
                                  lambda x, w: np.tanh(x) @ w @ w[:8], SMALLER, ""),
    "the other operand of a product": ('jnp.einsum("dk,nd->kn", w, whole)',
                                       lambda x, w: w.T @ x.T, SMALLER, 'axis=1, tiled=True)'),
    "a mean of other rows": ("whole.mean(1)", lambda x, w: x.mean(1), SMALLER, ""),
    "some columns": ("whole[:, :8]", lambda x, w: x[:, :8], SMALLER,
                     'lax.all_gather(x[:, :8], "d", axis=0, tiled=True)'),
    "flattened": ("whole.reshape(-1, 32, 2) @ w[:2]",
                  lambda x, w: x.reshape(-1, 32, 2) @ w[:2], "", ""),
    "a product over its rows": ("whole.T @ whole", lambda x, w: x.T @ x, PRODUCTS, ""),
    "a product with its transpose": ("(whole @ w).T @ whole", lambda x, w: (x @ w).T @ x,
                                     PRODUCTS, ""),
    "a sum of rows by their labels": (
        "(jnp.argmax(whole @ w, 1)[:, None] == jnp.arange(8)).astype(np.float32).T @ whole",
        lambda x, w: (np.argmax(x @ w, 1)[:, None] == np.arange(8)).astype(np.float32).T @ x,
        PRODUCTS, ""),
    "a mean of one block": ("(whole[2048:3072] ** 2).mean(0)",
                            lambda x, w: (x[2048:3072] ** 2).mean(0), ONE, ""),
    "a product of one block": ("whole[:1024] @ w", lambda x, w: x[:1024] @ w, ONE, ""),
    "a mean of products": ("(whole @ w).mean(0)", lambda x, w: (x @ w).mean(0), REDUCED, "")}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_what_is_made_of_blocks_is_made_before_they_are_gathered(name, checked, tmp_path):
    code, reference, words, typed = CASES[name]
    source = HEAD + f"""\
def body(x, w):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs={
        'P("d")' if checked else 'P(), check_vma=False'})
args = (struct((8192, 64), "d"), struct((64, 8)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        (gather,) = found.collectives
        best = next((s for s in gather.suggestions if words and words in s.text), None)
        if not words:
            assert not any(s.text.startswith(SMALLER) for s in gather.suggestions)
            return
        assert best is not None and best.received_bytes < 0.6 * found.received_bytes
        assert best.time < found.time
        # few bits, so that float32 has sums of products exactly, in any order of additions
        given = [np.round(4 * v) / np.float32(256) for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    wanted = reference(*given)
    np.testing.assert_allclose(changed, np.concatenate([wanted] * 8) if checked else wanted,
                               rtol=2e-3, atol=2e-3)
    if typed:
        ((old, new),) = best.diff
        assert typed in new
        with user_module(user_file(tmp_path, source.replace(old, new))) as module:
            np.testing.assert_allclose(np.asarray(st.jit(module.f)(*placed)), changed, rtol=1e-3)
            assert st.explain(module.f)(*module.args).received_bytes == best.received_bytes


@pytest.mark.parametrize("start", ["i * 1024", "i * 1024 + 1"])
def test_own_rows_of_what_is_made_are_made_of_own_rows(start, tmp_path):
    source = HEAD + f"""\
def body(x, w):
    i = lax.axis_index("d")
    made = jnp.tanh(lax.all_gather(x, "d", axis=0, tiled=True)) @ w
    return lax.dynamic_slice_in_dim(made, {start}, 1024)


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
args = (struct((8192, 64), "d"), struct((64, 8)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next((s for c in found.collectives for s in c.suggestions if OWN in s.text), None)
        if "+" in start:
            assert best is None
            return
        assert best is not None and best.received_bytes == 0
        given = [v / 64 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        np.testing.assert_allclose(np.asarray(best.apply()(*placed)),
                                   np.tanh(given[0]) @ given[1], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("checked", [True, False])
def test_rows_of_a_whole_weight_are_taken_by_the_device_that_has_their_columns(checked, tmp_path):
    source = HEAD + f"""\
def body(h, w):
    return lax.all_gather(h, "d", axis=1, tiled=True) @ w


f = st.shard_map(body, mesh=mesh, in_specs=(P(None, "d"), P()), out_specs={
        'P("d")' if checked else 'P(), check_vma=False'})
args = (struct((256, 4096), None, "d"), struct((4096, 128)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = found.collectives[0].suggestions[0]
        assert PRODUCTS in best.text and best.flops < found.flops / 4
        given = [v / 64 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    wanted = given[0] @ given[1]
    np.testing.assert_allclose(changed, np.concatenate([wanted] * 8) if checked else wanted,
                               rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("spec", ['P("d"), P("d")', 'P("d"), P(None, "d")'])
def test_what_devices_hold_different_blocks_of_is_no_whole_weight(spec, tmp_path):
    source = HEAD + f"""\
def body(x, w):
    return lax.all_gather(x, "d", axis=0, tiled=True) @ w


f = st.shard_map(body, mesh=mesh, in_specs=({spec}), out_specs=P("d"), check_vma=False)
args = (struct((8192, 64), "d"), struct({'(512, 8)' if spec.endswith('P("d")') else '(64, 64)'}))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        gather = next(c for c in found.collectives if c.source.text().startswith("lax.all_gather"))
        assert not any(SMALLER in s.text for s in gather.suggestions)


def test_what_is_far_behind_a_gather_is_not_followed_to_it(tmp_path):
    source = HEAD + """\
def body(x, w):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    for _ in range(400):
        whole = jnp.tanh(whole @ w)
    return whole.sum(0)


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
args = (struct((64, 16), "d"), struct((16, 16)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        program = st.explain(module.f)(*module.args).partitioned.stages["inlined"]
        assert not any("sum" in site.change.words for site in sites(program))


def test_products_of_what_two_gathers_gather_are_those_of_the_blocks(tmp_path):
    source = HEAD + """\
def body(x, c):
    a = jnp.tanh(x @ c)
    every, whole = (lax.all_gather(v, "d", axis=0, tiled=True) for v in (a, x))
    return every.T @ whole


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P(), check_vma=False)
args = (struct((8192, 64), "d"), struct((64, 16)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = found.root_causes[0].groups[0][0].suggestions[0]
        assert PRODUCTS in best.text and best.received_bytes < found.received_bytes / 10
        given = [v / 64 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    np.testing.assert_allclose(changed, np.tanh(given[0] @ given[1]).T @ given[0], rtol=2e-3,
                               atol=2e-3)


@pytest.mark.parametrize("made", ["whole[:8192].max(0) @ w", "whole[8192:12288].sum(0)"])
def test_a_gather_whose_result_is_the_same_on_all_devices_is_followed(made, tmp_path):
    """It is another op, without groups."""
    source = HEAD + f"""\
def body(x, w):
    whole = lax.all_gather(x, "d", axis=0, tiled=True, to="invarying")
    return {made}


f = st.jit(st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P()))
args = (struct((65536, 64), "d"), struct((64, 8)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        given = [v / 64 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        wanted = np.asarray(module.f(*placed))
        tried = [s for c in found.collectives for s in c.suggestions]
        assert tried
        for suggestion in tried:
            with st.config.override(shardtrace_engine="per_device"):
                changed = np.asarray(suggestion.apply()(*placed))
            np.testing.assert_allclose(changed, wanted, rtol=2e-3, atol=2e-3)


def own_rows(of: str) -> str:
    return f"lax.dynamic_slice_in_dim({of}, lax.axis_index('d') * 128, 128)"


# what each device takes of what is made of a sum over devices; the same in numpy, all blocks joined
TAKEN = {
    "a mean": (own_rows("lax.psum(x, 'd') / 8"), lambda total, w: total / 8),
    "steps": (own_rows("jnp.tanh(lax.pmean(x, 'd')) * 2 + 1"),
              lambda total, w: np.tanh(total / 8) * 2 + 1),
    "a product": (own_rows("lax.psum(x, 'd') @ w"), lambda total, w: total @ w),
    "two that all have": (own_rows("lax.psum(x, 'd') * w[0, 0] + jnp.arange(1024)[:, None]"),
                          lambda total, w: total * w[0, 0] + np.arange(1024)[:, None]),
    "rows by number": ("(lax.psum(x, 'd') / 8).reshape(8, 128, 64)[lax.axis_index('d')]",
                       lambda total, w: total / 8)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", TAKEN)
def test_own_rows_of_what_is_made_of_a_sum_are_made_of_the_own_rows_of_the_sum(
        name, checked, tmp_path):
    code, reference = TAKEN[name]
    source = HEAD + f"""\
def body(x, w):
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma={checked})
args = struct((8192, 64), "d"), struct((64, 8))
"""
    with explained_code(tmp_path, source, "sum only the block that each") as (module, found, best):
        assert best is not None and best.received_bytes <= 0.5 * found.received_bytes
        x, w = values_of(module.args)
        np.testing.assert_allclose(changed_result(best, module.args, [x, w]),
                                   reference(x.reshape(8, 1024, 64).sum(0), w),
                                   rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("code", [
    "lax.cumsum(lax.psum(x, 'd'), 0)",                # of all rows
    "jnp.flip(lax.psum(x, 'd'), 0)",                  # rows of another
    "lax.psum(x, 'd') + x"])                          # of each device another
def test_what_is_made_of_other_rows_of_a_sum_is_not_made_of_its_block(code, tmp_path):
    source = HEAD + f"""\
def body(x):
    return {own_rows(code)}


f, args = mapped(body), (struct((8192, 64), "d"),)
"""
    with explained_code(tmp_path, source, "sum only the block that each") as (_, found, best):
        assert best is None and found.collectives


def test_a_part_along_another_dimension_of_what_is_stacked_is_swapped(tmp_path):
    """As buffers of tokens are, of which each device reads those for its experts."""
    source = HEAD + """\
def body(x):
    return lax.all_gather(x, "d")[:, lax.axis_index("d")]


f, args = mapped(body), (struct((64, 128, 64), "d"),)
"""
    with explained_code(tmp_path, source, "exchange the parts that are read") as (
            module, found, best):
        assert best is not None and best.received_bytes <= found.received_bytes / 7
        (x,) = values_of(module.args)
        np.testing.assert_array_equal(
            changed_result(best, module.args, [x]).reshape(8, 8, 128, 64),
            x.reshape(8, 8, 128, 64).swapaxes(0, 1))


@pytest.mark.parametrize(("code", "written"), [
    ("jnp.average(whole, axis=0)", 'lax.pmean(jnp.average(x, axis=0), "d")'),
    ("jnp.einsum('nd->d', whole)", 'lax.psum(jnp.einsum(\'nd->d\', x), "d")'),
    ("jnp.amax(whole, axis=0)", 'lax.pmax(jnp.amax(x, axis=0), "d")'),
    ("jnp.ptp(whole, axis=0)", '(lax.pmax(jnp.max(x, 0), "d") - lax.pmin(jnp.min(x, 0), "d"))'),
    ("whole.var(0)", 'lax.psum(jnp.sum(jnp.square(x - (lax.psum(jnp.sum(x, 0), "d")')])
def test_a_reduction_is_written_for_each_block_by_what_it_is(code, written, tmp_path):
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return x - {code}


f, args = mapped(body), (struct((8192, 64), "d"),)
"""
    with explained_code(tmp_path, source, REDUCED) as (module, found, best):
        wanted = np.asarray(st.jit(module.f)(*values_of(module.args)))
        assert best is not None or not written
        for old, new in best.diff if best is not None else ():
            assert written and written in new
            with user_module(user_file(tmp_path, source.replace(old, new))) as changed:
                np.testing.assert_allclose(np.asarray(st.jit(changed.f)(*values_of(module.args))),
                                           wanted, rtol=1e-3, atol=1e-3)
        assert best is None or bool(best.diff) == bool(written)


def test_of_layers_one_after_the_other_all_moments_are_reduced_first(tmp_path):
    source = HEAD + """\
def body(x):
    for _ in range(4):
        whole = lax.all_gather(jnp.tanh(x * 2 - 1) * 3, "d", axis=0, tiled=True)
        mean, var = whole.mean(0), whole.var(0)
        x = (x - mean) / jnp.sqrt(var + 1e-3)
    return x


f, args = mapped(body), (struct((8192, 64), "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = found.collectives[0].suggestions[0]
        assert best.received_bytes < found.received_bytes / 100
        assert "mean, var = lax.pmean((jnp.tanh(x * 2 - 1) * 3).mean(0)" in best.diff[0][1]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("combined", ["0.9 * whole + g", "g - whole", "whole.T + g", "whole + 1"])
def test_a_sum_and_a_gathered_value_are_combined_block_by_block(combined, checked, tmp_path):
    """As where all of a momentum is gathered, of which each device updates its own rows."""
    source = HEAD + f"""\
def body(w, m, x):
    g = lax.psum(x.T @ x, "d")
    whole = lax.all_gather(m, "d", axis=0, tiled=True)
    new = {combined}
    own = lax.dynamic_slice_in_dim(new, lax.axis_index("d") * 64, 64, 0)
    return jnp.tanh(w - 0.1 * new)[:64] + own


f = st.shard_map(body, mesh=mesh, in_specs=(P(), P("d"), P("d")), out_specs=P("d"),
                 check_vma={checked})
args = (struct((512, 512)), struct((512, 512), "d"), struct((1024, 512), "d"))
"""

    def wanted(w, m, x):
        new = {"0": 0.9 * m + x.T @ x, "g": x.T @ x - m}[combined[0]]
        return np.concatenate([np.tanh(w - 0.1 * new)[:64]] * 8) + new

    check_change(tmp_path, source, "sum only the own block, combine", 1.3, lambda args: [
        v / 32 for v in values_of(args)], wanted if "T" not in combined and "g" in combined
        else None, rtol=2e-3, atol=2e-3)


def test_what_is_gathered_to_be_the_same_on_all_devices_is_so_when_it_is_smaller(tmp_path):
    source = HEAD + """\
def body(x):
    return lax.all_gather(x, "d", axis=0, tiled=True, to="invarying")[:, :8]


f, args = mapped(body, P()), (struct((8192, 64), "d"),)
"""
    check_change(tmp_path, source, SMALLER, 7, values_of, lambda x: x[:, :8])


@pytest.mark.parametrize(("made", "then"), [
    ("1 / whole.sum(0)", '1 / lax.psum((x * 2).sum(0), "d")'),
    ("jnp.sum(whole, 0)", 'lax.psum(jnp.sum(x * 2, 0), "d")'),
    ("whole @ w", 'lax.all_gather((x * 2) @ w, "d", axis=0, tiled=True)')])
def test_an_expression_with_operators_is_written_in_parentheses(made, then, tmp_path):
    source = HEAD + f"""\
def body(x, w):
    whole = lax.all_gather(x * 2, "d", axis=0, tiled=True)
    return {made}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P(), check_vma=False)
args = (struct((8192, 64), "d"), struct((64, 2)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        ((_, after),) = next(s.diff for c in found.collectives for s in c.suggestions if s.diff)
        assert after == f"return {then}"
