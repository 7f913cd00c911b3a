"""Sampled drives of several policies with common random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from cautious.beliefs.ensemble import DESCRIPTION, RewardEnsemble, shipped_folder
from cautious.errors import MissingFileError
from cautious.progress import TitledProgress, titled
from cautious.risk import KofN
from cautious.seeding import make_rng
from cautious.solvers.solve import solve_mdp
from cautious_paper.worlds.driving import DrivingWorld, draw_index, driving_world
from cautious_paper.worlds.driving_rules import START, DrivingState, step_events


class Frame(NamedTuple):
    """One moment of a drive."""

    state: DrivingState
    action: str
    """What is done next."""
    distance: int
    """Rows driven so far."""
    collisions: int
    """Obstacles hit so far."""


class Drive(NamedTuple):
    """A drive, and the name of its policy."""

    title: str
    frames: list[Frame]
    long_run: Frame
    """The end of a drive of `LONG` steps, which begins as this one: a short drive says little about how often a policy hits."""


LONG = 10_000


def trained_belief(folder: Path) -> RewardEnsemble:
    """The reward models of a driving run, or those with that name in the package."""
    if (folder / "belief").is_dir():
        return RewardEnsemble.load(folder / "belief")
    if ((place := shipped_folder(folder)) / DESCRIPTION).exists():
        return RewardEnsemble.load(place)
    raise MissingFileError(
        f"{folder}: holds no trained belief; pass the folder of a finished driving run, or 'driving' for the one that "
        "comes with the package."
    )


def drive_both(
    ensemble: RewardEnsemble,
    levels: list[KofN],
    probability: float,
    num_steps: int,
    seed: int,
    progress: TitledProgress | None = None,
) -> list[Drive]:
    """Solve the levels on the novel world and drive each policy from the start, with common random numbers."""
    world = driving_world(novel=True, appearance_probability=probability)
    report = titled(progress, "solving")
    solution = solve_mdp(world.mdp, ensemble.rewards(world), levels, method="cfr", sampling="exact", progress=report)
    drives = []
    for level, policy in zip(levels, solution.policy, strict=True):
        frames = sample_drive(world, policy, max(LONG, num_steps), make_rng(seed, "drive"))
        drives.append(Drive(str(level), frames[: num_steps + 1], frames[LONG]))
    return drives


def sample_drive(world: DrivingWorld, policy: torch.Tensor, num_steps: int, rng: np.random.Generator) -> list[Frame]:
    """One drive of `num_steps` from the start, [num_steps + 1] frames; two random numbers per step, whatever happens."""
    state, distance, collisions, frames = world.index(START), 0, 0, []
    for _ in range(num_steps + 1):
        action_number, world_number = rng.random(2)
        action = draw_index(policy[state].numpy(), action_number)
        frames.append(Frame(world.states[state], world.actions[action], distance, collisions))
        following = world.sample_next(state, action, world_number)
        happened = step_events(world.states[state], world.states[following])
        distance, collisions = distance + happened.distance, collisions + happened.collisions
        state = following
    return frames
