"""A plan that is kept gives the partition that it was frozen from; what is not kept is said."""
import functools
import itertools
import linecache
import textwrap

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import config
from shardtrace.ir.text.parse import parse_program
from shardtrace.report.frozen.plan import FrozenPlan, rows_of_decisions
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = st.make_mesh((2, 4), ("data", "model"))
struct = functools.partial(specs.struct, mesh=MESH)


def chain(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


def attention_step(p, x):
    def loss(p):
        q, k, v = ((x @ p[n]).reshape(8, 16, 4, 8) for n in ("wq", "wk", "wv"))
        a = st.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 8.0)
        o = jnp.einsum("bhts,bshd->bthd", a, v).reshape(8, 16, 32)
        h = x + o @ p["wo"]
        return jnp.mean((h + jnp.tanh(h @ p["w1"]) @ p["w2"]) ** 2)

    value, grads = st.value_and_grad(loss)(p)
    return value, {n: p[n] - 0.1 * grads[n] for n in p}


def scanned_step(ws, x):
    def loss(ws):
        y, _ = st.lax.scan(lambda h, w: (jnp.tanh(h @ w[0]) @ w[1], None), x, ws)
        return jnp.mean(y * y)

    return st.value_and_grad(loss)(ws)


def uneven(x, w):
    return jnp.tanh(x[1:] @ w).sum(0)


def manual(x, w):
    f = st.shard_map(lambda x, w: st.lax.psum(x @ w, "model"), mesh=MESH,
                     in_specs=(P("data", "model"), P("model")), out_specs=P("data"))
    return jnp.tanh(f(x, w)) @ w.T


def normalised_layers(ws, x):
    def layer(c, w):
        n = c * st.lax.rsqrt((c * c).mean(-1, keepdims=True) + 1e-5)
        return c + jnp.tanh(n @ w[0]) @ w[1], None

    def loss(ws):
        return (st.lax.scan(layer, x, ws)[0] ** 2).mean()

    return st.grad(loss)(ws)


def regrouped(x):
    return jnp.sin(x.reshape(4, 2, 8, 64))[:, :, 1:].sum(0)


def weighted(x, w, scale):
    return 0.5 + (scale * (x @ w)).sum()


def shifted_loss(x, w):
    def loss(w):
        scores = x[:, :-1] @ w
        return (st.nn.logsumexp(scores, -1) - scores[..., 0]).mean()

    return st.grad(loss)(w)


def mixed(x, w):
    return (x @ jnp.tanh(w)).sum(0)


def masked(x, at):
    return jnp.where(jnp.arange(256) <= at, x, 0.0)


def masked_steps(x, ks, at):
    def step(x, k):
        return x + jnp.where(jnp.arange(64) <= at, k, 0.0), None
    return st.lax.scan(step, x, ks)[0]


def clipped(gradients):
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients))
    return [g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)) for g in gradients]


def halved(x):
    def body(state):
        y, total = state
        return y / 2, ((y / 2) ** 2).sum()
    return st.lax.while_loop(lambda state: state[1] > 1, body, (x, (x ** 2).sum()))[0]


def attention_args(*, up, down, square):
    return ({**{n: struct((32, 32), *square) for n in ("wq", "wk", "wv", "wo")},
             "w1": struct((32, 128), *up), "w2": struct((128, 32), *down)},
            struct((8, 16, 32), "data"))


