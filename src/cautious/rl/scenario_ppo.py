"""`ScenarioPPO`: k-of-N over scenarios, for simulators whose dynamics are in doubt.

An episode is played in one of M scenarios. With J_m the normalised return in scenario m, the gradient of the k-of-N value is

    ∇ Σ_i w_i J_(i)  =  Σ_m v_m ∇J_m,     v_m = w_rank(m),

so after each rollout the scenarios are ranked by their returns, and a step in scenario m counts v_m / q_m times in PPO's
gradient, where q_m is how likely the scenario was to be chosen for that episode. Scenarios are chosen by their weights, and for
a share of the episodes evenly, so that every scenario's return stays known.

The critic is told the scenario, the policy is not. A critic that knows as little as the policy would put the mean of all
scenarios in the place of what is still to come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from cautious.errors import InvalidInputError
from cautious.mdp.uncertain import UncertainMDP, parse_uncertain
from cautious.risk import RiskMeasure, parse_level, risk_value, warn_of_few
from cautious.rl.kofn_ppo import KofNPPO
from cautious.rl.recorder import Steps
from cautious.rl.scenarios import CHANCE, SCENARIO, ScenarioVecEnv, as_scenario_env
from cautious.rl.value import Episodes, GapFound
from cautious.solvers.certificate import Certificate
from cautious.solvers.solve import TOLERANCE, solve_mdp
from cautious.types import ArrayLike
from cautious.validation import as_number, parse_count


class ScenarioPPO(KofNPPO):
    """A Stable-Baselines3 algorithm that is careful where the scenarios of a simulator differ.

    As `KofNPPO`, with scenarios in the place of reward models: the environment pays its own rewards, and the M returns that are
    ranked are those of its M scenarios. `value` plays fresh episodes in every scenario.

    >>> import gymnasium
    >>> from cautious import ScenarioEnv, ScenarioPPO
    >>> env = ScenarioEnv(lambda m: gymnasium.make("FrozenLake-v1", success_rate=0.3 + 0.01 * m), 40)
    >>> agent = ScenarioPPO("MlpPolicy", env, 40, "10-of-40", n_steps=256, batch_size=64, device="cpu", seed=0).learn(256)
    >>> action, _ = agent.predict(0)
    """

    own_settings = (*KofNPPO.own_settings, "even_share")

    def __init__(
        self,
        policy: Any,
        env: Any,
        num_scenarios: int,
        level: RiskMeasure | str = "1-of-20",
        *,
        even_share: float = 0.25,
        **settings: Any,
    ) -> None:
        """Set up an agent.

        Args:
            policy: "MlpPolicy", "CnnPolicy" or "MultiInputPolicy", or a subclass of `rl.scenario_ppo.ScenarioPolicy`.
            env: An environment that takes ``reset(options={"scenario": m})``, its id, a list of M environments (see
                `ScenarioEnv`), or a `gymnasium.vector.VectorEnv` (with `AutoresetMode.DISABLED`) that takes the option, too.
            num_scenarios: M. k/N x M should be ten or more, or the policy fits a handful of scenarios.
            level: The level of caution: any risk measure (`cautious.risk`). "N-of-N" is plain domain randomisation.
            even_share: Share of the episodes, in (0, 1], for which all scenarios are equally likely; those of the others are
                chosen by weight.
            **settings: As `KofNPPO` takes them (smoothing, random_stops, ...), and PPO (gamma, n_steps, seed, ...).

        Raises:
            InvalidInputError: One scenario; an environment that takes no notice of the scenario, or shows it; scenarios with
                different spaces.

        Warns:
            FewModelsWarning: The tail that the level looks at has fewer than ten scenarios.
        """
        count = parse_count(num_scenarios, "num_scenarios")
        if count == 1:
            raise InvalidInputError("num_scenarios=1: there is nothing to be careful about; use stable_baselines3.PPO.")
        if not 0 < as_number(even_share) <= 1:
            raise InvalidInputError(f"even_share={even_share!r} must lie in (0, 1].")
        warn_of_few(
            parse_level(level),
            count,
            "scenarios",
            "judge the policy in held-out scenarios: agent.set_env(other)",
            stacklevel=3,
        )
        self.even_share = float(even_share)
        super().__init__(_policy_class(policy), env, _Scenarios(count), level, **settings)

    @classmethod
    def as_vec_env(cls, env: Any, belief: Any, discount: float, random_stops: bool) -> VecEnv:
        """`env` with scenarios that can be chosen; `belief` says how many."""
        count = belief.num_models if isinstance(belief, _Scenarios) else parse_count(belief, "num_scenarios")
        return as_scenario_env(env, count, discount, random_stops)

    @property
    def _scenario_env(self) -> ScenarioVecEnv:
        made = self.vec_env
        assert isinstance(made, ScenarioVecEnv)
        return made

    def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """PPO's, in scenarios chosen by the present weights."""
        self._choose_scenarios()
        return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def begin_episodes(self) -> None:
        """Let the next rollout begin with a reset of the environments, in scenarios chosen by the present weights."""
        self._choose_scenarios()
        super().begin_episodes()

    def _choose_scenarios(self) -> None:
        """Let scenarios be played as often as their present weights say, and a share of the episodes evenly."""
        even, weights = self.even_share, self.standings.weights
        self._scenario_env.shares = (1 - even) * weights + even / self.num_models

    def step_rewards(self, steps: Steps) -> np.ndarray:
        """The environment's own rewards, each in the row of the scenario that paid it: [M, B]."""
        rewards = np.zeros((self.num_models, len(steps.rewards)))
        rewards[steps.observations[SCENARIO], np.arange(len(steps.rewards))] = steps.rewards
        return rewards

    def rollout_returns(self, steps: Steps, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sums and visits [M], whose quotients are the normalised returns J_m of the scenarios.

            J_m = (1 - γ) Σ_b d_b r_b / Σ_b d_b (1 - γ [b does not terminate]),   over the steps b in scenario m

        The denominator counts episodes without noise: over a whole episode it adds up to one, and where nothing terminates it
        makes J_m the mean reward of the steps.
        """
        ages = self.discounts(steps)
        terminated = steps.ended & np.array([not info.get("TimeLimit.truncated", True) for info in steps.infos])
        lasting = ages * (1 - self.gamma * ~terminated)
        visits = np.bincount(steps.observations[SCENARIO], lasting, self.num_models)
        return (1 - self.gamma) * (rewards @ ages), visits

    def paid_rewards(self, steps: Steps, rewards: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The environment's own rewards, [B]."""
        return steps.rewards

    def step_weights(self, steps: Steps, weights: np.ndarray) -> np.ndarray:
        """v_m / q_m for a step in scenario m, [B]."""
        return weights[steps.observations[SCENARIO]] / np.array([info[CHANCE] for info in steps.infos])

    def probabilities(self, observations: Any) -> Tensor:
        """π(a|s) for observations of the environment [B, ...], with discrete actions: [B, A], float64."""
        return super().probabilities(self._blindly(observations))

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Actions for observations of the environment, one or several."""
        return super().predict(self._blindly(observation), state, episode_start, deterministic)

    def _blindly(self, observations: Any) -> dict[str, np.ndarray]:
        """Observations, with a scenario that the policy does not see."""
        parts = observations if isinstance(observations, dict) else {"observation": observations}
        if SCENARIO in parts:
            return parts
        name, first = next(iter(parts.items()))
        space = self.observation_space[name]  # type: ignore[index]
        lead = np.shape(first)[: np.ndim(first) - len(space.shape or ())]  # nothing, or the number of observations
        return {SCENARIO: np.zeros(lead, dtype=np.int64), **{key: np.asarray(part) for key, part in parts.items()}}

    def episodes(
        self,
        num_episodes: int = 1000,
        *,
        deterministic: bool = False,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> Episodes:
        """Fresh episodes, equally many in every scenario, two at least: what `value` and `returns` are computed from."""
        each = max(2, -(-parse_count(num_episodes, "num_episodes", 2) // self.num_models))
        rounds = -(-each * self.num_models // self.n_envs)
        scenarios = np.arange(rounds * self.n_envs) % self.num_models
        self._scenario_env.planned = list(scenarios.reshape(rounds, self.n_envs))
        try:
            found = super().episodes(len(scenarios), deterministic=deterministic, horizon=horizon, seed=seed)
        finally:
            self._scenario_env.planned = []
        num = each * self.num_models
        own = found.paid[np.arange(num), scenarios[:num]].reshape(each, self.num_models)
        return found._replace(paid=own, rest=found.rest[:num, 0].reshape(each, self.num_models))

    def gap_found(self, total_timesteps: int, num_episodes: int = 1000) -> GapFound:
        """Not for scenarios.

        Raises:
            InvalidInputError: Always. Where the scenarios have tables, `certificate` has a bound.
        """
        raise InvalidInputError(
            "gap_found: is about one reward function, and scenarios have several dynamics; where they have tables, ask "
            "certificate(world, rewards, observations)."
        )

    def certificate(  # type: ignore[override]
        self, world: UncertainMDP, rewards: ArrayLike, observations: Any, *, tolerance: float = TOLERANCE
    ) -> Certificate:
        """How far the policy is from the best possible one, exactly, where the scenarios have tables.

        Args:
            world: The M scenarios, with S states; its discount should be gamma.
            rewards: What they pay, [S, A] or [M, S, A].
            observations: What the environment shows in each of its states, [S, ...].
            tolerance: As `solve_mdp` takes it.

        Returns:
            The exact value of the policy, and a bound for every policy, with memory or without.
        """
        table = parse_uncertain(world)
        lower = risk_value(self.level, table.returns(self.probabilities(observations), rewards))
        upper = solve_mdp(table, rewards, self.level, tolerance=tolerance).certificate().upper.clamp(min=float(lower))
        return Certificate(lower, upper, upper - lower, self.level)

    @classmethod
    def load(cls, path: Path | str, env: Any, num_scenarios: int, **ppo: Any) -> ScenarioPPO:  # type: ignore[override]
        """Read what `save` wrote; runs no code from it.

        Args:
            path: The folder.
            env: An environment with the same spaces and scenarios.
            num_scenarios: M.
            **ppo: As `KofNPPO.load` takes them.
        """
        agent = super().load(path, env, num_scenarios, **ppo)
        assert isinstance(agent, cls)
        return agent


class _Scenarios:
    """In the place of a belief: says how many scenarios there are. What they pay, the environment says."""

    def __init__(self, num_scenarios: int) -> None:
        self.num_models = num_scenarios

    def step_rewards(self, observations: Any, actions: np.ndarray, following: Any) -> np.ndarray:
        return np.zeros((self.num_models, len(actions)))


class ScenarioPolicy(MultiInputActorCriticPolicy):
    """A policy whose critic sees the scenario, the first entry of the observations, and whose actor does not."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        hidden = int(self.observation_space[SCENARIO].n)  # type: ignore[index]
        self.mlp_extractor = _Blindfold(self.mlp_extractor, hidden, self.features_dim)  # type: ignore[assignment]


ScenarioPPO.policy_aliases = dict.fromkeys(("MlpPolicy", "CnnPolicy", "MultiInputPolicy"), ScenarioPolicy)


def _policy_class(policy: Any) -> type[ScenarioPolicy]:
    """The class of policies that a name stands for."""
    kind = ScenarioPPO.policy_aliases.get(policy) if isinstance(policy, str) else policy
    if not (isinstance(kind, type) and issubclass(kind, ScenarioPolicy)):
        raise InvalidInputError(
            f"policy={policy!r}: pass one of {', '.join(map(repr, ScenarioPPO.policy_aliases))}, or a subclass of "
            "cautious.rl.scenario_ppo.ScenarioPolicy, whose actor does not see the scenario."
        )
    return kind


class _Blindfold(nn.Module):
    """Layers of actor and critic [B, F] -> [B, ...], of which the actor's see 0 in the first `hidden` features."""

    seen: Tensor

    def __init__(self, layers: Any, hidden: int, num_features: int) -> None:
        super().__init__()
        self.layers, self.latent_dim_pi, self.latent_dim_vf = layers, layers.latent_dim_pi, layers.latent_dim_vf
        self.register_buffer("seen", (torch.arange(num_features) >= hidden).float(), persistent=False)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return self.layers.forward_actor(features * self.seen)

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.layers.forward_critic(features)
