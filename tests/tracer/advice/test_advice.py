"""Sharding errors say where the axes come from, and suggest changes that work when applied."""
import textwrap

import numpy as np
import pytest

import shardtrace as st
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...user_files import user_file, user_module

HEADER = """\
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import PartitionSpec as P


"""
# The body of a function of x: f32[8@X,16@Y], y: f32[8@Y,16@X] and w: f32[16@Y,8@X].
PROGRAMS = {
    "elementwise": "return x + y",
    "elementwise, rank 1": "return x * y.sum(0)",
    "comparison": "return (x > y).astype(int)",
    "broadcasting": "return jnp.add(x, y[None])",
    "chain": "return jnp.tanh(x) * 2 + y * 3",
    "two errors in a chain": "return x * y + x",
    "where": "return jnp.where(x > 0, x, y)",
    "select": "return lax.select(x > 0, y, x)",
    "clip": "return jnp.clip(x, y, y + 1)",
    "matmul, ambiguous": "return x @ w",
    "matmul, mismatch": "return x @ y.T",
    "matmul, axis twice": "return jnp.dot(x, jnp.reshape(w, (16, 8), out_sharding=P(None, 'X')))",
    "einsum": "return jnp.einsum('ij,jk->ik', x, w)",
    "dot_general": "return lax.dot_general(x, w, (((1,), (0,)), ((), ())))",
    "reshape": "return x.reshape(4, 32)",
    "reshape, function": "return jnp.reshape(x, (2, 64))",
    "ravel": "return jnp.ravel(jnp.stack([x[0:2], x[2:4]]).sum(1))",
    "cumsum": "return jnp.cumsum(x, axis=0)",
    "sort": "return jnp.sort(x, axis=1)",
    "concatenate": "return jnp.concatenate([x, y], axis=1)",
    "concatenate of three": "return jnp.concatenate([x, y, w.reshape(8, 16, out_sharding=P())])",
    "stack": "return jnp.stack([x, y])",
    "gather": "return x[jnp.array([1, 2])]",
    "take": "return jnp.take(x, jnp.array([0, 3, 1]), axis=0)",
    "scatter": "return x.at[jnp.array([1, 2])].set(1.)",
    "slice that does not divide": "return x[:3]",
    "augmented assignment": "x += y\nreturn x",
    "several lines": "return jnp.add(\n    x,\n    y)",
    "loop": "return lax.scan(lambda c, _: (c + y, None), x, None, length=3)[0]",
    "nested jit": "return st.jit(lambda a, b: a - b)(x, y)",
    "unreduced": "return jnp.exp(jnp.dot(x, w, out_sharding=P(None, None, unreduced={'Y'})))",
    "cholesky": "return jnp.linalg.cholesky(w @ w.T * 0 + jnp.eye(16))",
}


@pytest.fixture(scope="module")
def arguments():
    mesh = st.make_mesh((2, 4), ("X", "Y"), (AxisType.Explicit,) * 2)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((8, 16), (8, 16), (16, 8))]
    with st.set_mesh(mesh):
        yield values, [st.device_put(v, p) for v, p in
                       zip(values, (P("X", "Y"), P("Y", "X"), P("Y", "X")), strict=True)]


def load(path, source):
    """The function f of a module with this text."""
    with user_module(user_file(path, source)) as module:
        return module.f


def program(body):
    return HEADER + "def f(x, y, w):\n" + textwrap.indent(body, "    ") + "\n"


def refusal(f, args, jitted=True):
    with pytest.raises((ShardingTypeError, NotImplementedError)) as caught:
        (st.jit(f) if jitted else f)(*args)
    return caught.value


