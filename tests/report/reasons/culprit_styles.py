"""Programs in many styles with one unwanted collective each; the line to blame has `# culprit`."""
from __future__ import annotations

import functools

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
LINE = st.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
CASES: dict = {}


def struct(shape, *spec, mesh=MESH, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def bare(shape, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype)


def to(x, *spec, mesh=MESH):
    return st.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def named(*spec, mesh=MESH):
    return NamedSharding(mesh, P(*spec))


def case(*args, mesh=MESH, source=None, into=CASES, **options):
    """source: the function whose lines hold the culprit, where it is not the one decorated."""
    def enter(f):
        jitted = f if isinstance(f, type(st.jit(len))) else st.jit(f, **options)
        into[f.__name__] = (jitted, args, mesh, source or getattr(f, "_f", f))
        return f
    return enter


# -- constraints -----------------------------------------------------------------------------------

@case(struct((512, 1024), "X"), struct((1024, 2048), None, "Y"), struct((2048, 1024), "Y"))
def activation_constrained_by_rows_of_the_wrong_axis(x, w1, w2):
    h = jnp.tanh(x @ w1)
    h = to(h, "Y", None)                                          # culprit
    return h * 2.0 @ w2


@case(struct((512, 1024), "X"), struct((1024, 2048), None, "Y"), struct((2048, 1024), "Y"))
def activation_made_whole_in_the_middle(x, w1, w2):
    h = st.nn.gelu(x @ w1)
    h = st.lax.with_sharding_constraint(h, NamedSharding(MESH, P()))    # culprit
    return h @ w2


@case(struct((512, 1024), "X"), struct((1024, 1024)), struct((1024, 1024)))
def residual_made_whole(x, w1, w2):
    y = x + st.nn.relu(x @ w1)
    y = to(y)                                                     # culprit
    return y + st.nn.relu(y @ w2)


@case(struct((64, 128, 512), "X"), struct((512, 512), None, "Y"))
def constraint_within_an_expression(x, w):
    return jnp.sin(
        to(                                                       # culprit
            jnp.einsum("bsd,df->bsf", x, w),                      # culprit
            "Y", None, None,
        ) * 0.5)


@case(struct((512, 1024), "X"), bare((1024, 2048)))
def weight_constrained_against_its_use(x, w):
    w = to(w, "Y", None)
    return jnp.maximum(x @ w, 0)                                  # culprit


# -- arguments and results -------------------------------------------------------------------------

@case(bare((1024, 512)), bare((512, 2048)), bare((2048, 512)),
      in_shardings=(named("X"), named(None, "Y"), named(None, "Y")))
def in_sharding_of_one_weight(x, up, down):
    hidden = jnp.tanh(jnp.dot(x, up))
    out = jnp.dot(hidden, down)                                   # culprit
    return out


@case(struct((1024, 1024), "X"), struct((1024, 1024), None, "Y"), out_shardings=named())
def out_sharding_that_gathers(x, w):
    h = x @ w
    return jnp.exp(-h)                                            # culprit


@case(struct((1024, 1024), "X"), struct((1024,), ("X", "Y")))
def bias_split_otherwise(x, b):
    return x + b                                                  # culprit


@case({"w1": struct((512, 2048), None, "Y"), "w2": struct((2048, 512), None, "Y"),
       "b": struct((512,))}, struct((1024, 512), "X"))
def parameters_in_a_tree(params, x):
    h = st.nn.relu(x @ params["w1"])
    y = h @ params["w2"]                                          # culprit
    return y + params["b"]


@case(struct((2048, 1024), None, "X"), struct((1024, 1024), None, "Y"))
def batch_that_is_split_by_features(x, w):
    return st.nn.relu(x @ w)                                      # culprit


# -- shapes ----------------------------------------------------------------------------------------

@case(struct((64, 16, 1024), None, "X"))
def reshape_merges_a_split_dimension(x):
    y = x.reshape(64 * 16, 1024)                                  # culprit
    return jnp.sin(to(y, "X"))


@case(struct((256, 64, 128), "X", "Y"))
def heads_merged_then_split(x):
    flat = x.reshape(256 * 64, 128)                               # culprit
    return to(jnp.cos(flat), "Y", None)


@case(struct((1024, 1024), "X", "Y"), struct((1024, 1024), "X", "Y"))
def transposed_operand(a, b):
    return a + b.T                                                # culprit


@case(struct((64, 256, 512), "X"), struct((256, 64, 512), "X"))
def axes_swapped(a, b):
    s = jnp.swapaxes(b, 0, 1)
    return jnp.tanh(a) * s                                        # culprit


@case(struct((2048, 512), "X"), struct((2048, 512), "X"))
def concatenated_along_a_split_dimension(a, b):
    both = jnp.concatenate([a, b], axis=0)                        # culprit
    return both * 2


@case(struct((1024, 1024), None, "Y"))
def flipped_along_a_split_dimension(x):
    return jnp.flip(x, 1) + 1                                     # culprit


# -- along a split dimension -----------------------------------------------------------------------

@case(struct((256, 4096), None, "Y"))
def running_sum(x):
    scaled = x * 0.5
    return jnp.cumsum(scaled, axis=1)                             # culprit


@case(struct((256, 4096), "X", "Y"))
def sorted_rows(x):
    return jnp.sort(-x, axis=-1)                                  # culprit


@case(struct((1024, 2048), "X", "Y"))
def layer_norm_over_split_features(x):
    mean = x.mean(-1, keepdims=True)                              # culprit
    centred = x - mean
    return centred / jnp.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5)  # culprit


