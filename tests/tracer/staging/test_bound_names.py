"""A value of a program is called as the user's code called it, and no other value is.

The judge runs the same code op by op in Python, and notes at each assignment what the name was
bound to: the code is rewritten for that, so nothing of the names in programs is used. Then the
traced program is evaluated equation by equation, and every value that has a name must be one of
those that the name was bound to.
"""
from __future__ import annotations

import ast
import linecache
import textwrap
from collections import defaultdict
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.program import Literal, Program
from shardtrace.sharding import PartitionSpec as P
from shardtrace.tracer.staging.tracer import Tracer

from ...rows import rows

MESH = st.make_mesh((2,), ("x",))


# -- what the names are bound to -------------------------------------------------------------------

class Noting(ast.NodeTransformer):
    """Calls `saw(name, value)` after each binding of a name, an attribute or an item."""

    def _saw(self, targets: list[ast.expr]) -> list[ast.stmt]:
        stored = [n for t in targets for n in ast.walk(t)
                  if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))
                  and isinstance(n.ctx, ast.Store)]
        return [ast.parse(f"saw({self._called(n)}, {ast.unparse(n)})").body[0] for n in stored]

    def _called(self, target: ast.expr) -> str:
        """An expression for the name: `d.h` for `d["h"]` and for `d.h`."""
        if isinstance(target, ast.Name):
            return repr(target.id)
        assert isinstance(target, (ast.Attribute, ast.Subscript))
        last = repr(target.attr) if isinstance(target, ast.Attribute) else ast.unparse(target.slice)
        return f"{self._called(target.value)} + '.' + str({last})"

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        return [node, *self._saw(node.targets)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        return [node, *self._saw([node.target])]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        return [node, *self._saw([node.target])]

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        node.body = [*self._saw([node.target]), *node.body]
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        return ast.Call(ast.Name("saw", ast.Load()), [ast.Constant(node.target.id), node], [])


def device_by_device(body: Any, specs: Any, given: Any) -> tuple[Any, ...]:
    """What a body without collectives, over the rows of `x`, gives: each result's blocks joined."""
    blocks = [jnp.split(x, 2) if spec and spec[0] == "x" else [x] * 2
              for x, spec in zip(given, specs, strict=True)]
    results = [body(*own) for own in zip(*blocks, strict=True)]
    return tuple([jnp.concatenate(parts) for parts in zip(*results, strict=True)])


def scope_of(text: str, name: str, noting: dict | None = None) -> dict[str, Any]:
    """The names of a text that was executed."""
    tree = ast.parse(textwrap.dedent(text))
    scope: dict[str, Any] = {"np": np, "st": st, "jnp": jnp, "lax": lax, "P": P, "MESH": MESH}
    scope["by_rows"] = lambda body, *specs: st.shard_map(
        body, mesh=MESH, in_specs=specs, out_specs=P("x"))
    if noting is not None:
        scope["by_rows"] = lambda body, *specs: lambda *given: device_by_device(body, specs, given)

        def saw(name: str, value: Any) -> Any:
            if isinstance(value, (dict, list, tuple)):
                within = value.items() if isinstance(value, dict) else (
                    zip(getattr(value, "_fields", range(len(value))), value, strict=True))
                for key, x in within:
                    saw(f"{name}.{key}", x)
            known = value._known() if isinstance(value, Tracer) else value
            if isinstance(known, (st.Array, np.ndarray, np.generic, float)):
                noting[name].append(np.asarray(known))
            return value

        tree = ast.fix_missing_locations(Noting().visit(tree))
        scope["saw"] = saw
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, textwrap.dedent(text).splitlines(True), file)
    exec(compile(tree, file, "exec"), scope)
    return scope


# -- what the values of a program are --------------------------------------------------------------