CASES = {
    "chain": (chain, (struct((64, 256), "data"), struct((256, 256), None, "model"),
                      struct((256, 256), None, "model"))),
    "tensor parallel": (attention_step, attention_args(
        up=(None, "model"), down=("model",), square=(None, "model"))),
    "a wrong row": (attention_step, attention_args(
        up=("model",), down=("model",), square=("model",))),
    "fsdp": (attention_step, attention_args(
        up=("data", "model"), down=("model", "data"), square=("data", "model"))),
    "scan": (scanned_step, ((struct((4, 64, 64), None, None, "model"),
                             struct((4, 64, 64), None, "model")), struct((64, 64), "data"))),
    "scan, a wrong row": (scanned_step, ((struct((4, 64, 64), None, None, "model"),
                                          struct((4, 64, 64), None, None, "model")),
                                         struct((64, 64), "data"))),
    "uneven": (uneven, (struct((64, 256), "data"), struct((256, 256), None, "model"))),
    "scan that keeps a split stack": (normalised_layers, (
        (struct((4, 1024, 8192), None, None, "model"), struct((4, 8192, 1024), None, "model")),
        struct((128, 64, 1024), "data"))),
    "parts of an axis": (regrouped, (struct((64, 64), "model"),)),
    "a sum of numbers": (weighted, (struct((256, 128), None, "model"), struct((128, 256), "model"),
                                    struct((256, 256)))),
    "a loop that begins with a sum": (halved, (struct((256, 128), "data", "model"),)),
    "an argument that nobody placed": (mixed, (
        specs.struct((64, 256), "data", "model", mesh=MESH.abstract_mesh),
        st.ShapeDtypeStruct((256, 256), np.float32))),
    "values that are made of no argument": (masked, (
        specs.struct((64, 256), "data", "model", mesh=MESH.abstract_mesh),
        specs.struct((64, 1), "data", mesh=MESH.abstract_mesh))),
    "values that are made of no argument, in a loop": (masked_steps, tuple([
        specs.struct(shape, *spec, mesh=MESH.abstract_mesh) for shape, *spec in (
            ((64, 64), "data"), ((4, 64, 64), None, "data"), ((64, 1), "data"))])),
    "a number that is added to sums that wait": (clipped, (
        [specs.struct((64, 256), "data", "model", mesh=MESH.abstract_mesh)] * 2,)),
    "uneven, gradient": (shifted_loss, (struct((4, 256, 64), None, "model"), struct((64, 32)))),
    "shard_map": (manual, (struct((64, 256), "data"), struct((256, 256), "model")))}


