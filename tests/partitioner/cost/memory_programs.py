"""Programs whose memory XLA's compiler has planned, written for this library and for JAX alike.

Each is a function of the module (`st` or `jax`) that returns the function, with its arguments as
(shape, spec[, dtype]) and the positions of those that are donated.
"""
from __future__ import annotations


def mlp(m):
    return lambda x, w1, w2: m.numpy.tanh(x @ w1) @ w2


def mlp_gradient(m):
    f = mlp(m)
    return lambda x, w1, w2: m.grad(lambda ws: (f(x, *ws) ** 2).sum())((w1, w2))


def mlp_step(m):
    f = mlp_gradient(m)

    def step(x, w1, w2):
        g1, g2 = f(x, w1, w2)
        return w1 - 0.1 * g1, w2 - 0.1 * g2
    return step


def adam_step(m):
    def step(x, w, first, second):
        g = m.grad(lambda w: ((m.numpy.tanh(x @ w)) ** 2).mean())(w)
        first, second = 0.9 * first + 0.1 * g, 0.95 * second + 0.05 * g * g
        return w - 1e-3 * first / (m.numpy.sqrt(second) + 1e-8), first, second
    return step


def layers(m, wrap=lambda m, f: f):
    def f(x, ws):
        body = wrap(m, lambda h, w: (m.numpy.tanh(m.numpy.sin(m.numpy.tanh(h @ w)) @ w), None))
        return m.lax.scan(body, x, ws)[0]
    return f


def layers_gradient(m):
    f = layers(m)
    return lambda x, ws: m.grad(lambda ws: (f(x, ws) ** 2).sum())(ws)


def layers_recomputed(m):
    f = layers(m, lambda m, body: m.checkpoint(body))
    return lambda x, ws: m.grad(lambda ws: (f(x, ws) ** 2).sum())(ws)


def layers_unrolled(m):
    def f(x, ws):
        for i in range(4):
            x = m.numpy.tanh(x @ ws[i])
        return x
    return f


def attention(m):
    def f(q, k, v):
        s = m.numpy.einsum("bqhd,bkhd->bhqk", q, k) / 8
        return m.numpy.einsum("bhqk,bkhd->bqhd", m.nn.softmax(s), v)
    return f


def attention_gradient(m):
    f = attention(m)
    return lambda q, k, v: m.grad(lambda q: (f(q, k, v) ** 2).sum())(q)


def layer_norm(m):
    def f(x):
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / m.numpy.sqrt(var + 1e-5)
    return f


def cross_entropy(m):
    def f(x, w, labels):
        logits = x @ w
        picked = m.numpy.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
        return (m.nn.logsumexp(logits, -1) - picked).mean()
    return f


def cross_entropy_gradient(m):
    f = cross_entropy(m)
    return lambda x, w, labels: m.grad(f, argnums=1)(x, w, labels)


def fully_sharded(m):
    def f(x, w1, w2):
        return m.numpy.tanh(x @ w1) @ w2
    return f


def contraction_summed(m):
    return lambda x, w: x @ w


def transposed(m):
    return lambda x: m.numpy.tanh(x).T + 1


def embedding(m):
    return lambda table, ids: m.numpy.tanh(table[ids])


def layer_dropped(m):
    return lambda x, w1, w2, kept: m.lax.cond(
        kept, lambda x: x + m.numpy.tanh(x @ w1) @ w2, lambda x: x, x)


def layer_dropped_gradient(m):
    f = layer_dropped(m)
    return lambda x, w1, w2, kept: m.grad(lambda ws: (f(x, *ws, kept) ** 2).sum())((w1, w2))


WEIGHTS = [((4096, 512), ("x",)), ((512, 2048), (None, "y")), ((2048, 512), ("y",))]
STACK = [((4096, 512), ("x",)), ((8, 512, 512), (None,))]
HEADS = [((8, 256, 8, 64), ("x", None, "y"))] * 3
SQUARE = ((1024, 1024), ("x", "y"))
LABELS = [((4096, 256), ("x",)), ((256, 8192), (None, "y")), ((4096,), ("x",), "int32")]

PROGRAMS = {
    "mlp": (mlp, WEIGHTS, ()), "mlp_gradient": (mlp_gradient, WEIGHTS, ()),
    "mlp_step": (mlp_step, WEIGHTS, (1, 2)),
    "adam_step": (adam_step, [((2048, 1024), ("x",)), *[((1024, 2048), (None, "y"))] * 3],
                  (1, 2, 3)),
    "layers": (layers, STACK, ()), "layers_gradient": (layers_gradient, STACK, ()),
    "layers_recomputed": (layers_recomputed, STACK, ()),
    "layers_unrolled": (layers_unrolled, STACK, ()),
    "attention": (attention, HEADS, ()), "attention_gradient": (attention_gradient, HEADS, ()),
    "layer_norm": (layer_norm, [((4096, 1024), ("x",))], ()),
    "cross_entropy": (cross_entropy, LABELS, ()),
    "cross_entropy_gradient": (cross_entropy_gradient, LABELS, ()),
    "fully_sharded": (fully_sharded, [((4096, 512), (("x", "y"),)), ((512, 2048), (("x", "y"),)),
                                      ((2048, 512), (("x", "y"),))], ()),
    "contraction_summed": (contraction_summed, [((2048, 2048), ("x", "y")),
                                                ((2048, 2048), ("y",))], ()),
    "transposed": (transposed, [SQUARE], ()),
    "layer_dropped": (layer_dropped, [*WEIGHTS, ((), (), "bool")], ()),
    "layer_dropped_gradient": (layer_dropped_gradient, [*WEIGHTS, ((), (), "bool")], ()),
    "embedding": (embedding, [((32768, 256), (None, "y")), ((4096,), ("x",), "int32")], ()),
}


