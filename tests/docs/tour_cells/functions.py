# %% setup
import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("a", "b"))


def put(value, *spec):
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


x = put(np.linspace(-1, 2, 32, dtype=np.float32).reshape(8, 4), "a", "b")
y = put(np.linspace(1, 3, 32, dtype=np.float32).reshape(8, 4), None, "b")
i = put(np.arange(16, dtype=np.int32).reshape(8, 2) % 5, "a")
b = x > 0


def show(*values):
    for value in map(np.asarray, values):
        print((np.round(value.astype(float), 4) + 0.0).tolist() if value.dtype.kind == "f" else value.tolist())


# %% exponentials and logarithms
show(jnp.exp(x)[0], jnp.log(y)[0], jnp.log1p(y)[0], jnp.expm1(x)[0], jnp.exp2(x)[0], jnp.log2(y)[0], jnp.log10(y)[0])
show(jnp.logaddexp(x, y)[0], jnp.sqrt(y)[0], jnp.cbrt(x)[0], jnp.square(x)[0], jnp.reciprocal(y)[0])

# %% trigonometry
show(jnp.sin(x)[1], jnp.cos(x)[1], jnp.tan(x)[1], jnp.arcsin(x / 2)[1], jnp.arccos(x / 2)[1], jnp.arctan(x)[1])
show(jnp.sinh(x)[1], jnp.cosh(x)[1], jnp.tanh(x)[1], jnp.arcsinh(x)[1], jnp.arctan2(x, y)[1], jnp.hypot(x, y)[1])

# %% rounding
show(jnp.floor(x)[0], jnp.ceil(x)[0], jnp.round(x, 1)[0], jnp.trunc(x)[0], jnp.rint(x)[0], jnp.sign(x)[0])

# %% arithmetic
show(jnp.add(x, y)[2], jnp.subtract(x, y)[2], jnp.multiply(x, y)[2], jnp.divide(x, y)[2], jnp.power(y, 2.5)[2])
show(jnp.maximum(x, 0.2)[2], jnp.minimum(x, 0.2)[2], jnp.mod(x, 0.3)[2], jnp.floor_divide(x, 0.3)[2], jnp.abs(x)[0])
show(jnp.clip(x, -0.5, 0.5)[0], jnp.negative(x)[0], jnp.remainder(i, 3)[0], jnp.gcd(i, 4)[1], jnp.float_power(y, 2)[0])

