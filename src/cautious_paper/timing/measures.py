"""Speed-ups on this machine: each kind of work by this package and by a plain implementation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.networks.vector import VectorNetwork
from cautious.beliefs.training.loop import train
from cautious.beliefs.training.state import TrainingSettings
from cautious.policy.policy import CautiousPolicy
from cautious.risk import KofN
from cautious.seeding import make_rng
from cautious.solvers.solve import solve_bandit, solve_mdp
from cautious_paper.beliefs import SHIPPED
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image import LEARNING_RATE
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.timing.plain import (
    DRIVING_BATCH,
    numpy_loop_over_states,
    plain_decisions,
    plain_driving_seconds,
    plain_image_network,
    plain_image_seconds,
    sweep_iterations,
)
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.image_tasks import ask_for_help_rewards

LEVEL = KofN(1, 20)


@dataclass(frozen=True)
class Comparison:
    """One kind of work by a plain implementation and by this package, in seconds."""

    work: str
    plain_way: str
    plain: float
    ours: float

    @property
    def ratio(self) -> float:
        """The speed-up: how many times as long the plain implementation takes."""
        return self.plain / self.ours


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Wall-clock time of one call, the median of several."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def driving_training(num_models: int, num_epochs: int, plain_epochs: int, device: torch.device | str) -> Comparison:
    """Seconds per driving model and epoch: a plain loop over networks, and all networks stacked."""
    plain_driving_seconds(2)
    plain = plain_driving_seconds(plain_epochs)
    network = DrivingTrainingProblem.familiar(0.5)
    train(network, TrainingSettings(num_models, 2, DRIVING_BATCH, 1e-4, 1e-5), device=device)
    settings = TrainingSettings(num_models, num_epochs, DRIVING_BATCH, 1e-4, 1e-5)
    ours = seconds(lambda: train(network, settings, device=device)) / (num_models * num_epochs)
    return Comparison("train a driving network for one epoch", "one after another, PyTorch", plain, ours)


def image_training(batch_size: int, num_images: int, num_models: int, device: torch.device | str) -> Comparison:
    """Seconds per model and image of a training step: a plain loop over networks, and all networks stacked."""
    plain = plain_image_seconds(batch_size, max(1, num_images // batch_size), device=device)
    digits = load_images("digits", "train", EMBEDDED)
    problem = ImageTrainingProblem(digits.images[:num_images], ask_for_help_rewards(digits.labels[:num_images]))
    train(problem, TrainingSettings(2, 1, batch_size, LEARNING_RATE), device=device)
    settings = TrainingSettings(num_models, 1, batch_size, LEARNING_RATE)
    ours = seconds(lambda: train(problem, settings, device=device)) / (num_models * problem.num_samples)
    return Comparison(
        f"train an image network on one image (batch {batch_size})", "one after another, PyTorch", plain, ours
    )


def driving_solving(num_models: int, num_iterations: int, plain_iterations: int) -> Comparison:
    """k-of-N on the novel driving world: Bellman sweeps for every sampled model, and one factorisation per policy."""
    mdp = driving_world(novel=True, appearance_probability=0.5).mdp
    rewards = torch.randn(num_models, 784, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solve_mdp(mdp, rewards, LEVEL, method="cfr", num_iterations=2)
    ours = seconds(lambda: solve_mdp(mdp, rewards, LEVEL, method="cfr", num_iterations=num_iterations))
    sweeps = seconds(lambda: sweep_iterations(mdp, rewards.numpy(), LEVEL, plain_iterations))
    plain = sweeps / plain_iterations * num_iterations
    return Comparison(
        f"solve driving, {num_iterations} iterations, {num_models:,} models", "Bellman sweeps", plain, ours
    )


def state_solving(num_states: int, num_models: int, num_iterations: int, plain_states: int) -> Comparison:
    """The single-state regime: a numpy loop over states, and all of them at once."""
    rewards = torch.randn(num_models, num_states, 11, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"regime": "single-state", "num_iterations": num_iterations}
    solve_bandit(rewards[:, :100], LEVEL, **options)
    ours = seconds(lambda: solve_bandit(rewards, LEVEL, **options))
    plain = seconds(lambda: numpy_loop_over_states(rewards.numpy(), LEVEL, plain_states, num_iterations))
    work = f"solve {num_states:,} states, {num_iterations} iterations, {num_models:,} models"
    return Comparison(work, "numpy loop over states", plain / plain_states * num_states, ours)


class BenchmarkPair(NamedTuple):
    """A belief and the same models as single modules, with states as each of the two takes them."""

    belief: RewardEnsemble
    networks: list[nn.Module]
    states: Tensor
    inputs: Tensor


def deciding(pair: BenchmarkPair, count: int, plain_count: int, repeats: int = 1) -> Comparison:
    """Decisions in some states: one network, state and iteration after another, and `CautiousPolicy.decide`.

    Args:
        pair: The belief.
        count: States to decide in.
        plain_count: States for the plain implementation, whose time is scaled up.
        repeats: Calls of which the median counts.
    """
    policy = CautiousPolicy(pair.belief, LEVEL)
    states, inputs = pair.states[:count], pair.inputs[:plain_count]
    policy.decide(states[:1])
    ours = seconds(lambda: policy.decide(states), repeats)
    plain = seconds(lambda: plain_decisions(pair.networks, inputs, LEVEL, 200), repeats) * count / plain_count
    what = "one observation" if count == 1 else f"{count:,} observations"
    work = f"decide on {what}, {pair.belief.num_models} {pair.belief.network.name} models"
    return Comparison(work, "loop over models, states, iterations", plain, ours)


def image_belief(name: str = "fashion") -> BenchmarkPair:
    """The belief about images that comes with the package, and novel images (or "digits": familiar ones)."""
    belief = RewardEnsemble.load(SHIPPED / "ask-for-help")
    images = load_images(name, "test", EMBEDDED).images
    networks = [_filled(plain_image_network(belief.num_actions), own) for own in belief.parameters]
    return BenchmarkPair(belief, networks, images, images.unsqueeze(1).float() / 255)


def vector_belief(num_models: int = 100, num_inputs: int = 8, num_actions: int = 4) -> BenchmarkPair:
    """A belief about vectors, untrained: its models differ about nearly every state, so that every state has to be solved.

    Beside `image_belief`, which `cautious bench` measures; `benchmarks/` measures both.
    """
    network = VectorNetwork((num_inputs,), num_actions)
    weights = np.stack([network.init(make_rng(0, "vector model", number)) for number in range(num_models)])
    belief = RewardEnsemble(network, torch.from_numpy(weights).float())
    states = torch.randn(1000, num_inputs, generator=torch.Generator().manual_seed(0))
    return BenchmarkPair(belief, [_filled(network.module(), own) for own in belief.parameters], states, states)


def _filled(module: nn.Module, parameters: Tensor) -> nn.Module:
    nn.utils.vector_to_parameters(parameters, module.parameters())
    return module
