"""Layers as pairs of functions, and their combinations.

`init(rng, input_shape)` gives (output shape, parameters), `apply(params, inputs, **kwargs)` the
outputs; `kwargs["rng"]` is a key for layers that draw numbers.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ....tracer import jnp, lax, nn, random
from ....tracer.nn.initializers import glorot_normal, normal, ones, zeros

glorot, randn = glorot_normal, normal
__all__ = ["AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout",
           "Elu", "Exp", "FanInConcat", "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv",
           "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax", "MaxPool", "Relu",
           "Selu", "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "glorot",
           "parallel", "randn", "serial", "shape_dependent"]
Layer = tuple[Callable[..., Any], Callable[..., Any]]


def _without_parameters(shape_of: Callable[[Any], Any], apply: Callable[..., Any]) -> Layer:
    return (lambda rng, input_shape: (shape_of(input_shape), ())), apply


def Dense(out_dim, W_init=None, b_init=None) -> Layer:
    """`inputs @ W + b`."""
    W_init, b_init = W_init or glorot_normal(), b_init or normal()

    def init(rng, input_shape):
        k1, k2 = random.split(rng)
        params = W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    return init, lambda params, inputs, **kwargs: jnp.dot(inputs, params[0]) + params[1]


def _conv(apply: Callable[..., Any], dimension_numbers, out_chan, filter_shape, strides, padding,
          W_init, b_init) -> Layer:
    """A layer of a convolution `apply`, with its kernel in the dimension order of
    `dimension_numbers`.
    """
    lhs, rhs, out = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))
    b_init = b_init or normal(1e-6)

    def run(inputs, W):
        return apply(inputs, W, strides, padding, dimension_numbers=dimension_numbers)

    def init(rng, input_shape):
        sizes = iter(filter_shape)
        kernel = [out_chan if c == "O" else input_shape[lhs.index("C")] if c == "I"
                  else next(sizes) for c in rhs]
        bias = tuple(out_chan if c == "C" else 1 for c in out)
        k1, k2 = random.split(rng)
        W, b = W_init(k1, kernel), b_init(k2, bias)
        shape = [n if n > 0 else 1 for n in input_shape]           # the batch may be unknown, -1
        result = run(jnp.zeros(shape, W.dtype), W).shape
        return tuple(-1 if n < 0 else m for n, m in zip(input_shape, result, strict=True)), (W, b)

    return init, lambda params, inputs, **kwargs: run(inputs, params[0]) + params[1]


def GeneralConv(dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID",
                W_init=None, b_init=None) -> Layer:
    """A convolution, with a bias for each channel."""
    return _conv(lax.conv_general_dilated, dimension_numbers, out_chan, filter_shape, strides,
                 padding, W_init, b_init)


def GeneralConvTranspose(dimension_numbers, out_chan, filter_shape, strides=None, padding="VALID",
                         W_init=None, b_init=None) -> Layer:
    """A transposed convolution, with a bias for each channel."""
    return _conv(lax.conv_transpose, dimension_numbers, out_chan, filter_shape, strides, padding,
                 W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(axis=(0, 1, 2), epsilon=1e-5, center=True, scale=True, beta_init=zeros,
              gamma_init=ones) -> Layer:
    """Inputs with mean 0 and variance 1 along `axis`, then scaled and shifted by parameters."""
    axes: Any = (axis,) if isinstance(axis, int) else axis

    def init(rng, input_shape):
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (),
                             gamma_init(k2, shape) if scale else ())

    def apply(params, x, **kwargs):
        beta, gamma = params
        place = tuple(None if i in axes else slice(None) for i in range(jnp.ndim(x)))
        z = nn.standardize(x, axes, epsilon=epsilon)
        z = gamma[place] * z if scale else z
        return z + beta[place] if center else z

    return init, apply


def elementwise(fun, **fun_kwargs) -> Layer:
    """A function of arrays as a layer without parameters."""
    return _without_parameters(lambda shape: shape,
                               lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)
Identity = _without_parameters(lambda shape: shape, lambda params, inputs, **kwargs: inputs)
Flatten = _without_parameters(
    lambda shape: (shape[0], math.prod(shape[1:])),
    lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1)))


def _pooling(reducer, init_val, mean=False) -> Callable[..., Layer]:
    """The layers that reduce windows. mean: by the number of elements in each."""
    def layer(window_shape, strides=None, padding="VALID", spec=None) -> Layer:
        spec = spec or f"N{'.' * len(window_shape)}C"
        strides = strides or (1,) * len(window_shape)

        def whole(sizes):
            given = iter(sizes)
            return tuple(1 if c in "NC" else next(given) for c in spec)

        dims, steps = whole(window_shape), whole(strides)

        def apply(params, inputs, **kwargs):
            out = lax.reduce_window(inputs, init_val, reducer, dims, steps, padding)
            if mean:
                counted = jnp.ones([n if c not in "NC" else 1 for n, c in zip(
                    inputs.shape, spec, strict=True)], inputs.dtype)
                out = out / lax.reduce_window(counted, 0.0, lax.add, dims, steps, padding)
            return out

        def init(rng, input_shape):
            padded = lax.padtype_to_pads(input_shape, dims, steps, padding)
            shape = lax.reduce_window_shape_tuple(input_shape, dims, steps, padded)
            return tuple(-1 if n < 0 else m for n, m in zip(input_shape, shape, strict=True)), ()

        return init, apply

    return layer


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, mean=True)


def FanOut(num) -> Layer:
    """The inputs `num` times, for `parallel`."""
    return _without_parameters(lambda shape: [shape] * num,
                               lambda params, inputs, **kwargs: [inputs] * num)


FanInSum = _without_parameters(lambda shapes: shapes[0],
                               lambda params, inputs, **kwargs: sum(inputs))


def FanInConcat(axis=-1) -> Layer:
    """The inputs of several branches, concatenated."""
    def shape_of(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        place = axis % len(shapes[0])
        return (*shapes[0][:place], sum(s[place] for s in shapes), *shapes[0][place + 1:])

    return _without_parameters(shape_of,
                               lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis))


def Dropout(rate, mode="train") -> Layer:
    """Keeps inputs with the probability `rate`, larger by as much; all where not in training."""
    def apply(params, inputs, **kwargs):
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError("Dropout layer requires apply_fun to be called with a PRNG key "
                             "argument. That is, instead of `apply_fun(params, inputs)`, call it "
                             "like `apply_fun(params, inputs, rng)` where `rng` is a PRNG key "
                             "(e.g. from `jax.random.key`).")
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return _without_parameters(lambda shape: shape, apply)


def serial(*layers: Layer) -> Layer:
    """Layers applied one after the other."""
    inits, applies = [layer[0] for layer in layers], [layer[1] for layer in layers]

    def init(rng, input_shape):
        params = []
        for init_one in inits:
            rng, key = random.split(rng)
            input_shape, p = init_one(key, input_shape)
            params.append(p)
        return input_shape, params

    def apply(params, inputs, **kwargs):
        for f, p, key in zip(applies, params, _keys(kwargs.pop("rng", None), len(layers)),
                             strict=True):
            inputs = f(p, inputs, rng=key, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Layers in parallel, each with its own input."""
    inits, applies = [layer[0] for layer in layers], [layer[1] for layer in layers]

    def init(rng, input_shape):
        found = [f(key, shape) for f, key, shape in zip(
            inits, random.split(rng, len(layers)), input_shape, strict=True)]
        return [shape for shape, _ in found], [p for _, p in found]

    def apply(params, inputs, **kwargs):
        keys = _keys(kwargs.pop("rng", None), len(layers))
        return [f(p, x, rng=key, **kwargs) for f, p, x, key in zip(
            applies, params, inputs, keys, strict=True)]

    return init, apply


def _keys(rng: Any, count: int) -> Any:
    return (None,) * count if rng is None else random.split(rng, count)


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer that `make_layer` makes for the shape of the inputs."""
    return (lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
            lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs))
