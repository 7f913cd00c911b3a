"""`KofNPPO`: k-of-N for any Gymnasium world, on Stable-Baselines3's PPO.

After each rollout all M models are ranked by the discounted return that they give the current policy, estimated from the same
visited states; PPO then learns from a mixture of their rewards, weighted by rank. The environment's own reward is not learned
from.

One rollout, in the order of this file's methods, each of which may be overridden:

    steps = Steps(...)                      what happened                                      rl.recorder
    rewards = step_rewards(steps)           what each model pays for each step, [M, B]
    sums, visits = rollout_returns(...)     what the rollout says about each model's return
    weights = mixture.weights(...)          which models count, and how much, [M]              rl.mixture
    paid = paid_rewards(...)                what PPO learns from, [B]
    step_weights(...)                       how much each step counts in PPO's gradient, [B]
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.risk import KofN, RiskMeasure, parse_level, risk_value, weights_by_rank
from cautious.rl.belief import StepRewards, checked
from cautious.rl.checkpoints import learn_in_pieces
from cautious.rl.environments import as_vec_env, stop_chance
from cautious.rl.files import load_agent, save_agent
from cautious.rl.judged import JudgedPPO
from cautious.rl.mixture import Mixture, RankedMixture, check_mixture
from cautious.rl.recorder import Recorder, Steps
from cautious.rl.rollout_buffer import paid_later
from cautious.rl.standings import Standings
from cautious.rl.starts import annealed, learn_from_starts
from cautious.seeding import check_seed, make_rng
from cautious.validation import as_folder, as_number, as_path, parse_count, parse_flag

NOT_LEARNED = (
    "ep_rew_mean is the environment's own reward, from which nothing is learned; see cautious/learned_reward and "
    "cautious/k_of_n_return."
)
"""Printed where learning begins, with verbose=1."""


class KofNPPO(JudgedPPO):
    """A Stable-Baselines3 algorithm that is careful where the models of a belief disagree.

    Everything that PPO offers is there: `learn` with callbacks, loggers and a progress bar, `predict`, `evaluate_policy`. What
    differs: rewards come from the belief; `save` writes a folder of safetensors and JSON, never pickle, and `load` needs the
    belief again; `value` says what the policy is worth.

    In the logs `rollout/ep_rew_mean` is the environment's own reward, from which nothing is learned. What is learned:

        cautious/learned_reward     mean reward per step of the newest rollout, as the weighted models pay it
        cautious/k_of_n_return      k-of-N value of the returns by recent rollouts, normalised by 1 - gamma
        cautious/mean_return        mean of those returns
        cautious/adversary_lag      how much more the weighted models pay than the level's value: large where weights lag behind
        cautious/level_k            k, where the level is a `KofN`

    A subclass may override `step_rewards`, `rollout_returns`, `paid_rewards` and `step_weights`; a rule for the weights of the
    models is passed as `mixture`. In their shapes M is the number of models, and B = T E that of the steps of a rollout.

    Attributes:
        level: The level of caution.
        mixture: The rule for the models' weights (`cautious.Mixture`).
        standings: Returns and weights of the models by recent rollouts: `returns`, `weights`, `average` [M].
        start_values: After a `learn` with several starts: the value of each, by the rollouts that chose among them.
    """

    own_settings: ClassVar[tuple[str, ...]] = ("smoothing", "num_starts", "random_stops", "reward_scale")
    """Arguments that a file holds beside PPO's, each an attribute of the same name."""

    def __init__(
        self,
        policy: Any,
        env: Any,
        belief: Any,
        level: RiskMeasure | str = "1-of-20",
        *,
        smoothing: float = 0.2,
        mixture: Mixture | None = None,
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
            smoothing: Share of the newest rollout, in (0, 1], in the models' returns and in their weights (of the default
                mixture); the rest is what was before.
            mixture: Which models count, and how much; by default `RankedMixture(smoothing)`.
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
        ranked = RankedMixture(smoothing)
        self.smoothing = float(ranked.smoothing)
        self.mixture = ranked if mixture is None else check_mixture(mixture)
        self._fresh_mixture = copy.deepcopy(self.mixture)
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
        recorder = Recorder(self.as_vec_env(env, belief, gamma, self.random_stops))
        seed = ppo.get("seed")
        if seed is not None:
            recorder.seed(check_seed(seed))
        self.belief = belief
        self._recorder = recorder
        self._pay_by = StepRewards(belief, self.level, recorder.action_space, recorder.start())
        self._stop_chance = stop_chance(recorder)
        self.annealing = False
        """Whether the level comes in slowly, in the present start."""
        self.progress_span: tuple[int, int] | None = None
        """Steps done before the schedules begin and at their end; None: those of the present call of `learn`."""
        self.standings = Standings(self.num_models, self.smoothing)
        super().__init__(policy, recorder, **ppo)

    @classmethod
    def as_vec_env(cls, env: Any, belief: Any, discount: float, random_stops: bool) -> VecEnv:
        """`env` as Stable-Baselines3 takes it; the arguments are those of the constructor."""
        return as_vec_env(env, discount, random_stops)

    def _setup_model(self) -> None:
        self.rollout_buffer_class = paid_later(self.rollout_buffer_class, self.observation_space)
        super()._setup_model()
        self.rollout_buffer.pay, self.rollout_buffer.weigh = self._pay, self._weigh_steps  # type: ignore[attr-defined]

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on in another environment, with the same belief."""
        recorder = Recorder(self.as_vec_env(env, self.belief, self.gamma, self.random_stops))
        self._pay_by = StepRewards(self.belief, self.level, recorder.action_space, recorder.start())
        super().set_env(recorder, force_reset)
        self._recorder, self._stop_chance = recorder, stop_chance(recorder)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed everything that draws; also the actions of rollouts whose `seed` is None."""
        super().set_random_seed(seed)
        self.draws = np.random.default_rng() if seed is None else make_rng(check_seed(seed), "actions of values")

    def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int) -> bool:
        """PPO's, recorded; the buffer calls `_pay` as soon as it is full."""
        if self._last_obs is None:  # a callback asked for a value
            self._start_over()
        with self._recorder.recording():
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def discounts(self, steps: Steps) -> np.ndarray:
        """γ^t for a step of age t, divided by the chance that random stops let it happen: [B]."""
        going_on = 1 - self._stop_chance  # with gamma 0 random stops end every episode at once
        return (self.gamma / going_on) ** steps.ages if going_on > 0 else np.ones(len(steps.ages))

    def rollout_returns(self, steps: Steps, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a rollout says about the normalised return of each model, as sums and what they are to be divided by.

        By default all models judge the same steps: sums_m = Σ_b d_b r_m(b) and visits_m = Σ_b d_b, d the `discounts`. Where
        each model is a scenario of its own, count for model m the steps that were made in scenario m, and divide by the number
        of episodes begun there rather than by visits, since scenarios may end early or late.

        Args:
            steps: What happened.
            rewards: What `step_rewards` returned, [M, B].

        Returns:
            (sums [M], visits [M]). Those of earlier rollouts are added with falling weights (`smoothing`).
        """
        discounts = self.discounts(steps)
        return rewards @ discounts, np.full(len(rewards), float(discounts.sum()))

    def paid_rewards(self, steps: Steps, rewards: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What PPO learns from: Σ_m v_m r_m(b), [B].

        Args:
            steps: What happened.
            rewards: What `step_rewards` returned, [M, B].
            weights: v, those of the mixture, [M].
        """
        return weights @ rewards

    def step_weights(self, steps: Steps, weights: np.ndarray) -> np.ndarray | None:
        """Factors on PPO's advantages, [B]; None, the default, for all alike.

        With scenarios, M v_m for the steps in scenario m makes the gradient that of the weighted returns.

        Args:
            steps: What happened.
            weights: v, those of the mixture, [M].
        """
        return None

    def _pay(self, buffer: Any) -> None:
        """Rank the models by this rollout, and add what PPO learns from to what the buffer holds."""
        steps, rewards, weights = self._weigh_models()
        paid = self.paid_rewards(steps, rewards, weights)
        paid = checked(paid, "B", self._place("paid_rewards"), B=len(steps.ages)).double().numpy()
        self.standings.note_paid(paid)
        self.logger.record("cautious/learned_reward", float(paid.mean()))
        buffer.rewards += (self._factor() * paid).reshape(buffer.rewards.shape)
        factors = self.step_weights(steps, weights)
        name = self._place("step_weights")
        self._step_factors = None if factors is None else checked(factors, "B", name, B=len(steps.ages)).numpy()

    def _weigh_steps(self, buffer: Any) -> None:
        """Let steps count in PPO's gradient as `step_weights` says."""
        if self._step_factors is not None:
            buffer.advantages *= self._step_factors.reshape(buffer.advantages.shape)

    def _weigh_models(self) -> tuple[Steps, np.ndarray, np.ndarray]:
        """The recorded steps, what each model pays for them [M, B], and the mixture's new weights [M]."""
        steps = self._recorder.take()
        sizes = {"M": self.num_models, "B": len(steps.ages)}
        rewards = checked(self.step_rewards(steps), "M B", self._place("step_rewards"), **sizes).double().numpy()
        name = self._place("rollout_returns")
        sums, visits = (
            checked(part, "M", name, M=self.num_models).double().numpy()
            for part in self.rollout_returns(steps, rewards)
        )
        level = self._present_level()
        self.standings.count(sums, visits)
        self.standings.weigh(self.mixture, weights_by_rank(level, self.num_models).numpy())
        returns, weights = self.standings.returns, self.standings.weights
        self.logger.record("cautious/k_of_n_return", float(risk_value(self.level, returns)))
        self.logger.record("cautious/adversary_lag", float(weights @ returns - float(risk_value(level, returns))))
        self.logger.record("cautious/mean_return", float(returns.mean()))
        if isinstance(level, KofN):
            self.logger.record("cautious/level_k", level.k)
        return steps, rewards, weights

    def _place(self, method: str) -> str:
        """A method's name in errors."""
        return f"{type(self).__name__}.{method}"

    def _factor(self) -> float:
        """On the rewards that PPO learns from."""
        return self.standings.scale(self.gamma) if self.reward_scale is None else self.reward_scale

    def train(self) -> None:
        """PPO's, with the entropy coefficient of the present progress."""
        if self.entropy_schedule is not None:
            self.ent_coef = float(self.entropy_schedule(self._current_progress_remaining))
        super().train()

    def _present_level(self) -> RiskMeasure:
        """The level now."""
        return annealed(self.level, 1 - self._current_progress_remaining) if self.annealing else self.level

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
        if self.verbose >= 1:
            print(NOT_LEARNED)
        learn = super().learn
        if checkpoint_dir is not None:
            if parse_flag(reset_num_timesteps, "reset_num_timesteps"):
                self.num_timesteps = 0
            learn_in_pieces(
                self,
                steps,
                checkpoint_dir,
                checkpoint_every,
                lambda piece: learn(piece, callback, reset_num_timesteps=False, **options),
            )
            return self

        def from_start(share: int, first: bool) -> None:
            learn(share, callback, reset_num_timesteps=reset_num_timesteps and first, **options)

        if self.num_starts == 1:
            from_start(steps, True)
        else:
            learn_from_starts(self, steps, from_start)
        return self

    def begin_afresh(self, annealing: bool) -> None:
        """Begin another start: new weights of the policy and of the models; `annealing` lets the level come in slowly."""
        made = self.policy_class(
            self.observation_space, self.action_space, self.lr_schedule, use_sde=self.use_sde, **self.policy_kwargs
        )
        self.policy = made.to(self.device)  # type: ignore[assignment]
        self.mixture = copy.deepcopy(self._fresh_mixture)
        self.standings = Standings(self.num_models, self.smoothing)
        self.annealing = annealing
        self._current_progress_remaining = 1.0
        self._last_obs = None

    def begin_episodes(self) -> None:
        """Let the next rollout begin with a reset of the environments."""
        self._last_obs = None
        self._recorder.seed(int(self.draws.integers(2**31)))

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


def _positive(value: Any, name: str) -> float:
    if not 0 < as_number(value) < np.inf:
        raise InvalidInputError(f"{name}={value!r} must be a positive number.")
    return float(value)
