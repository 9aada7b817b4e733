"""scan, cond, switch, while_loop, fori_loop, map, associative_scan: programs, types, values."""
from __future__ import annotations

import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, tree_util
from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

X = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
W = np.linspace(0, 1, 36, dtype=np.float32).reshape(4, 3, 3)


@pytest.fixture
def mesh():
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def primitive(f, *args):
    """The only loop or branch in the program of f."""
    program = st.make_jaxpr(f)(*args).jaxpr
    (eqn,) = [e for e in program.eqns if e.primitive.name in ("scan", "while", "cond")]
    return eqn


def close(got, want):
    got, want = tree_util.tree_leaves(got), tree_util.tree_leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-5, atol=1e-5)


# -- values ----------------------------------------------------------------------------------------

def _scan(a, w, xp):
    if xp is jnp:
        return lax.scan(lambda c, t: (c @ t, {"sum": c.sum(), "c": c}), a, w)
    sums, cs = [], []
    for t in w:
        sums.append(a.sum())
        cs.append(a)
        a = a @ t
    return a, {"sum": np.stack(sums), "c": np.stack(cs)}


def _reverse(a, w, xp):
    if xp is jnp:
        return lax.scan(lambda c, t: (c + t, c.sum()), a, w, reverse=True)
    out = []
    for t in w[::-1]:
        out.append(a.sum())
        a = a + t
    return a, np.stack(out[::-1])


def _length(a, w, xp):
    if xp is jnp:
        return lax.scan(lambda c, _: (c * 2, c[0]), a, None, length=3)
    return a * 8, np.stack([a[0], a[0] * 2, a[0] * 4])


def _closure(a, w, xp):
    if xp is jnp:
        return lax.scan(lambda c, i: (c + w[0] * i, a), a, jnp.arange(3))
    return a + w[0] * 3, np.stack([a] * 3)


def _while(a, w, xp):
    if xp is jnp:
        return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] @ w[1]), (0, a))
    for _ in range(5):
        a = a @ w[1]
    return 5, a


def _known_bounds(a, w, xp):
    if xp is jnp:
        return lax.fori_loop(1, 4, lambda i, c: c + i * w[i], a)
    return a + sum(i * w[i] for i in (1, 2, 3))


def _open_bounds(a, w, xp):
    if xp is jnp:
        return lax.fori_loop(jnp.int32(a.sum()) + 1, 4, lambda i, c: c + i, a)
    return a + 6


def _cond(a, w, xp):
    if xp is jnp:
        return (lax.cond(a.sum() > 1, lambda x: x @ w[0], lambda x: -x, a),
                lax.cond(True, lambda: a, lambda: a * 2), lax.cond(a[2, 2], jnp.sin, jnp.cos, 1.0))
    return -a, a, np.sin(1.0)


def _switch(a, w, xp):
    if xp is jnp:
        return [lax.switch(i, [lambda x: x, lambda x: x + 1, lambda x: x + 2], a)
                for i in (-3, 1, jnp.int32(9))]
    return [a, a + 1, a + 2]


def _map(a, w, xp):
    if xp is jnp:
        return lax.map(lambda t: (t @ t, t.sum()), w), lax.map(jnp.sum, w, batch_size=3)
    return (w @ w, w.sum((1, 2))), w.sum((1, 2))


def _associative(a, w, xp):
    if xp is jnp:
        return (lax.associative_scan(jnp.add, w),
                lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, a)),
                lax.associative_scan(jnp.maximum, a, reverse=True, axis=1))
    p, q = a[0], a[0]
    ps, qs = [p], [q]
    for row in a[1:]:
        p, q = p * row, row * q + row
        ps.append(p)
        qs.append(q)
    return (np.cumsum(w, 0), (np.stack(ps), np.stack(qs)),
            np.maximum.accumulate(a[:, ::-1], 1)[:, ::-1])