def moved(jitted, args):
    """What is exchanged, but for single numbers, which no plan is about."""
    return sorted((c.kind, c.mesh_axes, c.received_bytes // 64, c.count)
                  for c in jitted.lower(*args).compile().collectives() if c.received_bytes > 64)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_that_is_kept_gives_the_same_partition(case):
    fun, args = CASES[case]
    plan = st.freeze_plan(fun)(*args)
    kept = st.thaw_plan(fun, plan)
    difference = kept.difference(*args)
    assert difference.fits and not difference.new, str(difference)
    assert plan.received_bytes == difference.after.received_bytes
    assert moved(kept, args) == moved(st.jit(fun), args)
    read = FrozenPlan.from_json(plan.to_json())
    assert read.to_json() == plan.to_json() and read.compared(plan).fits
    traced = kept.lower(*args).stages["traced"]
    assert str(parse_program(str(traced))) == str(traced)


def test_sums_that_wait_for_one_axis_after_the_other_are_kept():
    def squares(*leaves):
        return sum((leaf * leaf).sum() for leaf in leaves)
    for some in itertools.product([("data", "model"), ("data",), ("model",)], repeat=3):
        args = [struct((8, 8), *spec) for spec in some]
        with config.override(shardtrace_objective="time"):
            difference = st.thaw_plan(squares, st.freeze_plan(squares)(*args)).difference(*args)
        assert difference.fits, str(difference)


@pytest.mark.parametrize("case", ["a wrong row", "scan", "uneven"])
def test_a_function_that_keeps_a_plan_computes_the_same(case):
    fun, args = CASES[case]
    rng = np.random.default_rng(0)
    values = st.tree.map(lambda a: st.device_put(
        rng.standard_normal(a.shape).astype(np.float32) / 8, a.sharding), args)
    kept = st.thaw_plan(fun, st.freeze_plan(fun)(*values))
    wanted = st.tree.leaves(fun(*st.tree.map(np.asarray, values)))
    found = kept.lower(*values).compile(engine="per_device")(*values)
    for a, b in zip(st.tree.leaves(found), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def made(text, name):
    """A function with source, as an editor would leave it."""
    file = f"<{name}>"
    text = textwrap.dedent(text)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {"jnp": jnp, "st": st, "P": P}
    exec(compile(text, file, "exec"), names)
    return names["layer"]


BEFORE = """
    def layer(x, w1, w2):
        h = jnp.tanh(x @ w1)
        return h @ w2
"""


def test_decisions_hold_while_lines_move_and_come_between():
    fun = made(BEFORE, "before.py")
    args = (struct((64, 256), "data"), struct((256, 256), None, "model"),
            struct((256, 256), None, "model"))
    plan = st.freeze_plan(fun)(*args)
    after = made("""
    def layer(x, w1, w2):
        # twice as much
        x = x * 2
        h = jnp.tanh(x @ w1)
        h = h + 1
        return h @ w2
    """, "after.py")
    difference = st.thaw_plan(after, plan).difference(*args)
    assert difference.fits and {d.key.line for d in difference.new} == {"x = x * 2", "h = h + 1"}


def test_what_is_gone_and_what_cannot_be_is_told():
    fun = made(BEFORE, "before.py")
    args = (struct((64, 256), "data"), struct((256, 256), None, "model"),
            struct((256, 256), None, "model"))
    plan = st.freeze_plan(fun)(*args)
    after = made(BEFORE.replace("h @ w2", "(h @ w2).sum(1)"), "after.py")
    difference = st.thaw_plan(after, plan).difference(*args)
    assert {d.key.line for d in difference.gone} == {"return h @ w2"}
    (text,) = [x for x in str(difference).splitlines() if "gone: `h`" in x]
    assert text.startswith("  gone: `h`, brought to `dot_general` f32[64,256]")
    assert text.endswith(": return h @ w2, P('data')"), text

    small = st.ShapeDtypeStruct((256, 2), np.float32, sharding=NamedSharding(MESH, P()))
    difference = st.thaw_plan(fun, plan).difference(args[0], args[1], small)
    assert any("argument `w2` f32[256,256] as P(None, 'model'): dimension 1 of size 2 cannot be "
               "split 4 ways" in line for line in str(difference).splitlines())
    other = st.make_mesh((2, 4), ("data", "tensor"))
    difference = st.thaw_plan(fun, plan).difference(*(
        struct(a.shape, *s, mesh=other) for a, s in zip(
            args, [("data",), (None, "tensor"), (None, "tensor")], strict=True)))
    assert "the mesh has no axis 'model' now" in str(difference)


def test_what_propagation_would_decide_otherwise_is_kept():
    def layer(x, w):
        return jnp.tanh(x @ w)

    args = struct((64, 256), "data"), struct((256, 256), None, "model")
    plan = st.freeze_plan(layer)(*args)
    open_args = args[0], st.ShapeDtypeStruct((256, 256), np.float32)
    free = st.jit(layer).lower(*open_args).compile().output_shardings.spec
    kept = st.thaw_plan(layer, plan)
    assert free == P("data") and kept.difference(*open_args).fits
    assert kept.lower(*open_args).compile().output_shardings.spec == P("data", "model")
    assert st.freeze_plan(kept)(*open_args).decisions[1].spec == "P(None, 'model')"


def test_explanations_name_the_plan():
    args = CASES["chain"][1]
    kept = st.thaw_plan(chain, st.freeze_plan(chain)(*args))
    (gather,) = st.explain(kept)(*args).collectives
    assert gather.reason_kind == "asked" and (
        "the frozen plan asks for P('data', None)" in gather.reason)


def test_over_explicit_axes_a_plan_is_compared():
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))

    def f(a, b):
        return jnp.sin(a) + b

    with st.set_mesh(mesh):
        rows = struct((8, 64), "x", mesh=mesh)
        plan = st.freeze_plan(f)(rows, rows)
        assert st.thaw_plan(f, plan).difference(rows, rows).fits
        columns = struct((8, 64), None, "x", mesh=mesh)
        difference = st.thaw_plan(f, plan).difference(columns, columns)
    assert len(difference.changed) == len(plan.decisions)
    assert "`sin` f32[8,64]" in str(difference)


@pytest.mark.parametrize("text", ["{}", "[", '{"plan": 1}', '{"plan": 2}',
                                  '{"plan": 1, "function": "f", "mesh": {}, "exchanged": [], '
                                  '"decisions": [{"kind": "value", "type": "", "spec": "P(x)"}]}'])
def test_a_file_that_is_no_plan_is_refused(text, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match="is no frozen plan"):
        st.thaw_plan(chain, tmp_path / "plan.json")


