"""Images and driving, with the beliefs that come with the package; a seed chooses images, models and the odds of obstacles."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.baselines.comparing import Problem
from cautious.baselines.novelty import distance_novelty
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.mdp.tabular import TabularMDP
from cautious.seeding import make_rng
from cautious_paper.beliefs import SHIPPED
from cautious_paper.benchmark.splits import both
from cautious_paper.worlds.data import ImageSet, load_images
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_features import driving_features
from cautious_paper.worlds.image_tasks import NO_DIGIT, ask_for_help_rewards

NUM_MODELS = 60
NUM_IMAGES, NUM_LOGGED_IMAGES = 100, 300
HELP = 10
APPEARANCE = (0.1, 0.2, 0.5, 0.8)
"""Probability of obstacles, by the seed in turn."""


def images(seed: int) -> dict[str, Problem]:
    """A hundred images, one decision each: name the digit (1 if right) or ask for help (0.25); novel are clothes, no digits.

    A state is an image that is met once, all as likely: discount 0. Models are ranked over all of the images together, so a
    method that treats each image by itself (the paper's single-image regime) is `k_of_n_each_state`.
    """
    belief, chosen = _shipped("ask-for-help"), _some_models(seed, "ask-for-help")
    logged = _vectors(_drawn(load_images("digits", "train", EMBEDDED), NUM_LOGGED_IMAGES, seed))
    found = []
    for name in ("digits", "fashion"):
        drawn = _drawn(load_images(name, "test", EMBEDDED), NUM_IMAGES, seed)
        labels = drawn.labels if name == "digits" else torch.full_like(drawn.labels, NO_DIGIT)
        features = _vectors(drawn)
        found.append(
            Problem(
                _one_decision(NUM_IMAGES, belief.num_actions),
                belief.rewards(drawn.images)[chosen].double(),
                truths=ask_for_help_rewards(labels),
                novelty=distance_novelty(logged, features).round(decimals=4),
                extras={"features": features, "logged_features": logged, "action": HELP},
            )
        )
    return both(*found)


def driving(seed: int) -> dict[str, Problem]:
    """The paper's road: obstacles were seen in the ditches alone, and now appear on the road too."""
    belief, chosen = _shipped("driving"), _some_models(seed, "driving")
    worlds = [driving_world(novel, APPEARANCE[seed % len(APPEARANCE)]) for novel in (False, True)]
    logged = driving_features(worlds[0].states).astype(np.float64)
    found = []
    for world in worlds:
        features = driving_features(world.states).astype(np.float64)
        found.append(
            Problem(
                world.mdp,
                belief.rewards(world)[chosen].double(),
                truths=world.features["reward"],
                novelty=world.mdp.expected_rewards(distance_novelty(logged, features).round(decimals=4)),
                extras={"features": features, "logged_features": logged, "action": world.actions.index("brake")},
            )
        )
    return both(*found)


@cache
def _shipped(name: str) -> RewardEnsemble:
    return RewardEnsemble.load(SHIPPED / name)


def _some_models(seed: int, name: str) -> Tensor:
    count = _shipped(name).num_models
    return torch.from_numpy(np.sort(make_rng(seed, "models", name).permutation(count)[:NUM_MODELS]))


def _drawn(found: ImageSet, count: int, seed: int) -> ImageSet:
    chosen = torch.from_numpy(make_rng(seed, "images", found.name).permutation(len(found))[:count])
    return replace(found, images=found.images[chosen], labels=found.labels[chosen])


def _vectors(found: ImageSet) -> np.ndarray:
    return np.asarray(found.images, dtype=np.float64).reshape(len(found), -1) / 255


def _one_decision(num_states: int, num_actions: int) -> TabularMDP:
    """Every state is met once, whatever was done before."""
    stays = scipy.sparse.csr_array(np.repeat(np.eye(num_states), num_actions, axis=0))
    return TabularMDP(stays, np.full(num_states, 1 / num_states), 0.0)
