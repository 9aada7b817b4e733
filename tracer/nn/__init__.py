"""Neural network functions, with the names and signatures of `jax.nn`."""
from __future__ import annotations

from ..jnp.elementwise.arithmetic import tanh
from ..jnp.elementwise.log_sums import logmeanexp, logsumexp
from .activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from .attention import dot_product_attention
from .normalization import log_softmax, one_hot, softmax, standardize
from .scaled import get_scaled_dot_general_config, scaled_dot_general, scaled_matmul

__all__ = [
    "celu", "dot_product_attention", "elu", "gelu",
    "get_scaled_dot_general_config", "glu", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "identity", "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax",
    "logmeanexp", "logsumexp", "mish", "one_hot", "relu", "relu6", "scaled_dot_general",
    "scaled_matmul", "selu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus",
    "standardize", "swish", "tanh",
]
