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

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from cautious.beliefs.belief import Belief, TableBelief, state_numbers
from cautious.beliefs.disagreement import FEWEST, FamiliarDisagreement, in_units_of
from cautious.errors import Argument, BadFileError, InvalidInputError
from cautious.mdp.tabular import TabularMDP, parse_mdp
from cautious.mdp.uncertain import UncertainMDP
from cautious.parallel import BlockExecutor, single_thread, single_threaded
from cautious.policy.decision import Decision, check_action, disagreement_of, make_decision, parse_action, with_unjudged
from cautious.policy.explanation import Asked, Explanation, explained, is_explainable
from cautious.policy.files import load_policy, save_policy
from cautious.policy.rows import less_overflowing, read_states, reads_rows, refuse
from cautious.policy.states import Games, SolvedStates, asked, predict, solve_states
from cautious.policy.worlds import reward_of_each, solve_world
from cautious.progress import Progress
from cautious.risk import RiskMeasure, level_text, parse_level, parse_levels, weights_by_rank
from cautious.seeding import make_rng
from cautious.solvers.solve import STATE_GAME_TOLERANCE
from cautious.tables.arrays import as_batch
from cautious.tables.frames import index_of, is_named
from cautious.tables.schema import StateRows, action_names
from cautious.types import Sampling
from cautious.validation import as_folder, as_number, as_path, parse_choice, parse_count, parse_flag

if TYPE_CHECKING:
    from cautious.solvers.uncertain.solution import UncertainSolution