def values_of(program: Program, given: list[Any]) -> list[tuple[str, np.ndarray]]:
    """(name, value) of every result of an equation that has a name."""
    found: list[tuple[str, np.ndarray]] = []

    def run(program: Program, given: list[Any]) -> list[Any]:
        env = dict(zip(program.invars, given, strict=True))
        env.update(program.consts)
        at = lambda a: a.val if isinstance(a, Literal) else env[a]      # noqa: E731
        for eqn in program.eqns:
            ins, params = [at(a) for a in eqn.invars], eqn.params
            if eqn.op.name in ("jit", "checkpoint", "custom_jvp_call", "custom_vjp_call"):
                inner = params.get("jaxpr") or params.get("call_jaxpr")
                out = run(inner, ins[len(ins) - len(inner.invars):])
            elif eqn.op.name == "scan":
                out = scan(params, ins)
            elif eqn.op.name == "while":
                out = loop(params, ins)
            elif eqn.op.name == "shard_map":
                out = device_by_device(lambda *own, body=params["jaxpr"]: run(body, list(own)),
                                       params["in_specs"], ins)
            elif eqn.op.name == "pvary":
                out = ins
            elif eqn.op.name == "cond":
                out = run(params["branches"][int(ins[0])], ins[1:])
            else:
                out = eqn.op.bind(*ins, **params)
                out = list(out) if eqn.op.multiple_results else [out]
            env.update(zip(eqn.outvars, out, strict=True))
            found.extend([(v.name, np.asarray(x)) for v, x in zip(eqn.outvars, out, strict=True)
                          if v.name])
        return [at(a) for a in program.outvars]

    def scan(params: dict, ins: list[Any]) -> list[Any]:
        n, c = params["num_consts"], params["num_carry"]
        consts, carry, xs = ins[:n], ins[n:n + c], ins[n + c:]
        rows: list[Any] = []
        steps = range(params["length"])
        for i in reversed(steps) if params["reverse"] else steps:
            out = run(params["jaxpr"], [*consts, *carry, *[np.asarray(x)[i] for x in xs]])
            carry = out[:c]
            rows.append([np.asarray(y) for y in out[c:]])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *[np.stack(y) for y in zip(*rows, strict=True)]]

    def loop(params: dict, ins: list[Any]) -> list[Any]:
        n, m = params["cond_nconsts"], params["body_nconsts"]
        test, body, carry = ins[:n], ins[n:n + m], ins[n + m:]
        while bool(np.asarray(run(params["cond_jaxpr"], [*test, *carry])[0])):
            carry = run(params["body_jaxpr"], [*body, *carry])
        return carry

    run(program, given)
    return found