def _nested(a, w, xp):
    if xp is jnp:
        def step(c, t):
            c = lax.fori_loop(0, 2, lambda i, z: z + t * i, c)
            return lax.cond(c.sum() > 2, lambda: c - 1, lambda: c), lax.map(jnp.sum, c)
        return lax.scan(step, a, w)
    rows = []
    for t in w:
        a = a + t
        rows.append(a.sum(1))
        a = a - 1 if a.sum() > 2 else a
    return a, np.stack(rows)


EVERY = [_scan, _reverse, _length, _closure, _while, _known_bounds, _open_bounds, _cond, _switch,
         _map, _associative, _nested]


@rows("f", EVERY)
@rows("jit", [False, True])
def test_values_are_numpys(f, jit):
    def run(a, w):
        return f(a, w, jnp)

    close((st.jit(run) if jit else run)(jnp.array(X), jnp.array(W)), f(X, W, np))


@pytest.mark.parametrize("f", EVERY)
def test_programs_read_back_and_verify(f):
    program = st.make_jaxpr(lambda a, w: f(a, w, jnp))(X, W).jaxpr
    verify(program)
    assert programs_equal(parse_program(str(program)), program)


def test_the_per_device_program_reads_back():
    low = st.jit(lambda a, w: _nested(a, w, jnp)).lower(X, W).compile()
    for stage in low.stages.values():
        assert programs_equal(parse_program(str(stage)), stage)


@pytest.mark.parametrize("length", [0, 1])
def test_scans_run_over_no_and_one_element(length):
    carry, ys = lax.scan(lambda c, x: (c + x, c), jnp.float32(2), jnp.ones(length))
    assert carry == 2 + length and ys.shape == (length,)


@pytest.mark.parametrize("lower, upper", [(3, 1), (jnp.int32(3), jnp.int32(1))])
def test_loops_that_do_not_run(lower, upper):
    assert lax.fori_loop(lower, upper, lambda i, c: c + 1, 5) == 5
    assert st.jit(lambda a, b: lax.fori_loop(a, b, lambda i, c: c + 1, 5))(lower, upper) == 5


# -- the program -----------------------------------------------------------------------------------

def test_scan_params_are_jaxs():
    eqn = primitive(lambda a, w: lax.scan(lambda c, t: (c @ w[0] + t, c), a, w), X, W)
    assert eqn.primitive.name == "scan"
    assert {k: v for k, v in eqn.params.items() if k != "jaxpr"} == {
        "length": 4, "reverse": False, "num_consts": 1, "num_carry": 1, "unroll": 1}
    assert [str(v.aval) for v in eqn.params["jaxpr"].invars] == [
        "float32[4,3,3]", "float32[3,3]", "float32[3,3]"]


def test_while_params_are_jaxs():
    eqn = primitive(lambda a, w: lax.while_loop(
        lambda c: c.sum() < w.sum(), lambda c: c @ w[0], a), X, W)
    assert (eqn.params["cond_nconsts"], eqn.params["body_nconsts"]) == (1, 1)
    assert len(eqn.params["cond_jaxpr"].invars) == len(eqn.params["body_jaxpr"].invars) == 2


def test_branches_take_what_any_of_them_closes_over():
    eqn = primitive(lambda a, w: lax.cond(a[0, 0] > 0, lambda: a + 1, lambda: w[0]), X, W)
    assert len(eqn.invars) == 3 and len(eqn.params["branches"]) == 2
    assert {len(b.invars) for b in eqn.params["branches"]} == {2}


def test_the_branch_of_a_true_predicate_is_the_last():
    eqn = primitive(lambda a: lax.cond(a[0, 0] > 0, jnp.sin, jnp.cos, a), X)
    assert [b.eqns[0].primitive.name for b in eqn.params["branches"]] == ["cos", "sin"]


def test_a_known_predicate_still_traces_both_branches():
    seen = []
    lax.cond(True, lambda: seen.append(1) or 1, lambda: seen.append(0) or 2)
    assert sorted(seen) == [0, 1]