@case(struct((16, 8, 256, 256), "X", None, None, "Y"))
def attention_weights_over_split_keys(scores):
    return st.nn.softmax(scores * 0.1, axis=-1)                   # culprit


@case(struct((512, 512), "X", "Y"))
def statistics_over_everything(x):
    total = jnp.sum(x, axis=1)                                    # culprit
    return x / total[:, None]


# -- contractions ----------------------------------------------------------------------------------

@case(struct((32, 128, 512), "X", None, "Y"), struct((512, 512)))
def einsum_over_a_split_dimension(x, w):
    return jnp.einsum("bsd,df->bsf", x, w)                        # culprit


@case(struct((8, 512, 8, 64), "X", "Y"), struct((8, 512, 8, 64), "X", "Y"),
      struct((8, 512, 8, 64), "X", "Y"))
def attention_over_a_split_sequence(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)                  # culprit
    return scores.sum(-1)


@case(struct((1024, 1024), "X"), struct((1024, 1024), None, "X"))
def both_operands_over_one_axis(x, w):
    return x @ w                                                  # culprit


@case(struct((1024, 1024), None, "Y"), struct((1024, 1024), "Y"))
def partial_sum_then_a_slice(x, w):
    y = x @ w                                                     # culprit
    return y[:, :256]


# -- tables ----------------------------------------------------------------------------------------

@case(struct((32000, 256), "Y"), struct((64, 32), "X", dtype=np.int32))
def embedding_by_vocabulary(table, tokens):
    return jnp.take(table, tokens, axis=0)                        # culprit


@case(struct((4096, 512), "Y"), struct((1024,), "X", dtype=np.int32), struct((1024, 512), "X"))
def scattered_rows(buffer, at, values):
    return buffer.at[at].add(values)                              # culprit


# -- loops -----------------------------------------------------------------------------------------

@case(struct((512, 512), "X"), struct((512, 512), None, "Y"), struct((8, 512), None))
def the_same_gather_in_every_step(x, w, steps):
    def body(h, s):
        h = jnp.tanh(h @ w) + s                                   # culprit
        return h, None
    return st.lax.scan(body, x, steps)[0]


@case(struct((256, 512), "X"), struct((6, 512, 2048), None, None, "Y"),
      struct((6, 2048, 512), None, None, "Y"))
def a_stack_of_layers(x, ups, downs):
    def layer(h, ws):
        up, down = ws
        inner = st.nn.relu(h @ up)
        return h + inner @ down, None                             # culprit
    out, _ = st.lax.scan(layer, x, (ups, downs))
    return out


@case(struct((256, 512), "X"), struct((4, 512, 512), None))
def carry_laid_out_otherwise_inside(x, ws):
    def body(h, w):
        inner = to(h, None, "Y")                                  # culprit
        return to(jnp.cumsum(inner, 0) * w.sum(), "X", None), None
    return st.lax.scan(body, x, ws)[0]                            # culprit (or where it ends)


@case(struct((256, 1024), None, "Y"))
def fori_with_a_sum(x):
    def body(i, h):
        return h / h.sum(axis=1, keepdims=True)                   # culprit
    return st.lax.fori_loop(0, 5, body, x)


@case(struct((512, 1024), "X"), [struct((1024, 1024))] * 4)
def constraint_in_a_python_loop(x, ws):
    for w in ws:
        x = jnp.tanh(x @ w)
        x = st.lax.with_sharding_constraint(x, named())           # culprit
    return x


# -- Python styles ---------------------------------------------------------------------------------

def project(h, w):
    return jnp.tanh(h) @ w                                        # culprit


@case(struct((512, 1024), "X"), struct((1024, 1024)), struct((1024, 1024), "Y"), source=project)
def helper_called_twice(x, w1, w2):
    return project(project(x, w1), w2)


