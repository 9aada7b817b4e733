"""What the fuzzer writes in one statement: expressions over values of known shapes and dtypes.

Each function takes a scope, draws operands from it and gives an expression, or None where the
scope holds nothing that it could take. What the library refuses is drawn anew.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Template = Callable[[Any], str | None]
ARRAYS: list[tuple[int, Template]] = []
MANUAL: list[tuple[int, Template]] = []
ENOUGH = 400                                # elements of a value


def template(weight: int, where: list[tuple[int, Template]] = ARRAYS
             ) -> Callable[[Template], Template]:
    def enter(f: Template) -> Template:
        where.append((weight, f))
        return f
    return enter


UNARY = ("jnp.tanh jnp.sin jnp.cos jnp.abs jnp.negative jnp.sign jnp.floor jnp.ceil jnp.square "
         "lax.logistic jax.nn.relu jax.nn.gelu jax.nn.silu jnp.cbrt jnp.isnan jnp.isfinite "
         "jnp.round jnp.nan_to_num jnp.arctan jnp.sinh jnp.expm1 lax.erf jnp.exp jnp.reciprocal "
         "jax.nn.softplus jnp.zeros_like jnp.ones_like lax.stop_gradient jnp.trunc jnp.deg2rad "
         "jnp.conj jnp.real jnp.positive jnp.array jax.nn.elu jnp.signbit jnp.logical_not").split()
POSITIVE = "jnp.sqrt jnp.log1p lax.rsqrt jnp.log jnp.exp2 lax.lgamma lax.digamma".split()
BINARY = ("jnp.add jnp.subtract jnp.multiply jnp.maximum jnp.minimum jnp.arctan2 jnp.hypot "
          "jnp.less jnp.greater_equal jnp.equal jnp.not_equal jnp.logaddexp jnp.copysign "
          "jnp.true_divide jnp.floor_divide jnp.mod jnp.fmod jnp.heaviside jnp.nextafter "
          "jnp.logical_and jnp.logical_or jnp.fmax jnp.power").split()
INTEGER = ("jnp.bitwise_and jnp.bitwise_or jnp.bitwise_xor jnp.left_shift jnp.right_shift jnp.gcd "
           "lax.shift_right_logical").split()


@template(8)
def unary(s: Any) -> str | None:
    return f"{s.choice(UNARY)}({s.pick()})"


@template(2)
def positive(s: Any) -> str | None:
    return f"{s.choice(POSITIVE)}(jnp.abs({s.pick(floating)}) + 0.5)"


@template(10)
def binary(s: Any) -> str | None:
    x = s.pick()
    y = s.pick(lambda v: compatible(s[x].shape, v.shape)) or x
    return f"{s.choice(BINARY)}({x}, {y})"


@template(2)
def integer(s: Any) -> str | None:
    x = s.pick(whole_number)
    y = x and s.pick(lambda v: whole_number(v) and compatible(s[x].shape, v.shape))
    return y and f"{s.choice(INTEGER)}({x}, {y})"


@template(4)
def with_number(s: Any) -> str | None:
    sign = s.choice(["+", "-", "*", "/", "**", "//", "%", "<", ">=", "=="])
    return f"{s.pick()} {sign} {s.choice(['2', '0.5', '3', '1.5'])}"


@template(4)
def where(s: Any) -> str | None:
    x = s.pick(real)
    y = x and s.pick(lambda v: v.shape == s[x].shape)
    return y and f"jnp.where({x} > {s.choice(['0', '0.3', y])}, {x}, {s.choice([y, '2', '-1.5'])})"


@template(3)
def cast(s: Any) -> str | None:
    dtype = s.choice(["float32", "int32", "bfloat16", "float16", "bool", "complex64", "uint8",
                      "int8", "uint32"])
    return f"{s.pick()}.astype('{dtype}')"


@template(2)
def clip(s: Any) -> str | None:
    return f"jnp.clip({s.pick(real)}, -1, {s.choice(['1', '0.5'])})"


# -- reductions -----------------------------------------------------------------------------

REDUCTIONS = ("sum max min mean prod any all argmax argmin var std nansum nanmax ptp median "
              "count_nonzero average nanmean").split()


def some_dims(s: Any, rank: int) -> str:
    if s.chance(0.15):
        return "None"
    if rank > 1 and s.chance(0.3):
        return repr(tuple(s.rng.sample(range(rank), 2)))
    return str(s.rng.randrange(-rank, rank))


@template(10)
def reduction(s: Any) -> str | None:
    x = s.pick(ranked(1))
    name = s.choice(REDUCTIONS)
    if x is None:
        return None
    axis = some_dims(s, s[x].ndim)
    if name.startswith("arg") and axis.startswith("("):
        axis = "0"
    keep = ", keepdims=True" if s.chance(0.3) else ""
    return f"jnp.{name}({x}, axis={axis}{keep})"


@template(5)
def cumulative(s: Any) -> str | None:
    name = s.choice(["jnp.cumsum", "jnp.cumprod", "lax.cummax", "lax.cummin", "lax.cumlogsumexp",
                     "lax.cumsum"])
    x = s.pick(lambda v: v.ndim and real(v))
    reverse = ", reverse=True" if name.startswith("lax") and s.chance(0.4) else ""
    return x and f"{name}({x}, axis={s.dim(x)}{reverse})"


@template(3)
def normalised(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and floating(v))
    name = s.choice(["jax.nn.softmax", "jax.nn.log_softmax", "jax.nn.logsumexp",
                     "jax.nn.standardize"])
    return x and f"{name}({x}, axis={s.dim(x)})"


@template(1)
def norm(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and floating(v))
    return x and f"jnp.linalg.norm({x}, axis={s.dim(x)})"


# -- shapes ---------------------------------------------------------------------------------

@template(7)
def reshape(s: Any) -> str | None:
    x = s.pick()
    size = s[x].size
    if not size:
        return None
    new: list[int] = []
    for _ in range(s.rng.randint(0, 2)):
        new.append(s.choice([d for d in (1, 2, 3, 4, 6, 8) if (size // math.prod(new)) % d == 0]))
    new.append(size // math.prod(new))
    s.rng.shuffle(new)
    return f"{x}.reshape{tuple(new)}"


@template(4)
def transpose(s: Any) -> str | None:
    x = s.pick(ranked(2))
    return x and f"{x}.transpose{tuple(s.rng.sample(range(s[x].ndim), s[x].ndim))}"


@template(5)
def arranged(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    d = s.dim(x)
    return s.choice([
        f"jnp.flip({x}, {d})", f"jnp.roll({x}, {s.choice([1, -1, 2, 5])}, {d})",
        f"jnp.expand_dims({x}, {d})", f"jnp.ravel({x})", f"jnp.tile({x}, 2)",
        f"jnp.repeat({x}, {s.choice([2, 3])}, axis={d})", f"jnp.diff({x}, axis={d})",
        f"jnp.moveaxis({x}, 0, {d})", f"jnp.swapaxes({x}, 0, {d})",
        f"jnp.broadcast_to({x}, (2, *{x}.shape))", f"jnp.atleast_2d({x})", f"{x}[None]",
        f"{x}[..., None]", f"jnp.sort({x}, axis={d})", f"jnp.argsort({x}, axis={d})",
        f"jnp.squeeze({x}[:1])", f"lax.rev({x}, ({d % s[x].ndim},))"])


@template(2)
def square(s: Any) -> str | None:
    x = s.pick(ranked(2))
    return x and s.choice([
        f"jnp.tril({x})", f"jnp.triu({x}, 1)", f"jnp.diagonal({x})", f"jnp.trace({x})",
        f"jnp.rot90({x})", f"jnp.fliplr({x})", f"{x}.T"])


@template(5)
def joined(s: Any) -> str | None:
    x = s.pick(ranked(1))
    y = x and s.pick(lambda v: v.shape == s[x].shape)
    return y and s.choice([
        f"jnp.concatenate([{x}, {y}], axis={s.dim(x)})", f"jnp.stack([{x}, {y}], axis={s.dim(x)})",
        f"jnp.append({x}, {y}, axis={s.dim(x)})", f"jnp.hstack([{x}, {y}, {x}])",
        f"jnp.vstack([{x}, {y}])"])


@template(3)
def parted(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    d = s.dim(x)
    n = s[x].shape[d]
    return s.choice([f"jnp.split({x}, 2, axis={d})",
                     f"jnp.split({x}, [1, {max(1, n - 1)}], axis={d})",
                     f"jnp.array_split({x}, 3, axis={d})", f"jnp.unstack({x}, axis={d})[:2]"])


@template(4)
def padded(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.dtype != bool)
    if x is None:
        return None
    widths = [s.choice([(0, 0), (1, 1), (0, 2), (3, 0)]) for _ in range(s[x].ndim)]
    mode = s.choice(["constant"] * 3 + ["edge", "reflect", "wrap", "symmetric"])
    config = tuple((a, b, s.choice([0, 0, 1])) for a, b in widths)
    return s.choice([f"jnp.pad({x}, {widths}, mode='{mode}')",
                     f"lax.pad({x}, jnp.array(2, {x}.dtype), {config})"])


# -- parts ----------------------------------------------------------------------------------

@template(8)
def sliced(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    index = []
    for n in s[x].shape:
        a, b = s.rng.randint(0, n), s.rng.randint(0, n)
        a, b = min(a, b), max(a, b)
        index.append(s.choice([":"] * 3 + [f"{a}:{max(b, a + 1)}", "::2", "::-1", f"-{max(1, a)}:",
                                           "1:", ":-1", "0", "-1"]))
    return f"{x}[{', '.join(index)}]"


@template(6)
def gathered(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    d, n = s.dim(x), s[x].shape[s.dim(x)]
    rows = [s.rng.randrange(-n, n) if n else 0 for _ in range(s.choice([1, 3, 4]))]
    i = s.pick(lambda v: v.dtype == "int32" and v.ndim <= 2 and v.size < 30)
    j = f"jnp.array({rows})"
    index = s.choice([j, i]) if i else j
    mode = s.choice(["", "", ", mode='clip'", ", mode='wrap'", ", mode='fill'"])
    return s.choice([f"jnp.take({x}, {index}, axis={d}{mode})", f"{x}[{index}]",
                     f"jnp.take_along_axis({x}, jnp.argsort({x}, axis={d}), axis={d})",
                     f"jnp.compress(np.arange({n}) % 2 == 0, {x}, axis={d})"])


@template(6)
def updated(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    n = s[x].shape[0]
    how = s.choice(["set", "add", "max", "min", "multiply", "subtract"])
    if s[x].dtype == bool:
        how = "set"
    if s.chance(0.5):
        index, rest = s.choice([("0", 1), ("1:", 0), ("::2", 0), ("-1", 1), (":2", 0)])
        return f"{x}.at[{index}].{how}({s.choice(['2', x + '[' + index + ']'])})"
    rows = [s.rng.randrange(-n, n) if n else 0 for _ in range(3)]
    i = s.pick(lambda v: v.dtype == "int32" and v.ndim == 1 and v.size < 20)
    j = f"jnp.array({rows})"
    index = s.choice([j, i]) if i else j
    mode = s.choice(["", "", ", mode='clip'", ", mode='drop'"])
    return f"{x}.at[{index}].{how}({s.choice(['3', f'{x}[{index}]'])}{mode})"


@template(4)
def dynamic(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    start = s.pick(lambda v: v.ndim == 0 and v.dtype == "int32") or s.choice(
        [f"jnp.argmax({x})", "jnp.int32(1)", f"jnp.count_nonzero({x})", "jnp.int32(-2)"])
    d = s.dim(x)
    k = max(1, s[x].shape[d] // 2)
    return s.choice([
        f"lax.dynamic_slice_in_dim({x}, {start}, {k}, axis={d})",
        f"lax.dynamic_update_slice_in_dim({x}, lax.slice_in_dim({x}, 0, {k}, axis={d}), {start}, "
        f"axis={d})", f"lax.dynamic_index_in_dim({x}, {start}, axis={d}, keepdims=False)",
        f"{x}[{start}]"])


@template(2)
def chosen(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and real(v))
    return x and s.choice([
        f"lax.top_k({x}, min(2, {x}.shape[-1]))", f"jnp.searchsorted(jnp.sort({x}.ravel()), {x})",
        f"jax.nn.one_hot(jnp.argmax({x}, axis=-1), 4)",
        f"jnp.digitize({x}, jnp.array([-1., 0., 1.]))",
        f"jax.ops.segment_sum({x}, jnp.arange({x}.shape[0]) % 3, num_segments=3)",
        f"jnp.bincount(jnp.abs({x}).astype(int).ravel(), length=4)",
        f"jnp.interp({x}, jnp.array([-1., 0., 2.]), jnp.array([0., 1., -1.]))",
        f"jnp.histogram({x}, bins=3)[0]", f"lax.sort(({x}, {x}), dimension=0, num_keys=1)"])


SPECIAL = ("erf erfc gammaln digamma entr expit logit ndtr log_ndtr i0 i0e i1 i1e xlogy xlog1py "
           "betaln").split()
ACTIVATIONS = ("relu6 sigmoid soft_sign log_sigmoid leaky_relu hard_tanh hard_sigmoid hard_swish "
               "celu selu squareplus mish sparse_plus tanh").split()
OF_REALS = """
jnp.quantile({x}, 0.3, axis={d})|jnp.percentile({x}, 60, axis={d})|jnp.nanstd({x}, axis={d})
jnp.nanmedian({x}, axis={d})|jnp.nanargmax({x}, axis={d})|jnp.nancumsum({x}, axis={d})
jnp.trapezoid({x}, axis={d})|jnp.gradient({x}, axis={d})|jnp.ediff1d({x})|jnp.kron({x}[:1], {x})
jnp.inner({x}, {x})|jnp.partition({x}, 0, axis={d})|jnp.unwrap({x}, axis={d})|jnp.cov({x})
jnp.lexsort(({x}, {x}), axis={d})|jnp.isin({x}, {x}[:1])|jnp.select([{x} > 1, {x} > 0], [{x}, -{x}])
jnp.nonzero({x}, size=3)[0]|jnp.unique({x}, size=4, fill_value=0)|jnp.argwhere({x}, size=2)
jnp.polyval(jnp.array([1., 2.]), {x})|jnp.vander({x}.ravel()[:4], 3)|jnp.block([[{x}], [{x}]])
jnp.apply_along_axis(jnp.sum, {d}, {x})|jnp.rollaxis({x}, {d})|jnp.resize({x}, (3, 4))
jnp.roll({x}, (1, 2), (0, {d}))|jnp.insert({x}, 0, 2, axis={d})|jnp.delete({x}, 0, axis={d})
jnp.cumulative_sum({x}, axis={d})|jnp.nanquantile({x}, 0.5, axis={d})|jnp.flatnonzero({x}, size=4)
jnp.permute_dims({x}, tuple(range({x}.ndim))[::-1])|jnp.put_along_axis({x}, jnp.argmax({x}, {d}, \
keepdims=True), 2, {d}, inplace=False)|jnp.rint({x})|jnp.frexp({x})[0]|jnp.modf({x})[1]
lax.clamp(jnp.array(-1, {x}.dtype), {x}, jnp.array(2, {x}.dtype))|lax.integer_pow({x}, 3)
lax.optimization_barrier({x})|lax.collapse({x}, 0)|lax.argmin({x}, {d}, 'int32')
lax.reduce({x}, jnp.array(1, {x}.dtype), lax.mul, ({d},))|lax.select({x} > 0, {x}, -{x})
lax.reduce({x}, jnp.array(0, {x}.dtype), lambda a, b: a + b + a * b, ({d},))
lax.split({x}, ({x}.shape[{d}],), {d})|lax.expand_dims({x}, (0,))|lax.squeeze({x}[:1], (0,))
lax.reduce_precision({x}, 5, 7)|lax.dot({x}, {x}.T)|lax.batch_matmul({x}[None], {x}.T[None])
lax.dot_general({x}, {x}, ((({d},), ({d},)), ((), ())))|lax.broadcast({x}, (2,))
lax.dot_general({x}, {x}, (((), ()), (({d},), ({d},))))|lax.sort_key_val({x}, {x}, {d})
jax.nn.glu(jnp.concatenate([{x}, {x}], {d}), axis={d})|jnp.matvec({x}, {x}[0])|jnp.vecdot({x}, {x})
jax.scipy.special.logsumexp({x}, axis={d})|jax.nn.softmax({x}, axis={d}, where={x} > 0)
jax.scipy.stats.norm.logpdf({x})|jax.scipy.stats.norm.cdf({x})|jax.nn.one_hot({x}[0], 3)
jax.ops.segment_max({x}, jnp.arange({x}.shape[0]) // 2, num_segments=3)
jax.numpy.fft.irfft(jnp.fft.rfft({x}, axis={d}), axis={d})|jnp.linalg.matrix_power({x} @ {x}.T, 2)
jnp.linalg.norm({x}, ord=1)|jnp.linalg.qr({x})[1] ** 2|jnp.linalg.svd({x}, compute_uv=False)
jax.image.resize({x}, tuple(n + 1 for n in {x}.shape), 'linear')|jax.tree.map(jnp.sin, [{x}])[0]
""".replace("\\\n", "").replace("\n", "|").strip("|").split("|")


@template(8)
def less_common(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.size and floating(v) and v.dtype != "bfloat16")
    return x and s.choice(OF_REALS).format(x=x, d=s.dim(x))


@template(3)
def special(s: Any) -> str | None:
    x = s.pick(floating)
    name = s.choice(SPECIAL)
    if x is None or s.chance(0.5):
        return x and f"jax.nn.{s.choice(ACTIVATIONS)}({x})"
    inside = f"jax.nn.sigmoid({x})" if name in ("logit", "entr") else f"(jnp.abs({x}) + 0.5)"
    more = f", jnp.abs({x}) + 1" if name in ("xlogy", "xlog1py", "betaln") else ""
    return f"jax.scipy.special.{name}({inside}{more})"


@template(2)
def bits(s: Any) -> str | None:
    x = s.pick(whole_number)
    return x and s.choice([f"lax.population_count({x})", f"lax.clz({x})", f"~{x}",
                           f"jnp.bitwise_count({x})", f"lax.bitcast_convert_type({x}, {x}.dtype)",
                           f"jnp.packbits({x} > 0)", f"{x} ** 2", f"divmod({x}, 3)"])


# -- products -------------------------------------------------------------------------------

@template(10)
def product(s: Any) -> str | None:
    x = s.pick(matrix)
    y = x and s.pick(lambda v: matrix(v) and v.shape[0] == s[x].shape[-1])
    if y is None:
        return x and s.choice([f"{x} @ {x}.T", f"jnp.outer({x}, {x}[:2])", f"jnp.vdot({x}, {x})"])
    return s.choice([f"{x} @ {y}", f"jnp.dot({x}, {y})", f"jnp.matmul({x}, {y})",
                     f"jnp.tensordot({x}, {y}, 1)"])


@template(5)
def einsum(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim >= 2 and v.dtype != bool)
    return x and "jnp.einsum('{}', {}, {})".format(s.choice(
        ["...ab,...ac->...bc", "...ab,...cb->...ac", "...ab,...ab->...a", "...ab,...ab->...b",
         "...ab,...ab->ab", "...ab,...cb->ca", "...ab,...ab->..."]), x, x)


@template(2)
def convolved(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim >= 2 and floating(v) and min(v.shape) >= 2)
    if x is None:
        return None
    if s[x].ndim == 2:
        mode = s.choice(["same", "full", "valid"])
        return s.choice([f"jnp.convolve({x}[0], {x}[1, :2], mode='{mode}')",
                         f"lax.reduce_window({x}, -jnp.inf, lax.max, (2, 2), (1, 2), 'SAME')",
                         f"lax.reduce_window({x}, 0., lax.add, (2, 1), (1, 1), 'VALID')"])
    padding, stride = s.choice(["SAME", "VALID"]), s.choice([1, 2])
    return s[x].ndim == 3 and (
        f"lax.conv_general_dilated({x}, {x}[:2, :, :2], ({stride},), '{padding}')") or None


@template(2)
def solved(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim == 2 and v.dtype == "float32" and 1 < v.shape[0] <= 6)
    if x is None:
        return None
    n = s[x].shape[0]
    if s.chance(0.8):
        x = f"jnp.nan_to_num({x}, posinf=1, neginf=-1)"
    a = f"({x} @ {x}.T / 16 + 4 * jnp.eye({n}))"        # positive, but for what is not finite
    return s.choice([f"jnp.linalg.cholesky({a})", f"jnp.linalg.solve({a}, {x})",
                     f"jnp.linalg.inv({a})", f"jnp.linalg.det({a})", f"jnp.linalg.eigvalsh({a})",
                     f"jax.scipy.linalg.solve_triangular({a}, {x}, lower=True)"])


@template(1)
def fourier(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.dtype in ("float32", "complex64"))
    if x is None:
        return None
    return s.choice([f"jnp.fft.fft({x}, axis={s.dim(x)})", f"jnp.fft.ifft({x}, axis={s.dim(x)})",
                     f"jnp.fft.rfft({x}.real, axis={s.dim(x)})", f"jnp.fft.fftshift({x})"])


@template(3)
def made(s: Any) -> str | None:
    n, m = s.choice([2, 3, 4, 6]), s.choice([2, 4, 6, 8])
    return s.choice([
        f"jnp.arange({m}).astype('float32')", f"jnp.zeros(({n}, {m}))", f"jnp.eye({n}, {m})",
        f"jnp.linspace(0, 1, {m})", f"lax.broadcasted_iota('int32', ({n}, {m}), 1)",
        f"jnp.full(({m},), 2)", f"jnp.tri({n}, {m})",
        f"jnp.meshgrid(jnp.arange({n}), jnp.arange({m}))[0]",
        f"jnp.array([[1., 2.], [3., {n}.]])"])


@template(2)
def drawn(s: Any) -> str | None:
    n, m = s.choice([2, 3, 4, 6]), s.choice([2, 4, 6, 8])
    key = f"jax.random.key({n * m})"
    return s.choice([
        f"jax.random.normal({key}, ({n}, {m}))", f"jax.random.uniform({key}, ({n}, {m}))",
        f"jax.random.randint({key}, ({n}, {m}), 0, 9)", f"jax.random.bernoulli({key}, 0.3, ({m},))",
        f"jax.random.permutation({key}, {m})",
        f"jax.random.uniform(jax.random.split({key})[1], ({m},))",
        f"jax.random.bits(jax.random.fold_in({key}, 3), ({n}, {m}))",
        f"jax.random.categorical({key}, jnp.zeros(({n}, {m})))",
        f"jax.random.truncated_normal({key}, -1, 1, ({n}, {m}))",
        f"jax.random.choice({key}, {m}, ({n},))", f"jax.random.rademacher({key}, ({m},))",
        f"jax.random.exponential({key}, ({n}, {m}))", f"jax.random.laplace({key}, ({m},))"])


@template(4)
def placed(s: Any) -> str | None:
    """Another layout, as far as the axes' types allow it; Auto axes need not divide sizes."""
    x = s.pick(ranked(1))
    if x is None:
        return None
    if s.chance(0.5):
        spec = s.spec(s[x].shape, "Auto", uneven=s.chance(0.5))
        return spec and f"lax.with_sharding_constraint({x}, {spec})"
    spec = s.spec(s[x].shape, "Explicit")
    return spec and f"jax.sharding.reshard({x}, {spec})"


# -- exchanges, inside shard_map ------------------------------------------------------------

@template(6, MANUAL)
def summed(s: Any) -> str | None:
    axes, n = s.some_axes()
    x = s.pick(lambda v: v.dtype != bool)
    name = s.choice(["lax.psum", "lax.psum", "lax.pmean", "lax.pmax", "lax.pmin"])
    return x and f"{name}({x}, {axes})"


@template(4, MANUAL)
def collected(s: Any) -> str | None:
    axes, n = s.some_axes()
    x = s.pick(lambda v: v.size * n <= ENOUGH)
    if x is None:
        return None
    if s[x].ndim and s.chance(0.7):
        return f"lax.all_gather({x}, {axes}, axis={s.dim(x)}, tiled=True)"
    return f"lax.all_gather({x}, {axes})"


@template(4, MANUAL)
def scattered(s: Any) -> str | None:
    axes, n = s.some_axes()
    x = s.pick(lambda v: v.ndim and v.dtype != bool and any(m % n == 0 for m in v.shape))
    if x is None:
        return None
    d = s.choice([d for d, m in enumerate(s[x].shape) if m % n == 0])
    if s[x].shape[d] == n and s.chance(0.5):
        return s.choice([f"lax.psum_scatter({x}, {axes}, scatter_dimension={d})",
                         f"lax.all_to_all({x}, {axes}, {d}, {s.dim(x)})"])
    return s.choice([f"lax.psum_scatter({x}, {axes}, scatter_dimension={d}, tiled=True)",
                     f"lax.all_to_all({x}, {axes}, {d}, {s.dim(x)}, tiled=True)"])


@template(4, MANUAL)
def permuted(s: Any) -> str | None:
    axes, n = s.some_axes(in_order=True)
    k, cut = s.choice([1, -1, 2]), s.chance(0.3)
    pairs = [(i, (i + k) % n) for i in range(n) if not cut or 0 <= i + k < n]
    if s.chance(0.2):
        return f"lax.pshuffle({s.pick()}, {axes}, {s.rng.sample(range(n), n)})"
    return f"lax.ppermute({s.pick()}, {axes}, {pairs})"


@template(5, MANUAL)
def own_position(s: Any) -> str | None:
    axes, n = s.some_axes()
    x = s.pick(real)
    return x and s.choice([
        f"lax.axis_index({axes})", f"{x} + lax.axis_index({axes})",
        f"jnp.where(lax.axis_index({axes}) == {s.rng.randrange(n)}, {x}, 0)",
        f"{x} * lax.axis_size({axes})", f"lax.pcast({x}, {axes}, to='varying')"])


# -- what operands must be --------------------------------------------------------------------

def floating(v: Any) -> bool:
    return v.dtype.kind == "f" or v.dtype == "bfloat16"


def matrix(v: Any) -> bool:
    return v.ndim in (1, 2) and v.dtype != bool


def whole_number(v: Any) -> bool:
    return v.dtype.kind in "iu" and v.dtype.itemsize >= 1


def real(v: Any) -> bool:
    return v.dtype.kind in "fiu" or v.dtype == "bfloat16"


def ranked(least: int) -> Callable[[Any], bool]:
    return lambda v: v.ndim >= least and v.size > 0


def compatible(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m in (1, n) or n == 1 for m, n in zip(a[::-1], b[::-1], strict=False))
