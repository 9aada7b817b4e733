"""A change of what is written in the code is shown as the line before and after."""
from __future__ import annotations

import contextlib

import pytest

import shardtrace as st

from ...user_files import user_file, user_module

HEAD = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

mesh = AbstractMesh((8, 4), ("data", "model"))
explicit = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)


def struct(shape, *spec, mesh=mesh):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


"""
# the line, what precedes it, the arguments; what is typed instead
CASES = {
    "a constraint that is taken out": (
        'z = lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data", None)))',
        "return nn.logsumexp(z, -1).mean()",
        '(struct((4096, 1024), "data"), struct((1024, 32768), None, "model"))', "z = x @ w"),
    "one in an expression": (
        'z = lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data", None))) * 2',
        "return nn.logsumexp(z, -1).mean()",
        '(struct((4096, 1024), "data"), struct((1024, 32768), None, "model"))', "z = (x @ w) * 2"),
    "a constraint with another spec": (
        'x = lax.with_sharding_constraint(x, NamedSharding(mesh, P(None, "model")))',
        "return nn.gelu(x @ w) @ jnp.ones((1024, 64))",
        '(struct((8192, 4096), "data", "model"), struct((4096, 1024)))',
        'x = lax.with_sharding_constraint(x, NamedSharding(mesh, P(("data", "model"))))'),
    "the sharding of a result": (
        'q = jnp.einsum("bsm,mhf->bshf", x, w, out_sharding=P("data", None, None, None))',
        "return jnp.tanh(q) * 0.5", '(struct((64, 512, 1024), "data", mesh=explicit), '
        'struct((1024, 8, 512), None, "model", mesh=explicit))',
        'q = jnp.einsum("bsm,mhf->bshf", x, w)'),
    "that of rows that are looked up": (
        "h = w.at[x.astype(np.int32)].get(out_sharding=P(None, None, None))",
        "return jnp.tanh(h) @ jnp.ones((1024, 512))", '(struct((64, 512), "data", mesh=explicit), '
        'struct((32768, 1024), mesh=explicit))',
        'h = w.at[x.astype(np.int32)].get(out_sharding=P("data"))'),
    "a constraint where there was none": (
        "h = x.T @ w", "return jnp.sort(h, 0), jnp.cumsum(h, 0)",
        '(struct((4096, 1024), "data"), struct((4096, 2048), "data"))',
        'h = lax.with_sharding_constraint(x.T @ w, NamedSharding(mesh, P(None, "data")))'),
    "a constraint on several values": (
        'q, k, v = jnp.einsum("btm,cmhd->chbtd", x, w)',
        "return lax.map(lambda a: nn.softmax(a[0] @ a[1].mT) @ a[2], (q, k, v)).sum()",
        '(struct((8, 1024, 1024), "data"), struct((3, 1024, 8, 128), None, None, "model"))',
        'q, k, v = jnp.einsum("btm,cmhd->chbtd", x, w)\n'
        "    q, k, v = [lax.with_sharding_constraint(a_, NamedSharding(mesh, P(None, \"data\", "
        '"model"))) for a_ in (q, k, v)]'),
    "a reshard where there was none": (
        "h = jnp.tanh(x)",
        'rows = NamedSharding(explicit, P("data", None))\n'
        "    a, b = (st.sharding.reshard(v, rows) for v in (h, h * 2))\n"
        "    return a @ w + b @ w",
        '(struct((4096, 1024), "data", "model", mesh=explicit), '
        'struct((1024, 4096), None, "model", mesh=explicit))',
        'h = st.sharding.reshard(jnp.tanh(x), NamedSharding(explicit, P("data")))'),
    "heads over the minor part": (
        "q = (x @ w).reshape(32, 512, 64, 16)",
        'q = lax.with_sharding_constraint(q, NamedSharding(mesh, P("data", None, None, "model")))\n'
        '    return jnp.einsum("bsdh,btdh->bhst", q, q)',
        '(struct((32, 512, 1024), "data"), struct((1024, 1024), None, "model"))',
        "q = jnp.tensordot(x, w.reshape(1024, 64, 16), 1)"),
    "what is flattened": (
        "x = nn.relu(x).reshape(256, -1) @ w", "return nn.relu(x)",
        '(struct((256, 7, 7, 512), "data", None, None, "model"), struct((25088, 1024)))',
        "x = jnp.tensordot(nn.relu(x), w.reshape(7, 7, 512, 1024), 3)"),
}


def within(module, args):
    """The mesh of Explicit axes, if the arguments are on that."""
    return st.set_mesh(module.explicit) if "explicit" in args else contextlib.nullcontext()


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_can_be_typed_and_saves_what_it_says(name, tmp_path):
    line, rest, args, typed = CASES[name]
    asked = args if "out_sharding" in line else ""      # else the lines name the mesh
    source = HEAD + f"def f(x, w):\n    {line}\n    {rest}\n\n\nargs = {args}\n"
    with user_module(user_file(tmp_path, source)) as module, within(module, asked):
        found = st.explain(module.f, "v5p")(*module.args)
        diffs = {s.diff: s for c in found.collectives for s in c.suggestions
                 if s.diff and len(s.changes) == 1}
        best = diffs[((line, typed),)]
    with user_module(user_file(tmp_path, source.replace(line, typed))) as module, within(
            module, asked):
        after = st.explain(module.f, "v5p")(*module.args)
    assert (after.received_bytes, after.flops) == (best.received_bytes, best.flops)


def test_a_constraint_on_what_is_differentiated_stands_in_the_line(tmp_path):
    source = HEAD + """\
