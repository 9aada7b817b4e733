"""Policies: each kind of plan has one, and XLA's differs from ours in every choice."""
from __future__ import annotations

import pytest

from shardtrace.ir.support.environment import OBJECTIVES
from shardtrace.partitioner.passes import PIPELINE
from shardtrace.partitioner.policy import OWN, POLICIES, XLA, Policy


def test_each_objective_has_a_policy_and_each_pass_is_for_one_or_all() -> None:
    assert set(POLICIES) == set(OBJECTIVES)
    assert {step.plans for step in PIPELINE} == {"", OWN.plans, XLA.plans}


@pytest.mark.parametrize("name", Policy._fields)
def test_each_choice_is_one(name: str) -> None:
    assert getattr(OWN, name) != getattr(XLA, name)