class CautiousPolicy:
    """Acts as usual where the models of a belief agree, and carefully where they do not.

    Each state is a problem of its own (the single-state regime), so that a decision does not depend on what else is asked: it
    decides one step at a time, by what each action pays now, not by where it leads. That is right where actions do not move
    the world (a contextual bandit, a table of cases). Where they do, pass `mdp`: the whole policy is solved once, and a
    state is its number. Where the dynamics are no table, `cautious.KofNPPO` learns from a simulator.

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
        mdp: TabularMDP | UncertainMDP | None = None,
        num_iterations: int | None = None,
        sampling: str = "exact",
        seed: int = 0,
        familiar_states: Any = None,
        tolerance: float = STATE_GAME_TOLERANCE,
        bad_rows_action: int | str | None = None,
        fallback: int | str | None = None,
    ) -> None:
        """Wrap a belief.

        Args:
            belief: A `RewardEnsemble`, an array [M, S, A], or anything with ``rewards(states) -> [M, B, A]``. With `mdp`, an
                array [M, S, A].
            level: How cautious: a risk measure (`cautious.risk`) or its text, such as ``"1-of-20"`` or ``"CVaR(0.1)"``.
            mdp: The world, where actions move it. In an `UncertainMDP` the belief may be one array [S, A] for all models, and a
                policy is drawn for each episode (`reset`).
            num_iterations: T of the paper's algorithm, in an MDP or with queue sampling (there 100 if not given, as in the
                paper); the most iterations of a state's game (300 if not given). If not given, an MDP is solved to `tolerance`.
            sampling: ``"exact"`` (nothing random, so that the same state gets the same decision), or the paper's ``"queue"``.
            seed: Starts queue sampling, and draws of `predict(deterministic=False)`.
            familiar_states: States like those of the training that no model was trained on, at least six, as `decide` takes
                them: they set the unit of `Decision.disagreement`. Not needed where `fit_ensemble` held some out
                (`validation_fraction`).
            tolerance: A state's game, or an MDP, is solved until no policy can be better by more than this share of the
                range of the rewards there; `Decision.gap` and `gap` say how much it could be. With queue sampling it has no
                effect, nor in an MDP where `num_iterations` is given.
            bad_rows_action: The action, by number or name, for states that no model can judge: empty cells, NaN, texts where
                numbers were, numbers so large that predictions overflow. Without it `decide` raises an error that names all of
                them. (`FallbackRule` takes its safe action in them, too.)
            fallback: The old name of `bad_rows_action`; warns.
        """
        if isinstance(belief, (str, Path)):
            raise InvalidInputError(
                Argument("belief", str(belief)), " is a name; pass what RewardEnsemble.load returns for it."
            )
        if isinstance(mdp, UncertainMDP):
            belief = reward_of_each(belief, mdp)
        self.belief: Any = belief if callable(getattr(belief, "rewards", None)) else TableBelief(belief)
        self.level = parse_level(level)
        self.mdp = mdp if mdp is None or isinstance(mdp, UncertainMDP) else parse_mdp(mdp)
        iterations = None if num_iterations is None else parse_count(num_iterations, "num_iterations")
        if not 0 <= as_number(tolerance) < 1:
            raise InvalidInputError(
                f"tolerance={tolerance!r} must be in [0, 1): a share of the range of a state's rewards."
            )
        self._draws = make_rng(seed, "predict")
        self.games = Games(iterations, parse_choice(Sampling, sampling, "sampling"), int(seed), float(tolerance))
        if (num_models := getattr(self.belief, "num_models", None)) is not None:
            weights_by_rank(self.level, num_models)  # raises for a level that these models cannot serve
        if fallback is not None:
            warnings.warn(
                "fallback= is now bad_rows_action=: the action in rows that no model can judge.", DeprecationWarning, 3
            )
            bad_rows_action = fallback if bad_rows_action is None else bad_rows_action
        self.bad_rows_action: int | None = None
        if bad_rows_action is not None:
            self.bad_rows_action = parse_action(bad_rows_action, action_names(self.belief), "bad_rows_action")
            check_action(self.bad_rows_action, getattr(self.belief, "num_actions", None), "bad_rows_action")
        self._world = None if self.mdp is None else solve_world(self.mdp, self.belief, [self.level], self.games)
        self._reads_rows = reads_rows(self.belief)
        self._has_features = self.mdp is None and is_explainable(self.belief)
        self._own_familiar = None if familiar_states is None else self._familiar_disagreement(familiar_states)

    @property
    def gap(self) -> float | None:
        """How much more than this policy any policy can be worth in the MDP, in rewards; None without an MDP."""
        return None if self._world is None else self._world.gap

    @property
    def solution(self) -> UncertainSolution | None:
        """What `solve_mdp` found in an uncertain world: the mixture, its certificate, its returns; None elsewhere."""
        return None if self._world is None else self._world.solution

    def reset(self, seed: int) -> None:
        """Begin an episode: in an uncertain world one policy of the mixture is drawn, and kept until the next `reset`.

        Elsewhere nothing changes but the draws of ``predict(deterministic=False)``.

        Args:
            seed: Equal seeds draw the same.
        """
        self._draws = make_rng(seed, "predict")
        if self._world is not None:
            self._world.reset(seed)

    @property
    def familiar(self) -> FamiliarDisagreement | None:
        """How far the models differ in familiar states, the unit of `Decision.disagreement`; None if no such state is known."""
        known = self._own_familiar or getattr(self.belief, "familiar", None)
        # A belief of the user's may have an attribute of this name that is something else.
        return known if isinstance(known, FamiliarDisagreement) else None

    @property
    def fallback(self) -> int | None:
        """The old name of `bad_rows_action`."""
        return self.bad_rows_action

    def _familiar_disagreement(self, states: Any) -> FamiliarDisagreement:
        rows = self._rows(states, tolerant=False)
        usable = states if rows is None else rows.states
        rewards, too_large = self._predict(usable)
        if bool(too_large.any()):
            refuse(less_overflowing(self.belief, rows or read_states(self.belief, states), too_large))
        spread = FamiliarDisagreement.of(disagreement_of(rewards))
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
        if self.bad_rows_action is not None:
            action = self.bad_rows_action if names is None else names[self.bad_rows_action]
            parts.append(f"bad rows get {action}")
        if self.mdp is not None:
            parts.append(f"in a world of {self.mdp.num_states:,} states")
        return f"CautiousPolicy({', '.join(parts)})"

    def decide(self, states: Any, *, allow_undecided: bool = False) -> Decision:
        """What to do in each state.

        Args:
            states: One row per state, as the belief takes them; with an array as belief, or an MDP, their numbers [B]. For a
                belief that was trained on a table: a frame (pandas, polars), a dictionary of columns, or a list of rows that
                are dictionaries, with columns in any order; a frame's index is kept. A plain array is taken by position.
            allow_undecided: Where there is no `bad_rows_action`: True marks states that no model can judge
                (`Decision.reasons`), with action -1, and decides about the others.

        Returns:
            A `Decision` with one entry per state.

        Raises:
            InvalidInputError: The states have another form than those of the training, or no model can judge some of them,
                which the message names.
        """
        return self.decide_at([self.level], states, allow_undecided=allow_undecided)[0]

    def decide_at(
        self,
        levels: Sequence[RiskMeasure | str],
        states: Any,
        *,
        allow_undecided: bool = False,
        progress: Progress | None = None,
        executor: BlockExecutor | None = None,
    ) -> list[Decision]:
        """What several levels do in each state; the states are read and predicted once.

        Args:
            levels: L levels, used instead of the policy's own level.
            states: As in `decide`; or what `read_states` returned for them.
            allow_undecided: As in `decide`.
            progress: Called with (states done, states in all).
            executor: Where the work runs (`cautious.open_executor`); None for this process.

        Returns:
            L decisions, one per level.
        """
        tolerant = parse_flag(allow_undecided, "allow_undecided") or self.bad_rows_action is not None
        levels = parse_levels(levels)
        rows = self._rows(states, tolerant=tolerant)
        usable = states if rows is None else rows.states
        belief = asked(self.belief, usable)  # a belief of the user's on all threads, and all that follows on one
        with single_thread():
            if self.mdp is None:
                solved = solve_states(belief, self.games, usable, levels, progress, executor)
            else:
                solved = self._look_up(usable, levels, progress)
            if bool(solved.too_large.any()):
                rows = less_overflowing(self.belief, rows or read_states(self.belief, states), solved.too_large)
                if not tolerant:
                    refuse(rows)
            problems = None if rows is None else rows.problems
            asks = Asked(self.belief, usable, problems, self.familiar, self._predict)
            explain = asks.explain if self._has_features else None
            known = {"actions": action_names(self.belief), "index": index_of(states), "_explain": explain}
            apart, decisions = in_units_of(self.familiar, solved.spread), []
            ordinary = solved.ordinary.expand_as(solved.policies)
            for policy, usual, gap, value in zip(solved.policies, ordinary, solved.gaps, solved.values, strict=True):
                decision = make_decision(policy, usual, apart, gap=gap, value=value, opinions=asks.opinions)
                if problems is not None and problems.cells:
                    decision = with_unjudged(decision, problems, self.bad_rows_action)
                decisions.append(replace(decision, **known))
        return decisions

    def _look_up(self, states: Any, levels: Sequence[RiskMeasure], progress: Progress | None) -> SolvedStates:
        """What levels do in states of the world, which is solved again for other levels than the policy's own."""
        assert self.mdp is not None
        numbers, world = state_numbers(states, self.mdp.num_states), self._world
        if world is None or list(levels) != [self.level]:
            world = solve_world(self.mdp, self.belief, levels, self.games, progress)
        return world.at(numbers, self.belief.rewards(numbers))

    def explain(self, states: Any, *, familiar: Any = None) -> Explanation:
        """Why the models disagree about each row: which feature causes how much, and which values training had not.

        The belief is asked about each row once more for every feature, with that value replaced (`policy.explanation`).

        Args:
            states: Rows, as `decide` takes them. Rows that no model can judge are explained by what is wrong with them.
            familiar: Familiar rows, in the same form, to take the values from. Not needed for a belief with a random prior,
                which keeps some.

        Returns:
            An `Explanation` with one entry per row.

        Raises:
            InvalidInputError: The belief is about images or numbered states, which have no features; or keeps no familiar rows.

        >>> rows = np.random.default_rng(0).normal(size=(200, 2))
        >>> from cautious import fit_ensemble
        >>> belief = fit_ensemble({"age": rows[:, 0], "dose": rows[:, 1]}, {"go": rows[:, 0], "ask": 0 * rows[:, 0]},
        ...                       num_models=20, num_epochs=10, progress=False)
        >>> why = CautiousPolicy(belief).explain({"age": [0.5], "dose": [30.0]})
        >>> why.features, why.contribution.argmax(dim=1).tolist(), why.outside.tolist()
        (('age', 'dose'), [1], [[False, True]])
        >>> why.sentences[0]
        '...dose 30, above all 200 familiar rows (... to ...), causes ... of the disagreement of ... %).'
        """
        return explained(self.belief, self.decide(states, allow_undecided=True), familiar)

    def _predict(self, states: Any) -> tuple[Tensor, Tensor]:
        """What the models say about rows, and which rows overflow (`policy.states.predict`)."""
        return predict(asked(self.belief, states), states)

    def _rows(self, states: Any, *, tolerant: bool) -> StateRows | None:
        """Rows of a table as states, and with `tolerant` those of an array without rows that no model can judge; else None."""
        if isinstance(states, StateRows):
            rows = states
        elif not self._reads_rows:
            return None  # whatever a user's own belief makes of its states
        elif tolerant or (is_named(states) and self.belief.columns is not None):
            rows = read_states(self.belief, states)
        else:
            return None
        if not tolerant:
            refuse(rows)
        return rows

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """The action for one observation or a batch of them, as Stable-Baselines3's models offer it.

        Without `mdp` each action is chosen for this step alone, whatever follows from it. In an uncertain world with a horizon
        each call is one step of the episode.

        Args:
            observation: One state, or a batch with one row each.
            state: Not used: the policy has no memory. It is returned as it is.
            episode_start: Where it is true in an uncertain world, the next policy is drawn, as `reset` does.
            deterministic: The most likely action; otherwise one is drawn from the policy.

        Returns:
            The action (or an array of them), and `state`.
        """
        most_likely = parse_flag(deterministic, "deterministic")
        if isinstance(self.mdp, UncertainMDP) and episode_start is not None and np.any(episode_start):
            self.reset(int(self._draws.integers(2**31)))
        single, states = self.as_batch(observation)
        decision = self.decide(states)
        if self._world is not None:
            self._world.step()
        actions = decision.action.numpy() if most_likely else self.sample_actions(decision.probabilities.numpy())
        return (actions[0] if single else actions), state

    def as_batch(self, observation: Any) -> tuple[bool, Any]:
        """Whether `observation` is a single state; and the observation as a batch of states (`tables.arrays.as_batch`)."""
        shape = getattr(self.belief, "observation_shape", getattr(self.belief, "state_shape", None))
        return as_batch(observation, shape, by_name=getattr(self.belief, "columns", None) is not None)

    def sample_actions(self, probabilities: np.ndarray) -> np.ndarray:
        """One action per row, drawn from the policy [B, A]: [B]."""
        # Rows sum to one only up to rounding: scale the draw by the sum, and never go past the last action.
        uniform = self._draws.random((len(probabilities), 1)) * probabilities.sum(axis=1, keepdims=True)
        return np.minimum((probabilities.cumsum(axis=1) <= uniform).sum(axis=1), probabilities.shape[1] - 1)

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
            "num_iterations": self.games.num_iterations,
            "sampling": str(self.games.sampling),
            "seed": self.games.seed,
            "tolerance": self.games.tolerance,
            **({} if self.bad_rows_action is None else {"bad_rows_action": self.bad_rows_action}),
            **familiar,
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], belief: Any, mdp: TabularMDP | UncertainMDP | None
    ) -> CautiousPolicy:
        """The policy with the settings that `describe` returned; raises `InvalidInputError` for others."""
        options = {name: description.get(name) for name in ("num_iterations", "sampling", "seed")}
        options["tolerance"] = description.get("tolerance", STATE_GAME_TOLERANCE)
        options["bad_rows_action"] = description.get("bad_rows_action")
        policy = cls(belief, description.get("level"), mdp=mdp, **options)  # type: ignore[arg-type]
        # The file has the spreads of the familiar states, not the states themselves.
        policy._own_familiar = FamiliarDisagreement.read(description.get("familiar"))
        return policy
