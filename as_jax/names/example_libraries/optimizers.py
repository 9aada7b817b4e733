"""Optimizers as triples of functions: the state of parameters, its update, its parameters.

An optimizer is written for one array; `optimizer` makes it one of pytrees. Step sizes are numbers,
or functions of the number of the step.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....tracer import jnp, lax
from ....tracer.trees import tree, tree_api

__all__ = ["JoinPoint", "Optimizer", "OptimizerState", "adagrad", "adam", "adamax", "clip_grads",
           "constant", "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule",
           "momentum", "nesterov", "optimizer", "pack_optimizer_state", "piecewise_constant",
           "polynomial_decay", "rmsprop", "rmsprop_momentum", "sgd", "sm3",
           "unpack_optimizer_state"]
Schedule = Callable[[Any], Any]


class OptimizerState(NamedTuple):
    """The states of all arrays, with the tree of the parameters and those of their states."""

    packed_state: Sequence[Sequence[Any]]
    tree_def: Any
    subtree_defs: Sequence[Any]


tree.register_pytree_node(
    OptimizerState, lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
    lambda aux, children: OptimizerState(children[0], *aux))


class Optimizer(NamedTuple):
    """`init_fn(params)`, `update_fn(step, grads, state)` and `params_fn(state)`."""

    init_fn: Callable[[Any], OptimizerState]
    update_fn: Callable[[Any, Any, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], Any]


def optimizer(opt_maker: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., Optimizer]:
    """A decorator: functions that give the three functions for an array give those for pytrees."""
    @functools.wraps(opt_maker)
    def made(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get = opt_maker(*args, **kwargs)

        def init_all(params: Any) -> OptimizerState:
            leaves, treedef = tree_api.flatten(params)
            states, trees = _flattened([init(x) for x in leaves])
            return OptimizerState(states, treedef, trees)

        def update_all(i: Any, grads: Any, state: OptimizerState) -> OptimizerState:
            leaves, treedef = tree_api.flatten(grads)
            if treedef != state.tree_def:
                raise TypeError("optimizer update function was passed a gradient tree that did not "
                                "match the parameter tree structure with which it was initialized: "
                                f"parameter tree {state.tree_def} and grad tree {treedef}.")
            states, trees = _flattened([update(i, g, s) for g, s in zip(
                leaves, _unflattened(state), strict=True)])
            if trees != tuple(state.subtree_defs):
                raise TypeError("optimizer update function produced an output structure that did "
                                f"not match its input structure: input {state.subtree_defs} and "
                                f"output {trees}.")
            return OptimizerState(states, state.tree_def, trees)

        def get_all(state: OptimizerState) -> Any:
            return tree_api.unflatten(state.tree_def, [get(s) for s in _unflattened(state)])

        return Optimizer(init_all, update_all, get_all)

    return made


def _flattened(states: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    flat = [tree_api.flatten(s) for s in states]
    return tuple(leaves for leaves, _ in flat), tuple(treedef for _, treedef in flat)


def _unflattened(state: OptimizerState) -> list[Any]:
    return [tree_api.unflatten(treedef, leaves) for treedef, leaves in zip(
        state.subtree_defs, state.packed_state, strict=True)]


# -- optimizers --------------------------------------------------------------------------------

@optimizer
def sgd(step_size):
    """Gradient descent."""
    rate = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


@optimizer
def momentum(step_size, mass):
    """Gradient descent with momentum: a velocity that decays by `mass` and sums gradients."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return (lambda x: (x, jnp.zeros_like(x))), update, (lambda state: state[0])


@optimizer
def nesterov(step_size, mass):
    """`momentum` with Nesterov's look-ahead."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return (lambda x: (x, jnp.zeros_like(x))), update, (lambda state: state[0])


@optimizer
def adagrad(step_size, momentum=0.9):
    """Steps by the root of the sum of squared gradients, with momentum."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, squares, moved = state
        squares = squares + jnp.square(g)
        scaled: Any = jnp.where(squares > 0, g * lax.rsqrt(squares), 0.0)
        moved = (1.0 - momentum) * scaled + momentum * moved
        return x - rate(i) * moved, squares, moved

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, (lambda s: s[0])


