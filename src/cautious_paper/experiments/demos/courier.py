"""A built-in example small enough to check by hand: a courier whose models disagree about the shortcuts.

From the depot three ways lead to the customer. The ring road takes four steps and every model knows it well; the river
path takes two and the models disagree somewhat; the old town takes one and they disagree a lot, though on average it
looks best. Delivering pays 1. No reward marks the cautious way.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cautious.mdp.tabular import TabularMDP
from cautious.seeding import derive_seed

WAYS = ("ring road", "river path", "old town")
STEPS = (4, 2, 1)
SPREAD = (0.02, 0.35, 1.2)
"""How much the models disagree about one step on each way (standard deviation of the reward)."""


EXPLANATION = f"""\
A courier starts at the depot; delivering to the customer pays 1. Two hundred reward models say what a step on each route pays:
  ring road    {STEPS[0]} steps; the models agree (standard deviation {SPREAD[0]:g} per step)
  river path   {STEPS[1]} steps; they differ somewhat ({SPREAD[1]:g})
  old town     {STEPS[2]} step; they differ a lot ({SPREAD[2]:g}), though it is the shortest
An ordinary courier (10-of-10) follows the mean of the models; the smaller k is, the more the worst of them count.
Nothing marks the ring road as the safe one.
"""
"""The example in words, for the command line."""


class Courier(NamedTuple):
    """The world, and what M reward models say about it."""

    mdp: TabularMDP
    rewards: Tensor
    """What each model says each action pays, [M, S, A]."""


def courier(num_models: int = 200, discount: float = 0.9, seed: int = 0) -> Courier:
    """Build the world and a synthetic belief of `num_models` reward functions.

    States: the depot, the steps of each way in turn, the customer. Actions: which way to take (only the depot asks).
    """
    first = torch.tensor([1, 1 + STEPS[0], 1 + STEPS[0] + STEPS[1]])
    customer = 1 + sum(STEPS)
    transitions = torch.zeros(customer + 1, len(WAYS), customer + 1, dtype=torch.float64)
    transitions[0, torch.arange(len(WAYS)), first] = 1
    for way, steps in enumerate(STEPS):
        path = [int(first[way]) + step for step in range(steps)]
        for here, there in zip(path, [*path[1:], customer], strict=True):
            transitions[here, :, there] = 1
    transitions[customer, :, 0] = 1
    start = torch.zeros(customer + 1, dtype=torch.float64)
    start[0] = 1
    generator = torch.Generator().manual_seed(derive_seed(seed, "courier"))
    opinion = torch.randn(num_models, len(WAYS), generator=generator, dtype=torch.float64) * torch.tensor(SPREAD)
    rewards = torch.zeros(num_models, customer + 1, len(WAYS), dtype=torch.float64)
    rewards[:, customer] = 1
    for way, steps in enumerate(STEPS):
        rewards[:, int(first[way]) : int(first[way]) + steps] = opinion[:, way, None, None]
    return Courier(TabularMDP(transitions, start, discount), rewards)