PROGRAMS = {
    # what is asserted to be named -> the program
    "plain": ("h y", """
        def f(x, w):
            h = jnp.tanh(x @ w)
            y = jnp.where(h > 0, h, 0.)
            return y * 2
    """),
    "gradient of an index and a choice": ("x_1 s t d", """
        def f(x, w):
            def loss(w):
                t = jnp.arange(3)
                x = w[t]
                s = jnp.where(x > 0.5, x, 0.)
                d = jax_softmax(s)
                return (d * s).sum()
            g = st.grad(loss)(w)
            return g + 1.
        jax_softmax = st.nn.softmax
    """),
    "value and gradient, rebinding": ("l g h h_1 h_2 w_1", """
        def f(x, w):
            def loss(w):
                h = x
                for _ in range(3):
                    h = jnp.sin(h @ w)
                return h.sum()
            l, g = st.value_and_grad(loss)(w)
            w = w - 0.1 * g
            return l, w
    """),
    "a name of one's own that looks like a second one": ("h h_1 h_2", """
        def f(x, w):
            h = x + 1.
            h_1 = h * 3.
            h = h_1 - h
            return h * w
    """),
    "vmap": ("y z", """
        def f(x, w):
            def one(r):
                h = jnp.sin(r)
                k = jnp.cos(w)
                return h * 2. + k.sum()
            y = st.vmap(one)(x)
            z = y - 1.
            return z
    """),
    "vmap of a gradient": ("g k", """
        def f(x, w):
            def loss(w, r):
                e = w @ r
                q = jnp.tanh(e)
                return (q * q).sum()
            g = st.vmap(st.grad(loss), in_axes=(None, 0))(w, x)
            k = g.mean(0)
            return k
    """),
    "scan": ("c ys d g", """
        def f(x, w):
            def body(c, row):
                d = c * 2.
                g = jnp.tanh(d + row @ w)
                return g, d
            c, ys = lax.scan(body, x[0], x)
            return c + ys.sum(0)
    """),
    "gradient of a scan": ("l v", """
        def f(x, w):
            def loss(w):
                def body(c, row):
                    d = c * 2.
                    g = jnp.tanh(d + row @ w)
                    return g, d * g
                c, ys = lax.scan(body, x[0], x)
                v = c + ys.sum(0)
                return v.sum()
            l, dw = st.value_and_grad(loss)(w)
            return l, dw
    """),
    "while and cond": ("h k y", """
        def f(x, w):
            def body(s):
                i, c = s
                h = jnp.sin(c) + 1.
                return i + 1, h
            _, k = lax.while_loop(lambda s: s[0] < 3, body, (0, x))
            def yes(v):
                a = v * 2.
                return a + 1.
            def no(v):
                b = v * 3.
                return b - 1.
            y = lax.cond(True, yes, no, k)
            return y @ w
    """),
    "remat": ("h o", """
        def f(x, w):
            @st.checkpoint
            def block(w):
                h = jnp.sin(x @ w)
                o = jnp.cos(h @ w)
                return o
            def loss(w):
                b = block(w)
                return (b * b).sum()
            return st.grad(loss)(w)
    """),
    "nested jit": ("h y z u", """
        @st.jit
        def inner(v, w):
            h = v @ w
            return jnp.tanh(h)
        @st.jit
        def other(v, w):
            u = v @ w
            return u
        def f(x, w):
            y = inner(x, w)
            z = other(x, w)
            return inner(y, w) + y + z
    """),
    "custom_vjp": ("y l", """
        @st.custom_vjp
        def act(v):
            a = jnp.exp(v)
            return a + 1.
        def fwd(v):
            e = jnp.exp(v)
            return e + 1., e
        def bwd(e, ct):
            r = ct * e
            return (r * 2.,)
        act.defvjp(fwd, bwd)
        def f(x, w):
            def loss(w):
                y = act(x @ w)
                return y.sum()
            l, g = st.value_and_grad(loss)(w)
            return l, g
    """),
    "tuples, nested and starred": ("a b c p q r", """
        def f(x, w):
            (a, b), c = (x + 1., x + 2.), x + 3.
            p, *rest = a * 2., b * 3., c * 4.
            q, r = jnp.split(rest[0], 2)
            return p + rest[1], q + r
    """),
    "attributes and items": ("y box.h d.k d.k_1", """
        class Box: pass
        def f(x, w):
            box, d = Box(), {}
            box.h = x + 1.
            d["k"] = box.h * 2.
            d["k"] += 3.
            y = d["k"] - box.h
            return y + 1.
    """),
    "attributes and items, tuples of them": ("h.x h.y d.a rows.0 s.inner.w d.b.c rows.1", """
        class Box: __slots__ = ("x", "y", "inner", "w")
        def f(x, w):
            h, d, rows, s = Box(), {"b": {}}, [None, 0.], Box()
            h.x, h.y = x + 1., x + 2.
            (d["a"], rows[0]), s.inner = (x * 3., x * 4.), Box()
            s.inner.w = h.x * h.y
            d["b"]["c"] = s.inner.w - d["a"]
            rows[1] = d["b"]["c"] * rows[0]
            return rows[1] + 1.
    """),
    "keys that are computed": ("new.w new.b new.c0 new.c1", """
        def f(x, w):
            params, new = {"w": x, "b": w}, {}
            for k in params:
                new[k] = params[k] - 0.1 * x
            for i in range(2):
                new[f"c{i}"] = jnp.sin(new["w"] * i)
            return sum(new.values())
    """),
    "a module's own": ("self.h self.out self.cache.k y", """
        class Module:
            def __init__(self, w): self.w, self.cache = w, {}
            def __call__(self, v):
                self.h = v @ self.w
                self.h = jnp.tanh(self.h)
                self.cache["k"] = self.h * 2.
                self.out = self.cache["k"] + 1.
                return self.out * 3.
        def f(x, w):
            y = Module(w)(x)
            return y - 1.
    """),
    "targets of loops": ("box.row d.k", """
        class Box: pass
        def f(x, w):
            box, d, t = Box(), {}, 0.
            for box.row in (x * 2., x * 3.):
                t = t + box.row
            for d["k"] in [x + 5.]:
                t = t - d["k"]
            return t
    """),
    "containers": ("state.h state.c pair.0 pair.1 parts.1 tree.a.b new.0.k", """
        def f(x, w):
            state = {"h": x + 1., "c": x @ w}
            pair = state["h"] * 2., state["c"] * 3.
            parts = [jnp.sin(v) for v in pair]
            tree = {"a": {"b": parts[1] - parts[0]}}
            new = st.tree.map(lambda v: v * 2., [{"k": tree["a"]["b"]}])
            return new[0]["k"] + 1.
    """),
    "gradients of trees": ("l grads.a grads.b new.a new.b", """
        def f(x, w):
            params = {"a": x, "b": w}
            def loss(p):
                h = {}
                h["a"] = jnp.tanh(p["a"] @ p["b"])
                h["b"] = h["a"] @ p["b"]
                return (h["b"] ** 2).sum()
            l, grads = st.value_and_grad(loss)(params)
            new = st.tree.map(lambda p, g: p - 0.1 * g, params, grads)
            return l, new
    """),
    "attributes in mapped and scanned functions": ("h.a m.c c ys", """
        class Box: pass
        def f(x, w):
            def one(r):
                h = Box()
                h.a = jnp.sin(r)
                h.b = h.a * 2.
                return h.b
            def body(c, row):
                m = {}
                m["c"] = c * 2. + row
                m["d"] = jnp.tanh(m["c"])
                return m["d"], m["c"]
            h = Box()
            h.a = st.vmap(one)(x)
            c, ys = lax.scan(body, x[0], h.a)
            return c + ys.sum(0)
    """),
    "shard_map": ("h d.t y z u", """
        def f(x, w):
            def body(v, w):
                h = jnp.sin(v @ w)
                d = {}
                d["t"] = h * 2.
                return d["t"] + v, jnp.cos(h)
            (y, z), u = by_rows(body, P("x"), P())(x, w), x + 1.
            return y @ w + z * u
    """),
    "shard_map in a loop": ("h d.y c", """
        def f(x, w):
            def body(v, w):
                h = jnp.sin(v @ w)
                return (h * 2.,)
            def step(c, row):
                d = {}
                (d["y"],) = by_rows(body, P("x"), P())(c, w)
                return d["y"] + row, None
            c, _ = lax.scan(step, x, w)
            return c
    """),
    "augmented and annotated": ("a a_1 a_2 n", """
        def f(x, w):
            a: st.Array = x + 1.
            a += x
            a *= 2.
            n: st.Array = (
                a
                @ w
            )
            return n + 1.
    """),
    "walrus and chains": ("h k", """
        def f(x, w):
            if (h := x.sum()) is None:
                return x
            k = m = h * 2.
            return k + m + (z := h + 1.)
    """),
    "loops over rows": ("row t", """
        def f(x, w):
            t = 0.
            for row in x:
                t = t + row * row
            return t
    """),
    "comprehensions": ("y", """
        def f(x, w):
            parts = [jnp.sin(x * k) for k in (1., 2., 3.)]
            y = sum(parts)
            kept = [z := x * k for k in (4., 5.)]
            return y + kept[0] + z
    """),
    "several calls in one line": ("y z", """
        def f(x, w):
            y = jnp.sin(x) + jnp.cos(x) * jnp.where(x > 0.5, x, 0.); z = jnp.tanh(y) @ w
            return z
    """),
    "values returned directly": ("y z u", """
        def direct(v): return jnp.sin(v) + 1.
        def same(v): return v
        def two(v): return jnp.sin(v), [jnp.cos(v), v * 3.]
        def f(x, w):
            y = direct(x)
            z = same(jnp.cos(x))
            u, (v, t) = two(z)
            return y + z + u + v + t
    """),
    "values that a function calls otherwise": ("y q k l", """
        def dense(v, w):
            out = v @ w
            return out
        def f(x, w):
            y = dense(x, w)
            q, k = dense(y, w), dense(x, y)
            l, g = st.value_and_grad(lambda w: (total := dense(x, w).sum()))(w)
            return q + k + l * g
    """),
    "one value, two names": ("h", """
        def f(x, w):
            h = x * 2.
            k = h
            h = k + 1.
            return k + h
    """),
    "a switch of names": ("a b", """
        def f(x, w):
            a, b = x + 1., x + 2.
            a, b = b, a
            c = a * 3. + b
            return c
    """),
    "vjp, jvp and linearize": ("y ct t u v", """
        def f(x, w):
            def g(w):
                e = jnp.sin(x @ w)
                return jnp.cos(e)
            y, pull = st.vjp(g, w)
            (ct,) = pull(y)
            t, u = st.jvp(g, (w,), (ct,))
            v, lin = st.linearize(g, w)
            return lin(u @ w[:, :1] * 0. + w) + t + u + v
    """),
    "conditional expressions": ("y", """
        def f(x, w):
            for flag in (True, False):
                y = jnp.sin(x) if flag else jnp.cos(x)
            return y + 1.
    """),
    "jumps out of the way": ("y", """
        def f(x, w):
            try:
                with st.named_scope("s"):
                    y = jnp.sin(x)
            finally:
                k = 3.
            return y * k
    """),
}


