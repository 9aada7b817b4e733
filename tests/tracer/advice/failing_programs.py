"""Programs of users, each with one mistake about shardings, axes or types, as whole files.

EXPLICIT: `a` f32[8@x,16] and `b` f32[8,16@x] do not fit. MANUAL: bodies of shard_map. GENERAL:
other mistakes. `programs()` gives the name and text of each, those of EXPLICIT with the mesh set
and without.
"""
from __future__ import annotations

HEAD = '''\
"""A user's program."""
from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.{kind},) * 2)
a = st.device_put(np.ones((8, 16), "float32"), NamedSharding(mesh, P("x", None)))
b = st.device_put(np.ones((8, 16), "float32"), NamedSharding(mesh, P(None, "x")))


'''
EXPLICIT = {
    "add": """\
@st.jit
def f(a, b):
    return a + b

f(a, b)
""",
    "lambda": """\
f = st.jit(lambda a, b: jnp.tanh(a) * b)
f(a, b)
""",
    "lambda lines": """\
f = st.jit(
    lambda a, b:
        jnp.tanh(a)
        * b)
f(a, b)
""",
    "kwargs": """\
@st.jit
def f(*, left, right):
    out = left - right
    return out

f(left=a, right=b)
""",
    "static": """\
@functools.partial(st.jit, static_argnames='n')
def f(a, b, n):
    for _ in range(n):
        a = a + b
    return a

f(a, b, n=2)
""",
    "dict": """\
@st.jit
def f(p):
    return {'o': p['a'] + p['b']}

f({'a': a, 'b': b})
""",
    "dataclass": """\
@st.tree_util.register_dataclass
@dataclasses.dataclass
class Two:
    a: st.Array
    b: st.Array


@st.jit
def f(t):
    return t.a + t.b

f(Two(a, b))
""",
    "namedtuple": """\
class Two(NamedTuple):
    a: st.Array
    b: st.Array


@st.jit
def f(t):
    return t.a * t.b

f(Two(a, b))
""",
    "method": """\
class Model:
    def __init__(self, w):
        self.w = w

    @functools.partial(st.jit, static_argnums=0)
    def __call__(self, x):
        h = x + self.w
        return jnp.sum(h)

Model(b)(a)
""",
    "private": """\
class Model:
    def __init__(self, w):
        self.__w = w

    def __call__(self, x):
        return st.jit(lambda v: v + self.__w)(x)

Model(b)(a)
""",
    "closure": """\
def make(scale):
    @st.jit
    def f(a, b):
        return scale * a + b
    return f

make(2.0)(a, b)
""",
    "decorated": """\
def logged(f):
    @functools.wraps(f)
    def call(*args):
        return f(*args)
    return call


@st.jit
@logged
def f(a, b):
    return jnp.where(a > b, a, 0.)

f(a, b)
""",
    "nested": """\
@st.jit
def g(a, b):
    return a * b


@st.jit
def f(a, b):
    return g(a, b) + 1

f(a, b)
""",
    "with": """\
@st.jit
def f(a, b):
    with st.named_scope('layer'):
        h = a + b
    return h

f(a, b)
""",
    "if header": """\
def f(a, b):
    if jnp.sum(a + b) > 0:
        return a
    return b

f(a, b)
""",
    "return tuple": """\
@st.jit
def f(a, b):
    return a, (a + b).sum(), b

f(a, b)
""",
    "semicolon": """\
@st.jit
def f(a, b):
    h = a + b; return h

f(a, b)
""",
    "oneline def": """\
@st.jit
def f(a, b): return a + b

f(a, b)
""",
    "comprehension": """\
@st.jit
def f(a, b):
    return [v + b for v in (a, b)][0]

f(a, b)
""",
    "einsum": """\
@st.jit
def f(a, b):
    return jnp.einsum('ij,kj->ik', b, b)

f(a, b)
""",
    "matmul": """\
@st.jit
def f(a, b):
    h = b @ b.T
    return h

f(a, b)
""",
    "matmul twice": """\
@st.jit
def f(a, b):
    h = a @ a.T
    return h

f(a, b)
""",
    "reshape": """\
@st.jit
def f(a, b):
    return b.reshape(-1)

f(a, b)
""",
    "concat": """\
@st.jit
def f(a, b):
    return jnp.concatenate([
        a,
        b,
    ], axis=0)

f(a, b)
""",
    "index": """\
@st.jit
def f(a, b):
    return a[jnp.array([0, 1])]

f(a, b)
""",
    "aug": """\
@st.jit
def f(a, b):
    a += b
    return a

f(a, b)
""",
    "aug attr": """\
class Box:
    pass


@st.jit
def f(a, b):
    box = Box()
    box.v = a
    box.v += b
    return box.v

f(a, b)
""",
    "scan": """\
@st.jit
def f(a, b):
    def body(c, _):
        return c + b, None
    return lax.scan(body, a, None, length=3)[0]

f(a, b)
""",
    "cond": """\
@st.jit
def f(a, b):
    return lax.cond(a.sum() > 0, lambda a, b: a + b, lambda a, b: a, a, b)

f(a, b)
""",
    "vmap": """\
@st.jit
def f(a, b):
    return st.vmap(lambda u, v: u + v)(a, b)

f(a, b)
""",
    "grad": """\
@st.jit
def f(a, b):
    return st.grad(lambda a: jnp.sum(a * b))(a)

f(a, b)
""",
    "unreduced": """\
@st.jit
def f(a, b):
    h = jnp.dot(a.T, b.T.T, out_sharding=NamedSharding(mesh, P(None, None, unreduced={'x'})))
    return jnp.exp(h)

f(a, st.reshard(b, NamedSharding(mesh, P('x', None))))
""",
    "p shadowed": """\
P_ = P
del P
P = 3


@st.jit
def f(a, b):
    return a + b * P

f(a, b)
""",
    "reshard shadowed": """\
def reshard(v):
    return v


@st.jit
def f(a, b):
    return reshard(a) + b

f(a, b)
""",
    "no names": """\
del P, NamedSharding, lax, functools
N = mesh


@st.jit
def f(a, b):
    return a + b

f(a, b)
""",
    "local import": """\
@st.jit
def f(a, b):
    from shardtrace import numpy as anp
    return anp.add(a, b)

f(a, b)
""",
    "mesh in object": """\
class Config:
    def __init__(self):
        self.mesh = mesh


cfg = Config()
MESH, mesh = mesh, None


@st.jit
def f(a, b):
    return a + b

f(a, b)
""",
    "carry spec": """\
@st.jit
def f(a, b):
    return lax.fori_loop(0, 3, lambda i, c: b, a)

f(a, b)
""",
    "carry spec scan": """\
@st.jit
def f(a, b):
    def body(c, _):
        return b * 2, None
    out, _ = lax.scan(body, a, None, length=3)
    return out

f(a, b)
""",
    "carry spec while": """\
@st.jit
def f(a, b):
    def body(state):
        i, c = state
        return i + 1, c.T.T * 0 + b * 1 if False else b
    return lax.while_loop(lambda s: s[0] < 3, body, (0, a))

f(a, b)
""",
    "cond spec": """\
@st.jit
def f(a, b):
    return lax.cond(a.sum() > 0, lambda: a, lambda: b)

f(a, b)
""",
    "cond def": """\
@st.jit
def f(a, b):
    def one(a, b):
        return a * 2

    def two(a, b):
        return b * 3
    return lax.cond(a.sum() > 0, one, two, a, b)

f(a, b)
""",
    "carry dtype": """\
@st.jit
def f(a, b):
    def body(c, _):
        return c.astype('bfloat16'), None
    return lax.scan(body, a, None, length=2)[0]

f(a, b)
""",
    "cond dtype": """\
@st.jit
def f(a, b):
    return lax.cond(a.sum() > 0, lambda v: v.astype('int32'), lambda v: v * 2, a)

f(a, b)
""",
    "sort": """\
@st.jit
def f(a, b):
    return jnp.sort(a, axis=0)

f(a, b)
""",
    "scan sharded": """\
@st.jit
def f(a, b):
    return lax.scan(lambda c, x: (c + x.sum(), None), 0., a)[0]

f(a, b)
""",
    "out sharding there": """\
@st.jit
def f(a, b):
    return jnp.matmul(a, a.T, out_sharding=P('x', 'y'))

f(a, b)
""",
    "class with mesh attr": """\
class Net:
    def __init__(self, m):
        self.mesh = m
        self.w = b

    def apply(self, x):
        h = jnp.tanh(x)
        return h + self.w

net = Net(mesh)
del mesh, b
net.apply(a)
""",
    "two meshes": """\
other = st.make_mesh((8,), ('z',), axis_types=(st.sharding.AxisType.Explicit,))


@st.jit
def f(a, b):
    return a - b

f(a, b)
""",
    "checkpoint": """\
@st.checkpoint
def block(a, b):
    return jnp.tanh(a) + b


@st.jit
def f(a, b):
    return st.grad(lambda a: block(a, b).sum())(a)

f(a, b)
""",
    "partial": """\
def g(k, a, b):
    return k * a + b


f = st.jit(functools.partial(g, 2.0))
f(a, b)
""",
    "default args": """\
@st.jit
def f(a, w=b, *, scale=2.0):
    return scale * a + w

f(a)
""",
    "varargs": """\
@st.jit
def f(*xs, **kw):
    return xs[0] + xs[1] * kw['s']

f(a, b, s=2.)
""",
    "walrus": """\
@st.jit
def f(a, b):
    return (c := a * 2) + b

f(a, b)
""",
    "unicode": """\
@st.jit
def f(α, β):
    é = 'ü'; out = α + β  # ö
    return out

f(a, b)
""",
    "tabs": """\
@st.jit
def f(a, b):
	if True:
		out = a + b
	return out

f(a, b)
""",
    "continuation": """\
@st.jit
def f(a, b):
    out = a \\
        + b
    return out

f(a, b)
""",
    "triple string": """\
@st.jit
def f(a, b):
    return jnp.add(a, b), \"\"\"x
  y\"\"\".count('x')

f(a, b)
""",
    "generator": """\
@st.jit
def f(a, b):
    return sum(v + b for v in [a, b])

f(a, b)
""",
    "async loop names": """\
@st.jit
def f(a, b):
    outs = []
    for i, (u, v) in enumerate([(a, b), (b, a)]):
        outs.append(u + v)
    return outs

f(a, b)
""",
    "dict comp": """\
@st.jit
def f(p):
    return {k: v + p['b'] for k, v in p.items()}

f({'a': a, 'b': b})
""",
    "tree map": """\
@st.jit
def f(p, q):
    return st.tree.map(lambda u, v: u + v, p, q)

f({'a': a}, {'a': b})
""",
    "aug subscript": """\
@st.jit
def f(p):
    p = dict(p)
    p['a'] += p['b']
    return p['a']

f({'a': a, 'b': b})
""",
    "helper called": """\
def lay(v):
    return jnp.tanh(v)


@st.jit
def f(a, b):
    return lay(a) + b

f(a, b)
""",
    "nested vmap": """\
@st.jit
def f(a, b):
    def one(u, v):
        return lax.psum(u, 'i') + jnp.sum(a + b)
    return st.vmap(one, axis_name='i')(jnp.ones(3), jnp.ones(3))

f(a, b)
""",
    "nested lambda later error": """\
@st.jit
def f(a, b):
    g = lambda u, v: u + v
    h = g(a, b)
    return h * a

f(a, b)
""",
    "scan xs sharded tuple": """\
@st.jit
def f(a, b):
    return lax.scan(lambda c, x: (c + x[0].sum(), None), 0., (a, a))[0]

f(a, b)
""",
}
MANUAL = {
    "scan": """\
def body(v):
    def step(c, x):
        return c + x, None
    return lax.scan(step, jnp.zeros(16), v)[0]

g = st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
st.jit(g)(a)
""",
    "scan tuple": """\
def body(v):
    def step(c, x):
        s, n = c
        return (s + x, n + 1), None
    (s, n), _ = lax.scan(step, (jnp.zeros(16), 0), v)
    return s

g = st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
g(a)
""",
    "scan dict": """\
def body(v):
    init = {'s': jnp.zeros(16), 'n': 0}
    def step(c, x):
        return {'s': c['s'] + x, 'n': c['n'] + 1}, None
    return lax.scan(step, init, v)[0]['s']

g = st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
g(a)
""",
    "fori": """\
@st.jit
@functools.partial(st.shard_map, mesh=mesh, in_specs=P('x', 'y'), out_specs=P('x', 'y'))
def g(v):
    return lax.fori_loop(0, 2, lambda i, c: c + v, jnp.zeros((4, 4)))

g(a)
""",
    "while": """\
@functools.partial(st.shard_map, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
def g(v):
    total = jnp.float32(0)
    out = lax.while_loop(lambda c: c < 3, lambda c: c + v.sum(), total)
    return out[None]

g(a)
""",
    "cond": """\
@functools.partial(st.shard_map, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
def g(v):
    return lax.cond(True, lambda: jnp.zeros(v.shape), lambda: v)

g(a)
""",
    "cond def": """\
@functools.partial(st.shard_map, mesh=mesh, in_specs=P('x'), out_specs=P('x'))
def g(v):
    def zero(v):
        z = jnp.zeros((4, 16))
        return z

    def same(v):
        return v
    n = lax.axis_index('x')
    return lax.cond(n > 0, zero, same, v) + lax.cond(v.shape[0] == 4, zero, same, v)

g(a)
""",
    "out": """\
g = st.shard_map(lambda v: v.sum(0), mesh=mesh, in_specs=P('x'), out_specs=P())
g(a)
""",
    "rank": """\
g = st.shard_map(lambda v: v.sum(), mesh=mesh, in_specs=P('x'), out_specs=P('x'))
g(a)
""",
    "inspec": """\
g = st.shard_map(lambda v: v * 2, mesh=mesh, in_specs=P(None, 'y'), out_specs=P(None, 'y'))
st.jit(g)(a)
""",
    "unbound": """\
def h(v):
    return lax.psum(v, 'z')

g = st.shard_map(h, mesh=mesh, in_specs=P('x'), out_specs=P())
g(a)
""",
    "init in dict three leaves": """\
def body(v):
    init = dict(s=jnp.zeros(16), m=jnp.zeros(16), n=0)
    def step(c, x):
        return dict(s=c['s'] + x, m=jnp.maximum(c['m'], x), n=c['n'] + 1), None
    out, _ = lax.scan(step, init, v)
    return out['s'] + out['m']

st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(a)
""",
    "init namedtuple": """\
class S(NamedTuple):
    s: st.Array
    n: st.Array


def body(v):
    def step(c, x):
        return S(c.s + x, c.n + 1), None
    out, _ = lax.scan(step, S(jnp.zeros(16), jnp.int32(0)), v)
    return out.s

st.jit(st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x')))(a)
""",
    "init param of body": """\
def loop(v, init):
    return lax.scan(lambda c, x: (c + x, None), init, v)[0]


def body(v):
    z = jnp.zeros(16)
    return loop(v, z)

st.jit(st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x')))(a)
""",
    "switch": """\
def body(v):
    return lax.switch(0, [lambda v: v, lambda v: jnp.zeros((4, 16))], v)

st.jit(st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x')))(a)
""",
    "while tuple": """\
def body(v):
    def cond(s):
        return s[0] < 3

    def step(s):
        i, c = s
        return i + 1, c + v.sum(0)
    return lax.while_loop(cond, step, (0, jnp.zeros(16)))[1]

st.jit(st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x')))(a)
""",
    "nested sm": """\
@st.jit
def f(a):
    def body(v):
        return lax.scan(lambda c, x: (c + x, None), jnp.zeros(16), v)[0]
    return st.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(a)

f(a)
""",
}
GENERAL = {
    "static name": """\
@st.jit
def f(a, mode):
    return a if mode == 'x' else a + 1

f(a, 'x')
""",
    "static deep": """\
@st.jit
def f(a, cfg):
    return a * cfg['scale']

f(a, {'scale': 'big'})
""",
    "static lambda": """\
f = st.jit(lambda a, mode: a if mode else a)
f(a, 'x')
""",
    "static list": """\
@st.jit
def f(a, names):
    return a

f(a, ['u', 'v'])
""",
    "static int": """\
@st.jit
def f(a, n):
    return jnp.zeros(n) + a[0, :1]

f(a, 4)
""",
    "static range": """\
@st.jit
def f(a, n):
    for _ in range(n):
        a = a * 2
    return a

f(a, 4)
""",
    "static if": """\
@st.jit
def f(a, flag):
    if flag:
        return a
    return -a

f(a, True)
""",
    "static partial": """\
@functools.partial(st.jit, donate_argnums=0)
def f(a, mode):
    return a * 2 if mode == 'x' else a

f(a, 'x')
""",
    "static method": """\
class M:
    def __init__(self): self.s = 2
    @st.jit
    def f(self, a):
        return a * self.s

M().f(a)
""",
    "setitem": """\
v = jnp.zeros(4)
v[0] = 1.0

""",
    "listop": """\
v = jnp.sum([1., 2.])
""",
    "listindex": """\
v = jnp.arange(4)[[0, 1]]
""",
    "pspec nomesh": """\
v = lax.with_sharding_constraint(jnp.zeros((8, 8)), P('x'))
""",
    "reshard nomesh": """\
v = st.reshard(jnp.zeros((8, 8)), P('x'))
""",
    "bitand": """\
v = jnp.ones(4) & jnp.ones(4)
""",
    "int grad": """\
g = st.grad(lambda v: (v * v).sum())(3)
""",
    "bool": """\
@st.jit
def f(v):
    return v if v.sum() > 0 else -v

f(jnp.ones(4))
""",
    "float()": """\
@st.jit
def f(v):
    return float(v.sum()) * v

f(jnp.ones(4))
""",
    "dot mismatch": """\
v = jnp.ones((3, 4)) @ jnp.ones((3, 4))
""",
    "lax add": """\
v = lax.add(jnp.ones(4), jnp.ones(4, 'int32'))
""",
    "rawkey": """\
k = st.random.normal(3, (4,))
""",
    "mask": """\
@st.jit
def f(v):
    return v[v > 0]

f(jnp.ones(4))
""",
    "np.sin": """\
@st.jit
def f(v):
    return np.sin(v)

f(jnp.ones(4))
""",
    "setitem aug": """\
v = jnp.zeros(4)
v[1:] += 2.0
""",
    "setitem field": """\
class C: pass
c = C(); c.v = jnp.zeros(4)
c.v[0] = 2.0
""",
    "jit static call": """\
def f(a, mode):
    return a if mode == 'x' else -a


g = st.jit(f)
g(a, mode='x')
""",
    "jit static two": """\
@st.jit
def f(a, mode, other):
    return a if mode == other else -a

f(a, 'x', 'y')
""",
    "in shardings P": """\
f = st.jit(lambda a: a * 2, in_shardings=P('x'))
f(np.ones((8, 8)))
""",
    "device put P": """\
v = st.device_put(np.ones((8, 8)), P('x'))
""",
}

NO_MESH = ("out sharding there",)        # wrong for want of a mesh
OF_TYPES = ("inspec",)                   # wrong by the types of Explicit axes


def programs():
    """(name, source) of each."""
    for name, body in EXPLICIT.items():
        head = HEAD.format(kind="Explicit")
        if name not in NO_MESH:
            yield f"{name}, mesh set", f"{head}st.set_mesh(mesh)\n\n\n{body}"
        yield f"{name}, no mesh", head + body
    for name, body in MANUAL.items():
        if name not in OF_TYPES:
            yield f"{name}, Auto", HEAD.format(kind="Auto") + body
        yield f"{name}, Explicit", HEAD.format(kind="Explicit") + body
    for name, body in GENERAL.items():
        yield name, HEAD.format(kind="Auto") + body
