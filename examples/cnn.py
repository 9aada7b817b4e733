"""A convolutional network with batch normalisation, data-parallel over all devices.

Images are stripes, upright or lying, of two widths, under noise: four classes. The mesh is Auto
and only the batch is sharded, so the convolutions run where their images are. Batch statistics
are means over the *global* batch, written as in a program for one device; the all-reduces that
they need are found by the compiler. The running statistics leave the loss as `aux`.

Replace the imports by jax's, and the same losses come from JAX.
"""
from __future__ import annotations

import functools

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

BATCH, SIZE, CHANNELS, CLASSES = 32, 12, (1, 8, 16), 4
LEARNING_RATE, MOMENTUM, DECAY = 0.2, 0.9, 0.9

mesh = st.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
replicated = NamedSharding(mesh, P())
by_image = NamedSharding(mesh, P("data"))


def init(key):
    """Parameters, and the running statistics of each normalisation; all replicated."""
    *conv_keys, dense_key = random.split(key, len(CHANNELS))
    kernel = nn.initializers.he_normal()
    params, stats = {}, {}
    for i, conv_key in enumerate(conv_keys):
        inputs, outputs = CHANNELS[i : i + 2]
        params[f"conv{i}"] = {"kernel": kernel(conv_key, (3, 3, inputs, outputs)),
                              "scale": jnp.ones(outputs), "offset": jnp.zeros(outputs)}
        stats[f"conv{i}"] = {"mean": jnp.zeros(outputs), "var": jnp.ones(outputs)}
    params["dense"] = {"w": 0.1 * random.normal(dense_key, (CHANNELS[-1], CLASSES)),
                       "b": jnp.zeros(CLASSES)}
    return st.device_put((params, stats), replicated)


def block(params, stats, x):
    """Convolution, batch normalisation, relu, pooling by 2: (n, h, w, c) to (n, h/2, w/2, c')."""
    x = lax.conv_general_dilated(x, params["kernel"], window_strides=(1, 1), padding="SAME",
                                 dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean, var = jnp.mean(x, axis=(0, 1, 2)), jnp.var(x, axis=(0, 1, 2))
    x = (x - mean) * lax.rsqrt(var + 1e-5) * params["scale"] + params["offset"]
    x = lax.reduce_window(nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    new = {"mean": mean, "var": var}
    return x, st.tree.map(lambda old, now: DECAY * old + (1 - DECAY) * now, stats, new)


def loss_fn(params, stats, images, labels):
    x, new_stats = images, {}
    for name in sorted(stats):
        x, new_stats[name] = block(params[name], stats[name], x)
    logits = jnp.mean(x, axis=(1, 2)) @ params["dense"]["w"] + params["dense"]["b"]
    picked = jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=-1)
    accuracy = jnp.mean(jnp.argmax(logits, axis=-1) == labels)
    return -jnp.mean(picked), (new_stats, accuracy)


@functools.partial(st.jit, donate_argnums=(0, 1, 2))
def train_step(params, velocity, stats, images, labels):
    grad_fn = st.value_and_grad(loss_fn, has_aux=True)
    (loss, (stats, accuracy)), grads = grad_fn(params, stats, images, labels)
    velocity = st.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    params = st.tree.map(lambda p, v: p - LEARNING_RATE * v, params, velocity)
    return params, velocity, stats, loss, accuracy


@functools.partial(st.jit, out_shardings=by_image)
def make_batch(key):
    label_key, phase_key, noise_key = random.split(key, 3)
    labels = random.randint(label_key, (BATCH,), 0, CLASSES)
    rows, columns = jnp.meshgrid(jnp.arange(SIZE), jnp.arange(SIZE), indexing="ij")
    lying, narrow = (labels % 2 == 0)[:, None, None], (labels // 2 == 0)[:, None, None]
    phase = random.uniform(phase_key, (BATCH, 1, 1), maxval=2 * jnp.pi)
    waves = jnp.sin(jnp.where(lying, rows, columns) * jnp.where(narrow, 2.0, 1.0) + phase)
    noise = 0.3 * random.normal(noise_key, (BATCH, SIZE, SIZE))
    return (waves + noise)[..., None], labels


def main(steps=15):
    params, stats = init(random.key(0))
    velocity = st.tree.map(jnp.zeros_like, params)
    losses = []
    for step in range(steps):
        images, labels = make_batch(random.fold_in(random.key(1), step))
        params, velocity, stats, loss, accuracy = train_step(
            params, velocity, stats, images, labels)
        losses.append(float(loss))
        print(f"step {step:3d}  loss {losses[-1]:.5f}  accuracy {float(accuracy):.2f}")
    return losses


if __name__ == "__main__":
    main()