# %% integers and bits
show(i + 1, i // 2, i % 2, i & 1, i | 8, i ^ 3, ~i, i << 2, i >> 1)
print((i + 1).dtype, (i / 2).dtype, (i * 1.5).dtype, (-i).dtype)

# %% comparison and logic
show((x > 0)[2], (x <= 0)[2], jnp.equal(i, 2)[1], jnp.logical_and(b, ~b)[0], jnp.logical_or(b, ~b)[0], jnp.logical_xor(b, b)[0])
print(jnp.isfinite(x).all(), jnp.isnan(x).any(), jnp.allclose(x, x + 1e-9), jnp.array_equal(x, x), jnp.isclose(x, x)[0])

# %% reductions
show(x.sum(), x.sum(0), x.sum(1), x.mean(0), x.max(0), x.min(1), x.prod(0), x.std(0), x.var(1))
print(x.sum(0).sharding.spec, x.sum(1).sharding.spec, x.sum(1, keepdims=True).shape, i.sum().dtype, b.sum(), jnp.count_nonzero(b))
print(jnp.any(b), jnp.all(b), jnp.any(b, axis=0), x.argmax(), x.argmin(0), jnp.argmax(x, axis=1), jnp.median(x), jnp.nansum(x))

# %% sums of narrow floats
h = put(np.ones((8, 512), np.float32), "a").astype(jnp.bfloat16)
print(h.sum(), h.sum().dtype, h.mean(), (h @ h.T)[0, 0])

# %% scans
show(jnp.cumsum(x, axis=1)[0], jnp.cumprod(y, axis=1)[0], lax.cummax(i, axis=0)[:3], jnp.cumsum(i), jnp.diff(y, axis=1)[0])

# %% shapes
print(x.reshape(4, 8).shape, x.T.shape, jnp.swapaxes(x, 0, 1).shape, jnp.moveaxis(x, 0, 1).shape, jnp.expand_dims(x, 1).shape)
print(jnp.squeeze(x[:1]).shape, jnp.ravel(x).shape, x.flatten().shape, jnp.transpose(x, (1, 0)).shape, jnp.atleast_2d(1).shape)
print(jnp.broadcast_to(y, (2, 8, 4)).shape, jnp.tile(i, (2, 2)).shape, jnp.repeat(i, 2, axis=1)[1], jnp.flip(i, 0)[0], jnp.roll(i, 1, axis=0)[0])

# %% joining and splitting
print(jnp.concatenate([i, i], axis=1)[1], jnp.stack([i, i]).shape, jnp.vstack([i, i]).shape, jnp.hstack([i, i]).shape)
print([p.shape for p in jnp.split(x, 4)], [p.shape for p in jnp.array_split(jnp.arange(7), 3)], jnp.pad(i, ((1, 0), (0, 1)))[:2])

# %% creation
print(jnp.zeros(3), jnp.ones((2, 2)), jnp.full(2, 7), jnp.eye(3), jnp.identity(2), jnp.arange(2, 10, 3), jnp.linspace(0, 1, 5))
print(jnp.tri(3), jnp.tril(jnp.ones((3, 3))), jnp.triu(jnp.ones((3, 3)), 1), jnp.diag(jnp.arange(3)), jnp.zeros_like(i).dtype)
print([m.shape for m in jnp.meshgrid(jnp.arange(3), jnp.arange(2))], jnp.logspace(0, 2, 3), jnp.indices((2, 2)).shape)

# %% products
show(jnp.dot(x, x.T)[0], (x @ y.T)[0], jnp.matmul(x, x.T)[0], jnp.outer(i[:, 0], i[0]), jnp.inner(x, y)[0], jnp.vdot(x, y), jnp.tensordot(x, y, 2))
show(jnp.einsum("ij,ij->i", x, y), jnp.einsum("ij->ji", i), jnp.einsum("ij,kj->ik", x, y)[0], jnp.trace(x @ x.T), jnp.kron(i[:1], i[1:2]))
print(lax.dot_general(x, y, (((1,), (1,)), ((), ()))).shape, lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))).shape)

# %% indexing
show(i[1], i[1, 0], i[1:3], i[::2], i[::-1][0], i[-1], i[..., 1], i[None].shape, i[np.array([0, 3])], i[i[:, 0] > 3], i[np.array([1, 2]), np.array([0, 1])])
show(jnp.take(i, np.array([0, 2]), axis=0), jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)[0], lax.dynamic_slice(i, (2, 0), (2, 2)))
show(lax.dynamic_update_slice(i, jnp.full((1, 2), 9, i.dtype), (1, 0))[:3], lax.slice(i, (0, 0), (4, 2), (2, 1)), lax.rev(i, (0,))[0])

# %% updates
show(i.at[0].set(7)[0], i.at[0, 1].add(5)[0], i.at[:, 0].multiply(2)[1], i.at[1:3].min(0)[:4], i.at[np.array([0, 0])].add(1)[0])

# %% selection
show(jnp.where(x > 0, x, 0)[3], jnp.where(b, 1, 2)[3], lax.select(b, x, -x)[0], jnp.select([x > 1, x > 0], [2, 1], 0)[-1], jnp.clip(i, 1, 3)[0])
show(jnp.nonzero(i[:, 0])[0], jnp.argwhere(i[:, 0] > 2), jnp.where(i[:, 0] > 2)[0], jnp.unique(i))

