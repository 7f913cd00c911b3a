"""How a policy acts in fresh rollouts: with random draws of its own, and without changing what learning goes on from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces

from cautious.seeding import derive_seed, make_rng

if TYPE_CHECKING:
    from cautious.rl.judged import JudgedPPO

Actor = Callable[[Any], np.ndarray]
"""Chooses actions, one per environment, for what a vector environment shows."""


def actor(agent: JudgedPPO, deterministic: bool, rng: np.random.Generator) -> Actor:
    """The policy of an agent, with draws from `rng` where actions are numbered."""
    if not isinstance(agent.action_space, spaces.Discrete):
        return lambda shown: agent.predict(shown, deterministic=deterministic)[0]

    def act(shown: Any) -> np.ndarray:
        probabilities = agent.shown_probabilities(shown).numpy()
        if deterministic:
            return probabilities.argmax(axis=1)
        drawn = rng.random((len(probabilities), 1)) * probabilities.sum(axis=1, keepdims=True)
        return np.minimum((probabilities.cumsum(axis=1) <= drawn).sum(axis=1), probabilities.shape[1] - 1)

    return act


@contextlib.contextmanager
def acting(agent: JudgedPPO, deterministic: bool, seed: int | None) -> Iterator[Actor]:
    """An actor for the block that follows, in which VecNormalize learns nothing and a seed determines every draw."""
    rng = agent.draws if seed is None else make_rng(seed, "actions")
    with frozen_statistics(agent), torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            _seed_draws_of_torch(agent, derive_seed(seed, "actions"))
        yield actor(agent, deterministic, rng)


@contextlib.contextmanager
def frozen_statistics(agent: JudgedPPO) -> Iterator[None]:
    """In the block that follows VecNormalize learns nothing from what it sees."""
    normalize = agent.get_vec_normalize_env()
    training = normalize is not None and normalize.training
    try:
        if normalize is not None:
            normalize.training = False
        yield
    finally:
        if normalize is not None:
            normalize.training = training


def _seed_draws_of_torch(agent: JudgedPPO, seed: int) -> None:
    """Stable-Baselines3 draws continuous actions by torch's own generators; to be called where those are restored."""
    torch.default_generator.manual_seed(seed)
    if agent.device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    if agent.use_sde:  # its noise was drawn before
        agent.policy.reset_noise(agent.n_envs)
