"""The freedom map: what is split together, by whom it was decided, and what it is worth."""
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("data", "model"))


def struct(shape, *spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


def by_names(found):
    return {frozenset(str(m) for m in f.members): f for f in found.freedoms}


def test_dimensions_that_share_factors_are_one_freedom():
    args = struct((64, 256), "data"), struct((256, 512), None, "model"), struct((512, 128))
    found = by_names(st.explain(layer)(*args).freedom())
    batch = found[frozenset(["`x`.0", "`x @ w1`.0", "`h`.0", "`h @ w2`.0"])]
    hidden = found[frozenset(["`w1`.1", "`x @ w1`.1", "`h`.1", "`w2`.0"])]
    inner = found[frozenset(["`x`.1", "`w1`.0"])]
    outer = found[frozenset(["`w2`.1", "`h @ w2`.1"])]
    assert batch.sizes == (64,) and batch.axes == ("data",) and hidden.axes == ("model",)
    assert [(str(m), m.by) for m in batch.members] == [
        ("`x`.0", "you"), ("`x @ w1`.0", "propagation"), ("`h`.0", "propagation"),
        ("`h @ w2`.0", "propagation")]
    assert {m.by for m in inner.members} == {"you"} and not inner.axes
    assert [(str(m), m.by) for m in outer.members] == [("`w2`.1", "you"), ("`h @ w2`.1", "nobody")]


def test_worth_is_that_of_the_program_with_the_change():
    args = struct((64, 256), "data"), struct((256, 512), None, "model"), struct((512, 128))
    e = st.explain(layer)(*args)
    for freedom in e.freedom().freedoms:
        for w in freedom.worth:
            assert w.axis not in freedom.axes
            specs = {c.index: c.spec for c in w.changes}
            other = [st.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(
                MESH, specs.get(i, a.sharding.spec))) for i, a in enumerate(args)]
            then = st.explain(layer)(*other)
            assert (then.time, then.received_bytes, then.peak_bytes) == (
                w.time, w.received_bytes, w.peak_bytes)


def test_a_constraint_is_the_users_and_what_does_not_divide_has_no_worth():
    def f(x, w):
        h = st.lax.with_sharding_constraint(x @ w, NamedSharding(MESH, P("data", "model")))
        return jnp.sin(h)

    found = st.explain(f)(struct((6, 64)), struct((64, 256))).freedom()
    rows = next(f for f in found.freedoms if f.sizes == (6,))
    assert [m.by for m in rows.members if "sin" not in m.value][-1] == "you"
    assert rows.axes == ("data",) and not rows.worth          # 6 rows over 4 devices


def test_without_time_it_is_said_what_was_not_tried():
    found = st.explain(layer, suggest_seconds=0)(struct((64, 256), "data"), struct((256, 256)),
                                                 struct((256, 256))).freedom()
    assert "ways of splitting were not tried" in str(found) and found.untried
    assert not any(f.worth for f in found.freedoms)
