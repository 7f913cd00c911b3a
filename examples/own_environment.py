"""A Gymnasium environment of your own, no table, and an agent that goes round what its models never saw.

A car drives along a road with two lanes. In the log all places were dry, and a place pays the more the farther along it is,
less on the rough second lane. Now part of the first lane is wet. The ordinary agent (the mean of the models) drives through;
the cautious one takes the rough lane there. Nothing marks water as dangerous: the models differ about it, and that is enough.

    python examples/own_environment.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from cautious import KofNPPO, RewardEnsemble, fit_ensemble
from cautious_paper.report.plotting import grid, save_figure

ACTIONS = ("forward", "stay", "change lane")
WET = (0.25, 0.75)
GAMMA = 0.95


class Road(gymnasium.Env[Any, Any]):
    """Place along the road, lane (0 smooth, 1 rough) and wetness of the place; it pays nothing: rewards are for the models."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(len(ACTIONS))

    def _shown(self) -> np.ndarray:
        wet = self.lane == 0 and WET[0] <= self.place <= WET[1]
        return np.array([self.place, self.lane, wet], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """To the start, on the smooth lane."""
        super().reset(seed=seed)
        self.place, self.lane = 0.0, 0
        return self._shown(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Forward by about a tenth; it never ends."""
        if action == 0:
            self.place = min(1.0, self.place + self.np_random.uniform(0.08, 0.12))
        elif action == 2:
            self.lane = 1 - self.lane
        return self._shown(), 0.0, False, False, {}


def logged_experience(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Dry places [B, 3] and what was paid there, whatever the action, [B, A]."""
    rng = np.random.default_rng(seed)
    states = np.stack([rng.random(num_rows), rng.integers(0, 2, num_rows), np.zeros(num_rows)], axis=1)
    paid = states[:, 0] - 0.1 * states[:, 1] + 0.02 * rng.standard_normal(num_rows)
    return states.astype(np.float32), np.repeat(paid[:, None], len(ACTIONS), axis=1)


class Drive(NamedTuple):
    """How an agent drove."""

    level: str
    wet: float
    """Share of steps in wet places."""
    place: float
    """Mean place along the road."""
    lanes: np.ndarray
    """Mean lane by tenth of the road, [10]."""
    value: tuple[float, float, float]
    """Its k-of-N value: estimate, lower and upper bound."""


def learned(level: str, belief: RewardEnsemble, num_steps: int, seed: int) -> KofNPPO:
    """An agent that learned from the belief alone."""
    env = SyncVectorEnv([Road] * 8, autoreset_mode=AutoresetMode.DISABLED)
    agent = KofNPPO(
        "MlpPolicy",
        env,
        belief,
        level,
        gamma=GAMMA,
        n_steps=64,
        batch_size=128,
        n_epochs=4,
        learning_rate=lambda progress: 2e-3 * progress,
        ent_coef=lambda progress: 0.02 * progress,
        seed=seed,
        device="cpu",
    )
    return agent.learn(num_steps)


def drive(agent: KofNPPO, num_episodes: int, seed: int) -> Drive:
    """Sixty steps an episode, by the most likely actions."""
    env, seen = Road(), []
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=seed + episode)
        for _ in range(60):
            seen.append(observation)
            action, _ = agent.predict(observation, deterministic=True)
            observation = env.step(int(action))[0]
    shown = np.array(seen)
    tenth = np.minimum((10 * shown[:, 0]).astype(int), 9)
    lanes = np.array([shown[tenth == number, 1].mean() if (tenth == number).any() else np.nan for number in range(10)])
    value = agent.value(16, seed=seed)
    return Drive(str(agent.level), float(shown[:, 2].mean()), float(shown[:, 0].mean()), lanes, tuple(value))


def draw(drives: Sequence[Drive], path: Path) -> None:
    """Which lane each agent takes along the road."""
    figure, panels = grid(1, 1, width=6)
    axes = panels[0, 0]
    axes.axvspan(*WET, ymax=0.5, color="tab:blue", alpha=0.2, label="wet (lane 0)")
    for one in drives:
        axes.plot(np.arange(10) / 10 + 0.05, one.lanes, marker="o", label=one.level)
    axes.set(xlabel="place along the road", ylabel="lane", yticks=[0, 1], ylim=(-0.2, 1.2))
    axes.legend(loc="center right")
    save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> tuple[Drive, Drive]:
    """Train the models, let two agents learn, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    parser.add_argument("--steps", type=int, default=30_000, help="steps of each agent")
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    states, paid = logged_experience(1000, options.seed)
    belief = fit_ensemble(states, paid, num_models=options.models, num_epochs=30, seed=options.seed, progress=False)
    drives = [
        drive(learned(level, belief, options.steps, options.seed), 5, options.seed) for level in ("20-of-20", "1-of-20")
    ]
    print("| level | steps in wet places | mean place | value: estimate (lower, upper) |\n|---|---|---|---|")
    for one in drives:
        print("| {} | {:.1%} | {:.2f} | {:.2f} ({:.2f}, {:.2f}) |".format(one.level, one.wet, one.place, *one.value))
    draw(drives, options.out / "own-environment.png")
    return drives[0], drives[1]


if __name__ == "__main__":
    main()