@rows("name", PROGRAMS)
def test_a_name_belongs_to_the_value_that_the_assignment_had(name: str) -> None:
    wanted, text = PROGRAMS[name]
    rng = np.random.default_rng(0)
    given = [rng.random((4, 4), np.float32), rng.random((4, 4), np.float32)]
    bound: dict[str, list[np.ndarray]] = defaultdict(list)
    with st.disable_jit():
        scope_of(text.replace("@st.checkpoint", ""), name, bound)["f"](*map(jnp.asarray, given))
    program = st.jit(scope_of(text, name)["f"]).trace(*given).jaxpr
    named = values_of(program, given)
    for called, value in named:
        base, _, number = called.rpartition("_")
        own = called if called in bound or not number.isdigit() else base
        assert any(value.shape == x.shape and np.allclose(value, x, rtol=1e-4, atol=1e-5)
                   for x in bound[own]), f"`{called}` is not what `{own}` was bound to\n{program}"
    missing = set(wanted.split()) - {called for called, _ in named}
    assert not missing, f"{missing} not in\n{program}"


def test_no_code_of_the_users_runs_where_names_are_read() -> None:
    class Strange:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        __getitem__ = __getattr__
        h = property(__getattr__)

        def __setattr__(self, name: str, value: Any) -> None:
            pass

        __setitem__ = __setattr__

    class K:
        __hash__ = object.__hash__

        def __str__(self) -> str:
            raise RuntimeError

    def f(x: Any) -> Any:
        s, t, key = Strange(), {}, K()
        s.h = s.k = x + 1.
        s["k"] = x + 2.
        t[()] = t["a b"] = t[key] = t[K()] = x + 3.
        y = x * 2.
        return y + t["a b"]

    named = [v.name for eqn in st.jit(f).trace(1.).jaxpr.eqns for v in eqn.outvars]
    assert named == [None, None, "t.a_b", "y", None]


def test_values_of_a_shard_map_keep_their_names_in_its_derivative() -> None:
    def loss(p: Any, x: Any) -> Any:
        def body(v: Any, w: Any) -> Any:
            d = {"h": jnp.tanh(v @ w)}
            total = lax.psum(d["h"].sum(), "x")
            return total * d["h"]
        y = st.shard_map(body, mesh=MESH, in_specs=(P("x"), P()), out_specs=P("x"))(x, p["w"])
        return (y * y).sum()

    def step(p: Any, x: Any) -> Any:
        value, grads = st.value_and_grad(loss)(p, x)
        return value, st.tree.map(lambda a, b: a - b, p, grads)

    program = st.jit(step).trace({"w": jnp.ones((4, 4))}, jnp.ones((4, 4))).jaxpr

    def names(program: Program) -> set[str]:
        own = {v.name for eqn in program.eqns for v in eqn.outvars if v.name}
        return own.union(*[names(inner) for _, _, inner in program.subprograms()])

    assert names(program) >= {"d.h", "total", "y", "value", "grads.w"}