def test_what_equal_layers_have_lost_is_said_once():
    def layer(x, w):
        return jnp.tanh(x @ w)

    def before(x, w):
        return layer(layer(layer(x, w), w), w)

    args = struct((64, 256), "data"), struct((256, 256), None, "model")
    plan = st.freeze_plan(before)(*args)
    difference = st.thaw_plan(lambda x, w: jnp.sin(x @ w), plan).difference(*args)
    assert len([d for d in difference.gone if d.key.op == "tanh"]) == 3
    assert str(difference).count("the result of `tanh`") == 1
    assert "P('data', 'model') (3 times)" in str(difference)


ROW = {"kind": "value", "op": "tanh", "line": "return jnp.tanh(x @ w)", "function": "layer"}


def test_some_decisions_constrain_values_and_all_else_is_planned():
    def layer(x, w):
        return jnp.tanh(x @ w)

    args = struct((64, 256), "data"), struct((256, 256), None, "model")
    for spec in (P(None, "data"), P("model")):
        kept = st.thaw_plan(layer, [{**ROW, "spec": f"P{tuple(spec)!r}"}])
        made = st.explain(kept)(*args).partitioned.resolved
        (tanh,) = [e for e in made.eqns if e.op.name == "tanh"]
        assert tanh.outvars[0].aval.spec == spec.padded(2)
        difference = kept.difference(*args)
        assert difference.fits and not difference.new
    gone = st.thaw_plan(layer, [{**ROW, "op": "sin", "spec": "P()"}]).difference(*args)
    assert [d.key.op for d in gone.gone] == ["sin"]
    assert "gone: the result of `sin`: return jnp.tanh(x @ w), P()" in str(gone)


def test_decisions_of_equal_layers_are_one_row():
    def layer(x, w):
        return jnp.tanh(x @ w)

    def net(x, w):
        for _ in range(4):
            x = layer(x, w)
        return x

    args = struct((64, 64), "data"), struct((64, 64), None, "model")
    rows = [{**ROW, "spec": "P('model')", "nth": [0, 2, 3]},
            {**ROW, "spec": "P('data')", "nth": 1}]
    kept = st.thaw_plan(net, rows)
    made = st.explain(kept)(*args).partitioned.resolved
    split = [e.outvars[0].aval.spec == P("model").padded(2) for e in made.eqns
             if e.op.name == "tanh"]
    assert split == [True, False, True, True] and kept.difference(*args).fits
    assert rows_of_decisions(kept.plan.decisions) == rows
    apart = [{**ROW, "spec": "P()"}, {**ROW, "spec": "P('data')", "nth": 1}]
    assert rows_of_decisions(st.thaw_plan(net, apart).plan.decisions) == apart


@pytest.mark.parametrize("row", [{}, {**ROW, "kind": "name", "spec": "P()"}, {**ROW, "spec": "x"},
                                 "P()", {**ROW, "nth": "1", "spec": "P()"},
                                 {**ROW, "nth": [0, "1"], "spec": "P()"}])
def test_rows_that_are_no_decisions_are_refused(row):
    with pytest.raises(ValueError, match=r"a decision|is no spec"):
        st.thaw_plan(chain, [row])


def test_a_plan_is_kept_by_a_function_of_references():
    def step(total, x, w):
        total[...] += jnp.tanh(x @ w).sum(0)
        return total[...] * 2

    rng = np.random.default_rng(0)
    x, w = (st.device_put(rng.standard_normal((8, 8), np.float32), NamedSharding(MESH, P(axis)))
            for axis in ("data", "model"))
    plan = st.freeze_plan(step)(st.new_ref(jnp.zeros(8)), x, w)
    total = st.new_ref(jnp.zeros(8))
    kept = st.thaw_plan(step, plan)
    np.testing.assert_allclose(kept(total, x, w), 2 * np.tanh(np.asarray(x) @ np.asarray(w)).sum(0),
                               rtol=1e-5)
    np.testing.assert_allclose(total[...] * 2, kept(st.new_ref(jnp.zeros(8)), x, w), rtol=1e-6)
    assert isinstance(next(iter(kept.on_values.values())), type(kept))