# %% sorting
show(jnp.sort(i, axis=0)[:3], jnp.argsort(i[:, 0]), jnp.sort(x, axis=1)[0], lax.top_k(i[:, 0], 3)[0], jnp.sort(i, axis=None)[:4], jnp.searchsorted(jnp.arange(5), 3))

# %% activations
show(jax.nn.relu(x)[0], jax.nn.sigmoid(x)[0], jax.nn.softmax(x)[0], jax.nn.log_softmax(x)[0], jax.nn.gelu(x)[0], jax.nn.silu(x)[0], jax.nn.tanh(x)[0])
show(jax.nn.softplus(x)[0], jax.nn.leaky_relu(x)[0], jax.nn.elu(x)[0], jax.nn.one_hot(i[0], 5), jax.nn.logsumexp(x), jax.nn.relu6(x)[0], jax.nn.swish(x)[0])

# %% types
print(x.astype(jnp.bfloat16).dtype, x.astype("int32").dtype, jnp.float16(1).dtype, jnp.asarray(x, jnp.int8).dtype, jnp.result_type(x, i), jnp.promote_types("int8", "float16"))
print(jnp.finfo(jnp.bfloat16).bits, jnp.iinfo(jnp.int8).max, jnp.issubdtype(x.dtype, jnp.floating), jnp.pi, jnp.inf, jnp.newaxis)

# %% complex numbers
c = x + 1j * y
print(c.dtype, c[0, 0], jnp.real(c)[0, 0], c.imag[0, 0], jnp.conj(c)[0, 0], jnp.abs(c)[0, 0], jnp.angle(c)[0, 0])

# %% lax, the level below
show(lax.add(x, x)[0], lax.mul(x, 2.0)[0], lax.max(x, y)[0], lax.rsqrt(y)[0], lax.integer_pow(x, 3)[0], lax.square(x)[0], lax.exp(x)[0], lax.logistic(x)[0])
print(lax.broadcast(i, (2,)).shape, lax.broadcast_in_dim(i, (8, 3, 2), (0, 2)).shape, lax.reshape(i, (4, 4)).shape, lax.transpose(i, (1, 0)).shape, lax.expand_dims(i, (0,)).shape)
print(lax.iota(jnp.int32, 4), lax.broadcasted_iota(jnp.int32, (2, 3), 1), lax.convert_element_type(i, jnp.float32).dtype, lax.stop_gradient(i)[0], lax.clamp(0, i, 2)[1])
print(lax.concatenate([i, i], 0).shape, lax.pad(i, 0, ((1, 1, 0), (0, 0, 0))).shape, lax.squeeze(i[:1], (0,)).shape, lax.reduce_sum(x, (0,)).shape, lax.argmax(i, 0, jnp.int32))

# %% control flow
# needs: lax.while_loop
print(lax.while_loop(lambda c: c < 10, lambda c: c * 2, 1), lax.fori_loop(0, 4, lambda k, c: c + k, 0), lax.switch(1, [lambda v: v, lambda v: v + 1], 1))
print(lax.map(lambda row: row.sum(), i), lax.scan(lambda c, r: (c + r, c), jnp.zeros(2, jnp.int32), i)[0], lax.associative_scan(jnp.add, jnp.arange(5)))

# %% vmap
# needs: vmap
print(jax.vmap(lambda r: r.sum())(i), jax.vmap(jnp.dot, in_axes=(0, None))(x, y[0]).shape, jax.vmap(lambda r, s: r * s)(i, i)[1])

# %% shape errors
jnp.dot(x, y)

# %% broadcasting errors
x + jnp.ones(3)

# %% concatenation errors
jnp.concatenate([x, jnp.ones((2, 3))])

# %% reshape errors
x.reshape(5, 5)

# %% axis errors
x.sum(axis=3)

# %% a list is not an array
jnp.sin([1.0, 2.0])

# %% a float cannot index
x[1.0]
