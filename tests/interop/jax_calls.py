"""Calls of JAX functions, one or more for each primitive that JAX's public API emits on CPU.

`CALLS(jax)`: name -> (function, arguments).
"""
from __future__ import annotations

from typing import Any

import numpy as np


def calls(jax: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """By name, a function of JAX arrays and its arguments."""
    jnp, lax = jax.numpy, jax.lax
    rng = np.random.default_rng(0)

    def f32(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    def i32(*shape: int) -> np.ndarray:
        return rng.integers(-8, 8, shape).astype(np.int32)

    def positive(*shape: int) -> np.ndarray:
        return np.abs(f32(*shape)) + np.float32(0.1)

    x, y, unit = f32(4, 6), f32(4, 6), np.tanh(f32(4, 6)) * np.float32(0.9)
    n, m, u = i32(4, 6), i32(4, 6), rng.integers(0, 99, (4, 6)).astype(np.uint32)
    b, c = x > 0, (x + 1j * y).astype(np.complex64)
    square = f32(3, 5, 5)
    symmetric = square + np.swapaxes(square, -1, -2)
    definite = (square @ np.swapaxes(square, -1, -2) + 5 * np.eye(5)).astype(np.float32)
    vector, key = f32(5), jax.random.key(3)
    image, kernel = f32(2, 8, 8, 3), f32(3, 3, 3, 4)
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    def add(name: str, f: Any, *args: Any) -> None:
        assert name not in found
        found[name] = f, args

    for name in ("abs neg sign floor ceil round exp exp2 expm1 sin cos tan tanh sinh cosh asinh "
                 "atan logistic erf erfc square integer_pow cbrt is_finite bessel_i0e "
                 "bessel_i1e reduce_precision stop_gradient").split():
        add(name, {"integer_pow": lambda x: lax.integer_pow(x, 3),
                   "reduce_precision": lambda x: lax.reduce_precision(x, 5, 10)}.get(
                       name, getattr(lax, name, None)), x)
    for name in "log log1p sqrt rsqrt lgamma digamma acosh".split():
        add(name, getattr(lax, name), positive(4, 6) + np.float32(name == "acosh"))
    for name in "asin acos atanh erf_inv".split():
        add(name, getattr(lax, name), unit)
    for name in "add sub mul div rem max min atan2 nextafter eq ne lt le gt ge".split():
        add(name, getattr(lax, name), x, y)
    for name in "bitwise_and bitwise_or bitwise_xor".split():
        add(name, getattr(lax, name), n, m)
    add("not", lax.bitwise_not, n)
    add("clz", lax.clz, n)
    add("population_count", lax.population_count, n)
    add("mulhi", lax.mulhi, n, m)
    for name in "shift_left shift_right_logical shift_right_arithmetic".split():
        add(name, getattr(lax, name), n, np.abs(m))
    add("pow", lax.pow, positive(4, 6), y)
    for name in "igamma igammac igamma_grad_a zeta polygamma".split():
        first = positive(4, 6) + np.float32(1)
        add(name, getattr(lax, name), np.float32([1, 2, 3]) if name == "polygamma" else first,
            first[0, :3] if name == "polygamma" else positive(4, 6))
    add("regularized_incomplete_beta", lax.betainc, positive(4), positive(4), unit[0, :4] ** 2)
    add("random_gamma_grad", lax.random_gamma_grad, positive(4), positive(4))
    add("complex", lax.complex, x, y)
    for name in "real imag conj".split():
        add(name, getattr(lax, name), c)
    add("clamp", lambda x: lax.clamp(-0.5, x, np.float32(0.5)), x)
    add("select_n", lax.select_n, b, x, y)
    add("convert_element_type", lambda x: (x.astype(jnp.int32), x.astype(jnp.bfloat16)), x)
    add("bitcast_convert_type", lambda x: lax.bitcast_convert_type(x, jnp.int32), x)
    add("copy", lambda x: jnp.array(x, copy=True), x)
    add("optimization_barrier", lambda x: lax.optimization_barrier((x, x + 1)), x)
    add("name", lambda x: jax.ad_checkpoint.checkpoint_name(x, "here") * 2, x)

    add("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 4, 6), (1, 2)), x)
    add("reshape", lambda x: (x.reshape(8, 3), lax.reshape(x, (24,), (1, 0))), x)
    add("squeeze", lambda x: lax.squeeze(x[None], (0,)), x)
    add("expand_dims", lambda x: lax.expand_dims(x, (1,)), x)
    add("transpose", lambda x: x.T, x)
    add("rev", lambda x: lax.rev(x, (0, 1)), x)
    add("concatenate", lambda x, y: lax.concatenate([x, y], 1), x, y)
    add("pad", lambda x: lax.pad(x, np.float32(7), ((1, 2, 1), (-1, 0, 0))), x)
    add("slice", lambda x: lax.slice(x, (1, 0), (4, 6), (2, 3)), x)
    add("split", lambda x: lax.split(x, (2, 4), 1), x)
    add("tile", lambda x: jnp.tile(x, (2, 3)), x)
    add("stack", lambda x, y: jnp.stack([x, y], 1), x, y)
    add("unstack", lambda x: jnp.unstack(x, axis=1), x)
    add("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 1), (2, 3)), x, np.int32(1))
    add("dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :3], (i, 2)),
        x, y, np.int32(1))
    add("iota", lambda: lax.iota(jnp.int32, 5))
    add("broadcasted_iota", lambda: lax.broadcasted_iota(jnp.float32, (3, 5), 1))
    add("empty", lambda x: x + jnp.zeros_like(x), x)
    add("gather", lambda x, i: (x[i], x[:, i % 6], jnp.take(x, i, 0, mode="clip")), x,
        np.int32([[0, 3], [2, -1]]))
    add("gather batched", lambda x, i: jnp.take_along_axis(x, i, 1), x, np.abs(n) % 6)
    for name, method in (("scatter", "set"), ("scatter-add", "add"), ("scatter-mul", "multiply"),
                         ("scatter-min", "min"), ("scatter-max", "max")):
        add(name, lambda x, i, y, method=method: getattr(x.at[i], method)(y[:3]), x,
            np.int32([1, 3, 1][:3]) if method != "set" else np.int32([1, 3, 0]), y)
    add("scatter-sub", lambda x, i, y: x.at[i].subtract(y[:3]), x, np.int32([1, 3, 1]), y)
    add("scatter_apply", lambda x, i: x.at[i].apply(jnp.sin), x, np.int32([1, 3]))

    for name in "sum prod max min".split():
        add(f"reduce_{name}", lambda x, name=name: getattr(jnp, name)(x, 1), x)
    for name in "and or xor".split():
        add(f"reduce_{name}", lambda n, name=name: getattr(lax, f"reduce_{name}")(n, (0,)), n)
    add("reduce", lambda x, n: lax.reduce(
        (x, n), (np.float32(0), np.int32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)), x, n)
    add("argmax", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), x)
    for name in "cumsum cumprod cummax cummin cumlogsumexp".split():
        add(name, lambda x, name=name: getattr(lax, name)(x, 1, reverse=True), x)
    add("sort", lambda x: jnp.sort(x, 0), x)
    add("sort keys", lambda x, n: lax.sort((n, x), dimension=1, num_keys=1), x, n)
    add("top_k", lambda x: lax.top_k(x, 3), x)
    add("approx_top_k", lambda x: lax.approx_max_k(x, 3), x)
    for name, init in (("add", 0), ("max", -np.inf), ("min", np.inf)):
        add(f"reduce_window_{name}", lambda x, name=name, init=init: lax.reduce_window(
            x, np.float32(init), getattr(lax, name), (2, 3), (1, 2), "SAME"), x)
    add("reduce_window", lambda x: lax.reduce_window(
        x, np.float32(0), lambda a, b: a + 2 * b, (1, 2), (1, 2), "VALID"), x)
    add("select_and_scatter_add", jax.grad(lambda x: (lax.reduce_window(
        x, -np.inf, lax.max, (2, 2), (2, 2), "VALID") ** 2).sum()), x)
    add("select_and_gather_add", lambda x, y: jax.jvp(lambda x: lax.reduce_window(
        x, -np.inf, lax.max, (2, 2), (2, 2), "VALID"), (x,), (y,))[1], x, y)

    add("dot_general", lambda x, y: (x @ y.T, jnp.einsum("ij,ij->i", x, y)), x, y)
    add("dot_general types", lambda x: lax.dot_general(
        x, x, (((1,), (1,)), ((), ())), precision="highest",
        preferred_element_type=jnp.float32), x.astype(np.float16))
    add("ragged_dot_general", lax.ragged_dot, f32(6, 4), f32(2, 4, 3), np.int32([2, 4]))
    add("conv_general_dilated", lambda i, k: lax.conv_general_dilated(
        i, k, (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")),
        image, kernel)
    add("conv gradient", jax.grad(lambda k, i: (lax.conv_general_dilated(
        i, k, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2).sum()), kernel,
        image)
    add("fft", lambda c: (jnp.fft.fft(c), jnp.fft.ifft2(c), jnp.fft.rfft(c.real),
                          jnp.fft.irfft(c)), c)
    add("cholesky", jnp.linalg.cholesky, definite)
    add("triangular_solve", lambda a, v: jax.scipy.linalg.solve_triangular(a, v, lower=True),
        np.tril(definite[0]), vector)
    add("lu", lambda a: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), jnp.ones(5)),
        definite[0])
    add("custom_linear_solve", lambda a, v: jnp.linalg.solve(a, v), definite[0], vector)
    add("custom_linear_solve gradient", jax.grad(lambda a, v: jnp.linalg.solve(a, v).sum()),
        definite[0], vector)
    add("cg", lambda a, v: jax.scipy.sparse.linalg.cg(lambda x: a @ x, v)[0], definite[0], vector)
    add("qr", lambda a: jnp.abs(jnp.linalg.qr(a)[1]), square)
    add("svd", lambda a: jnp.linalg.svd(a, compute_uv=False), square)
    add("eigh", lambda a: jnp.linalg.eigvalsh(a), symmetric)
    add("eig", lambda a: jnp.sort(jnp.abs(jnp.linalg.eigvals(a))), square[0])
    add("schur", lambda a: jnp.abs(jax.scipy.linalg.schur(a)[0]), symmetric[0])
    add("hessenberg", lambda a: jnp.abs(jax.scipy.linalg.hessenberg(a)), square[0])
    add("expm", jax.scipy.linalg.expm, square[0] / 4)
    add("det", lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a)[1]), definite)
    add("tridiagonal_solve", lax.linalg.tridiagonal_solve, np.float32([0, 1, 1]),
        np.float32([4, 5, 6]), np.float32([1, 1, 0]), f32(3, 2))

    add("random_bits", lambda k: jax.random.bits(k, (3, 4)), key)
    add("random_normal", lambda k: jax.random.normal(k, (3, 4)), key)
    add("random_split", lambda k: jax.random.uniform(jax.random.split(k, 3)[1], (4,)), key)
    add("random_fold_in", lambda k: jax.random.uniform(jax.random.fold_in(k, 7), (4,)), key)
    add("random_seed", lambda: jax.random.uniform(jax.random.key(5), (4,)))
    add("random_unwrap", lambda k: jax.random.key_data(k), key)
    add("random_wrap", lambda d: jax.random.uniform(jax.random.wrap_key_data(d), (3,)),
        np.uint32([1, 2]))
    add("random_gamma", lambda k: jax.random.gamma(k, np.float32([0.5, 2.0])), key)
    add("random_categorical", lambda k, x: jax.random.categorical(k, x), key, x)
    add("random_permutation", lambda k: jax.random.permutation(k, 10), key)
    add("PRNGKey", lambda: jax.random.uniform(jax.random.PRNGKey(5), (4,)))
    add("threefry2x32", lambda u: jax.extend.random.threefry_2x32((u[0, 0], u[0, 1]), u[1]), u)

    add("rng_bit_generator", lambda u: lax.rng_bit_generator(u[0, :4], (3, 4)), u)
    add("householder_product", lambda a, t: lax.linalg.householder_product(a, t), square[0],
        unit[0, :5])
    add("tridiagonal", lambda a: jnp.abs(lax.linalg.tridiagonal(a)[1]), symmetric[0])
    add("symmetric_product", lambda a, c: lax.linalg.symmetric_product(
        a, c, alpha=2.0, beta=0.5, symmetrize_output=True), square[0], symmetric[0])
    add("cholesky_update", lambda a, v: lax.linalg.cholesky_update(
        jnp.linalg.cholesky(a).T, v), definite[0], vector)
    add("ormqr", lambda a, t, c: lax.linalg.ormqr(a, t, c), square[0], unit[0, :5], square[1])

    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = jax.P("x")

    def region(f: Any, check_vma: bool = True) -> Any:
        return jax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=check_vma)

    blocks = f32(16, 4)
    for name in "psum pmax pmin pmean".split():
        add(name, region(lambda v, name=name: v - getattr(lax, name)(v, "x")), blocks)
    add("psum without vma", region(lambda v: v - lax.psum(v, "x"), False), blocks)
    add("psum of groups", region(lambda v: v - lax.psum(
        v, "x", axis_index_groups=[[0, 1], [2, 3]]), False), blocks)
    add("ppermute", region(lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 4) for i in range(4)])),
        blocks)
    add("all_gather", region(lambda v: v + lax.all_gather(v, "x").sum(0)), blocks)
    add("all_to_all", region(lambda v: lax.all_to_all(v, "x", 0, 0, tiled=True)), blocks)
    add("reduce_scatter", region(lambda v: lax.psum_scatter(
        lax.all_gather(v, "x", tiled=True), "x", tiled=True)), blocks)
    add("axis_index", region(lambda v: v * lax.axis_index("x")), blocks)
    add("shard_map gradient", jax.grad(lambda v: (region(
        lambda v: jnp.sin(v) * lax.psum(v.sum(), "x"))(v) ** 2).sum()), blocks)
    add("sharding_constraint", lambda v: lax.with_sharding_constraint(
        v * 2, jax.NamedSharding(mesh, jax.P(None, "y"))), blocks)

    add("jit", lambda x: jax.jit(lambda x: jnp.sin(x) + 1)(x), x)
    add("scan", lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(6), x, reverse=True), x)
    add("scan without slices", lambda x: lax.scan(lambda c, _: (c * 0.5, None), x, length=4)[0], x)
    add("while", lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 0.9),
                                          (0, x)), x)
    add("fori_loop", lambda x: lax.fori_loop(0, 5, lambda i, v: v + i, x), x)
    add("cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), x)
    add("switch", lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), x, np.int32(1))
    add("associative_scan", lambda x: lax.associative_scan(jnp.add, x), x)
    add("map", lambda x: lax.map(jnp.sum, x), x)
    add("custom_jvp_call", lambda x: jax.nn.relu(x) + jax.nn.silu(x), x)
    add("custom_vjp_call", lambda x: _clipped(jax)(x), x)
    add("custom_vjp_call gradient", jax.grad(lambda x: _clipped(jax)(x).sum()), x)
    add("remat", jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), x)
    add("vmap", jax.vmap(lambda x, y: x @ y), x, y)
    add("hessian", jax.hessian(lambda v: (v ** 4).sum()), vector)
    add("linearize", lambda x: jax.linearize(jnp.sin, x)[1](x), x)
    add("custom_batching", lambda x: jax.vmap(_sequential(jax))(x), x)
    add("pure_callback", lambda x: jax.pure_callback(
        lambda x: np.sin(x), jax.ShapeDtypeStruct((4, 6), np.float32), x), x)
    add("io_callback", lambda x: jax.experimental.io_callback(
        lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct((4, 6), np.float32), x), x)
    add("debug_callback", lambda x: (jax.debug.callback(lambda x: None, x), x * 2)[1], x)
    add("debug_print", lambda x: (jax.debug.print("{} {x}", "x", x=x[0, 0]), x * 2)[1], x)
    add("image resize", lambda i: jax.image.resize(i, (2, 5, 5, 3), "bilinear"), image)
    add("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, 3), x, np.int32([0, 2, 0, 1]))
    add("softmax", lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x)), x)
    add("attention", lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True),
        f32(2, 6, 2, 4))
    add("unique", lambda n: jnp.unique(n, size=5), n)
    add("interp", lambda v: jnp.interp(v, jnp.arange(4.0), jnp.arange(4.0) ** 2), vector)
    return found


def _clipped(jax: Any) -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * 2
    f.defvjp(lambda x: (f(x), x), lambda x, g: (jax.numpy.clip(g * x, -1, 1),))
    return f


def _sequential(jax: Any) -> Any:
    return jax.custom_batching.sequential_vmap(lambda x: jax.numpy.cumsum(x))
