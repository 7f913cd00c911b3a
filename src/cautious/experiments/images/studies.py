"""What is measured on one set of images: behaviour at each level, the full dial, and how few models are enough."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from cautious.evaluation.image_behaviour import behaviour, frequencies, frequencies_by_label, most_likely
from cautious.experiments.images.settings import ImageExperiment
from cautious.experiments.store import StageResult, as_lists
from cautious.ops.risk import KofN
from cautious.policy.decision import total_variation
from cautious.progress import Progress, ProgressTracker
from cautious.seeding import make_rng
from cautious.solvers.solve import solve_bandit
from cautious.types import Regime, Sampling
from cautious.worlds.data import ImageSet
from cautious.worlds.data.sources import SETS

DIAL_N = 20
NUM_SAMPLES = 8
"""Images shown of those on which the cautious policy departs most, and least, from the ordinary one."""
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
SOLVED_ENTRIES = 2**22
"""Policies that are solved together on a CPU have at most this many entries, or are of one level. Solving holds about twenty
arrays of that size, in float64."""


def _right_actions(images: ImageSet) -> Tensor | None:
    """The right action on each image, [S]; only digits have one."""
    return images.labels if images.name == "digits" else None


def behaviour_of(experiment: ImageExperiment, rewards: Tensor, images: ImageSet, tell: Progress | None) -> StageResult:
    """Each level's behaviour in both regimes, run by run, and that of each network's own greedy policy (optim).

    Args:
        experiment: Levels, iterations, runs.
        rewards: [M, S, A].
        images: The set, with its labels.
        tell: Told how far solving is.
    """
    labels = _right_actions(images)
    num_labels = SETS[images.name].num_classes
    help_action = experiment.image_task.help_action
    numbers: dict[str, Any] = {
        "levels": list(experiment.levels),
        "behaviour": {},
        "seconds": {},
        "origin": images.origin,
    }
    arrays: dict[str, Tensor] = {}
    bar = ProgressTracker(2 * len(_together(experiment, rewards)), tell)
    for regime in Regime:
        started = time.perf_counter()
        policy, sampled_value, numbers["reshuffles"] = _solved(experiment, rewards, regime, bar)
        numbers["seconds"][str(regime)] = time.perf_counter() - started
        numbers["behaviour"][str(regime)] = as_lists(behaviour(policy, help_action, labels))
        arrays |= {
            f"{regime}-sampled_value": sampled_value,
            f"{regime}-actions": frequencies(policy),
            f"{regime}-by_label": frequencies_by_label(policy.mean(dim=1), images.labels, num_labels),
        }
        if regime is Regime.SINGLE_STATE:
            samples, chosen = _samples(policy.mean(dim=1), rewards, images, help_action)
            numbers["samples"] = chosen
            arrays |= samples
    optim, tables = _optim(rewards, images, help_action, labels, num_labels)
    numbers["optim"] = optim
    return numbers, arrays | tables


def _together(experiment: ImageExperiment, rewards: Tensor) -> list[list[KofN]]:
    """Levels that are solved in one call: all of them, or on a CPU one at a time where all would take much memory.

    A policy has the same bits either way.
    """
    levels = experiment.parsed_levels
    entries = len(levels) * experiment.num_runs * rewards.shape[1] * rewards.shape[2]
    return [levels] if rewards.is_cuda or entries <= SOLVED_ENTRIES else [[level] for level in levels]


def _solved(
    experiment: ImageExperiment, rewards: Tensor, regime: Regime, bar: ProgressTracker
) -> tuple[Tensor, Tensor, list[int]]:
    """Policies of every level and run [L, R, S, A], their values under the sampled rewards [L, R, T], and reshuffles [L]."""
    policies, values, reshuffles = [], [], []
    together = _together(experiment, rewards)
    for levels in together:
        solution = solve_bandit(
            rewards,
            levels,
            regime=regime,
            num_iterations=experiment.num_iterations,
            num_runs=experiment.num_runs,
            seed=experiment.main.training.seed,
            track_exact=False,
            progress=bar.next_call(),
        )
        policies.append(solution.policy.cpu())
        values.append(solution.trace.sampled_value.cpu())
        reshuffles += solution.record["reshuffles"]
        del solution  # its averages and regrets are as large again, several times over
    return torch.cat(policies), torch.cat(values), reshuffles


def _optim(
    rewards: Tensor, images: ImageSet, help_action: int | None, labels: Tensor | None, num_labels: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Each network's own greedy policy, averaged over the networks, with the 95 % interval of the mean."""
    each: dict[str, list[Tensor]] = {}
    by_label = []
    for block in rewards.split(max(1, 2**24 // (rewards.shape[1] * rewards.shape[2]))):
        greedy = most_likely(block)  # [m, S, A]
        for name, values in behaviour(greedy, help_action, labels).items():
            each.setdefault(name, []).append(values.cpu())
        by_label.append(frequencies_by_label(greedy, images.labels, num_labels).sum(dim=0).cpu())
    found = {name: torch.cat(parts).double() for name, parts in each.items()}
    spread = {name: _mean_and_interval(values) for name, values in found.items()}
    table = torch.stack(by_label).sum(dim=0) / len(rewards)
    counts = torch.bincount(images.labels, minlength=num_labels).to(table.dtype)
    overall = (table * counts[:, None]).sum(dim=0) / counts.sum()
    return spread, {"optim-by_label": table, "optim-actions": overall} | {
        f"optim-{name}": values for name, values in found.items()
    }


def _mean_and_interval(values: Tensor) -> dict[str, float | None]:
    """Mean of what could be measured, and half the width of its 95 % interval; None where nothing could."""
    known = values[~values.isnan()]
    if not len(known):
        return {"mean": None, "half_width": None}
    deviation = float(known.std(correction=0))
    return {"mean": float(known.mean()), "half_width": 1.96 * deviation / len(known) ** 0.5}


def _samples(
    policy: Tensor, rewards: Tensor, images: ImageSet, help_action: int | None
) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """The images on which the first level asks for help most and least (or departs from the last level), with opinions."""
    cautious, ordinary = policy[0], policy[-1]  # [S, A]
    departs = total_variation(cautious, ordinary)
    score = departs if help_action is None else cautious[:, help_action]
    order = torch.argsort(score, stable=True)
    count = min(NUM_SAMPLES, len(order) // 2)
    chosen = torch.stack([order.flip(0)[:count], order[:count]])  # [2, n]: most, least
    opinions = rewards[:, chosen.flatten().to(rewards.device)].cpu().double()  # [M, 2n, A]
    quantiles = torch.quantile(opinions, torch.tensor(QUANTILES, dtype=torch.float64), dim=0)  # [Q, 2n, A]
    tensors = {
        "samples-images": images.images[chosen],
        "samples-labels": images.labels[chosen],
        "samples-policy": cautious[chosen],
        "samples-ordinary": ordinary[chosen],
        "samples-quantiles": quantiles.permute(1, 0, 2).unflatten(0, chosen.shape),  # [2, n, Q, A]
    }
    return tensors, {"most": chosen[0].tolist(), "least": chosen[1].tolist()}


def dial_study(experiment: ImageExperiment, rewards: Tensor, images: ImageSet, tell: Progress | None) -> StageResult:
    """Every k of N = 20 in both regimes, by exact sampling, with the mean certified gap."""
    levels = [KofN(k, DIAL_N) for k in range(1, DIAL_N + 1)]
    labels = _right_actions(images)
    numbers: dict[str, Any] = {"levels": [str(level) for level in levels], "behaviour": {}, "gap": {}}
    bar = ProgressTracker(2, tell)
    for regime in Regime:
        solution = solve_bandit(
            rewards,
            levels,
            regime=regime,
            num_iterations=experiment.num_iterations,
            sampling="exact",
            progress=bar.next_call(),
        )
        measured = behaviour(solution.policy.cpu(), experiment.image_task.help_action, labels)
        numbers["behaviour"][str(regime)] = as_lists(measured)
        gap = solution.certificate(solution.average_policy).gap.cpu().reshape(len(levels), -1)
        numbers["gap"][str(regime)] = gap.mean(dim=1).tolist()
    return numbers, {}


def model_study(experiment: ImageExperiment, rewards: Tensor, images: ImageSet, tell: Progress | None) -> StageResult:
    """Behaviour of the most cautious level against the number of models, by queue and by exact sampling.

    For each number of models, several random parts of the ensemble, so that the spread is that of training fewer models,
    not only of shuffling them.
    """
    sizes = [size for size in experiment.curve_sizes if size <= len(rewards)]
    labels = _right_actions(images)
    found: dict[str, dict[str, Any]] = {str(regime): {} for regime in Regime}
    bar = ProgressTracker(len(Regime) * len(Sampling) * len(sizes) * experiment.num_parts, tell)
    for regime in Regime:
        for sampling in Sampling:
            policies = [_policies_of_parts(experiment, rewards, size, regime, sampling, bar) for size in sizes]
            measured = behaviour(
                torch.stack(policies), experiment.image_task.help_action, labels
            )  # each [sizes, parts]
            found[str(regime)][str(sampling)] = as_lists(measured)
    return {"sizes": sizes, "level": experiment.levels[0], "behaviour": found}, {}


def _policies_of_parts(
    experiment: ImageExperiment, rewards: Tensor, size: int, regime: Regime, sampling: Sampling, bar: ProgressTracker
) -> Tensor:
    """Policies of the most cautious level on random parts of `size` models, [parts, S, A]."""
    policies = []
    for number in range(experiment.num_parts):
        rng = make_rng(experiment.main.training.seed, "part of the models", size, number)
        chosen = torch.from_numpy(rng.permutation(len(rewards))[:size]).sort().values
        solution = solve_bandit(
            rewards[chosen.to(rewards.device)],
            experiment.levels[0],
            regime=regime,
            num_iterations=experiment.num_iterations,
            sampling=sampling,
            seed=experiment.main.training.seed + number,
            track_exact=False,
            progress=bar.next_call(),
        )
        policies.append(solution.policy.cpu())
    return torch.stack(policies)
