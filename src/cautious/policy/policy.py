"""`CautiousPolicy`: a belief and a solver behind one `decide`, and with a Stable-Baselines3-style `predict`.

What `decide` does in each state, where actions do not move the world:

1. ask the belief what each of M models says each action pays (`Belief.rewards`);
2. take the ordinary policy, the best action under the mean of the models, and stop here if no model prefers another action
   (`policy.decision`);
3. elsewhere play the k-of-N game of that state until its policy is certified (`solvers.per_state`, on a GPU
   `solvers.kernels.state_games`);
4. return the policy with its distance from the ordinary one (caution) and how far the models differ (disagreement).

In an MDP states belong together: the whole policy is solved once (`solve_mdp`), and `decide` looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.familiar_spread import FEWEST, FamiliarSpread, in_units_of
from cautious.beliefs.table_belief import TableBelief, state_numbers
from cautious.errors import BadFileError, InvalidInputError
from cautious.mdp.tabular import TabularMDP, parse_mdp
from cautious.parallel import single_threaded
from cautious.policy.bad_rows import StateRows, farthest, overflowing, read_states, refuse
from cautious.policy.blocks import (
    ROWS_PER_BLOCK,
    BlockExecutor,
    SolvedStates,
    solve_block,
    solve_in_blocks,
    with_values,
)
from cautious.policy.decision import (
    Decision,
    has_disagreement,
    make_decision,
    ordinary_policy,
    spread_of,
    total_variation,
    with_baseline,
    with_unjudged,
)
from cautious.policy.files import load_policy, save_policy
from cautious.progress import Progress
from cautious.risk import RiskMeasure, is_mean, level_text, parse_level, parse_levels, weights_by_rank
from cautious.seeding import make_rng
from cautious.solvers.kernels import plays_on_gpu
from cautious.solvers.solve import STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE, USER, solve_bandit, solve_mdp
from cautious.tables.frames import index_of, is_named
from cautious.tables.observations import as_batch
from cautious.tables.schema import action_names
from cautious.types import Sampling
from cautious.validation import (
    as_float_tensor,
    as_folder,
    as_number,
    as_path,
    check_shape,
    check_size,
    parse_choice,
    parse_count,
    parse_flag,
)

BAD_ROWS_ACTION = "bad_rows_action"
"""The entry of policy.json that holds `CautiousPolicy.fallback`."""


class Belief(Protocol):
    """Anything that says what M models think each action pays."""

    def rewards(self, states: Any) -> Tensor:
        """[M, S, A]."""
        ...


class CautiousPolicy:
    """Acts as usual where the models of a belief agree, and carefully where they do not.

    Each state is a problem of its own (the single-state regime), so that a decision does not depend on what else is asked: it
    decides one step at a time, by what each action pays now, not by where it leads. That is right where actions do not move the
    world (a contextual bandit, a table of cases). Where they do, pass `mdp`: the whole policy is solved once, and a state is
    its number. Where the dynamics are no table, `cautious.KofNPPO` learns from a simulator.

    >>> import torch
    >>> gamble_or_help = torch.tensor([[[1.0, 0.25]], [[0.0, 0.25]]])  # two models, one state, two actions
    >>> decision = CautiousPolicy(gamble_or_help, "1-of-2").decide([0])
    >>> decision.action.tolist(), decision.ordinary.tolist(), [round(x) for x in decision.caution.tolist()]
    ([1], [[1.0, 0.0]], [1])
    """

    @single_threaded
    def __init__(
        self,
        belief: Belief | Tensor | np.ndarray,
        level: RiskMeasure | str = "1-of-20",
        *,
        mdp: TabularMDP | None = None,
        num_iterations: int | None = None,
        sampling: str = USER.sampling,
        seed: int = 0,
        familiar_states: Any = None,
        tolerance: float = STATE_GAME_TOLERANCE,
        fallback: int | str | None = None,
    ) -> None:
        """Wrap a belief.

        Args:
            belief: A `RewardEnsemble`, an array [M, S, A], or anything with ``rewards(states) -> [M, B, A]``. With `mdp`, an
                array [M, S, A].
            level: How cautious: a risk measure (`cautious.risk`) or its text, such as ``"1-of-20"`` or ``"CVaR(0.1)"``.
            mdp: The world, where actions move it.
            num_iterations: T of the solver. If not given, 200 in an MDP or with queue sampling, and otherwise as many as each
                state's game needs to be certified to `tolerance`, 300 at most.
            sampling: ``"exact"`` (nothing random, so that the same state gets the same decision), or the paper's ``"queue"``.
            seed: Starts queue sampling, and draws of `predict(deterministic=False)`.
            familiar_states: States like those of the training that no model was trained on, at least six, as `decide` takes
                them: they set the unit of `Decision.disagreement`. Not needed where `fit_ensemble` held some out
                (`validation_fraction`).
            tolerance: A state's game ends when no policy can be better by more than this share of the range of the rewards
                there, or after `num_iterations`; `Decision.gap` says how much it could be. In an MDP and with queue sampling
                it has no effect.
            fallback: The action, by number or name, for states that no model can judge: empty cells, NaN, texts where numbers
                were, numbers so large that predictions overflow. Without it `decide` raises an error that names all of them.
                (`FallbackRule` takes its safe action in them, too.)
        """
        if isinstance(belief, (str, Path)):
            raise InvalidInputError(f"belief={str(belief)!r} is a name; pass what RewardEnsemble.load returns for it.")
        self.belief: Any = belief if callable(getattr(belief, "rewards", None)) else TableBelief(belief)
        self.level = parse_level(level)
        self.mdp = None if mdp is None else parse_mdp(mdp)
        self._num_iterations = None if num_iterations is None else parse_count(num_iterations, "num_iterations")
        if not 0 <= as_number(tolerance) < 1:
            raise InvalidInputError(
                f"tolerance={tolerance!r} must be in [0, 1): a share of the range of a state's rewards."
            )
        self._tolerance = float(tolerance)
        self._sampling = parse_choice(Sampling, sampling, "sampling")
        self._draws = make_rng(seed, "predict")
        self._seed = int(seed)
        num_models = getattr(self.belief, "num_models", None)
        if num_models is not None:
            weights_by_rank(self.level, num_models)  # raises for a level that these models cannot serve
        self.fallback = None if fallback is None else parse_action(fallback, action_names(self.belief), "fallback")
        check_action(self.fallback, getattr(self.belief, "num_actions", None), "fallback")
        self._mdp_policies = None if mdp is None else self._solve_mdp(mdp, [self.level], None)
        self._own_familiar = None if familiar_states is None else self._familiar_spread(familiar_states)

    @property
    def familiar(self) -> FamiliarSpread | None:
        """How far the models differ in familiar states, the unit of `Decision.disagreement`; None if no such state is known."""
        known = self._own_familiar or getattr(self.belief, "familiar", None)
        return (
            known if isinstance(known, FamiliarSpread) else None
        )  # a user's own belief may use the name for something else

    def _familiar_spread(self, states: Any) -> FamiliarSpread:
        spread = FamiliarSpread.of(spread_of(self.checked_rewards(states)))
        if spread is None:
            raise InvalidInputError(
                f"familiar_states: fewer than {FEWEST} states cannot set a unit; give {FEWEST} at least, better 20 or more."
            )
        return spread

    def __repr__(self) -> str:
        """The level, and the belief's sizes."""
        sizes = [(getattr(self.belief, f"num_{what}", None), what) for what in ("models", "actions")]
        parts = [str(self.level), *(f"{count:,} {what}" for count, what in sizes if count is not None)]
        names = action_names(self.belief)
        if self.fallback is not None:
            parts.append(f"fallback {self.fallback if names is None else names[self.fallback]}")
        if self.mdp is not None:
            parts.append(f"in a world of {self.mdp.num_states:,} states")
        return f"CautiousPolicy({', '.join(parts)})"

    def decide(self, states: Any, *, allow_undecided: bool = False) -> Decision:
        """What to do in each state.

        Args:
            states: One row per state, as the belief takes them; with an array as belief, or an MDP, their numbers [B]. For a
                belief that was trained on a table: a frame (pandas, polars) or a dictionary of columns, in any order; a
                frame's index is kept. A plain array is taken by position.
            allow_undecided: Where there is no `fallback`: True marks states that no model can judge (`Decision.reasons`),
                with action -1, and decides about the others.
        """
        undecided = parse_flag(allow_undecided, "allow_undecided")
        if self._mdp_policies is not None:
            numbers = state_numbers(states, self._mdp_policies[1].shape[1])
            cautious, ordinary = (policies[0, numbers] for policies in self._mdp_policies)
            rewards, gap, rows = self.belief.rewards(numbers), None, None
            spread = spread_of(rewards)
        else:
            # On all threads, if a user's own belief uses them.
            rewards, rows = self._judge(states, tolerant=undecided or self.fallback is not None)
            policies, ordinary, gaps, spread = self.solve_states(rewards, [self.level])
            cautious, gap = policies[0], gaps[0]
        disagreement = in_units_of(self.familiar, spread)
        decision = make_decision(cautious, ordinary, rewards, disagreement, gap)
        decision = replace(decision, actions=action_names(self.belief), index=index_of(states))
        return with_unjudged(decision, rows.reasons(), self.fallback) if rows is not None and rows.bad else decision

    def checked_rewards(self, states: Any) -> Tensor:
        """What each model says each action pays, [M, B, A], checked."""
        return self._judge(states, tolerant=False)[0]

    def _judge(self, states: Any, *, tolerant: bool) -> tuple[Tensor, StateRows | None]:
        """What each model says each action pays in the states that can be judged, [M, G, A], and which they are.

        With `tolerant` the others are left out; otherwise an error names them.
        """
        if not isinstance(self.belief, RewardEnsemble):  # whatever a user's own belief makes of its states
            rewards = as_float_tensor(self.belief.rewards(states), "belief")
            check_shape(rewards, "M S A", "belief")
            check_size(rewards, "belief")
            return rewards, None
        rows = None
        if tolerant or (is_named(states) and self.belief.columns is not None):
            rows = read_states(self.belief, states)
            if not tolerant:
                refuse(rows)
            states = rows.states
        rewards = self.belief.rewards(states) if rows is None or len(rows.states) else self._no_rewards()
        too_large = overflowing(rewards)
        if bool(too_large.any()):
            rows = rows or read_states(self.belief, states)
            rows = rows.without(too_large, *farthest(self.belief, rows.states))
            if not tolerant:
                refuse(rows)
            rewards = rewards[:, ~too_large]
        return rewards, rows

    def _no_rewards(self) -> Tensor:
        """What the models say about no state at all."""
        parameters = self.belief.parameters
        return torch.empty(self.belief.num_models, 0, self.belief.num_actions, device=parameters.device)

    def solve_states(
        self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What levels do where the models say `rewards` [M, B, A].

        A game is played only where some model prefers another action than the ordinary one: elsewhere the ordinary policy
        has the highest k-of-N value at every level. Level n-of-n, the mean of all models drawn, is the ordinary policy.

        Returns:
            Policies [L, B, A], the ordinary one [B, A], gaps [L, B], and how far the models differ [B] (`spread_of`).
        """
        for level in levels:
            weights_by_rank(level, len(rewards))
        if not rewards.shape[1]:  # no state that can be judged
            nothing, none = torch.zeros(0, rewards.shape[2], dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
            return nothing.expand(len(levels), -1, -1), nothing, none.expand(len(levels), -1), none
        # Compiled games have exact weights; queues take the general solver, and a GPU its own kernels where they fit.
        is_compiled = self._sampling is Sampling.EXACT and not plays_on_gpu(
            rewards.device, len(rewards), rewards.shape[2]
        )
        if not is_compiled or all(is_mean(level, len(rewards)) for level in levels):
            return self._solve_in_tensors(rewards, levels, progress)
        from cautious.solvers.per_state import decide_states  # loads the compiler

        most = self._num_iterations or STATE_GAME_ITERATIONS
        return decide_states(rewards.cpu(), levels, num_iterations=most, tolerance=self._tolerance, progress=progress)

    @single_threaded
    def _solve_in_tensors(
        self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `solve_states`, by operations on tensors."""
        # Begin with the ordinary policy everywhere, then replace it where a game is played.
        ordinary = ordinary_policy(rewards)
        policies, gaps = ordinary.repeat(len(levels), 1, 1), torch.zeros(len(levels), len(ordinary)).double()
        states = has_disagreement(rewards, ordinary).nonzero().flatten()
        cautious = [number for number, level in enumerate(levels) if not is_mean(level, len(rewards))]
        if cautious and len(states):
            games = self._solve_games(
                rewards[:, states.to(rewards.device)], [levels[number] for number in cautious], progress
            )
            for number, policy, gap in zip(cautious, *games, strict=True):
                policies[number, states], gaps[number, states] = policy, gap
        elif progress is not None:
            progress(1, 1)
        return policies, ordinary, gaps, spread_of(rewards)

    def _solve_games(
        self, rewards: Tensor, levels: Sequence[RiskMeasure], progress: Progress | None
    ) -> tuple[Tensor, Tensor]:
        """The best policies of the games of some states [M, b, A]: [L, b, A], and their gaps [L, b]."""
        if self._sampling is Sampling.EXACT:  # on a GPU: elsewhere `solve_states` has decided already
            from cautious.solvers.kernels.state_games import play_states_on_gpu  # needs Triton

            most = self._num_iterations or STATE_GAME_ITERATIONS
            games = play_states_on_gpu(
                rewards, levels, num_iterations=most, tolerance=self._tolerance, progress=progress
            )
            return games.policy.cpu(), (games.upper - games.lower).cpu()
        solution = solve_bandit(
            rewards,
            list(levels),
            regime="single-state",
            num_iterations=self._num_iterations or USER.num_iterations,
            sampling=self._sampling,
            seed=self._seed,
            track_exact=True,
            progress=progress,
        )
        best = solution.best_policy
        return best.cpu(), solution.certificate(best).gap.cpu()

    def _solve_mdp(
        self, mdp: TabularMDP, levels: Sequence[RiskMeasure], progress: Progress | None
    ) -> tuple[Tensor, Tensor]:
        """Policies of levels in all states of an MDP, and the ordinary one beside each, twice [L, S, A]."""
        if not isinstance(self.belief, TableBelief):
            raise InvalidInputError(
                "belief: with an MDP it must be an array [M, S, A] over the MDP's states; ask the belief there, as in "
                "CautiousPolicy(belief.rewards(features), level, mdp=mdp) with the features of each state."
            )
        solution = solve_mdp(
            mdp,
            self.belief.table,
            list(levels),
            num_iterations=self._num_iterations or USER.num_iterations,
            sampling=self._sampling,
            seed=self._seed,
            progress=progress,
        )
        return with_baseline(solution.best_policy, levels, self.belief.table, mdp)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """The action for one observation or a batch of them, as Stable-Baselines3's models offer it.

        Without `mdp` each action is chosen for this step alone, whatever follows from it.

        Args:
            observation: One state, or a batch with one row each.
            state: Not used: the policy has no memory. It is returned as it is.
            episode_start: Not used.
            deterministic: The most likely action; otherwise one is drawn from the policy.

        Returns:
            The action (or an array of them), and `state`.
        """
        most_likely = parse_flag(deterministic, "deterministic")
        single, states = self.as_batch(observation)
        decision = self.decide(states)
        actions = decision.action.numpy() if most_likely else self.sample_actions(decision.probabilities.numpy())
        return (actions[0] if single else actions), state

    def as_batch(self, observation: Any) -> tuple[bool, Any]:
        """Whether it is one state, and a batch of states in any case (`beliefs.datasets.observations`)."""
        shape = getattr(self.belief, "observation_shape", getattr(self.belief, "state_shape", None))
        return as_batch(observation, shape, by_name=getattr(self.belief, "columns", None) is not None)

    def sample_actions(self, probabilities: np.ndarray) -> np.ndarray:
        """One action per row, drawn from the policy [B, A]: [B]."""
        # Rows sum to one only up to rounding: scale the draw by the sum, and never go past the last action.
        uniform = self._draws.random((len(probabilities), 1)) * probabilities.sum(axis=1, keepdims=True)
        return np.minimum((probabilities.cumsum(axis=1) <= uniform).sum(axis=1), probabilities.shape[1] - 1)

    @single_threaded
    def caution_at(self, levels: Sequence[RiskMeasure], states: Any, progress: Progress | None = None) -> Tensor:
        """Caution that other levels would show in these states, [L, B], all solved in one call."""
        return total_variation(*self.policies_at(levels, states, progress))

    @single_threaded
    def policies_at(
        self, levels: Sequence[RiskMeasure], states: Any, progress: Progress | None = None
    ) -> tuple[Tensor, Tensor]:
        """What other levels would do in these states, and the ordinary policy beside each, twice [L, B, A]; in one call."""
        levels = parse_levels(levels)
        if self.mdp is not None:
            policies, ordinary = self._solve_mdp(self.mdp, levels, progress)
            numbers = state_numbers(states, self.mdp.num_states)
            policies, ordinary = policies[:, numbers], ordinary[:, numbers]
        else:
            policies, ordinary, *_ = self.solve_rows(states, levels, progress)
        return policies, ordinary.expand_as(policies)

    def solve_rows(
        self,
        states: Any,
        levels: Sequence[RiskMeasure],
        progress: Progress | None = None,
        executor: BlockExecutor | None = None,
        *,
        allow_undecided: bool = False,
    ) -> SolvedStates:
        """What levels do in these states; many states a block at a time, so that memory does not grow with M S A.

        `executor` is what gives out the blocks (`cautious.executors`), if not this process. With `allow_undecided`, rows of
        an array whose predictions overflow are left out and marked (`SolvedStates.too_large`); otherwise an error names them.
        """
        if not (isinstance(self.belief, RewardEnsemble) and isinstance(states, (Tensor, np.ndarray))):
            rewards = self.checked_rewards(states)
            all_judged = torch.zeros(rewards.shape[1], dtype=torch.bool)
            return with_values(rewards, levels, *self.solve_states(rewards, levels, progress), all_judged)
        if (executor is not None or len(states) > ROWS_PER_BLOCK) and states.ndim > 1:
            solved = solve_in_blocks(self, states, levels, progress, executor)
        else:
            solved = solve_block(self, states, levels, progress)
        if bool(solved.too_large.any()) and not allow_undecided:
            refuse(read_states(self.belief, states).without(solved.too_large, *farthest(self.belief, states)))
        return solved

    def save(self, folder: Path | str) -> None:
        """Write the policy with its belief (safetensors, JSON)."""
        save_policy(as_folder(folder), self.describe(), self.belief, self.mdp)

    @classmethod
    def load(cls, folder: Path | str, network: Any = None) -> CautiousPolicy:
        """Read what `save` wrote; runs no code from it. `network` as in `RewardEnsemble.load`."""
        path = as_path(folder, "folder")
        description, belief, mdp = load_policy(path, network)
        if "fallback" in description:
            raise BadFileError(f"{path}: a rule with a fallback action; read it with cautious.FallbackRule.load.")
        try:
            return cls.from_description(description, belief, mdp)
        except InvalidInputError as error:
            raise BadFileError(f"{path}: {error}") from None

    def describe(self) -> dict[str, Any]:
        """The settings that a file holds."""
        familiar = {} if self._own_familiar is None else {"familiar": self._own_familiar.describe()}
        return {
            "level": level_text(self.level),
            "num_iterations": self._num_iterations,
            "sampling": str(self._sampling),
            "seed": self._seed,
            "tolerance": self._tolerance,
            **({} if self.fallback is None else {BAD_ROWS_ACTION: self.fallback}),
            **familiar,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], belief: Any, mdp: TabularMDP | None) -> CautiousPolicy:
        """The policy with the settings that `describe` returned; raises `InvalidInputError` for others."""
        options = {name: description.get(name) for name in ("num_iterations", "sampling", "seed")}
        options["tolerance"] = description.get("tolerance", STATE_GAME_TOLERANCE)
        options["fallback"] = description.get(BAD_ROWS_ACTION)
        policy = cls(belief, description.get("level"), mdp=mdp, **options)  # type: ignore[arg-type]
        # The file has the spreads of the familiar states, not the states themselves.
        policy._own_familiar = FamiliarSpread.read(description.get("familiar"))
        return policy


def parse_action(action: int | str, names: Sequence[str] | None, what: str = "action") -> int:
    """The number of an action that is given by its number or, where there are names, by its name."""
    if not isinstance(action, str):
        return parse_count(action, what, 0)
    if names is None:
        raise InvalidInputError(
            f"{what}={action!r} is a name, but the belief has no names for its actions; give a number, counted from 0."
        )
    if action not in names:
        raise InvalidInputError(f"{what}={action!r} is not known; choose one of {', '.join(map(repr, names))}.")
    return list(names).index(action)


def check_action(action: int | None, num_actions: int | None, what: str = "action") -> None:
    """Raise unless there is an action of this number, if it is known how many there are."""
    if action is not None and num_actions is not None and action >= num_actions:
        raise InvalidInputError(f"{what}={action}: there are {num_actions} actions, counted from 0.")
