"""A comparison of your own: your environment, your method beside those of `cautious.baselines`, with paired intervals.

A cart crosses a hall. What tiled and rough floor pay was logged; part of the hall is wet, which was never met, and may be as
good as tiles or may cost a lot. Models are trained on the log; each method plans with what they say, and is judged by what wet
floor may truly pay.

    python examples/own_comparison.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from cautious import Problem, TabularMDP, baselines, compare, fit_ensemble, optimal_policy

ROWS, COLUMNS, MOVES = 5, 8, ((-1, 0), (0, 1), (1, 0), (0, -1))
TILES, ROUGH, WET = 0, 1, 2


class Hall(gymnasium.Env):
    """From the left end of the middle row to the right one; any environment with a table `P` will do."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = (
            gymnasium.spaces.Discrete(ROWS * COLUMNS),
            gymnasium.spaces.Discrete(4),
        )
        goal = (ROWS // 2 + 1) * COLUMNS - 1
        self.initial_state_distrib = np.eye(ROWS * COLUMNS)[goal - COLUMNS + 1]
        self.P: dict[int, dict[int, list[Any]]] = {state: {} for state in range(ROWS * COLUMNS)}
        for state, action in np.ndindex(ROWS * COLUMNS, 4):
            row, column = np.clip(np.add(divmod(state, COLUMNS), MOVES[action]), 0, (ROWS - 1, COLUMNS - 1))
            following = int(row * COLUMNS + column)
            self.P[state][action] = [(1.0, following, 0.0, following == goal)]


def hall(seed: int) -> Problem:
    """A hall with a wet part, a belief of its own, and five things that may be true of wet floor."""
    rng = np.random.default_rng(seed)
    floor = rng.choice([TILES, ROUGH], size=(ROWS, COLUMNS), p=[0.7, 0.3])
    floor[:-1, 2:6] = WET  # the last row is dry
    logged = rng.integers(2, size=300)
    paid = np.where(logged == TILES, -0.2, -0.4) + 0.05 * rng.normal(size=300)
    belief = fit_ensemble(np.eye(3)[logged], paid[:, None], num_models=40, num_epochs=20, seed=seed, progress=False)
    world = TabularMDP.from_gymnasium(Hall(), discount=0.95)
    said = belief.rewards(np.eye(3))[..., 0]  # of each floor, [M, 3]
    wet = torch.linspace(-2.0, -0.2, 5)
    truths = torch.stack([torch.full((5,), -0.2), torch.full((5,), -0.4), wet], dim=1)
    entering = torch.from_numpy(floor.flatten())
    return Problem(world, world.expected_rewards(said[:, entering]), truths=world.expected_rewards(truths[:, entering]))


def median_reward(world: TabularMDP, rewards: torch.Tensor) -> torch.Tensor:
    """Your own method: plan with the median of the models."""
    return optimal_policy(world, rewards.median(dim=0).values).policy


def main(argv: Sequence[str] | None = None) -> Any:
    """Compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="folder that keeps each result; the same command resumes from them")
    chosen = parser.parse_args(argv)
    methods = [median_reward, baselines.k_of_n, baselines.risk_neutral, baselines.mean_minus_std]
    frame = compare({"hall": hall}, methods, chosen.seeds, out=chosen.out)
    print(frame.drop(columns=["problem", "seeds"]).round(3).to_string(index=False))
    return frame


if __name__ == "__main__":
    main()