@optimizer
def rmsprop(step_size, gamma=0.9, eps=1e-8):
    """Steps by the root of a running mean of squared gradients."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, mean = state
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        return x - rate(i) * g / jnp.sqrt(mean + eps), mean

    return (lambda x: (x, jnp.zeros_like(x))), update, (lambda state: state[0])


@optimizer
def rmsprop_momentum(step_size, gamma=0.9, eps=1e-8, momentum=0.9):
    """`rmsprop`, whose steps are summed with momentum."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, mean, moved = state
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        moved = momentum * moved + rate(i) * g / jnp.sqrt(mean + eps)
        return x - moved, mean, moved

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, (lambda s: s[0])


@optimizer
def adam(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """Steps by running means of gradients and of their squares, both without bias."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, first, second = state
        first = (1 - b1) * g + b1 * first
        second = (1 - b2) * jnp.square(g) + b2 * second
        unbiased = first / (1 - jnp.asarray(b1, first.dtype) ** (i + 1))
        scale = second / (1 - jnp.asarray(b2, first.dtype) ** (i + 1))
        return x - rate(i) * unbiased / (jnp.sqrt(scale) + eps), first, second

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, (lambda s: s[0])


@optimizer
def adamax(step_size, b1=0.9, b2=0.999, eps=1e-8):
    """`adam` with a decaying maximum of gradients in place of the mean of squares."""
    rate = make_schedule(step_size)

    def update(i, g, state):
        x, first, largest = state
        first = (1 - b1) * g + b1 * first
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        step = rate(i) / (1 - jnp.asarray(b1, first.dtype) ** (i + 1))
        return x - step * first / (largest + eps), first, largest

    return (lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x))), update, (lambda s: s[0])


@optimizer
def sm3(step_size, momentum=0.9):
    """`adagrad` with a vector of sums for each dimension in place of a sum for each element."""
    rate = make_schedule(step_size)

    def spread(vector, dim, ndim):
        return vector.reshape([-1 if d == dim else 1 for d in range(ndim)])

    def init(x):
        return x, jnp.zeros_like(x), [jnp.zeros(n, x.dtype) for n in x.shape or (1,)]

    def update(i, g, state):
        x, moved, vectors = state
        smallest = functools.reduce(
            jnp.minimum, [spread(v, d, x.ndim) for d, v in enumerate(vectors)])
        squares = smallest + jnp.square(g)
        scaled: Any = jnp.where(squares > 0, g * lax.rsqrt(squares), 0.0)
        moved = (1.0 - momentum) * scaled + momentum * moved
        vectors = [squares.max([d for d in range(x.ndim) if d != dim])
                   for dim in range(x.ndim)] or [squares.reshape(1)]
        return x - rate(i) * moved, moved, vectors

    return init, update, (lambda state: state[0])


# -- schedules ---------------------------------------------------------------------------------

def constant(step_size):
    """A schedule whose step size never changes."""
    return lambda i: step_size


def exponential_decay(step_size, decay_steps, decay_rate):
    """`step_size * decay_rate ** (i / decay_steps)`."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size, decay_steps, decay_rate, staircase=False):
    """`step_size / (1 + decay_rate * i / decay_steps)`; staircase: i / decay_steps rounded down."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size, decay_steps, final_step_size, power=1.0):
    """From `step_size` to `final_step_size` within `decay_steps`, by a power of what is left."""
    def schedule(i):
        left = 1 - jnp.minimum(i, decay_steps) / decay_steps
        return left ** power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries, values):
    """`values[k]` between the boundaries k - 1 and k."""
    boundaries, values = jnp.array(boundaries), jnp.array(values)
    if not boundaries.ndim == values.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if not boundaries.shape[0] == values.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: float | Schedule) -> Schedule:
    """A schedule as it is, a number as a constant one."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# -- gradients and states ----------------------------------------------------------------------

def l2_norm(tree_of_arrays):
    """The root of the sum of the squares of all elements."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree.leaves(tree_of_arrays)))


def clip_grads(grad_tree, max_norm):
    """Gradients, scaled to a norm of `max_norm` where they have a larger one."""
    norm = l2_norm(grad_tree)
    return tree.map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks where the tree of the parameters ends and that of a state begins."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self):
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The states in the tree of the parameters, each within a `JoinPoint`."""
    return tree_api.unflatten(opt_state.tree_def, [JoinPoint(s) for s in _unflattened(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`."""
    points, treedef = tree_api.flatten(marked_pytree)
    assert all(isinstance(point, JoinPoint) for point in points)
    states, trees = _flattened([point.subtree for point in points])
    return OptimizerState(states, treedef, trees)
