"""What is kept for the derivative, listed as `jax.ad_checkpoint.print_saved_residuals` does."""
from __future__ import annotations

import re

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ad_checkpoint import checkpoint_name, print_saved_residuals

W1, W2, X = jnp.ones((5, 4)), jnp.ones((6, 5)), jnp.ones(4)


def layer(w, x):
    return jnp.sin(jnp.dot(w, x))


def model(layers, x):
    for w in layers:
        x = layer(w, x)
    return x


def printed(capsys: pytest.CaptureFixture[str], f, *args) -> list[str]:
    print_saved_residuals(f, *args)
    return [re.sub(r" from \S+:\d+:\d+ ", " at ", line)
            for line in capsys.readouterr().out.splitlines()]


ARGUMENTS = ["f32[5,4] from the argument layers[0]", "f32[6,5] from the argument layers[1]",
             "f32[4] from the argument x"]


def test_residuals_are_listed_without_checkpoint(capsys) -> None:
    assert printed(capsys, model, [W1, W2], X) == [
        *ARGUMENTS, "f32[5] output of sin at (layer)", "f32[5] output of cos at (layer)",
        "f32[6] output of cos at (layer)"]


@pytest.mark.parametrize(("policy", "kept"), [
    (None, []),
    (st.checkpoint_policies.dots_with_no_batch_dims_saveable,
     ["f32[5] output of dot_general at (layer)", "f32[6] output of dot_general at (layer)"]),
    (st.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"], offload_src="device",
        offload_dst="pinned_host"), ["f32[5] named 'hidden' at (named)"]),
])
def test_policies_decide_which_residuals_are_listed(capsys, policy, kept) -> None:
    def named(layers, x):
        return layer(layers[1], checkpoint_name(layer(layers[0], x), "hidden"))

    f = st.checkpoint(named, policy=policy)
    assert printed(capsys, f, [W1, W2], X) == [*ARGUMENTS, *kept]


def test_names_that_are_saved_and_offloaded_are_refused() -> None:
    with pytest.raises(ValueError, match="should not intersect"):
        st.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"],
            offload_src="device", offload_dst="pinned_host")
