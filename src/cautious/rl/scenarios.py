"""Environments whose dynamics are in doubt: every episode is played in one of M scenarios, which nobody is told.

An environment with a hidden scenario takes its number with ``reset(options={"scenario": m})``. `ScenarioEnv` makes one of M
environments. `ScenarioVecEnv` chooses the scenarios of all episodes, and shows them to the critic alone (`rl.scenario_ppo`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from cautious.errors import InvalidInputError
from cautious.rl.environments import VectorEnvAdapter
from cautious.seeding import make_rng
from cautious.validation import parse_count

SCENARIO = "scenario"
"""The option of `reset`, and the entry of the observations that the critic sees."""
CHANCE = "scenario_chance"
"""In an environment's infos: how likely the present episode's scenario was to be chosen."""
TRIED_SCENARIOS, TRIED_STEPS = 8, 100
"""How many scenarios, and how many steps of each, are compared to see whether an environment heeds the scenario."""


class ScenarioEnv(gymnasium.Env[Any, Any]):
    """M environments as one, whose scenario is chosen at the start of an episode and shown to nobody.

    ``reset(options={"scenario": m})`` begins an episode in environment m; without the option an environment is drawn, all being
    equally likely. ``info["scenario"]`` of `reset` says which one it is.

    >>> env = ScenarioEnv(lambda m: gymnasium.make("FrozenLake-v1", success_rate=0.3 + 0.1 * m), 5)
    >>> env.reset(seed=0, options={"scenario": 4})[1]["scenario"]
    4
    """

    def __init__(
        self, envs: Callable[[int], gymnasium.Env[Any, Any]] | Sequence[Any], num_scenarios: int | None = None
    ) -> None:
        """Join environments.

        Args:
            envs: A function that makes the environment of scenario m, called when that scenario is first played; or a list of M
                environments. All must have the spaces of the first.
            num_scenarios: M; may be left out with a list.

        Raises:
            InvalidInputError: Other spaces than those of scenario 0; the error says which scenario has them.
        """
        super().__init__()
        if callable(envs):
            if num_scenarios is None:
                raise InvalidInputError(
                    "num_scenarios: pass it; with a function, nothing else says how many scenarios there are."
                )
            self.num_scenarios, self._make = parse_count(num_scenarios, "num_scenarios"), envs
        elif isinstance(envs, Sequence) and not isinstance(envs, str) and len(envs):
            if num_scenarios not in (None, len(envs)):
                raise InvalidInputError(f"num_scenarios={num_scenarios!r}, but there are {len(envs)} environments.")
            self.num_scenarios, self._make = len(envs), envs.__getitem__
        else:
            raise InvalidInputError(
                f"envs is a {type(envs).__name__}; pass a list of environments, or a function that makes the one of scenario m."
            )
        self._envs: dict[int, gymnasium.Env[Any, Any]] = {}
        self._unseeded: set[int] = set()
        first = self._env_of(0)
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.metadata, self.render_mode = first.metadata, first.render_mode
        self._current = first
        for scenario in () if callable(envs) else range(1, self.num_scenarios):
            self._env_of(scenario)

    def _env_of(self, scenario: int) -> gymnasium.Env[Any, Any]:
        """The environment of a scenario, made when it is first asked for."""
        if scenario not in self._envs:
            made = self._make(scenario)
            if not isinstance(made, gymnasium.Env):
                raise InvalidInputError(f"envs: scenario {scenario} is a {type(made).__name__}, not a gymnasium.Env.")
            if scenario:
                for name, ours in (("observations", self.observation_space), ("actions", self.action_space)):
                    theirs = made.observation_space if name == "observations" else made.action_space
                    if theirs != ours:
                        raise InvalidInputError(
                            f"envs: {name} of scenario {scenario} are {theirs}, those of scenario 0 are {ours}; one policy "
                            "must serve all scenarios."
                        )
            self._envs[scenario] = made
            self._unseeded.add(scenario)
        return self._envs[scenario]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the scenario of the options, or in one drawn at random."""
        super().reset(seed=seed)
        if seed is not None:
            self._unseeded = set(self._envs)
        rest = dict(options or {})
        asked = rest.pop(SCENARIO, None)
        scenario = int(self.np_random.integers(self.num_scenarios)) if asked is None else int(asked)
        if not 0 <= scenario < self.num_scenarios:
            raise InvalidInputError(f"options: scenario {asked!r}; there are {self.num_scenarios}, counted from 0.")
        self._current = self._env_of(scenario)
        sown = None
        if scenario in self._unseeded:
            sown = int(self.np_random.integers(2**31)) if seed is None else seed
            self._unseeded.discard(scenario)
        observation, info = self._current.reset(seed=sown, options=rest or None)
        return observation, {**info, SCENARIO: scenario}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step in the present scenario."""
        return self._current.step(action)

    def render(self) -> Any:
        """What the present scenario's environment draws."""
        return self._current.render()

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs.values():
            env.close()


