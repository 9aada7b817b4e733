"""Rows and elements that loops read and write: nobody sees a buffer change that it still reads."""
import random

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.runtime.plans import in_place
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

N, WIDTH, LENGTH = 6, 4, 7
ROWS = np.random.default_rng(0).normal(size=(2, N, WIDTH)).astype(np.float32)
PLACES = np.array([3, 0, 5, 9, -2, 3, 1], np.int32)


class Numpy:
    """What the body does, in numpy: nothing is ever changed in place."""

    @staticmethod
    def index(i):
        i = int(i)
        return i + N if i < 0 else i

    def row(self, x, i):
        return x[np.clip(self.index(i), 0, N - 1)].copy()

    def rows(self, x, i):
        i = np.clip(self.index(i), 0, N - 2)
        return x[i:i + 2].copy()

    def number(self, x, i):
        return x[np.clip(self.index(i), 0, N - 1), 1].copy()

    def change(self, x, i, new, how):
        x, i = x.copy(), self.index(i)
        if 0 <= i < N:
            x[i] = {"set": new, "add": x[i] + new, "max": np.maximum(x[i], new)}[how]
        return x

    def element(self, x, i, new, how):
        x, i = x.copy(), self.index(i)
        if 0 <= i < N:
            x[i, 2] = {"set": new, "add": x[i, 2] + new, "max": np.maximum(x[i, 2], new)}[how]
        return x

    def column(self, x, new):
        x = x.copy()
        x[:, 1] = new
        return x

    def put(self, x, i, new):
        x, i = x.copy(), np.clip(self.index(i), 0, N - 2)
        x[i:i + 2] = new
        return x


class Ours:
    """The reads and writes of `Numpys` in a traced body."""

    def row(self, x, i):
        return x[i]

    def rows(self, x, i):
        return lax.dynamic_slice(x, (i, 0), (2, WIDTH))

    def number(self, x, i):
        return x[i, 1]

    def change(self, x, i, new, how):
        return getattr(x.at[i], how)(new)

    def element(self, x, i, new, how):
        return getattr(x.at[i, 2], how)(new)

    def column(self, x, new):
        return x.at[:, 1].set(new)

    def put(self, x, i, new):
        return lax.dynamic_update_slice(x, new, (i, 0))


def body_of(seed):
    """A body of random steps: (do, buffers, i, place) -> (buffers, results)."""
    steps = random.Random(seed).choices(
        ["row", "rows", "number", "change", "change", "element", "column", "put", "swap", "reckon"],
        k=random.Random(seed + 1).randrange(3, 10))

    def body(do, np_, a, b, i, place):
        rng = random.Random(seed + 2)
        row, number, pair = np_.ones(WIDTH, np.float32), np_.float32(2), a[:2] * 1
        results = []
        for step in steps:
            at = rng.choice([i, i - 1, i + 1, place, 2])
            x, how = rng.choice("ab"), rng.choice(["set", "add", "max"])
            new = value = a if x == "a" else b
            if step == "row":
                row = do.row(value, at)
            elif step == "rows":
                pair = do.rows(value, at)
            elif step == "number":
                number = do.number(value, at)
            elif step == "change":
                new = do.change(value, at, rng.choice([row, pair[1]]), how)
            elif step == "element":
                new = do.element(value, at, number, how)
            elif step == "column":
                new = do.column(value, number)
            elif step == "put":
                new = do.put(value, at, pair)
            elif step == "swap":
                a, b = b, a
                continue
            else:
                row, number = row * np_.float32(0.5) + number, number - row[0]
            if rng.random() < 0.2:
                results.append(rng.choice([row, number, value, pair]))
            a, b = (new, b) if x == "a" else (a, new)
        return a, b, results
    return body


@pytest.fixture(params=[False, True], ids=["plain", "with_memory"], autouse=True)
def memory(request, monkeypatch):
    """Loops as they are written for arrays of this size, and as for larger ones."""
    if request.param:
        monkeypatch.setattr(in_place, "FEWEST", 1)


