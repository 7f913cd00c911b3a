"""`cautious/Driving-v0`, many at once: all cars step in a few numpy operations."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cautious.errors import InvalidInputError
from cautious.validation import parse_count
from cautious_paper.worlds.driving import DrivingWorld, driving_world
from cautious_paper.worlds.driving_rules import ACTIONS, FEATURES, START, pair_features
from cautious_paper.worlds.envs.options import option, parse_observation


class DrivingVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments as `DrivingEnv`, with the same dynamics, rewards and arguments.

    ``gymnasium.make_vec("cautious/Driving-v0", num_envs=64)`` makes one. Episodes never end, so it resets nothing by itself
    (`AutoresetMode.DISABLED`); ``reset(options={"reset_mask": mask})`` resets some. What happened in a step (`speed`,
    `collisions`, ...) is in the infos as arrays [num_envs].
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  (Gymnasium's convention)

    def __init__(
        self,
        num_envs: int = 1,
        novel: bool = True,
        appearance_probability: float = 0.5,
        observation: str = "number",
        render_mode: None = None,
    ) -> None:
        """Build the exact world, and tables to sample it from."""
        if render_mode is not None:
            raise InvalidInputError(
                f"render_mode={render_mode!r}: many cars at once are not drawn; make a single environment."
            )
        self.num_envs = parse_count(num_envs, "num_envs")
        self.world = driving_world(novel, appearance_probability)
        self.single_observation_space, self._shown = parse_observation(observation, self.world)
        self.single_action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._next, self._chance = _padded(self.world)
        self._happened = _pair_table(self.world, self._next)
        self._start = self.world.index(START)
        self._states = np.full(self.num_envs, self._start)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """All cars, or those of `options={"reset_mask": [num_envs] truth values}`, back to the start."""
        super().reset(seed=seed)
        mask = option(options, "reset_mask", np.ones(self.num_envs, dtype=bool))
        self._states = np.where(mask, self._start, self._states)
        return self._shown[self._states], {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Sample the next states from the exact transition probabilities."""
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,) or not ((chosen >= 0) & (chosen < len(ACTIONS))).all():
            raise InvalidInputError(
                f"actions: expected {self.num_envs} whole numbers below {len(ACTIONS)}, got {actions!r}."
            )
        row = self._states * len(ACTIONS) + chosen.astype(np.int64)
        # The entry at which the cumulated probabilities pass the draw, as in `worlds.driving.pick`.
        entry = (self._chance[row] <= self.np_random.random((self.num_envs, 1))).sum(axis=1)
        self._states = self._next[row, entry]
        happened = self._happened[row, entry]
        infos = {name: happened[:, number] for number, name in enumerate(FEATURES) if name != "reward"}
        never = np.zeros(self.num_envs, dtype=bool)
        return self._shown[self._states], happened[:, FEATURES.index("reward")], never, never.copy(), infos


def _padded(world: DrivingWorld) -> tuple[np.ndarray, np.ndarray]:
    """Next states and cumulated probabilities of each (state, action) as full tables [S*A, K].

    The last entry is never passed.
    """
    rows = world.mdp.dynamics.matrix
    counts = np.diff(rows.indptr)
    following = np.zeros((len(counts), counts.max()), dtype=np.int64)
    chance = np.full(following.shape, np.inf)
    for row, count in enumerate(counts):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        following[row, :count] = rows.indices[entries]
        chance[row, : count - 1] = rows.data[entries].cumsum()[:-1]
    return following, chance


def _pair_table(world: DrivingWorld, following: np.ndarray) -> np.ndarray:
    """What happens on the way to each of the next states, [S*A, K, F]."""
    num_states = len(world.states)
    pairs = np.arange(len(following))[:, None] // len(ACTIONS) * num_states + following
    distinct, place = np.unique(pairs, return_inverse=True)
    values = [
        list(pair_features(*(world.states[s] for s in divmod(int(pair), num_states))).values()) for pair in distinct
    ]
    return np.array(values, dtype=np.float64)[place.reshape(following.shape)]