def f(w, x):
    def loss(w):
        h = x.T @ w
        return (jnp.sort(h, 0) ** 2).mean() + (jnp.sort(h * 2, 0) * h).mean()
    return st.grad(loss)(w)


args = struct((4096, 2048), "data"), struct((4096, 1024), "data")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        shown = {diff for c in found.collectives for s in c.suggestions for diff in s.diff}
    assert ("h = x.T @ w", "h = lax.with_sharding_constraint(x.T @ w, "
            'NamedSharding(mesh, P("data")))') in shown, shown


def test_a_constraint_on_the_leaves_of_a_tree_is_changed_for_all_of_them(tmp_path):
    line = "v = lax.with_sharding_constraint(jnp.tanh(v), NamedSharding(mesh, P()))"
    typed = "v = jnp.tanh(v)"
    source = HEAD + f"""\
def f(x, w):
    made = []
    for v in (x, w):
        {line}
        made.append(v)
    return made


args = struct((4096, 1024), "data"), struct((1024, 32768), None, "model")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        (out,) = {s for c in found.collectives for s in c.suggestions if s.diff == ((line, typed),)}
    with user_module(user_file(tmp_path, source.replace(line, typed))) as module:
        after = st.explain(module.f, "v5p")(*module.args)
    assert (after.received_bytes, after.flops) == (out.received_bytes, out.flops)


@pytest.mark.parametrize(("made", "named"), [
    ('wide = AbstractMesh((4, 2, 4), ("data", "seq", "model"))\nmesh = MESH', "mesh"),
    ('own = st.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)\n'
     "kept = NamedSharding(own, P())\nmesh = MESH", "mesh"),
    ("mesh = [MESH][0]", "")])
def test_a_constraint_is_written_with_the_mesh_of_the_program(made, named, tmp_path):
    mesh = 'AbstractMesh((8, 4), ("data", "model"))'
    lines = [made.replace("MESH", mesh) if line == f"mesh = {mesh}" else line
             for line in HEAD.splitlines() if not line.startswith("explicit")]
    source = "\n".join(lines) + """
def f(x, w):
    h = x.T @ w
    return jnp.sort(h, 0), jnp.cumsum(h, 0)


args = struct((4096, 1024), "data"), struct((4096, 2048), "data")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        shown = [new for c in found.collectives for s in c.suggestions for _, new in s.diff]
    assert all(f"NamedSharding({named}, " in new for new in shown) and bool(shown) == bool(named)


# what a helper takes, its spec, a call of it, that with another spec, if it is written there
HELPERS = {
    "of entries": ("x, *spec", "P(*spec)", 'to(x @ w, "data", None)',
                   'to(x @ w, ("data", "model"))'),
    "of a spec": ("spec, x", "spec", 'to(P("data", None), x @ w)',
                  'to(P(("data", "model")), x @ w)'),
    "of a spec by its name": ("x, spec=None", "spec", 'to(x @ w, spec=P("data"))',
                              'to(x @ w, spec=P(("data", "model")))'),
    "of no spec": ("x, model=None", 'P("data")', "to(x @ w)", ""),
    "of a part of a spec": ("x, *spec", 'P("data", *spec)', "to(x @ w, None)", "")}