def compare(seed, place=lambda x: x, runs=3, kind="scan"):
    body = body_of(seed)
    a, b = ROWS
    wanted = []
    for i, at in enumerate(PLACES):
        a, b, results = body(Numpy(), np, a, b, i, at)
        wanted.append(results)

    def scanned(a, b, places):
        def step(carry, x):
            i, a, b = carry
            a, b, results = body(Ours(), jnp, a, b, i, x)
            return (i + 1, a, b), tuple(results)
        (_, a, b), results = lax.scan(step, (0, a, b), places)
        return a, b, results

    def looped(a, b, places):
        def step(carry):
            i, a, b = carry
            a, b, _ = body(Ours(), jnp, a, b, i, places[i])
            return i + 1, a, b
        return (*lax.while_loop(lambda c: c[0] < LENGTH, step, (0, a, b))[1:], ())

    def unrolled(a, b, places):
        found = []
        for i in range(LENGTH):
            a, b, results = body(Ours(), jnp, a, b, i, places[i])
            found.append(results)
        return a, b, tuple(jnp.stack(y) for y in zip(*found, strict=True))

    f = st.jit({"scan": scanned, "while": looped, "unrolled": unrolled}[kind])
    given = [place(x.copy()) for x in ROWS]
    for _ in range(runs):
        got = f(*given, PLACES)
        np.testing.assert_allclose(got[0], a, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got[1], b, rtol=1e-5, atol=1e-5)
        for k, y in enumerate(got[2]):
            np.testing.assert_allclose(y, [w[k] for w in wanted], rtol=1e-5, atol=1e-5)
    for x, before in zip(given, ROWS, strict=True):
        np.testing.assert_array_equal(x, before)


@rows("seed", range(0, 400, 10))
def test_random_loop_bodies_with_indices_compute_what_numpy_does(seed):
    compare(seed)
    compare(seed + 1, kind="while")
    compare(seed + 2, kind="unrolled")


@pytest.mark.parametrize("seed", range(1000, 1100, 10))
def test_both_executors_on_devices(seed, executor):
    mesh = st.make_mesh((2,), ("X",), axis_types=(AxisType.Auto,))
    runs = 3 if executor == "simulated" else 1
    compare(seed, lambda x: st.device_put(x, NamedSharding(mesh, P(None, "X"))), runs)


def test_rows_change_places_in_one_buffer():
    """Both reads come before both writes, and no iteration copies the whole."""
    def swap(x, places):
        def step(i, x):
            a, b = x[i], x[places[i]]
            return x.at[i].set(b).at[places[i]].set(a)
        return lax.fori_loop(0, 5, step, x)

    x = ROWS[0].copy()
    f = st.jit(swap)
    wanted = x.copy()
    for i, j in enumerate(np.clip(PLACES[:5], -N, N - 1)):
        wanted[[i, j]] = wanted[[j, i]]
    for _ in range(4):
        np.testing.assert_array_equal(f(x, np.clip(PLACES, -N, N - 1)), wanted)
    np.testing.assert_array_equal(x, ROWS[0])


def test_branches_that_are_written_where_they_are_chosen():
    """An error in one names its equation and the choice; each runs alone."""
    def f(x):
        def step(i, x):
            return lax.switch(i % 3, [lambda x: x + i, lambda x: x.at[i % 4].set(x[0] * 2),
                                      lambda x: x[::-1]], x)
        return lax.fori_loop(0, 40, step, x)

    def wanted(x):
        for i in range(40):
            if i % 3 == 0:
                x = x + i
            elif i % 3 == 1:
                x = x.copy()
                x[i % 4] = x[0] * 2
            else:
                x = x[::-1]
        return x

    g, x = st.jit(f), np.arange(5, dtype=np.float64)
    for _ in range(4):
        np.testing.assert_allclose(g(x), wanted(x), rtol=1e-6)

    def failing(i, x):
        def fail(x):
            if i_now[0] > 60:
                raise ValueError("of the host")
            i_now[0] += 1
            return x
        return lax.cond(x[0] >= 0, lambda x: st.pure_callback(fail, x, x) + 1, lambda x: x, x)

    i_now = [0]
    with pytest.raises(Exception, match="of the host") as caught:
        st.jit(lambda x: lax.fori_loop(0, 100, failing, x))(np.ones(3, np.float32))
    notes = " ".join(caught.value.__notes__)
    assert "`pure_callback`" in notes and "`cond`" in notes and "`scan`" in notes
