"""Which learning rate suits `fit_ensemble`'s network for vectors: fit, and caution on familiar and on novel states.

python -m benchmarks.learning_rate [ROWS ...]      some minutes
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from cautious import CautiousPolicy, fit_ensemble
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.data import load_images

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


class Problem(NamedTuple):
    """Familiar states with what each action paid there (NaN: not tried), fresh familiar states, and novel ones."""

    states: Tensor
    rewards: Tensor
    fresh: Tensor
    novel: Tensor


def label_or_ask(labels: Tensor, num_labels: int, asking: float) -> Tensor:
    """1 for the right label, 0 for others, `asking` for the last action, [S, A]."""
    return torch.cat([torch.eye(num_labels)[labels], torch.full((len(labels), 1), asking)], dim=1)


def corners(rows: int, random: torch.Generator) -> Problem:
    """Four kinds at the corners of a square; novel: its middle."""

    def cases(count: int) -> tuple[Tensor, Tensor]:
        kind = torch.arange(count) % 4
        place = torch.stack([kind % 2, kind // 2], dim=1)
        return place + 0.1 * torch.randn(count, 2, generator=random), kind

    states, kind = cases(rows)
    novel = 0.5 + 0.1 * torch.randn(200, 2, generator=random)
    return Problem(states, label_or_ask(kind, 4, 0.4), cases(200)[0], novel)


def clusters_logged(rows: int, random: torch.Generator) -> Problem:
    """Three clouds in six features, one action tried in each state; novel: a fourth cloud."""
    centres = 2 * torch.randn(4, 6, generator=random)

    def cases(count: int, kind: Tensor) -> Tensor:
        return centres[kind] + 0.7 * torch.randn(count, 6, generator=random)

    kind = torch.arange(rows) % 3
    rewards = label_or_ask(kind, 3, 0.4)
    tried = torch.randint(4, (rows, 1), generator=random)
    logged = torch.full_like(rewards, torch.nan).scatter(1, tried, rewards.gather(1, tried))
    fresh = cases(200, torch.arange(200) % 3)
    return Problem(cases(rows, kind), logged, fresh, cases(200, torch.full((200,), 3)))


def waves(rows: int, random: torch.Generator) -> Problem:
    """Three actions pay waves over a square, the fourth always 0.3; novel: around the square."""

    def paid(states: Tensor) -> Tensor:
        waves = [torch.sin(2 * states[:, 0]), torch.cos(2 * states[:, 1]), torch.sin(states.sum(1))]
        return torch.stack([*waves, torch.full((len(states),), 0.3)], dim=1)

    def box(count: int, reach: float) -> Tensor:
        return reach * (2 * torch.rand(count, 2, generator=random) - 1)

    states, around = box(rows, 1.5), box(2000, 4.0)
    novel = around[around.abs().amax(dim=1) > 2.5][:200]
    return Problem(states, paid(states) + 0.1 * torch.randn(rows, 4, generator=random), box(200, 1.5), novel)


def digits_as_vectors(rows: int, random: torch.Generator) -> Problem:
    """Real digits as 784 numbers; novel: clothes."""
    digits, tests, clothes = (
        load_images(*which) for which in (("digits", "train"), ("digits", "test"), ("fashion", "test"))
    )
    chosen = torch.randperm(len(digits), generator=random)[:rows]
    vectors = [images.images.flatten(1) / 255 for images in (digits, tests, clothes)]
    return Problem(
        vectors[0][chosen], label_or_ask(digits.labels[chosen], 10, 0.25), vectors[1][:200], vectors[2][:200]
    )


def row(problem: Problem, rate: float) -> str:
    """Error on held-out states as a part of the rewards' spread, and mean caution at 1-of-20, in percent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        belief = fit_ensemble(problem.states, problem.rewards, num_models=40, learning_rate=rate, progress=False)
    familiar, novel = (CautiousPolicy(belief, "1-of-20").decide(states) for states in (problem.fresh, problem.novel))
    look = belief.diagnosis
    missed = look.error / look.reward_deviation if look is not None else float("nan")
    return f"{rate:8g} {missed:12.3f} {100 * familiar.caution.mean():9.1f} {100 * novel.caution.mean():9.1f}"


def main() -> None:
    """Print a table for each problem and number of rows."""
    print(provenance_line())
    for rows in [int(argument) for argument in sys.argv[1:]] or [200, 1000, 5000]:
        for make in (corners, clusters_logged, waves, digits_as_vectors):
            problem = make(rows, torch.Generator().manual_seed(0))
            print(f"{make.__name__}, {rows} rows\n    rate        error  familiar     novel")
            for rate in RATES:
                print(row(problem, rate), flush=True)


if __name__ == "__main__":
    main()
