"""Checked functions, written once for JAX and for shardtrace: each case gives what `get` says.

`cases(jax, checkify)` holds by name functions without arguments, which return messages (None where
nothing was found) and numbers.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RULES = ("user_checks", "nan_checks", "div_checks", "index_checks", "automatic_checks",
         "all_checks", "float_checks")


def cases(jax: Any, checkify: Any) -> dict[str, Callable[[], list[Any]]]:
    jnp, lax = jax.numpy, jax.lax
    P, Mesh = jax.sharding.PartitionSpec, jax.sharding.Mesh
    found: dict[str, Callable[[], list[Any]]] = {}

    def case(f: Callable[[], list[Any]]) -> None:
        found[f.__name__] = f

    def told(f: Any, *arguments: tuple, errors: str = "all_checks", jit: bool = True) -> list[Any]:
        """What is found for each of these arguments, at once and within jit."""
        out = []
        for transform in (lambda g: g, jax.jit) if jit else (lambda g: g,):
            checked = transform(checkify.checkify(f, errors=getattr(checkify, errors)))
            for args in arguments:
                error, result = checked(*jax.tree.map(jnp.asarray, args))
                out += [error.get(), *map(np.asarray, jax.tree.leaves(result))]
        return out

    @case
    def each_category() -> list[Any]:
        def f(x):
            checkify.check(jnp.all(x < 0), "must be negative, is {x}", x=x)
            return jnp.sin(x / 0)[jnp.arange(3) * 7]
        return [x for errors in RULES for x in told(f, (jnp.ones(2),), errors=errors)]

    @case
    def first_of_several() -> list[Any]:
        def f(x, i):
            y = x[i]
            checkify.check(y > 0, "not positive: {} at {i}", y, i=i)
            return jnp.log(y)
        x = jnp.array([1.0, -2.0, jnp.nan])
        return told(f, *[(x, i) for i in (0, 1, 2, 3, -4)])

    @case
    def positions() -> list[Any]:
        x = jnp.zeros((2, 3, 7))
        uses = [lambda x, i: x[i], lambda x, i: x.at[i].set(1.0), lambda x, i: x.at[i].add(1.0),
                lambda x, i: x.at[i].max(1.0),
                lambda x, i: lax.dynamic_slice(x, (i[0], i[1], 0), (1, 2, 7)),
                lambda x, i: lax.dynamic_update_slice(x, jnp.ones((1, 2, 7)), (i[0], i[1], 0))]
        return [y for use in uses for y in told(
            use, *[(x, i) for i in ((1, 1), (1, 3), (2, 0), (-3, 0), (0, -9))],
            errors="index_checks")]

    @case
    def arrays_of_positions() -> list[Any]:
        x = jnp.arange(12.0).reshape(3, 4)
        rows, columns = jnp.array([[0, 1], [2, 9]]), jnp.array([3, 5])
        return told(lambda x, i, j: x[i, j] + x[:, j].sum(), (x, rows, jnp.array([3, 1])),
                    (x, rows % 3, columns), (x, rows % 3, columns % 4), errors="index_checks")

    @case
    def quotients() -> list[Any]:
        def f(x, y):
            return x / y, x % y, x // y
        return told(f, (jnp.ones(3), jnp.array([1.0, 0.0, 1.0])), (jnp.ones(3), jnp.ones(3)),
                    (jnp.array([3, 4]), jnp.array([0, 2])), errors="div_checks")

    @case
    def branches() -> list[Any]:
        def f(i, x):
            def first(x):
                checkify.check(x > 0, "first: {}", x)
                return x / 0.0

            def second(x):
                checkify.check(x > 0, "second: {} {}", x, 2 * x)
                return jnp.log(x)
            return lax.switch(i, [first, second, lambda x: x], x)
        return told(f, *[(i, x) for i in range(3) for x in (1.0, -1.0)])

    @case
    def scans() -> list[Any]:
        def f(xs, start):
            def body(carry, x):
                checkify.check(x < 3, "large: {x} after {carry}", x=x, carry=carry)
                return carry - x, jnp.log(carry)
            return lax.scan(body, start, xs)
        return told(f, (jnp.ones(4), 9.0), (jnp.array([1.0, 4.0, 5.0]), 9.0), (jnp.ones(4), 2.0))

    @case
    def loops() -> list[Any]:
        def f(n, x):
            def test(state):
                checkify.check(state[0] > -1, "test of {}", state[0])
                return 1.0 / state[0] > 0.2

            def body(state):
                checkify.check(state[1] < 100, "body at {}", state[1])
                return state[0] + 1.0, state[1] * 4
            return lax.while_loop(test, body, (n, x))
        return told(f, (1.0, 1.0), (1.0, 30.0), (0.0, 1.0), (-1.5, 1.0))

    @case
    def counted_loop() -> list[Any]:
        return told(lambda x: lax.fori_loop(0, 5, lambda i, y: y + x[i], 0.0), (jnp.ones(5),),
                    (jnp.ones(3),))

    @case
    def calls() -> list[Any]:
        @jax.jit
        def g(x):
            return jnp.log(x)

        @jax.checkpoint
        def h(x):
            checkify.check(x > 1, "small")
            return g(x) + 1
        return told(lambda x: g(h(x) - 1), (4.0,), (0.5,), (-1.0,), (1.0,))

    @case
    def derivatives() -> list[Any]:
        def f(x):
            checkify.check(x > 0, "not positive")
            return jnp.sqrt(x) * jnp.sin(1 / x)
        out = told(jax.grad(f), (1.0,), (-1.0,), (0.0,))
        out.append(np.asarray(jax.grad(lambda x: checkify.checkify(
            f, errors=checkify.all_checks)(x)[1])(1.0)))
        return out

    @case
    def rules_of_the_users() -> list[Any]:
        @jax.custom_jvp
        def f(x):
            return jnp.log(x)
        f.defjvp(lambda xs, ts: (f(*xs), ts[0] / xs[0]))

        @jax.custom_vjp
        def g(x):
            return jnp.log(x)
        g.defvjp(lambda x: (g(x), x), lambda x, ct: (ct / x,))
        out = []
        for h in (f, g):
            out += told(h, (2.0,), (-1.0,), errors="float_checks")
            out += told(jax.grad(h), (2.0,), (0.0,), errors="div_checks")
            out.append(np.asarray(jax.grad(lambda x, h=h: checkify.checkify(
                h, errors=checkify.all_checks)(x)[1])(4.0)))
            out.append(np.asarray(jax.vmap(jax.grad(lambda x, h=h: checkify.checkify(
                h, errors=checkify.all_checks)(x)[1]))(jnp.arange(1.0, 3.0))))
        return out

    @case
    def mapped_outside() -> list[Any]:
        def f(x, i):
            y = x[i]
            checkify.check(y < 2, "large: {}", y)
            return 1 / y
        g = jax.vmap(checkify.checkify(f, errors=checkify.all_checks))
        x = jnp.array([[1.0, 0.0], [2.0, 1.0], [1.0, 1.0], [3.0, 3.0]])
        error, y = jax.jit(g)(x, jnp.array([1, 0, 5, 1]))
        return [error.get(), np.asarray(y), g(x, jnp.array([0, 1, 1, 0]))[0].get()]

    @case
    def mapped_inside() -> list[Any]:
        def f(x):
            checkify.check(x > 0, "small: {}", x)
            return jnp.log(x)
        return told(jax.vmap(f), (jnp.ones(3),), (jnp.array([1.0, -1.0, -2.0]),)) + told(
            jax.vmap(lambda x: lax.cond(x > 5, f, lambda x: 2 * x, x)), (jnp.array([9.0, 1.0]),))

    def in_regions(body: Any, check_vma: bool) -> list[Any]:
        mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
        f = jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P(), check_vma=check_vma)
        x = jnp.ones(4)
        checked = jax.jit(checkify.checkify(f, errors=checkify.div_checks))
        out = told(f, (x,), errors="div_checks")
        for zeros in (2, 0, slice(None)):
            out.append(checked(x.at[zeros].set(0))[0].get())
        return out

    @case
    def regions() -> list[Any]:
        return in_regions(lambda x: lax.psum((1 / x).sum(), "x"), True)

    @case
    def loops_in_regions() -> list[Any]:
        def body(x):
            def step(c, row):
                return c + 1 / row, None
            return lax.psum(lax.scan(step, jnp.sum(x), x)[0], "x")
        # JAX 0.10.2 refuses loops in regions in which it tells values apart
        return in_regions(body, jax.__name__ != "jax")

    @case
    def split_arrays() -> list[Any]:
        mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
        x = jax.device_put(jnp.arange(32.0).reshape(8, 4),
                           jax.sharding.NamedSharding(mesh, P("x", "y")))

        def f(x, i):
            checkify.check(jnp.sum(x) > 0, "sum of {}", jnp.sum(x))
            return jnp.log(x - 3)[i]
        return told(f, (x, 1), (x, 9), (-x, 1))

    @case
    def errors_of_errors() -> list[Any]:
        def g(x):
            checkify.check(x > 0, "inner {}", x)
            return x

        def f(xs):
            errors, ys = lax.scan(lambda c, x: (c, checkify.checkify(g)(x)), None, xs)[1]
            checkify.check_error(errors)
            return ys
        return told(f, (jnp.ones(3),), (jnp.array([1.0, 0.0, -1.0]),))

    @case
    def for_debugging() -> list[Any]:
        def f(x):
            checkify.debug_check(x != 0, "zero: {}", x)
            return x
        zero = jnp.float32(0)
        return [np.asarray(g(zero)) for g in (f, jax.jit(f), jax.grad(f))] + [
            np.asarray(jax.vmap(f)(jnp.zeros(2)))] + told(f, (zero,), errors="user_checks")

    @case
    def refused() -> list[Any]:
        out = []
        fail = lambda *a, **k: checkify.check(False, *a, **k)    # noqa: E731
        loop = lambda n: lax.while_loop(lambda n: n > 0, lambda n: n - 1 / n, n)   # noqa: E731
        for f in (lambda: fail("no"), lambda: jax.jit(lambda: fail("no"))(),
                  lambda: fail("{}", "text"), lambda: checkify.check(jnp.ones(2) > 0, "many"),
                  lambda: checkify.check_error(3),
                  lambda: jax.vmap(lambda x: checkify.check(x > 0, "of {}", x))(jnp.arange(3)),
                  lambda: jax.grad(lambda x: checkify.check(x > 3, "at {}", x) or x)(1.0),
                  lambda: checkify.checkify(jax.vmap(loop), errors=checkify.float_checks)(
                      jnp.ones(2))):
            try:
                f()
                out.append("accepted")
            except (ValueError, TypeError) as error:
                out.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return out

    return found