def test_carries_that_are_handed_on_leave_the_loop():
    eqn = primitive(lambda a, w: lax.scan(lambda c, t: ((c[0], c[1] + t), t), (w, a), w), X, W)
    assert (eqn.params["num_consts"], eqn.params["num_carry"]) == (1, 1)
    assert len(eqn.outvars) == 1
    eqn = primitive(lambda a, w: lax.while_loop(
        lambda c: c[1].sum() < 3, lambda c: (c[0], c[1] + c[0][0]), (w, a)), X, W)
    assert (eqn.params["cond_nconsts"], eqn.params["body_nconsts"]) == (0, 1)


def test_a_body_is_traced_once():
    count = []

    def body(c, t):
        count.append(None)
        return c + t, c

    st.make_jaxpr(lambda a, w: lax.scan(body, a, w))(X, W)
    assert len(count) == 1


@pytest.mark.parametrize("start, items, want", [
    (0.0, np.ones(3, np.float32), "float32[]"), (0, np.ones(3, np.float32), "float32[]"),
    (1, np.arange(3, dtype=np.int8), "int8[]"),
])
def test_weak_numbers_take_the_dtype_that_the_body_gives(start, items, want):
    carry, _ = st.eval_shape(lambda xs: lax.scan(lambda c, x: (c + x, None), start, xs), items)
    assert f"{carry.dtype}{list(carry.shape)}" == want
    out = st.eval_shape(lambda xs: lax.while_loop(
        lambda c: c < 5, lambda c: c + xs[0], start), items)
    assert out.dtype == carry.dtype


def test_bounds_known_while_tracing_make_a_scan():
    assert primitive(lambda a: lax.fori_loop(0, 3, lambda i, c: c + i, a), X).params["length"] == 3
    eqn = primitive(lambda a, n: lax.fori_loop(0, n, lambda i, c: c + i, a), X, 3)
    assert eqn.primitive.name == "while"


# -- errors ----------------------------------------------------------------------------------------

def put(mesh, *spec):
    return st.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P(*spec)))


