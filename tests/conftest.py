"""Shared fixtures: one thread, so that two test processes share two cores well, and seeded random problems."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cautious import TabularMDP


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20251)


RandomProblem = Callable[..., tuple[TabularMDP, Tensor]]


@pytest.fixture
def random_problem(generator: torch.Generator) -> RandomProblem:
    """A dense random MDP and M random reward functions."""

    def make(num_states: int = 6, num_actions: int = 3, num_models: int = 12, discount: float = 0.9):
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        transitions = torch.softmax(2 * normal(num_states, num_actions, num_states), dim=-1)
        mdp = TabularMDP(transitions, torch.softmax(normal(num_states), dim=-1), discount)
        return mdp, normal(num_models, num_states, num_actions)

    return make
