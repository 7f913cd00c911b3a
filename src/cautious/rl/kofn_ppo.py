"""`KofNPPO`: k-of-N for any Gymnasium world, on Stable-Baselines3's PPO.

After each rollout all M models are ranked by the discounted return that they give the current policy, estimated from the same
visited states; PPO then learns from the rank-weighted mixture of their rewards (`rl.mixture`). The environment's own reward is
not learned from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP, parse_mdp
from cautious.parallel import single_threaded
from cautious.risk import KofN, RiskMeasure, is_k_of_n, parse_level, risk_value
from cautious.rl.belief import MixedBelief, StepRewards
from cautious.rl.checkpoints import learn_in_pieces
from cautious.rl.environments import as_vec_env, stop_chance
from cautious.rl.files import PPO_SETTINGS, SCHEDULES, load_agent, save_agent
from cautious.rl.mixture import Blended, Mixture
from cautious.rl.recorder import Recorder, Steps
from cautious.rl.value import Episodes, GapFound, Returns, Value, bound_returns, default_horizon, run_episodes
from cautious.seeding import check_seed, derive_seed, make_rng
from cautious.solvers.certificate import Certificate
from cautious.solvers.solve import TOLERANCE, solve_mdp
from cautious.validation import as_folder, as_number, as_path, parse_count, parse_flag

ANNEALED_SHARE = 0.5
"""Of the steps of an annealed start, in which the level goes from n-of-n down to k-of-n."""


class KofNPPO(PPO):
    """A Stable-Baselines3 algorithm that is careful where the models of a belief disagree.

    Everything that PPO offers is there: `learn` with callbacks, loggers and a progress bar, `predict`, `evaluate_policy`. What
    differs: rewards come from the belief; `save` writes a folder of safetensors and JSON, never pickle, and `load` needs the
    belief again; `value` says what the policy is worth.

    Attributes:
        level: The level of caution.
        mixture: Weights of the models (`rl.mixture.Mixture`).
        start_values: After a `learn` with several starts: the value of each, by the rollouts that chose among them.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        belief: Any,
        level: RiskMeasure | str = "1-of-20",
        *,
        smoothing: float = 0.2,
        num_starts: int = 1,
        random_stops: bool = True,
        reward_scale: float | None = None,
        **ppo: Any,
    ) -> None:
        """Set up an agent.

        Args:
            policy: As PPO takes it: "MlpPolicy", "CnnPolicy", "MultiInputPolicy" or a class.
            env: The id of a Gymnasium environment, an environment, a `gymnasium.vector.VectorEnv` (with
                `AutoresetMode.DISABLED`), or a Stable-Baselines3 `VecEnv`.
            belief: Anything with ``rewards(observations) -> [M, B, A]`` or ``step_rewards(observations, actions,
                next_observations) -> [M, B]`` (`rl.belief.StepRewards`), or an array [M, S, A] over numbered states.
            level: The level of caution, such as "1-of-20" or "CVaR(0.1)": any risk measure (`cautious.risk`).
            smoothing: Share of the newest ranking in the weights, in (0, 1]; the rest are the weights so far.
            num_starts: How many times `learn` begins: once from the present weights, then by turns from fresh weights with
                the level annealed from n-of-n, and from fresh weights. They share the steps evenly, and the best is kept.
            random_stops: End episodes with probability 1 - gamma after each step, so that states are visited as often as the
                discounted return counts them. A `VecEnv` is taken as it is; see `cautious.RandomStops`.
            reward_scale: Factor on the rewards that PPO learns from, which its critic wants near one; ranking and values have
                none. None: so that discounted returns would vary by about one, were rewards independent.
            **ppo: As PPO takes them (gamma, n_steps, learning_rate, seed, ...). `ent_coef` may be a function of the remaining
                progress too, as `learning_rate` may: exploration that ends keeps PPO from settling too early.
        """
        self.level = parse_level(level)
        self.smoothing = _share(smoothing, "smoothing")
        self.num_starts = parse_count(num_starts, "num_starts")
        self.random_stops = parse_flag(random_stops, "random_stops")
        self.reward_scale = None if reward_scale is None else _positive(reward_scale, "reward_scale")
        entropy = ppo.pop("ent_coef", 0.0)
        self.entropy_schedule = entropy if callable(entropy) else None
        ppo["ent_coef"] = entropy(1.0) if callable(entropy) else entropy
        self.start_values: list[float] = []
        gamma = as_number(ppo.get("gamma", 0.99))
        if not 0 <= gamma < 1:
            raise InvalidInputError(f"gamma={ppo['gamma']!r} must lie in [0, 1): returns are normalised by 1 - gamma.")
        recorder = Recorder(as_vec_env(env, gamma, self.random_stops))
        seed = ppo.get("seed")
        if seed is not None:
            recorder.seed(check_seed(seed))
        self.belief = belief
        self._recorder = recorder
        self._pay_by = StepRewards(belief, self.level, recorder.action_space, recorder.start())
        self._stop_chance = stop_chance(recorder)
        self._annealing = False
        self.progress_span: tuple[int, int] | None = None
        self.mixture = Mixture(self._pay_by.num_models, self.smoothing)
        super().__init__(policy, recorder, **ppo)

    @property
    def num_models(self) -> int:
        """M."""
        return self._pay_by.num_models

    def _setup_model(self) -> None:
        base = self.rollout_buffer_class
        if base is None:
            base = DictRolloutBuffer if isinstance(self.observation_space, spaces.Dict) else RolloutBuffer
        self.rollout_buffer_class = type(f"Paid{base.__name__}", (_PaidLater, base), {})
        super()._setup_model()
        self.rollout_buffer.pay = self._pay  # type: ignore[attr-defined]

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on in another environment, with the same belief."""
        recorder = Recorder(as_vec_env(env, self.gamma, self.random_stops))
        self._pay_by = StepRewards(self.belief, self.level, recorder.action_space, recorder.start())
        super().set_env(recorder, force_reset)
        self._recorder, self._stop_chance = recorder, stop_chance(recorder)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed everything that draws; also the actions of rollouts whose `seed` is None."""
        super().set_random_seed(seed)
        self._draws = np.random.default_rng() if seed is None else make_rng(check_seed(seed), "actions of values")

    def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """PPO's, recorded; the buffer calls `_pay` as soon as it is full."""
        if self._last_obs is None:  # a callback asked for a value
            self._start_over()
        with self._recorder.recording():
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def _pay(self, buffer: RolloutBuffer) -> None:
        """Rank the models by this rollout, and add the mixture's rewards to what the buffer holds."""
        steps, rewards = self._take_rewards(buffer)
        buffer.rewards += self._mix(steps, rewards).reshape(buffer.rewards.shape)

    def _take_rewards(self, buffer: RolloutBuffer) -> tuple[Steps, np.ndarray]:
        """The recorded steps, and what each model pays for each of them, [M, T*E]."""
        steps = self._recorder.take()
        actions = buffer.actions.reshape(-1, *(self.action_space.shape or ()))
        if isinstance(self.action_space, spaces.Box):  # what PPO made of them for the environment
            if self.policy.squash_output:
                actions = self.policy.unscale_action(actions)
            else:
                actions = np.clip(actions, self.action_space.low, self.action_space.high)
        return steps, self._pay_by(steps.observations, actions, steps.following)

    def _mix(self, steps: Steps, rewards: np.ndarray) -> np.ndarray:
        """Update the mixture by what the models pay in a rollout [M, T*E]; returns what PPO learns from, [T*E]."""
        # What the discount makes of a step, and what random stops already did: with gamma 0, they end every episode at once.
        going_on = 1 - self._stop_chance
        visits = (self.gamma / going_on) ** steps.ages if going_on > 0 else np.ones(len(steps.ages))
        level = self._present_level()
        self.mixture.update(rewards, visits, level)
        paid = self.mixture.pay(rewards)
        self.logger.record("cautious/k_of_n_return", float(risk_value(self.level, self.mixture.returns)))
        self.logger.record("cautious/mean_return", float(self.mixture.returns.mean()))
        if isinstance(level, KofN):
            self.logger.record("cautious/level_k", level.k)
        return self._factor() * paid

    def _factor(self) -> float:
        """On the rewards that PPO learns from."""
        return self.mixture.scale(self.gamma) if self.reward_scale is None else self.reward_scale

    def train(self) -> None:
        """PPO's, with the entropy coefficient of the present progress."""
        if self.entropy_schedule is not None:
            self.ent_coef = float(self.entropy_schedule(self._current_progress_remaining))
        super().train()

    def _present_level(self) -> RiskMeasure:
        """The level now. In an annealed start k comes down from n, by equal factors; other levels come in from the mean."""
        done = 1 - self._current_progress_remaining
        if not self._annealing or done >= ANNEALED_SHARE:
            return self.level
        if not (isinstance(self.level, KofN) and is_k_of_n(self.level)):
            return Blended(self.level, done / ANNEALED_SHARE)
        k, n = self.level.k, self.level.n
        return KofN(max(k, round(n * (k / n) ** (done / ANNEALED_SHARE))), n)

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
        """Schedules go from 1 to 0 within each start, and not below it in a last rollout that is longer than what was left."""
        before, end = self.progress_span or (self._num_timesteps_at_start, total_timesteps)
        self._current_progress_remaining = max(0.0, 1 - (num_timesteps - before) / max(1, end - before))

    @single_threaded  # layers are so small that threads would wait for each other most of the time
    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "KofNPPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        checkpoint_dir: Path | str | None = None,
        checkpoint_every: int | None = None,
    ) -> KofNPPO:
        """Learn, from one or several starts; further arguments are PPO's.

        With `checkpoint_dir`, the same call after a kill goes on from the last checkpoint, and ends with the bits of a run that
        was not killed. It learns in pieces, each from fresh episodes (`rl.checkpoints`), so its bits are others than those of a
        call without; callbacks see the pieces one after another.

        Several starts share `total_timesteps` evenly, and each ends with fresh rollouts, about a tenth as many steps again, by
        whose k-of-N value the best is kept (`start_values`). Callbacks see them one after another; schedules run once in each.

        Args:
            total_timesteps: Steps of the environments, in all.
            callback: As PPO takes it.
            log_interval: As PPO takes it.
            tb_log_name: As PPO takes it.
            reset_num_timesteps: As PPO takes it.
            progress_bar: As PPO takes it.
            checkpoint_dir: Where to keep the checkpoint; needs a `seed` and `num_starts` 1. None keeps none.
            checkpoint_every: Steps from one checkpoint to the next, rounded up to whole rollouts; by default ten rollouts.

        Raises:
            OtherRunError: `checkpoint_dir` holds the checkpoint of another agent or run.
        """
        steps = parse_count(total_timesteps, "total_timesteps")
        options: dict[str, Any] = {
            "log_interval": log_interval,
            "tb_log_name": tb_log_name,
            "progress_bar": progress_bar,
        }
        if checkpoint_dir is not None:
            if parse_flag(reset_num_timesteps, "reset_num_timesteps"):
                self.num_timesteps = 0
            learn = super().learn
            learn_in_pieces(
                self,
                steps,
                checkpoint_dir,
                checkpoint_every,
                lambda piece: learn(piece, callback, reset_num_timesteps=False, **options),
            )
            return self
        if self.num_starts == 1:
            super().learn(steps, callback, reset_num_timesteps=reset_num_timesteps, **options)
            return self
        self.start_values, best = [], None
        for start in range(self.num_starts):
            if start:
                self._begin_afresh(annealed=start % 2 == 1)
            share = steps // self.num_starts + (start < steps % self.num_starts)
            super().learn(share, callback, reset_num_timesteps=reset_num_timesteps and not start, **options)
            self._annealing = False
            value = self.value(max(8, share // (10 * default_horizon(self.gamma)))).estimate
            if best is None or value > max(self.start_values):
                best = self.policy, self.mixture
            self.start_values.append(value)
        assert best is not None
        self.policy, self.mixture = best
        return self

    def _begin_afresh(self, annealed: bool) -> None:
        """New weights of the policy and of the models."""
        made = self.policy_class(
            self.observation_space, self.action_space, self.lr_schedule, use_sde=self.use_sde, **self.policy_kwargs
        )
        self.policy = made.to(self.device)  # type: ignore[assignment]
        self.mixture = Mixture(self.num_models, self.smoothing)
        self._annealing = annealed
        self._current_progress_remaining = 1.0
        self._last_obs = None

    def begin_episodes(self) -> None:
        """Let the next rollout begin with a reset of the environments."""
        self._last_obs = None
        self._recorder.seed(int(self._draws.integers(2**31)))

    def probabilities(self, observations: Any) -> Tensor:
        """π(a|s) for observations of the environment [B, ...], with discrete actions: [B, A], float64."""
        if not isinstance(self.action_space, spaces.Discrete):
            raise InvalidInputError(f"probabilities: requires a Discrete action space; got {self.action_space}.")
        normalize = self.get_vec_normalize_env()
        return self._probabilities(observations if normalize is None else normalize.normalize_obs(observations))

    def _probabilities(self, shown: Any) -> Tensor:
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
        act = self._actor(parse_flag(deterministic, "deterministic"), seed)
        self._check_between_rollouts()
        if seed is not None:
            self._recorder.seed(check_seed(seed) % 2**31)
        try:
            with self._frozen_statistics(), torch.random.fork_rng(enabled=seed is not None):
                if seed is not None:
                    self._seed_draws_of_torch(derive_seed(seed, "actions"))
                return run_episodes(self.env, self._recorder, act, self._pay_by, self.gamma, num_episodes, steps)
        finally:
            self._last_obs = None  # learning goes on from a reset
            if self._recorder.is_recording:  # in a callback, where PPO does not ask again
                self._start_over()

    def _seed_draws_of_torch(self, seed: int) -> None:
        """Stable-Baselines3 draws continuous actions by torch's own generators; to be called where those are restored."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        if self.use_sde:  # its noise was drawn before
            self.policy.reset_noise(self.n_envs)

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

    @contextlib.contextmanager
    def _frozen_statistics(self) -> Iterator[None]:
        """In the block that follows VecNormalize learns nothing from what it sees."""
        normalize = self.get_vec_normalize_env()
        training = normalize is not None and normalize.training
        try:
            if normalize is not None:
                normalize.training = False
            yield
        finally:
            if normalize is not None:
                normalize.training = training

    def _actor(self, deterministic: bool, seed: int | None) -> Callable[[Any], np.ndarray]:
        """The policy, with draws of its own where actions are numbered."""
        if not isinstance(self.action_space, spaces.Discrete):
            return lambda shown: self.predict(shown, deterministic=deterministic)[0]
        rng = self._draws if seed is None else make_rng(seed, "actions")

        def act(shown: Any) -> np.ndarray:
            probabilities = self._probabilities(shown).numpy()
            if deterministic:
                return probabilities.argmax(axis=1)
            drawn = rng.random((len(probabilities), 1)) * probabilities.sum(axis=1, keepdims=True)
            return np.minimum((probabilities.cumsum(axis=1) <= drawn).sum(axis=1), probabilities.shape[1] - 1)

        return act

    def gap_found(self, total_timesteps: int, num_episodes: int = 1000) -> GapFound:
        """Look for a policy that does better under the averaged mixture of the models; evidence, not a certificate.

        A copy of this agent goes on learning against that one reward function, in the same environment. Where the world has a
        table, `certificate` says more.

        Args:
            total_timesteps: Steps of the copy.
            num_episodes: Fresh episodes for either value.
        """
        self._check_between_rollouts()
        settings = {name: getattr(self, name) for name in (*PPO_SETTINGS, *SCHEDULES)} | {"seed": None}
        mixed = MixedBelief(self._pay_by, self.mixture.average)
        with self._frozen_statistics():  # which the copy shares
            copy = KofNPPO(
                self.policy_class,
                self._recorder.venv,
                mixed,
                "1-of-1",
                reward_scale=self.reward_scale,
                policy_kwargs=self.policy_kwargs,
                device=self.device,
                **settings,
            )
            copy._draws = self._draws
            copy.policy.load_state_dict(self.policy.state_dict())
            copy.learn(total_timesteps)
        response, value = copy.value(num_episodes), self.value(num_episodes)
        return GapFound(response.estimate - value.estimate, response, value)

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

    def save(self, path: Path | str, exclude: Any = None, include: Any = None) -> None:  # type: ignore[override]
        """Write the agent as a folder of safetensors and JSON; the belief and the environment are not part of it.

        Args:
            path: A folder; what an earlier save left there is replaced.
            exclude: Taken for Stable-Baselines3's sake, without effect.
            include: Likewise.
        """
        save_agent(as_folder(path, "path"), self)

    @classmethod
    def load(cls, path: Path | str, env: Any, belief: Any, **ppo: Any) -> KofNPPO:  # type: ignore[override]
        """Read what `save` wrote; runs no code from it.

        Predictions are those of the saved agent, to the bit on the same machine; learning goes on from the optimiser's state,
        with fresh random streams.

        Args:
            path: The folder.
            env: An environment with the same spaces.
            belief: The belief, which a file does not hold.
            **ppo: Settings of PPO that differ from the saved ones, and those that a file cannot hold: classes, and functions
                (of a schedule it holds the first value).
        """
        return load_agent(cls, as_path(path, "path"), env, belief, ppo)


class _PaidLater:
    """A rollout buffer whose rewards are filled in when it is full, before advantages are computed."""

    pay: Callable[[Any], None]

    def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
        self.pay(self)
        super().compute_returns_and_advantage(last_values, dones)  # type: ignore[misc]


def _share(value: Any, name: str) -> float:
    if not 0 < as_number(value) <= 1:
        raise InvalidInputError(f"{name}={value!r} must lie in (0, 1].")
    return float(value)


def _positive(value: Any, name: str) -> float:
    if not 0 < as_number(value) < np.inf:
        raise InvalidInputError(f"{name}={value!r} must be a positive number.")
    return float(value)