ERRORS = [
    (lambda: lax.scan(1, 0, None), TypeError, "lax.scan: f argument should be a callable."),
    (lambda: lax.scan(lambda c, x: (c, x), 0, None), ValueError,
     "scan got no values to scan over and `length` not provided."),
    (lambda: lax.scan(lambda c, x: (c, x), 0, (X, W)), ValueError,
     "scan got values with different leading axis sizes: 3, 4."),
    (lambda: lax.scan(lambda c, x: (c, x), 0, X, length=2), ValueError,
     "scan got `length` argument of 2 which disagrees with leading axis sizes [3]."),
    (lambda: lax.scan(lambda c, x: (c, x), 0, 1.0), ValueError,
     "scan got value with no leading axis to scan over: 1.0."),
    (lambda: lax.scan(lambda c, x: c, X, None, length=2), TypeError,
     "scan body output must be a pair, got float32[3,3]."),
    (lambda: lax.scan(lambda c, x: (c, x), 0, X, unroll=-1), ValueError, "`unroll` must be a"),
    (lambda: st.jit(lambda n: lax.scan(lambda c, x: (c, x), 0, None, length=n))(3), TypeError,
     "The `length` argument to `scan` expects a concrete `int` value."),
    (lambda: lax.scan(lambda c, x: ((c[0], c[1] > 0), None), (0, X), None, length=1), TypeError,
     "scan body function carry input and carry output must have equal types, but they differ:\n\n"
     "The input carry component c[1] has type float32[3,3] but the corresponding output carry "
     "component has type bool[3,3], so the dtypes do not match.\n\nRevise the function so that "
     "all output types match the corresponding input types."),
    (lambda: lax.fori_loop(0, 2, lambda i, c: c[0], X), TypeError,
     "The input carry component loop_carry[1] has type float32[3,3] but the corresponding output "
     "carry component has type float32[3], so the shapes do not match."),
    (lambda: lax.scan(lambda c, x: ((c, c), None), X, None, length=1), TypeError,
     "scan body function carry input and carry output must have the same pytree structure, but "
     "they differ:\n\nThe input carry c is a"),
    (lambda: lax.scan(lambda c, x: ({"a": c["a"]}, None), {"a": X, "b": X}, None, length=1),
     TypeError, "the numbers of children do not match, with the symmetric difference of key sets: "
     "{'b'}"),
    (lambda: lax.while_loop(lambda c: c, lambda c: c, X), TypeError,
     "cond_fun must return a boolean scalar, but got output type(s) [ShapedArray(float32[3,3])]."),
    (lambda: lax.while_loop(lambda c: (c, c), lambda c: c, X), TypeError,
     "cond_fun must return a boolean scalar, but got pytree"),
    (lambda: lax.while_loop(lambda c: True, lambda c: c[0], X), TypeError,
     "while_loop body function carry input and carry output must have equal types"),
    (lambda: lax.while_loop(1, lambda c: c, X), TypeError,
     "lax.while_loop: body_fun and cond_fun arguments should be callable."),
    (lambda: lax.fori_loop(0.0, 3, lambda i, c: c, X), TypeError,
     "lower and upper arguments to fori_loop must have equal types, got float32 and int32"),
    (lambda: st.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, X, unroll=2))(3), ValueError,
     "Can only use `unroll` in `fori_loop` if the loop bounds are statically known."),
    (lambda: lax.cond(X, lambda: 1, lambda: 2), TypeError, "Pred must be a scalar, got"),
    (lambda: lax.cond((1, 2), lambda: 1, lambda: 2), TypeError,
     "Pred must be a scalar, got (1, 2) of type <class 'tuple'>"),
    (lambda: lax.cond(None, lambda: 1, lambda: 2), TypeError, "cond predicate is None"),
    (lambda: lax.cond(1j, lambda: 1, lambda: 2), TypeError,
     "Pred type must be either boolean or number, got complex64."),
    (lambda: lax.cond(True, 1, lambda: 2), TypeError,
     "lax.cond: true_fun and false_fun arguments should be callable."),
    (lambda: lax.cond(True, lambda: (1, 2.0), lambda: (1, 2)), TypeError,
     "The output of true_fun at path [1] has type float32[] but the corresponding output of "
     "false_fun has type int32[], so the dtypes do not match.\n\nRevise true_fun and/or false_fun "
     "so that all output types match."),
    (lambda: lax.cond(True, lambda: 1, lambda: (1,)), TypeError,
     "true_fun output is a pytree leaf but false_fun output is a <class 'tuple'>, so their Python "
     "types differ."),
    (lambda: lax.switch(0, [lambda: 1, lambda: 2, lambda: X]), TypeError,
     "The output of branch 0 has type int32[] but the corresponding output of branch2 has type "
     "float32[3,3], so the dtypes do not match, and the shapes do not match."),
    (lambda: lax.switch(1.5, [lambda: 1]), TypeError,
     "Index type must be an integer, got 1.5 as float32"),
    (lambda: lax.switch(X, [lambda: 1]), TypeError, "Branch index must be scalar, got"),
    (lambda: lax.switch(1, []), ValueError, "Empty branch sequence"),
    (lambda: lax.cond(True, lambda x: x, lambda x: x, 1, operand=2), TypeError,
     "if 'operand' keyword is passed then no positional operands can be passed"),
    (lambda: lax.associative_scan(jnp.add, (X, W)), ValueError,
     "Array inputs to associative_scan must have the same first dimension. (saw: [(3, 3), "
     "(4, 3, 3)])"),
]


@rows("f, cls, text", ERRORS)
def test_errors_have_jaxs_class_and_text(f, cls, text):
    with pytest.raises(cls, match=re.escape(text)):
        f()


def test_a_sharded_dimension_cannot_be_scanned(mesh):
    a = put(mesh, "x", None)
    with pytest.raises(ValueError, match=re.escape(
            "0th dimension of all xs should be replicated. Got P('x', None)")) as caught:
        lax.scan(lambda c, t: (c, t), 0.0, a)
    assert "gather it over x first, with `reshard`" in str(caught.value)
    with pytest.raises(ValueError, match="0th dimension of leaf passed to `st.lax.map` should be"):
        lax.map(lambda t: t, a, batch_size=2)