# -- kernels, copies, packed pieces: one mechanism each -------------------------------------------

def _image(lax, x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _distances(m, x):
    return ((x[:, None] - x[None]) ** 2).sum(-1) + 1


def _normal(m, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * m.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def _heads(m, x, w):
    return m.numpy.einsum("bsm,mhd->bshd", x, w)


def _block(m, x, wq, wk, wv, wo):
    q, k, v = (_heads(m, x, w) for w in (wq, wk, wv))
    scores = m.nn.softmax(m.numpy.einsum("bqhd,bkhd->bhqk", q, k) / 8)
    return x + m.numpy.einsum("bqhd,hdm->bqm", m.numpy.einsum("bhqk,bkhd->bqhd", scores, v), wo)


def _tanh_layers(m, x, ws):
    body = m.checkpoint(lambda h, w: (m.numpy.tanh(m.numpy.tanh(h @ w) @ w), None))
    return m.lax.scan(body, x, ws)[0].sum()


ROWS, WIDE, DEEP = ((128, 128), ("x",)), ((128, 256), ()), ((8, 16, 128), ("x",))
IMAGE, KERNEL = ((4, 16, 16, 8), ("x",)), ((3, 3, 8, 16), ())
PROJECTION = ((64, 4, 16), ())
MECHANISMS = {
    "softmax of a product": (lambda m: lambda x, w: m.nn.softmax(x @ w), [ROWS, WIDE], ()),
    "softmax of masked scores": (lambda m: lambda x, w: m.nn.softmax(m.numpy.where(
        m.numpy.arange(256) > 3, x @ w, -1e9)), [ROWS, WIDE], ()),
    "normalised, multiplied": (lambda m: lambda x, w: _normal(m, x) @ w, [ROWS, WIDE], ()),
    "gelu of three dimensions": (
        lambda m: lambda x, w, v: m.nn.gelu(x @ w) @ v, [DEEP, WIDE, ((256, 128), ())], ()),
    "relu of three dimensions": (
        lambda m: lambda x, w, v: m.nn.relu(x @ w) @ v, [DEEP, WIDE, ((256, 128), ())], ()),
    "energy of pairs": (lambda m: lambda x: (1 / _distances(m, x)).sum(), [((128, 8), ())], ()),
    "sum of what is masked": (
        lambda m: lambda x: m.numpy.where(x > 0, x, 0).sum(1), [ROWS], ()),
    "sum of integers": (lambda m: lambda x: x.astype("int32").sum(1), [ROWS], ()),
    "place of the greatest": (lambda m: lambda x: (x * 2 + 1).argmax(1), [ROWS], ()),
    "rows of what is scaled": (
        lambda m: lambda x, i: (x * 2 + 1)[i], [((64, 128), ()), ((32,), ("x",), "int32")], ()),
    "running sum of what is scaled": (
        lambda m: lambda x: m.numpy.cumsum(x * 2 + 1, 1), [((128, 512), ("x",))], ()),
    "pooling, gradient": (lambda m: lambda x: m.grad(lambda x: m.lax.reduce_window(
        x, -m.numpy.inf, m.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum())(x), [IMAGE], ()),
    "channels first": (
        lambda m: lambda x, k: m.lax.conv_general_dilated(x, k, (1, 1), "SAME"),
        [((4, 8, 16, 16), ("x",)), ((16, 8, 3, 3), ())], ()),
    "kernel's gradient": (lambda m: lambda x, k: m.grad(
        lambda k: (_image(m.lax, x, k) ** 2).sum())(k), [IMAGE, KERNEL], ()),
    "heads that do not lie together": (
        lambda m: lambda x, y: m.numpy.einsum("bshd,bthd->bhst", x, y),
        [((4, 64, 2, 16), ("x",)), ((4, 64, 2, 16), ("x",))], ()),
    "attention of a block": (
        lambda m: lambda *args: _block(m, *args),
        [((4, 64, 64), ("x",)), *[PROJECTION] * 3, ((4, 16, 64), ())], ()),
    "recomputed layers": (
        lambda m: lambda x, ws: m.grad(lambda ws: _tanh_layers(m, x, ws))(ws),
        [((128, 64), ("x",)), ((10, 64, 64), ())], ()),
    "gathered in the middle": (
        lambda m: lambda x: m.numpy.flip(m.lax.with_sharding_constraint(
            x, m.P("x", None, None)), 1), [((16, 64, 128), ("x", "y"))], ()),
    "split in turn": (
        lambda m: lambda x: m.lax.with_sharding_constraint(x * 2, m.P(None, "y")) * 3,
        [((256, 256), ("y",))], ()),
}
PROGRAMS |= {name.replace(" ", "_"): program for name, program in MECHANISMS.items()}