class ScenarioVecEnv(VectorEnvAdapter):
    """A vector environment whose episodes are played in chosen scenarios, each as often as its share says.

    Observations have one more entry, the scenario, which `rl.scenario_ppo` hides from the policy.

    Attributes:
        shares: How often each scenario is played, [M]; may be set at any time.
        scenarios: The scenario of every environment's present episode, [E].
        chances: The share that this scenario had when the episode began, [E].
    """

    def __init__(
        self, vector_env: VectorEnv[Any, Any, Any], num_scenarios: int, discount: float, random_stops: bool
    ) -> None:
        """Adapt an environment with a hidden scenario."""
        super().__init__(vector_env, discount, random_stops)
        self.num_scenarios = num_scenarios
        self.observation_space = with_scenario(vector_env.single_observation_space, num_scenarios)
        self.scenarios = np.zeros(self.num_envs, dtype=np.int64)
        self.planned: list[np.ndarray] = []
        """Scenarios [E] of the next resets, for evaluation."""
        self.shares = np.full(num_scenarios, 1 / num_scenarios)
        self.chances = np.full(self.num_envs, 1 / num_scenarios)
        self._owed = np.zeros(num_scenarios)

    def reset(self) -> Any:
        """All environments from the start: in the scenarios [E] that are planned first, or as the shares say."""
        seed = self._seeds[0]
        if seed is not None:
            self._rng = make_rng(seed, "random stops")
            self._owed = np.zeros(self.num_scenarios)
        self.vector_env.reset(seed=seed, options={SCENARIO: 0})
        self._reset_seeds()
        self._reset_options()
        return self._begin(np.ones(self.num_envs, dtype=bool), self.planned.pop(0) if self.planned else None)

    def step_wait(self) -> Any:
        """Step all environments, and begin new episodes where one ended."""
        observations, rewards, terminated, truncated, _ = self.vector_env.step(self._actions)
        dones = terminated | truncated
        if self._stopping and self.stop_probability:
            dones = dones | (self._rng.random(self.num_envs) < self.stop_probability)
        infos: list[dict[str, Any]] = [{CHANCE: chance} for chance in self.chances]
        shown = self._shown(observations)
        if dones.any():
            for place in np.flatnonzero(dones):
                last = {name: part[place] for name, part in shown.items()}
                infos[place] |= {"terminal_observation": last, "TimeLimit.truncated": not bool(terminated[place])}
            shown = self._begin(dones)
        return shown, np.asarray(rewards, dtype=np.float32), dones, infos

    def _begin(self, mask: np.ndarray, scenarios: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Begin episodes where `mask` [E] says; returns the observations of all environments."""
        self.scenarios[mask] = self._drawn(int(mask.sum())) if scenarios is None else scenarios[mask]
        self.chances[mask] = self.shares[self.scenarios[mask]]
        for scenario in np.unique(self.scenarios[mask]):
            these = mask & (self.scenarios == scenario)
            observations, _ = self.vector_env.reset(options={"reset_mask": these, SCENARIO: int(scenario)})
        return self._shown(observations)

    def _drawn(self, count: int) -> np.ndarray:
        """Always the scenario that is owed most: chance would make some too rare."""
        drawn = np.empty(count, dtype=np.int64)
        for place in range(count):
            self._owed += self.shares
            drawn[place] = self._owed.argmax()
            self._owed[drawn[place]] -= 1
        return drawn

    def _shown(self, observations: Any) -> dict[str, np.ndarray]:
        """Observations of all environments, with their scenarios."""
        parts = observations if isinstance(observations, dict) else {"observation": observations}
        return {SCENARIO: self.scenarios.copy(), **{name: np.array(part) for name, part in parts.items()}}


def as_scenario_env(env: Any, num_scenarios: int, discount: float, random_stops: bool) -> ScenarioVecEnv:
    """`env` (an id, an environment, a list of M of them, or a Gymnasium vector environment) with a scenario that can be chosen.

    Raises:
        InvalidInputError: The number of scenarios is another one, or the environment takes no notice of the scenario.
    """
    if isinstance(env, ScenarioVecEnv):
        return env
    if isinstance(env, VecEnv):
        raise InvalidInputError(
            "env: a VecEnv of Stable-Baselines3 passes no options to reset, so no scenario can be chosen; pass a "
            "gymnasium.vector.SyncVectorEnv or AsyncVectorEnv with autoreset_mode=AutoresetMode.DISABLED."
        )
    if isinstance(env, (list, tuple)):
        env = ScenarioEnv(env)
    if isinstance(env, str):
        env = gymnasium.make(env)
    if isinstance(env, gymnasium.Env):
        single = env
        env = SyncVectorEnv([lambda: single], autoreset_mode=AutoresetMode.DISABLED)
    if not isinstance(env, VectorEnv):
        raise InvalidInputError(
            f"env is a {type(env).__name__}; pass the id of a Gymnasium environment, an environment that takes "
            'reset(options={"scenario": m}), a list of environments, or a vector environment of Gymnasium.'
        )
    of_env = getattr(env.envs[0].unwrapped if hasattr(env, "envs") else env, "num_scenarios", num_scenarios)
    if of_env != num_scenarios:
        raise InvalidInputError(f"num_scenarios={num_scenarios}, but the environment has {of_env}.")
    made = ScenarioVecEnv(env, num_scenarios, discount, random_stops)
    check_heeded(env, num_scenarios)
    fresh = int(np.random.default_rng().integers(2**31))
    env.reset(seed=fresh, options={SCENARIO: 0})  # the check left a seed behind
    return made


def check_heeded(env: VectorEnv[Any, Any, Any], num_scenarios: int) -> None:
    """Raise if an environment takes no notice of the scenario.

    Its word counts: ``info["scenario"]`` of `reset`. Where it says nothing, the same seed and the same actions must lead to
    another observation, reward or end in some scenario.
    """
    tried = np.unique(np.linspace(0, num_scenarios - 1, TRIED_SCENARIOS).round().astype(int))
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(TRIED_STEPS)]
    traces: list[list[Any]] = []
    for scenario in tried:
        observations, info = env.reset(seed=0, options={SCENARIO: int(scenario)})
        if SCENARIO in info:
            told = np.unique(np.asarray(info[SCENARIO])).tolist()
            if told != [scenario]:
                raise InvalidInputError(f"env: was asked for scenario {scenario}, and says that it plays {told}.")
            continue
        trace = [_flat(observations)]
        for action in actions:
            observations, rewards, terminated, truncated, _ = env.step(action)
            ended = terminated | truncated
            trace.append(np.concatenate([_flat(observations), rewards, ended]))
            if traces and not np.array_equal(trace[-1], traces[0][len(trace) - 1]):
                return
            if ended.any():
                env.reset(options={"reset_mask": ended, SCENARIO: int(scenario)})
        traces.append(trace)
    if not traces:
        return
    raise InvalidInputError(
        f"env: scenarios {', '.join(map(str, tried))} look alike for {TRIED_STEPS} steps of the same actions; does reset heed "
        'options={"scenario": m}? If it does, and they differ only later, let reset return {"scenario": m} as its info.'
    )


def with_scenario(space: spaces.Space[Any], num_scenarios: int) -> spaces.Dict:
    """Observations with the scenario, which comes first."""
    parts = list(space.spaces.items()) if isinstance(space, spaces.Dict) else [("observation", space)]
    if any(name == SCENARIO for name, _ in parts):
        raise InvalidInputError(
            f'env: its observations have an entry "{SCENARIO}", so the scenario is not hidden; rename the entry.'
        )
    return spaces.Dict([(SCENARIO, spaces.Discrete(num_scenarios)), *parts])


def _flat(observations: Any) -> np.ndarray:
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