def test_a_carry_keeps_its_sharding(mesh):
    with st.set_mesh(mesh):
        a = put(mesh, "x", None)
        start = jnp.zeros((4, 4))
        with pytest.raises(TypeError, match=re.escape(
                "The input carry c has type float32[4,4] but the corresponding output carry "
                "component has type float32[4@x,4].\n\nRevise the function")) as caught:
            st.jit(lambda a: lax.scan(lambda c, t: (c + a, None), start, None, length=2))(a)
    text = str(caught.value)
    assert "leaves the body as f32[4@x,4]" in text and "the other spec, P('x', None)" in text


def test_a_carry_error_shows_where_both_types_come_from(mesh):
    def rnn(a):
        h0 = jnp.zeros((4, 4)) * 2
        return lax.scan(lambda h, _: (jnp.tanh(h + a), None), h0, None, length=2)

    with st.set_mesh(mesh), pytest.raises(TypeError) as caught:
        st.jit(rnn)(put(mesh, "x", None))
    text = str(caught.value)
    assert "jnp.zeros((4, 4)) * 2" in text and "enters as f32[4,4]" in text
    assert "takes `h` as f32[4,4]" in text


def test_branches_keep_one_sharding(mesh):
    with st.set_mesh(mesh), pytest.raises(TypeError, match=re.escape(
            "The output of true_fun has type float32[4@x,4] but the corresponding output of "
            "false_fun has type float32[4,4].\n\nRevise true_fun and/or false_fun")):
        lax.cond(True, lambda a: a, lambda a: jnp.zeros((4, 4)), put(mesh, "x", None))