@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_what_a_helper_lays_out_is_written_where_it_is_called(name, kind, tmp_path):
    parameters, spec, call, other = HELPERS[name]
    spec = spec if kind == "Explicit" else f"NamedSharding(mesh, {spec})"
    word, mesh = ("reshard", "explicit") if kind == "Explicit" else (
        "lax.with_sharding_constraint", "mesh")
    source = HEAD.replace("AxisType, ", "AxisType, reshard, ") + f"""\
def to({parameters}):
    return {word}(x, {spec})


def f(x, w):
    return nn.logsumexp({call}, -1).mean()


args = (struct((4096, 1024), "data", mesh={mesh}),
        struct((1024, 32768), None, "model", mesh={mesh}))
"""
    line = f"return nn.logsumexp({call}, -1).mean()"
    with user_module(user_file(tmp_path, source)) as module, within(module, mesh):
        found = st.explain(module.f, "v5p")(*module.args)
        tried = [s for c in found.collectives for s in c.suggestions
                 if s.diff and len(s.changes) == 1]
        taken_out = {s.diff: s for s in tried}[(line, line.replace(call, "x @ w")),]
        with_others = [s for s in tried if " to P(('data', 'model')) instead" in s.text]
        assert bool(with_others) is (bool(other) and kind == "Auto")
        for best in (taken_out, *with_others):
            ((old, new),) = best.diff
            assert best is taken_out or new == line.replace(call, other)
            with user_module(user_file(tmp_path, source.replace(old, new))) as changed, within(
                    changed, mesh):
                after = st.explain(changed.f, "v5p")(*changed.args)
            assert (after.received_bytes, after.flops) == (best.received_bytes, best.flops)


@pytest.mark.parametrize("helper", [
    "def to(x):\n    return asked(jnp.tanh(x), S)",                # another value than it is given
    "def to(x):\n    return asked(asked(x, S), S)",
    "@st.jit\ndef to(x):\n    return asked(x, S)"])
def test_a_helper_that_does_more_is_left_as_it_is(helper, tmp_path):
    source = HEAD + f'''\
S, asked = NamedSharding(mesh, P("data", None)), lax.with_sharding_constraint


{helper}


def f(x, w):
    return nn.logsumexp(to(x @ w), -1).mean()


args = struct((4096, 1024), "data"), struct((1024, 32768), None, "model")
'''
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        tried = [s for c in found.collectives for s in c.suggestions if "take out" in s.text]
        assert tried and not any(s.diff for s in tried)


@pytest.mark.parametrize(("body", "typed"), [
    ('return x * lax.psum(w, "model")', "return x * (w * 4)"),
    ('return x @ lax.all_gather(w, "model", axis=0, tiled=True)', "return x @ w")])
def test_a_collective_that_a_body_does_not_need_is_left_out(body, typed, tmp_path):
    spec = "P()" if "psum" in body else 'P("model")'
    source = HEAD + f"""\
def body(x, w):
    {body}


f = st.shard_map(body, mesh=mesh, in_specs=(P("data"), {spec}), out_specs=P("data"),
                 check_vma=False)
args = struct((8192, 1024), "data"), struct(({'1024' if "psum" in body else '1024, 1024'},))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        assert any(s.diff == ((body, typed),) for c in found.collectives for s in c.suggestions)


@pytest.mark.parametrize("spec", ['"d",', ""])
def test_a_gather_that_the_caller_makes_instead_is_not_taken_out(spec, tmp_path):
    """Only where it is whole anyway fewer bytes move without it."""
    source = HEAD + f"""\
mesh = AbstractMesh((16,), ("d",))


def body(x, w):
    return x @ lax.all_gather(w, "d", axis=0, tiled=True)


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d"),
                 check_vma=False)
args = struct((8192, 1024), "d", mesh=mesh), struct((1024, 1024), {spec} mesh=mesh)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        tried = [s for c in found.collectives for s in c.suggestions
                 if "take out the `all_gather`" in s.text]
        assert bool(tried) is not bool(spec), tried


def test_a_gather_over_one_axis_is_not_made_over_two_by_the_caller(tmp_path):
    source = HEAD + """\
mesh = AbstractMesh((8, 4), ("d", "e"))


def body(x, w):
    return x @ lax.all_gather(w, "d", axis=0, tiled=True)


f = st.shard_map(body, mesh=mesh, in_specs=(P("e"), P("d")), out_specs=P("e"), check_vma=False)
args = struct((65536, 4096), "e", mesh=mesh), struct((4096, 4096), "d", mesh=mesh)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        assert [c.kind for c in found.collectives] == ["all-gather"]
        assert not [s.text for c in found.collectives for s in c.suggestions
                    if "take out the `all_gather`" in s.text]


def test_a_weight_is_written_by_the_name_that_it_has_at_the_line(tmp_path):
    """In a helper; an argument of the program is called otherwise there."""
    source = HEAD + '''\
def block(x, weight):
    return nn.relu(x).reshape(256, -1) @ weight


def f(*a):
    return block(*a)


args = struct((256, 7, 7, 512), "data", None, None, "model"), struct((25088, 1024))
'''
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f, "v5p")(*module.args)
        best = found.collectives[0].suggestions[0]
        assert best.text.startswith("multiply by the weight in the shape")
        assert best.diff[0][1] == (
            "return jnp.tensordot(nn.relu(x), weight.reshape(7, 7, 512, 1024), 3)")