@pytest.mark.parametrize("jitted", [True, False], ids=["jit", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_change_suggested_makes_the_program_right(name, jitted, arguments, tmp_path):
    values, args = arguments
    source = program(PROGRAMS[name])
    for _ in range(5):                     # a program may have more than one mistake
        f = load(tmp_path, source)
        try:
            result = (st.jit(f) if jitted else f)(*args)
            break
        except (ShardingTypeError, NotImplementedError) as refused:
            fixes = refused.diagnostic.fixes
            assert fixes, refused
            assert fixes[0].text.split("\n")[0].strip() in str(refused)
            source = fixes[0].apply(source)
    else:
        pytest.fail(f"still refused:\n{source}")
    assert source != program(PROGRAMS[name])
    with st.set_mesh(st.make_mesh((1,), ("one",), (AxisType.Explicit,))):
        whole = load(tmp_path, program(PROGRAMS[name].replace("unreduced={'Y'}", "")
                                       .replace("P(None, 'X')", "P()")))
        expected = st.jit(whole)(*values)
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["elementwise", "matmul, mismatch", "concatenate", "reshape"])
def test_every_change_suggested_gives_the_type_it_promises(name, arguments, tmp_path):
    _, args = arguments
    source = program(PROGRAMS[name])
    fixes = refusal(load(tmp_path, source), args).diagnostic.fixes
    assert 2 <= len(fixes) <= 6
    for fix in fixes:
        out = st.eval_shape(load(tmp_path, fix.apply(source)), *args)
        assert st.typeof(out).str_short(True) == fix.result


def test_the_message_shows_paths_and_the_changed_line(arguments, tmp_path):
    _, args = arguments
    source = program("h = jnp.tanh(x)\nk = y * 2\nreturn h + k")
    f = load(tmp_path, source)
    lines = str(refusal(f, args)).splitlines()[1:]
    others = lines.index("   = note: what else type-checks:") + 1
    assert all(line.startswith("           bring `") for line in lines[others:others + 4])
    assert lines[:others] + lines[others + 4:] == [
        f"  --> {f.__module__}.py:11:12 in `f`",
        "   |",
        "11 |     return h + k",
        "   |            ^^^^^ operands are f32[8@X,16@Y], f32[8@Y,16@X]",
        "   |",
        "   = because: X on dimension 0 and Y on dimension 1 of `h` come from argument `x` of `f`, "
        "f32[8@X,16@Y], through `jnp.tanh(x)` (line 9)",
        "   = because: Y on dimension 0 and X on dimension 1 of `k` come from argument `y` of `f`, "
        "f32[8@Y,16@X], through `y * 2` (line 10)",
        "   = note: operands of an elementwise op must be split over the same axes in each "
        "dimension, or be whole there",
        "   = note: what else type-checks:",
        "   = note: factor d0 of `d0 d1, d0 d1 -> d0 d1` has size 8: "
        "operand 0 (dimension 0) over X, operand 1 (dimension 0) over Y",
        "   = note: factor d1 of `d0 d1, d0 d1 -> d0 d1` has size 16: "
        "operand 0 (dimension 1) over Y, operand 1 (dimension 1) over X",
        "   = help: bring `h` to P('Y', 'X'), which moves 64 B to each device "
        "(gives f32[8@Y,16@X]):",
        "           return st.reshard(h, P('Y', 'X')) + k",
        "   = help: bring `k` to P('X', 'Y'), which moves 64 B to each device "
        "(gives f32[8@X,16@Y]):",
        "           return h + st.reshard(k, P('X', 'Y'))",
    ]


def test_each_fix_says_what_it_moves(arguments, tmp_path):
    """As much as the function does in which it was made, where nothing else communicates."""
    _, args = arguments
    source = program("return x + y")
    fixes = refusal(load(tmp_path, source), args).diagnostic.fixes
    assert [f.received_bytes for f in fixes[:2]] == sorted(f.received_bytes for f in fixes)[:2]
    for fix in fixes:
        compiled = st.jit(load(tmp_path, fix.apply(source))).lower(*args).compile()
        assert sum(c.total for c in compiled.collectives()) == fix.received_bytes


def test_a_result_that_is_asked_for_has_its_price_too(arguments, tmp_path):
    _, args = arguments
    body = "return jnp.einsum('ij,jk->ik', x, st.reshard(w[:16], P('Y', None)))"
    error = refusal(load(tmp_path, program(body)), args)
    fix = error.diagnostic.fixes[0]
    assert "out_sharding" in fix.text and fix.received_bytes > 0
    assert "factor k of `i k, k j -> i j | k:sum`, which is summed, has size 16" in str(error)


def test_a_path_leads_out_of_a_loop_body_and_to_the_equation_that_placed_an_axis(
        arguments, tmp_path):
    _, args = arguments
    body = ("k = st.reshard(w[:8], P('X', None))\n"
            "return lax.scan(lambda c, _: (c @ k, None), y[:, :8], None, length=2)[0]")
    because = refusal(load(tmp_path, program(body)), args).diagnostic.because
    assert any("X on dimension 0 of `k` comes from "
               "`st.reshard(w[:8], P('X', None))` (line 9), which places it" in b for b in because)


def test_the_imports_that_a_change_needs_are_part_of_it(arguments, tmp_path):
    _, args = arguments
    source = "import shardtrace.numpy as np\n\n\ndef f(x, y, w):\n    return np.add(x, y)\n"
    error = refusal(load(tmp_path, source), args)
    fix = error.diagnostic.fixes[0]
    assert fix.imports == ("from shardtrace import reshard", "from shardtrace import P")
    assert fix.apply(source).startswith("from shardtrace import reshard\n")
    assert "from shardtrace import reshard\n" in str(error)
    load(tmp_path, fix.apply(source))(*args)


def test_what_may_have_an_effect_is_not_evaluated_again(arguments, tmp_path):
    _, args = arguments
    source = program("calls = []\ndef g(a):\n    calls.append(1)\n    return a\n"
                     "try:\n    return g(x) + y\nexcept Exception as e:\n"
                     "    e.calls = calls\n    raise")
    error = refusal(load(tmp_path, source), args)
    assert error.calls == [1]
    assert error.diagnostic.fixes == () and error.diagnostic.help


def test_an_observer_of_the_trace_does_not_see_the_search(arguments, tmp_path):
    _, args = arguments
    f = load(tmp_path, program("try:\n    x + y\nexcept Exception:\n    pass\nreturn x * 2"))
    assert len(st.jit(f).trace(*args).jaxpr.eqns) == 1


def test_trials_warn_of_nothing_and_a_change_is_shown_once(arguments, tmp_path, recwarn):
    """Some of the changes that are tried for this product give its layout away, with a warning."""
    _, args = arguments
    f = load(tmp_path, program("z = st.reshard(x, P(None, 'Y'))\n"
                               "return jnp.einsum('ij,ij->i', z, z)"))
    error = refusal(f, args, jitted=False)
    assert not recwarn.list
    shown = [line for line in str(error).splitlines() if "bring `z` to" in line]
    assert shown and len(shown) == len(set(shown))
