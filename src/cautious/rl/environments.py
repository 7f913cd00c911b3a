"""An environment in any of its forms, as a vector environment of Stable-Baselines3 whose episodes end at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from cautious.errors import InvalidInputError
from cautious.rl.random_stops import RandomStops, stop_probability
from cautious.seeding import make_rng


class VectorEnvAdapter(VecEnv):
    """A `gymnasium.vector.VectorEnv` for Stable-Baselines3, with random stops.

    All environments are stepped in one call, which for one written in numpy is many times quicker than one after another.
    """

    def __init__(self, vector_env: VectorEnv[Any, Any, Any], discount: float = 0.99, random_stops: bool = True) -> None:
        """Adapt an environment that leaves resets to its caller (`AutoresetMode.DISABLED`).

        Args:
            vector_env: The environment.
            discount: The learner's.
            random_stops: End episodes with probability 1 - discount after each step (`RandomStops`).
        """
        mode = vector_env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.DISABLED:
            raise InvalidInputError(
                f"env: a vector environment with autoreset_mode={mode}; make it with AutoresetMode.DISABLED, for example "
                "gymnasium.make_vec(..., vector_kwargs={'autoreset_mode': AutoresetMode.DISABLED}), since resets are made here."
            )
        self.vector_env = vector_env
        self.render_mode = getattr(vector_env, "render_mode", None)
        self.stop_probability = stop_probability(discount) if random_stops else 0.0
        self._stopping = True
        self._rng = np.random.default_rng()
        super().__init__(vector_env.num_envs, vector_env.single_observation_space, vector_env.single_action_space)

    def set_stopping(self, stopping: bool) -> None:
        """Whether to end episodes from now on; evaluation turns it off."""
        self._stopping = bool(stopping)

    def reset(self) -> Any:
        """All environments from the start."""
        seed = self._seeds[0]
        if seed is not None:
            self._rng = make_rng(seed, "random stops")
        observations, _ = self.vector_env.reset(seed=seed)
        self._reset_seeds()
        self._reset_options()
        return _copied(observations)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step all environments, and begin new episodes where one ended."""
        observations, rewards, terminated, truncated, _ = self.vector_env.step(self._actions)
        observations, dones = _copied(observations), terminated | truncated
        if self._stopping and self.stop_probability:
            dones = dones | (self._rng.random(self.num_envs) < self.stop_probability)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            for place in np.flatnonzero(dones):
                last = _row(observations, int(place))
                infos[place] = {"terminal_observation": last, "TimeLimit.truncated": not bool(terminated[place])}
            observations = _copied(self.vector_env.reset(options={"reset_mask": dones})[0])
        return observations, np.asarray(rewards, dtype=np.float32), dones, infos

    def close(self) -> None:
        """Close the environment."""
        self.vector_env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute, once for each environment."""
        source = self if hasattr(self, attr_name) else self.vector_env
        return [getattr(source, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the vector environment."""
        setattr(self.vector_env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method, once for all environments."""
        source = self if hasattr(self, method_name) else self.vector_env
        return [getattr(source, method_name)(*method_args, **method_kwargs)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No environment is wrapped by itself."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Nothing is drawn."""
        return [None] * self.num_envs


def as_vec_env(env: Any, discount: float, random_stops: bool) -> VecEnv:
    """`env` (an id, a Gymnasium environment, a vector environment of either library) as Stable-Baselines3 takes it.

    A Stable-Baselines3 `VecEnv` is taken as it is: wrap its environments in `RandomStops` yourself, or let them end by
    themselves.
    """
    if isinstance(env, VecEnv):
        return env
    if isinstance(env, VectorEnv):
        return VectorEnvAdapter(env, discount, random_stops)
    if isinstance(env, str):
        env = gymnasium.make(env)
    if not isinstance(env, gymnasium.Env):
        raise InvalidInputError(
            f"env is a {type(env).__name__}; pass the id of a Gymnasium environment, an environment, or a vector environment."
        )
    single: Any = RandomStops(env, discount) if random_stops else env
    return DummyVecEnv([lambda: Monitor(single)])


def stop_chance(env: VecEnv) -> float:
    """The probability with which episodes of `env` are stopped at random after a step."""
    return float(env.get_attr("stop_probability")[0]) if env.has_attr("stop_probability") else 0.0


def set_stopping(env: VecEnv, stopping: bool) -> None:
    """Turn random stops on or off, where there are any."""
    if env.has_attr("stop_probability"):
        env.env_method("set_stopping", stopping)


def _copied(observations: Any) -> Any:
    """A vector environment may write the next observations into the same array."""
    if isinstance(observations, dict):
        return {name: np.array(part) for name, part in observations.items()}
    return np.array(observations)


def _row(observations: Any, place: int) -> Any:
    if isinstance(observations, dict):
        return {name: part[place] for name, part in observations.items()}
    return observations[place]