class Block:
    """A layer as users write them."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x, w):
        return self.feed(x, w) * self.scale

    def feed(self, x, w):
        h = jnp.where(x > 0, x, 0.1 * x)
        return jnp.matmul(h, w)                                   # culprit


CASES["method_of_a_class"] = (
    st.jit(Block(3.0)), (struct((512, 1024), "X", "Y"), struct((1024, 1024))), MESH, Block.feed)


@case(struct((512, 1024), "X"), [struct((1024, 1024)), struct((1024, 1024), None, "Y"),
                                 struct((1024, 1024))])
def layers_in_a_comprehension(x, ws):
    outs = [jnp.tanh(x @ w) for w in ws]
    return sum(o @ ws[0] for o in outs)                           # culprit


@case(struct((512, 1024), "X", "Y"))
def lambda_in_a_map(x):
    normalise = lambda v: v / jnp.linalg.norm(v, axis=-1, keepdims=True)  # noqa: E731  # culprit
    return normalise(x)


@case(struct((512, 1024), "X", "Y"), struct((1024, 512)))
@functools.partial(st.jit, static_argnames=("axis",))
def decorated_with_a_static_argument(x, w, axis=1):
    h = jnp.sqrt(jnp.abs(x))
    return jnp.max(h, axis=axis) @ w[:512]                        # culprit


@st.jit
def inner_function(h, w):
    return jnp.sin(h) @ w                                         # culprit


@case(struct((512, 1024), "X"), struct((1024, 1024), "Y"), source=inner_function._f)
def nested_jit(x, w):
    return inner_function(x * 2, w) + 1


# -- shard_map -------------------------------------------------------------------------------------

def _blockwise(x, w):
    whole = st.lax.all_gather(x, "Y", axis=1, tiled=True)         # culprit
    return jnp.tanh(whole) @ w


@case(struct((4096, 4096), "X", "Y"), struct((4096, 64)), source=_blockwise)
def gather_written_in_shard_map(x, w):
    return st.shard_map(_blockwise, mesh=MESH, in_specs=(P("X", "Y"), P()), out_specs=P("X"),
                        check_vma=False)(x, w)


@case(struct((1024, 512), "X"), struct((1024, 512), "X"))
def shard_map_wants_it_otherwise(a, b):
    f = st.shard_map(jnp.sin, mesh=MESH, in_specs=P("Y"), out_specs=P("Y"))
    return f(a) + b                                               # culprit


def _averaged(x):
    h = jnp.tanh(x)
    return st.lax.pmean(h, "Y") * 2                               # culprit


@case(struct((1024, 512), "X"), source=_averaged)
def mean_of_equal_values(x):
    return st.shard_map(_averaged, mesh=MESH, in_specs=P("X"), out_specs=P("X"))(x)


# -- Explicit axes ---------------------------------------------------------------------------------

@case(struct((512, 1024), "X", mesh=EXPLICIT), struct((1024, 1024), None, "Y", mesh=EXPLICIT),
      mesh=EXPLICIT)
def explicit_reshard(x, w):
    h = jnp.tanh(x @ w)
    whole = reshard(h, P(None, None))                             # culprit
    return whole * 2


@case(struct((512, 1024), "X", "Y", mesh=EXPLICIT), struct((1024, 512), "Y", mesh=EXPLICIT),
      mesh=EXPLICIT)
def explicit_contraction(x, w):
    return jnp.matmul(x, w, out_sharding=P("X", None))            # culprit


@case(struct((512, 1024), "X", mesh=EXPLICIT), struct((512, 1024), "Y", mesh=EXPLICIT),
      mesh=EXPLICIT)
def explicit_sum(a, b):
    moved = reshard(b, P("X", None))                              # culprit
    return a + moved


@case(struct((512, 1024), "X", mesh=EXPLICIT), struct((1024, 512), None, "Y", mesh=EXPLICIT),
      mesh=EXPLICIT)
def explicit_out_sharding_of_an_einsum(x, w):
    scores = jnp.einsum("bd,df->bf", x, w,
                        out_sharding=P(None, "Y"))                # culprit
    return jnp.exp(scores)


# -- training --------------------------------------------------------------------------------------

@case(struct((512, 512), "data", mesh=LINE), struct((512, 512), "data", mesh=LINE),
      struct((4096, 512), "data", mesh=LINE), mesh=LINE)
def fully_sharded_gathered_twice(w1, w2, x):
    g = to(w1, mesh=LINE)                                         # culprit
    y = jnp.tanh(x @ g)
    again = to(w2, mesh=LINE)                                     # culprit
    return jnp.tanh(y @ again)


@case(struct((512, 512), None, "Y"), struct((512, 512), None, "Y"), struct((1024, 512), "X"))
def gradient_of_two_columns(w1, w2, x):
    def loss(w1, w2):
        h = jnp.tanh(x @ w1)
        return ((h @ w2) ** 2).sum()                              # culprit
    return st.grad(loss, argnums=(0, 1))(w1, w2)


@case(struct((1024, 256), "X"), struct((256, 1000)), struct((1024,), "X", dtype=np.int32))
def gradients_asked_for_whole(x, w, labels):
    def loss(w):
        logits = x @ w                                            # culprit
        picked = jnp.take_along_axis(st.nn.log_softmax(logits), labels[:, None], axis=1)
        return -picked.mean()
    return st.grad(loss)(w)


@case(struct((1024, 512), "X"), struct((512, 512), "X"))
def step_of_an_optimiser(x, w):
    def loss(w):
        return (jnp.sin(x @ w) ** 2).mean()                       # culprit
    return w - 0.1 * st.grad(loss)(w)
