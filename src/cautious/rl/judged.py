"""What a policy is worth: values by fresh rollouts, evidence of a gap, and a certificate where a table exists."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP, parse_mdp
from cautious.parallel import single_threaded
from cautious.risk import RiskMeasure, risk_value
from cautious.rl.acting import acting
from cautious.rl.belief import StepRewards
from cautious.rl.recorder import Recorder, Steps
from cautious.rl.standings import Standings
from cautious.rl.value import Episodes, GapFound, Returns, Value, bound_returns, default_horizon, run_episodes
from cautious.seeding import check_seed
from cautious.solvers.certificate import Certificate
from cautious.solvers.solve import TOLERANCE, solve_mdp
from cautious.validation import as_number, parse_count, parse_flag


class JudgedPPO(PPO):
    """The part of `KofNPPO` that judges a policy; its subclass learns one."""

    level: RiskMeasure
    belief: Any
    reward_scale: float | None
    standings: Standings
    draws: np.random.Generator
    """Of actions in rollouts whose `seed` is None."""
    _recorder: Recorder
    _pay_by: StepRewards

    @property
    def num_models(self) -> int:
        """M."""
        return self._pay_by.num_models

    @property
    def vec_env(self) -> VecEnv:
        """The environments, as they are recorded."""
        return self._recorder.venv

    def step_rewards(self, steps: Steps) -> np.ndarray:
        """What each model pays for each step: [M, B]. By default the belief is asked.

        Learning and values both ask here.

        Args:
            steps: What happened (`cautious.Steps`): observations, actions, next observations, the environment's own rewards.
        """
        return self._pay_by(steps.observations, steps.actions, steps.following)

    def probabilities(self, observations: Any) -> Tensor:
        """π(a|s) for observations of the environment [B, ...], with discrete actions: [B, A], float64."""
        if not isinstance(self.action_space, spaces.Discrete):
            raise InvalidInputError(f"probabilities: requires a Discrete action space; got {self.action_space}.")
        normalize = self.get_vec_normalize_env()
        return self.shown_probabilities(observations if normalize is None else normalize.normalize_obs(observations))

    def shown_probabilities(self, shown: Any) -> Tensor:
        """π(a|s) for observations as the policy's network takes them."""
        self.policy.set_training_mode(False)
        with torch.no_grad():
            distribution = self.policy.get_distribution(self.policy.obs_to_tensor(shown)[0]).distribution
        return distribution.probs.double().cpu()  # type: ignore[union-attr]

    def value(
        self,
        num_episodes: int = 1000,
        confidence: float = 0.95,
        *,
        deterministic: bool = False,
        horizon: int | None = None,
        reward_range: tuple[float, float] | None = None,
        seed: int | None = None,
    ) -> Value:
        """The k-of-N value of the policy by fresh rollouts, normalised as all returns of this package.

        The environment is reset, and learning goes on from there. A callback may ask before or after a rollout, not amid one.

        Args:
            num_episodes: How many, at least; rounded up to as many in each environment.
            confidence: That the exact value lies between the bounds.
            deterministic: Judge the most likely actions instead of the policy itself.
            horizon: Steps after which an episode is cut; by default when 0.001 of the return is still to come. What is cut
                off widens the bounds, by the lowest and the highest reward or 0, which it pays if the episode ends soon after.
            reward_range: Lowest and highest reward of any model. With it the bounds hold for any number of episodes; without,
                they are Student's, which take the mean of the episodes to be near normal: with rare disasters and few
                episodes it is not.
            seed: Starts the rollouts; None goes on with the environment's and the agent's own.

        Returns:
            (estimate, lower, upper). The estimate is low rather than high: the worst of several noisy returns is. But it takes
            what is cut off to go on as what was seen: where episodes end soon after `horizon`, it is too far from 0.
        """
        returns = self.returns(
            num_episodes,
            confidence,
            deterministic=deterministic,
            horizon=horizon,
            reward_range=reward_range,
            seed=seed,
        )
        return Value(*(float(risk_value(self.level, side)) for side in returns[:3]))

    def returns(
        self,
        num_episodes: int = 1000,
        confidence: float = 0.95,
        *,
        deterministic: bool = False,
        horizon: int | None = None,
        reward_range: tuple[float, float] | None = None,
        seed: int | None = None,
    ) -> Returns:
        """Returns of all M models by fresh rollouts, with bounds that hold for all of them together; as `value`."""
        if not 0 < as_number(confidence) < 1:
            raise InvalidInputError(f"confidence={confidence!r} must lie between 0 and 1.")
        episodes = self.episodes(num_episodes, deterministic=deterministic, horizon=horizon, seed=seed)
        return bound_returns(episodes, float(confidence), reward_range)

    @single_threaded
    def episodes(
        self,
        num_episodes: int = 1000,
        *,
        deterministic: bool = False,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> Episodes:
        """Fresh episodes, with what each model pays for them: what `value` and `returns` are computed from."""
        num_episodes = parse_count(num_episodes, "num_episodes", 2)
        steps = default_horizon(self.gamma) if horizon is None else parse_count(horizon, "horizon")
        deterministic = parse_flag(deterministic, "deterministic")
        self._check_between_rollouts()
        if seed is not None:
            self._recorder.seed(check_seed(seed) % 2**31)
        try:
            with acting(self, deterministic, seed) as act:
                return run_episodes(self, self._recorder, act, num_episodes, steps)
        finally:
            self._last_obs = None  # learning goes on from a reset
            if self._recorder.is_recording:  # in a callback, where PPO does not ask again
                self._start_over()

    def _check_between_rollouts(self) -> None:
        if self._recorder.is_amid_steps:
            raise InvalidInputError(
                "value: called amid a rollout, whose steps it would break off; in a callback call it from _on_rollout_start or "
                "_on_rollout_end, not from _on_step."
            )

    def _start_over(self) -> None:
        """Begin new episodes, from which learning goes on."""
        assert self.env is not None
        self._last_obs = self.env.reset()  # type: ignore[assignment]
        self._last_episode_starts = np.ones(self.env.num_envs, dtype=bool)

    def gap_found(self, total_timesteps: int, num_episodes: int = 1000) -> GapFound:
        """Look for a policy that does better under the averaged mixture of the models; evidence, not a certificate.

        A copy of this agent goes on learning against that one reward function, in the same environment. Where the world has a
        table, `certificate` says more.

        Args:
            total_timesteps: Steps of the copy.
            num_episodes: Fresh episodes for either value.
        """
        self._check_between_rollouts()
        from cautious.rl.gap import find_gap  # it is about a subclass

        return find_gap(self, total_timesteps, num_episodes)

    def certificate(self, mdp: TabularMDP, observations: Any, *, tolerance: float = TOLERANCE) -> Certificate:
        """How far the policy is from the best possible one, exactly, where the world has a table.

        Args:
            mdp: The world, with S states; its discount should be gamma.
            observations: What the environment shows in each of its states, [S, ...].
            tolerance: How near the upper bound is to the best possible value, as a share of the range of the rewards.
        """
        world = parse_mdp(mdp)
        rewards = self._pay_by.of_actions(observations)
        solution = solve_mdp(world, rewards, self.level, tolerance=tolerance)
        return solution.certificate(self.probabilities(observations))