@pytest.mark.parametrize("loop, what", [
    (lambda b: lax.scan(lambda c, t: (c + b, None), jnp.zeros(b.shape), None, length=2)[0],
     "scan body"),
    (lambda b: lax.while_loop(lambda c: c.sum() < 2, lambda c: c + b, jnp.zeros(b.shape)),
     "while_loop body"),
])
def test_a_carry_varies_from_its_start(mesh, loop, what):
    with pytest.raises(TypeError, match=re.escape(
            f"{what} function carry input and carry output must have equal types, but they differ:"
            "\n\nThe input carry c has type float32[2,4] but the corresponding output carry "
            "component has type float32[2,4]{V:x}, so the manual axis types do not match.\n\nThis "
            "might be fixed by applying `st.lax.pcast(..., ('x',), to='varying')`, to the initial "
            "carry value corresponding to the input carry c.\n\nRevise the function")):
        st.shard_map(loop, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(put(mesh, "x", None))


def test_branches_vary_alike(mesh):
    with pytest.raises(TypeError, match=re.escape(
            "applying `st.lax.pcast(..., ('x',), to='varying')` to the output of false_fun.")):
        st.shard_map(lambda b: lax.cond(b.sum() > 0, lambda: b, lambda: jnp.zeros(b.shape)),
                     mesh=mesh, in_specs=P("x"), out_specs=P("x"))(put(mesh, "x", None))


# -- what varies -----------------------------------------------------------------------------------

def types_of_results(f, mesh):
    seen = []

    def body(b):
        seen.extend(str(st.typeof(v)) for v in tree_util.tree_leaves(f(b)))
        return b

    st.make_jaxpr(st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(
        put(mesh, "x", None))
    return seen


def test_results_vary_over_all_that_the_predicate_varies_over(mesh):
    assert types_of_results(
        lambda b: lax.cond(b.sum() > 0, lambda: 1.0, lambda: 2.0), mesh) == ["~float32[]{V:x}"]
    assert types_of_results(lambda b: lax.while_loop(
        lambda c: c[0].sum() < 9, lambda c: (c[0] + b, c[1] + 1), (b, 0)), mesh) == [
            "float32[2,4]{V:x}", "~int32[]{V:x}"]
    assert types_of_results(lambda b: lax.while_loop(
        lambda c: c[0].sum() < 9, lambda c: (c[0] + b, jnp.ones(2)), (b, jnp.zeros(2))), mesh) == [
            "float32[2,4]{V:x}", "float32[2]{V:x}"]


def test_results_of_a_common_predicate_do_not_vary(mesh):
    assert types_of_results(
        lambda b: lax.cond(lax.psum(b.sum(), "x") > 0, lambda: 1.0, lambda: 2.0), mesh) == [
            "~float32[]"]


# -- against JAX -----------------------------------------------------------------------------------

def shape_of_program(program):
    """Names and number of equations, and what loops and branches hold, by name and count."""
    out = []
    for eqn in program.eqns:
        if eqn.primitive.name in ("scan", "while", "cond"):
            params = {k: v for k, v in eqn.params.items()
                      if isinstance(v, (int, bool)) and not k.startswith("_")}
            inner = [shape_of_program(getattr(q, "jaxpr", q))
                     for k in ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches") if k in eqn.params
                     for q in (eqn.params[k] if isinstance(eqn.params[k], tuple)
                               else (eqn.params[k],))]
            out.append((eqn.primitive.name, tuple(sorted(params.items())), tuple(inner),
                        len(eqn.invars), len(eqn.outvars)))
    return tuple(out)


SAME = ["scan", "reverse", "length", "closure", "while", "known_bounds", "open_bounds", "cond",
        "switch", "nested"]


@pytest.mark.parametrize("name", SAME)
def test_programs_are_built_like_jaxs(name):
    jax = pytest.importorskip("jax")
    import jax.numpy as other

    f = globals()[f"_{name}"]
    mine = shape_of_program(st.make_jaxpr(lambda a, w: f(a, w, jnp))(X, W).jaxpr)
    saved = globals()["lax"], globals()["jnp"]
    try:
        globals()["lax"], globals()["jnp"] = jax.lax, other
        theirs = jax.make_jaxpr(lambda a, w: f(a, w, other))(X, W).jaxpr
        close(f(X, W, np), jax.jit(lambda a, w: f(a, w, other))(X, W))
    finally:
        globals()["lax"], globals()["jnp"] = saved
    assert mine == shape_of_program(theirs)


# -- the verifier ----------------------------------------------------------------------------------

@pytest.mark.parametrize("change, text", [
    ({"length": 5}, "over 5 items"),
    ({"num_consts": 1, "num_carry": 0}, "but the equation declares"),
])
def test_the_verifier_knows_what_a_scan_takes(change, text):
    program = st.make_jaxpr(lambda a, w: lax.scan(lambda c, t: (c + t, c), a, w))(X, W).jaxpr
    (eqn,) = program.eqns
    wrong = program.replace(eqns=[eqn.replace(params={**eqn.params, **change})])
    with pytest.raises(VerificationError, match=text):
        verify(wrong)


def test_the_verifier_wants_one_type_for_a_carry(mesh):
    with st.set_mesh(mesh):
        program = st.make_jaxpr(lambda a, b: lax.scan(lambda c, t: (c + t, t), a, b))(
            put(mesh, "x", None), jnp.ones((3, 4, 4))).jaxpr
    eqn = program.eqns[-1]
    body = eqn.params["jaxpr"]
    wrong = body.replace(outvars=[body.invars[1], *body.outvars[1:]])
    with pytest.raises(VerificationError, match="the carry has types"):
        verify(program.replace(eqns=[*program.eqns[:-1],
                                     eqn.replace(params={**eqn.params, "jaxpr": wrong})]))


def test_cond_with_an_operand_for_each_branch():
    f = st.jit(lambda p, x, y: st.lax.cond(p, x, lambda x: x["a"] + 1, y, lambda y: -y))
    assert f(True, {"a": 1.0}, 5.0) == 2 and f(False, {"a": 1.0}, 5.0) == -5
