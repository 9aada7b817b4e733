"""In programs of many styles the unwanted collective is named with its line, and can be avoided.

For each program of culprit_styles.py and culprit_models.py: the line is named; the first suggestion
for it, applied, leaves no such collective there (or one that moves next to nothing), lowers the
modelled time, costs what it says, and leaves every value equal to what the program computes on
whole values; no suggestion that comes first costs much, or only moves bytes; each collective has
a root.
"""
from __future__ import annotations

import contextlib
import functools
import inspect

import numpy as np
import pytest

import shardtrace as st
from shardtrace.partitioner.cost.schedule import exchange_seconds

from . import culprit_models, culprit_styles

SAME = {"rtol": 2e-4, "atol": 1e-4}
CASES = {**culprit_styles.CASES, **culprit_models.CASES}
EXPLICIT = (culprit_styles.EXPLICIT, culprit_models.EXPLICIT)
# The costliest collective of these is one that they are meant to have; the unwanted one comes next.
NOT_DEAREST = {"value_and_grad_step", "activation_constrained_by_rows_of_the_wrong_axis",
               "activation_made_whole_in_the_middle"}
# Of these one cause is unknown.
UNKNOWN = {"layers_in_a_comprehension", "decorated_with_a_static_argument"}


def marked(source):
    lines, start = inspect.getsourcelines(source)
    return [start + i for i, text in enumerate(lines) if "# culprit" in text]


@functools.lru_cache(32)        # of those that many programs take
def numbers(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype == np.int32:
        return rng.integers(0, 60, shape).astype(np.int32)
    return (rng.standard_normal(shape, np.float32) * 0.05).astype(dtype)


def concrete(spec, seed):
    value = numbers(spec.shape, spec.dtype, seed)
    return value if spec.sharding is None else st.device_put(value, spec.sharding)


def values_of(args):
    leaves, form = st.tree.flatten(args)
    return st.tree.unflatten(form, [concrete(a, i) for i, a in enumerate(leaves)])


def whole(args):
    return st.tree.map(np.asarray, args)


@contextlib.contextmanager
def meshed(name):
    """Explicit programs run within their mesh."""
    mesh = CASES[name][2]
    with st.set_mesh(mesh) if mesh in EXPLICIT else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def explained():
    """The explanation of a program, which keeps the suggestions that were searched."""
    @functools.cache
    def explain(name):
        jitted, args, _, _ = CASES[name]
        return st.explain(jitted)(*args)
    return explain


@pytest.mark.parametrize("name", CASES)
def test_the_line_is_named_and_the_first_suggestion_does_what_it_says(name, explained):
    jitted, args, mesh, source = CASES[name]
    explicit = mesh in EXPLICIT
    with meshed(name):
        found = explained(name)
        lines = marked(source)
        ranked = sorted(found.collectives, key=lambda c: -c.total_time)
        there = [c for c in ranked if any(c.source.line <= n <= c.source.end_line for n in lines)]
        assert there, f"collectives at {[c.source.line for c in ranked]}, wanted {lines}"
        assert ranked[0] in there or name in NOT_DEAREST
        assert there[0].reason and "^" in there[0].excerpt() and "operand " not in (
            there[0].reason.replace("`shard_map` takes operand", ""))
        best = there[0].suggestions[0]
        assert best.time < found.time
        changed = best.apply()
        after = st.explain(changed)(*args)

        def there_of(explanation):
            return [c.total_bytes for c in explanation.collectives if c.kind == there[0].kind
                    and c.source.line == there[0].source.line
                    and set(c.mesh_axes) & set(there[0].mesh_axes)]

        # nothing of its kind is left there, but for next to nothing, such as an index, or a small
        # part, if little is exchanged elsewhere either
        left = there_of(after)
        assert best.removes == (not left) and (
            sum(left) <= 0.01 * sum(there_of(found))
            or after.received_bytes <= 0.3 * found.received_bytes)
        assert (after.received_bytes, after.time, after.peak_bytes, after.flops) == (
            best.received_bytes, best.time, best.peak_bytes, best.flops)
        values = values_of(args)
        given = st.tree.leaves(changed(*values))
    plain = jitted if explicit else st.jit(jitted._f)
    with meshed(name):
        wanted = st.tree.leaves(plain(*(values if explicit else whole(values))))
    for a, b in zip(given, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), **SAME)


@pytest.mark.parametrize("name", CASES)
def test_what_comes_first_costs_little_and_no_suggestion_only_moves_bytes(name, explained):
    with meshed(name):
        found = explained(name)
        for c in found.collectives:
            def much(s):
                return s.peak_bytes > 1.25 * found.peak_bytes or s.flops > 1.25 * found.flops

            first = c.suggestions[:1]
            if first and much(first[0]):
                saved = found.time - first[0].time
                assert not [s for s in c.suggestions
                            if not much(s) and found.time - s.time >= saved / 2]
            spent = sum(exchange_seconds(found.topology, o.record) * o.count
                        for o in found.collectives
                        if (o.kind, o.record.source.line) == (c.kind, c.record.source.line))
            for s in c.suggestions:
                if s.removes:
                    assert (s.received_bytes < found.received_bytes
                            or found.time - s.time >= 0.1 * spent * (1 - 1e-6))


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNKNOWN])
def test_each_collective_has_a_root(name, explained):
    with meshed(name):
        assert all(cause.text not in ("", "its type") for cause in explained(name).root_causes)
