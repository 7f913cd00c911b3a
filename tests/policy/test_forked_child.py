"""A forked child decides as its parent does: data loaders and servers that load once fork after the first decisions.

Torch's threads stay with the parent, and a child whose torch divides an operation among them waits for ever. So this file is
also a script, which forks, and which the test stops after a while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cautious import CautiousPolicy, FallbackRule, TabularMDP, fit_ensemble

NUM_ROWS = 100_000
"""So many that torch divides operations on them."""
SECONDS = 40
PARTS = ("action", "probabilities", "caution", "disagreement", "gap", "departs")


class OwnBelief:
    """A user's, which divides its work among torch's threads."""

    def rewards(self, states: torch.Tensor) -> torch.Tensor:
        return table()[:, states].square()


def table() -> torch.Tensor:
    """Four models, 50 states and three actions; the models prefer different actions in the first two states."""
    rewards = torch.rand(4, 50, 3, generator=torch.Generator().manual_seed(0)) / 10
    rewards[:, 2:, 0] += 1
    return rewards


def of_a_table() -> tuple[Any, Any]:
    return CautiousPolicy(table(), "1-of-4"), torch.arange(NUM_ROWS) % 50


def of_an_own_belief() -> tuple[Any, Any]:
    return CautiousPolicy(OwnBelief(), "1-of-4"), torch.arange(NUM_ROWS) % 50


def of_a_rule() -> tuple[Any, Any]:
    return FallbackRule(CautiousPolicy(table(), "1-of-4"), 1, threshold=0.03), torch.arange(NUM_ROWS) % 50


def of_a_world() -> tuple[Any, Any]:
    world = TabularMDP(torch.full((50, 3, 50), 1 / 50), torch.full((50,), 1 / 50), 0.5)
    return CautiousPolicy(table(), "1-of-4", mdp=world, num_iterations=5), torch.arange(NUM_ROWS) % 50


def of_an_ensemble() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    states, rewards = torch.randn(60, 2, generator=generator), torch.rand(60, 3, generator=generator) / 10
    rewards[:, 0] += 2
    belief = fit_ensemble(states, rewards, num_models=4, num_epochs=60, progress=False, prior=0)
    return CautiousPolicy(belief, "1-of-4"), states.repeat(500, 1)


class OfItsBelief:
    """A policy of which only the belief's rewards are asked for."""

    def __init__(self, belief: Any) -> None:
        self.belief = belief


def of_the_look_up() -> tuple[Any, Any]:
    return OfItsBelief(CautiousPolicy(table(), "1-of-4").belief), torch.arange(NUM_ROWS) % 50


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "table": of_a_table,
    "look-up": of_the_look_up,
    "own belief": of_an_own_belief,
    "rule": of_a_rule,
    "world": of_a_world,
    "ensemble": of_an_ensemble,
}


def decided(policy: Any, states: Any) -> list[torch.Tensor]:
    if isinstance(policy, OfItsBelief):
        return [policy.belief.rewards(states)]
    decision = policy.decide(states)
    return [getattr(decision, part) for part in PARTS]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_decides_as_its_parent(kind):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, kind],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the child decided the same" in done.stdout


if __name__ == "__main__":
    torch.set_num_threads(2)
    policy, states = KINDS[sys.argv[1]]()
    expected = decided(policy, states)
    torch.rand(2**20).sqrt()  # the parent's own work starts torch's threads, whatever the package does
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # ends a child that waits for ever
        same = all(
            torch.equal(one.nan_to_num(), other.nan_to_num())
            for one, other in zip(decided(policy, states), expected, strict=True)
        )
        os._exit(0 if same else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("the child decided the same" if status == 0 else f"the child ended with status {status}")
    sys.exit(status != 0)
