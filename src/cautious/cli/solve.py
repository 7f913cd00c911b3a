"""`cautious solve`: a robust policy for a user's own arrays, with its certificate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cautious.cli.answer import Answer
    from cautious.cli.inputs import DecisionInputs
    from cautious.mdp.tabular import TabularMDP
    from cautious.policy.decision import Decision

SOME_UNDECIDED = 3
"""Exit status if no model can judge some row, and no action is named for such rows."""


@dataclass
class Solve:
    """Solve your own problem: from reward models to a cautious policy and its certificate.

    Give the models as an array (--rewards; safetensors, or .npy, memory-mapped), or as a trained belief with states to decide
    about (--belief and --states). Without --mdp the states are independent decisions.

    Example: cautious solve --rewards rewards.safetensors --mdp world.safetensors --level 1-of-20 --out solution

    Example: cautious solve --belief belief --states new.csv --level 1-of-20 --out decisions

    If one action is known to be safe, --fallback adds a simple rule beside the levels: act as usual, but take the safe action
    where the models differ more than in familiar states. It does so in every unusual row; the levels need no safe action, and
    depart only where the models disagree about the best action.

    Example: cautious solve --belief belief --states new.csv --fallback ask --at-most 0.05 --out decisions

    Rows that no model can judge (empty cells, texts where numbers were, numbers far too large) get the action of
    --bad-rows-action or, without it, of --fallback. Without either they are 'undecided', the other rows are decided, and the
    exit status is 3.
    """

    rewards: Path | None = None
    """Tensor "rewards" [M, S, A]: the reward of each action in each state under each of M models."""
    belief: Path | None = None
    """Instead: a folder written by 'cautious train', or 'ask-for-help' for the belief in the package."""
    states: Path | None = None
    """With --belief: the states to decide about: array "inputs" [S, ...] of a .npz or .safetensors file, a .npy file, or a
    table (.csv, .parquet) with the columns that the belief was trained on, in any order."""
    payoffs: Path | None = None
    """With a belief that was trained on labels: other payoffs than those of its training, in a table of the same form."""
    level: tuple[str, ...] = ("1-of-20",)
    """How cautious: k-of-n averages the k worst of n sampled models; or "CVaR(0.1)", "WorstCase()", "Mean()" or
    "MeanCVaR(0.1, 0.5)". Several levels are solved in one call."""
    fallback: str | None = None
    """The safe action, if there is one: its name in the training table, or its number. It is taken where the models differ by
    more than --threshold, which decisions.csv lists as 'decided with fallback'; and in rows that no model can judge."""
    bad_rows_action: str | None = None
    """The action in rows that no model can judge: its name in the training table, or its number; default: that of
    --fallback."""
    threshold: float | None = None
    """With --fallback: the disagreement above which it is taken; 'cautious calibrate --fallback' finds it. Default without
    --at-most: 1, which 95 % of familiar states stay below; without --belief in units of the reward, and no default."""
    at_most: float | None = None
    """With --fallback, instead of --threshold: the share of familiar states in which it may be taken, on average, estimated on
    the states that 'cautious train' held out. 'cautious calibrate' gives a guarantee."""
    mdp: Path | None = None
    """Tensors "transitions" [S, A, S] or [S*A, S], "initial_state_dist" [S] and "discount" (one number)."""
    regime: Literal["auto", "all-states", "single-state"] = "auto"
    """Without --mdp: rank the models over all states together, or separately in each state (much more cautious). auto:
    all-states with --rewards; single-state with --belief. CautiousPolicy decides in each state unless --sampling queue or
    --update is given, or with --rewards --iterations."""
    sampling: Literal["queue", "exact"] = "exact"
    """queue: sample n models per iteration, as the paper does; exact: weigh all models by rank, without sampling noise."""
    update: (
        Literal[
            "regret-matching",
            "regret-matching+",
            "as-printed",
            "predictive-regret-matching+",
            "discounted-regret-matching",
        ]
        | None
    ) = None
    """How regret accumulates; default: regret-matching, and regret-matching+ where CautiousPolicy decides."""
    tolerance: float | None = None
    """Solve until no policy can be better by more than this share of the range of the rewards; default: 0.0001. Not with
    --iterations, --update or --sampling queue."""
    iterations: int | None = None
    """Number of iterations of the paper's algorithm, instead of --tolerance; where CautiousPolicy decides, the most iterations
    per state (default there: 300). Default with --update or --sampling queue: 100, as in the paper."""
    seed: int = 0
    """Seed of every random draw: the shuffles of queue sampling."""
    engine: Literal["local", "ray"] = "local"
    """With --belief: what decides about the rows: this process, or all machines of a Ray cluster (pip install 'cautious[ray]');
    the same bits."""
    address: str | None = None
    """HOST:PORT of a Ray cluster that this machine is part of, or auto; default: RAY_ADDRESS, or a new one on this machine."""
    out: Path = Path("solution")
    """Folder for policy.safetensors (the best policy; the last iterate and the average unless CautiousPolicy decides; per state
    the action, its caution and the ordinary policy), certificate.json and, for a table, decisions.csv: its rows with the
    decisions."""
    tables: bool = False
    """Also print how many states get which action, the certificates, the caution and the models' disagreement."""

    def run(self) -> None:
        """Load, decide, write, and print the verdict."""
        from cautious.cli.answer import CERTIFICATE, DECISIONS, POLICY
        from cautious.cli.console import say, warn
        from cautious.errors import InvalidInputError
        from cautious.policy.fallback import with_fallback
        from cautious.validation import check_folder

        check_folder(self.out, "out")
        inputs, mdp = self._inputs(), self._mdp()
        bad_rows_action, rule = self._safe_actions(inputs)
        by_paper = self._by_paper or (inputs is None and self.iterations is not None)
        by_policy = mdp is None and self._regime == "single-state" and not by_paper
        if (not by_policy or inputs is None) and (self.engine != "local" or self.address is not None):
            raise InvalidInputError(
                f"--engine {self.engine} divides the rows of --states where CautiousPolicy decides; leave it and --address out."
            )
        if by_policy or (inputs is not None and inputs.rows.problems.cells and not len(inputs.rows.states)):
            answer = self._decided(inputs, bad_rows_action)
        else:
            answer = self._solved(inputs, mdp, bad_rows_action)
        if rule is not None:
            answer = replace(answer, by_rule=with_fallback(answer.decisions[0].as_usual(), *rule))
        answer.save(self.out)
        answer.show(self.tables)
        if rule is not None:
            self._say_where_referred(answer.decisions[0], rule[1])
        say(f"wrote {self.out / POLICY} and {self.out / CERTIFICATE}")
        if inputs is not None and inputs.table is not None:
            say(f"decisions, row by row: {self.out / DECISIONS}")
        diagnosis = None if inputs is None else getattr(inputs.belief, "diagnosis", None)
        for concern in () if diagnosis is None else diagnosis.concerns:
            warn(f"about this belief: {concern}")
        for sentence in answer.verdict:
            say(sentence)
        self._say_what_was_not_judged(answer.decisions[0])

    def _decided(self, inputs: DecisionInputs | None, bad_rows_action: int | None) -> Answer:
        """Decisions of `CautiousPolicy`, which 'cautious calibrate' guarantees something about."""
        import torch

        from cautious.cli.answer import Answer
        from cautious.cli.console import progress_bar
        from cautious.executors import open_executor
        from cautious.policy.policy import CautiousPolicy
        from cautious.risk import parse_levels
        from cautious.solvers.certificate import Certificate
        from cautious.solvers.solve import STATE_GAME_TOLERANCE

        levels = parse_levels(self.level)
        belief: Any = self._rewards() if inputs is None else inputs.belief
        policy = CautiousPolicy(
            belief,
            levels[0],
            num_iterations=self.iterations,
            tolerance=STATE_GAME_TOLERANCE if self.tolerance is None else self.tolerance,
            seed=self.seed,
            bad_rows_action=bad_rows_action,
        )
        with open_executor(self.engine, self.address) as executor, progress_bar("solving") as progress:
            decisions = policy.decide_at(
                levels,
                range(belief.shape[1]) if inputs is None else inputs.rows,
                allow_undecided=True,
                progress=progress,
                executor=None if executor.is_local else executor,
            )
        several = len(levels) > 1
        lower, gap = (torch.stack([getattr(decision, name) for decision in decisions]) for name in ("value", "gap"))
        lower, upper, gap = (part if several else part[0] for part in (lower, lower + gap, gap))
        best = torch.stack([decision.probabilities for decision in decisions])
        return Answer(
            self.level,
            {"best_policy": best if several else best[0]},
            {"best_policy": Certificate(lower, upper, gap, levels if several else levels[0])},
            {
                "regime": "single-state",
                "levels": list(map(str, levels)),
                "num_models": policy.belief.num_models,
                **{name: policy.describe()[name] for name in ("num_iterations", "sampling", "seed", "tolerance")},
            },
            decisions,
            inputs=inputs,
        )

    def _solved(self, inputs: DecisionInputs | None, mdp: TabularMDP | None, bad_rows_action: int | None) -> Answer:
        """What a solver makes of all states together, or with --sampling or --update of each."""
        from cautious.cli.answer import Answer
        from cautious.cli.console import progress_bar
        from cautious.policy.decision import decisions_of
        from cautious.policy.rows import judge
        from cautious.risk import parse_levels
        from cautious.solvers.solve import solve_bandit, solve_mdp

        rewards: Any
        if inputs is None:
            rewards, rows = self._rewards(), None
        else:
            rewards, rows = judge(inputs.belief, inputs.rows)
            if not rewards.shape[1]:
                return self._decided(inputs, bad_rows_action)
        levels = self.level[0] if len(self.level) == 1 else self.level
        options, regime = self._solver_options(), self._regime
        with progress_bar("solving") as progress, _warnings_shown():
            if mdp is not None:
                solution = solve_mdp(mdp, rewards, levels, seed=self.seed, progress=progress, **options)
            else:
                solution = solve_bandit(rewards, levels, regime=regime, seed=self.seed, progress=progress, **options)
        names = ("policy", "average_policy", "best_policy")
        policies = {name: getattr(solution, name) for name in names}
        certificates = {name: solution.certificate(policy) for name, policy in policies.items()}
        best = solution.best_policy.reshape(len(self.level), *solution.best_policy.shape[-2:])
        familiar = None if inputs is None else inputs.belief.familiar
        decisions = decisions_of(best, parse_levels(self.level), rewards, mdp, familiar)
        answer = Answer(self.level, policies, certificates, solution.record, decisions, inputs=inputs)
        return answer if rows is None or not rows.problems.cells else answer.in_all_rows(rows, bad_rows_action)

    def _rewards(self) -> Any:
        """The array of --rewards."""
        from cautious.io.arrays import load_array

        assert self.rewards is not None
        return load_array(self.rewards, "rewards")

    def _solver_options(self) -> dict[str, Any]:
        """The tolerance, or the options of the paper's algorithm if one is given."""
        from cautious.errors import InvalidInputError
        from cautious.solvers.solve import TOLERANCE

        if not self._by_paper and self.iterations is None:
            return {"tolerance": TOLERANCE if self.tolerance is None else self.tolerance}
        if self.tolerance is not None:
            raise InvalidInputError(
                f"--tolerance {self.tolerance:g} does not go with --iterations, --update or --sampling queue: there a number "
                "of iterations ends the work. Leave one of them out."
            )
        return {"sampling": self.sampling, "update": self.update, "num_iterations": self.iterations}

    def _say_where_referred(self, decision: Decision, threshold: float) -> None:
        """Print in how many states the rule of --fallback takes its action because the models differ."""
        from cautious.cli.console import plural, say

        referred, total = int((decision.disagreement > threshold).sum()), int(decision.judged.sum())
        if total:
            say(
                f"{self.fallback}: the models differ by more than {threshold:.4g} in {referred:,} of {plural(total, 'state')}"
            )

    def _say_what_was_not_judged(self, decision: Decision) -> None:
        """Print which rows could not be judged; ends with status 3 if they are undecided."""
        import sys

        from cautious.cli.answer import UNDECIDED
        from cautious.cli.console import warn

        if decision.problems is None:
            return
        action = self.bad_rows_action or self.fallback
        if action is not None:
            warn(f". They get the action {action}.", decision.problems)
            return
        warn(f". They are {UNDECIDED}; --fallback ACTION names an action for them.", decision.problems)
        sys.exit(SOME_UNDECIDED)

    def _safe_actions(self, inputs: DecisionInputs | None) -> tuple[int | None, tuple[int, float] | None]:
        """The action in rows that no model can judge, and the rule of --fallback: its action and its threshold."""
        from cautious.errors import InvalidInputError

        bad_rows_action = self._action(self.bad_rows_action, "bad_rows_action", inputs)
        if self.fallback is None:
            if self.threshold is not None or self.at_most is not None:
                raise InvalidInputError("--threshold and --at-most need --fallback ACTION, which is not given.")
            return bad_rows_action, None
        if self.threshold is not None and self.at_most is not None:
            raise InvalidInputError("--threshold and --at-most exclude each other; give one of them.")
        fallback = self._action(self.fallback, "fallback", inputs)
        assert fallback is not None
        bad_rows_action = fallback if bad_rows_action is None else bad_rows_action
        if self.threshold is not None:
            return bad_rows_action, (fallback, self.threshold)
        familiar = None if inputs is None else inputs.belief.familiar
        if familiar is None:
            raise InvalidInputError(
                "--threshold is missing: no familiar states were held out to derive it from; give one, in units of the reward."
            )
        return bad_rows_action, (fallback, 1.0 if self.at_most is None else familiar.threshold(self.at_most))

    def _action(self, action: str | None, option: str, inputs: DecisionInputs | None) -> int | None:
        """The number of an action that is given by its name or its number; None without one."""
        from cautious.policy.decision import check_action, parse_action

        if action is None:
            return None
        names = None if inputs is None else inputs.belief.actions
        is_number = action.isdecimal() and action not in (names or ())
        number = parse_action(int(action) if is_number else action, names, option)
        check_action(number, None if inputs is None else inputs.belief.num_actions, option)
        return number

    def _inputs(self) -> DecisionInputs | None:
        """The belief and the states; None with --rewards."""
        from cautious.cli.inputs import load_decision_inputs
        from cautious.errors import InvalidInputError

        if self.rewards is not None and self.belief is None and self.states is None:
            if self.payoffs is not None:
                raise InvalidInputError("--payoffs need --belief FOLDER, a belief that was trained on labels.")
            return None
        if self.rewards is not None or self.belief is None or self.states is None:
            raise InvalidInputError(
                "give the models: either --rewards FILE, or --belief FOLDER and --states FILE together."
            )
        return load_decision_inputs(self.belief, self.states, self.payoffs)

    def _mdp(self) -> TabularMDP | None:
        """The MDP, if one is given."""
        from cautious.errors import InvalidInputError
        from cautious.mdp.files import load_mdp

        if self.mdp is None:
            return None
        if self.regime == "single-state":
            raise InvalidInputError(
                f"--regime {self.regime} excludes --mdp: in an MDP models are ranked over all states. Leave one of the two out."
            )
        return load_mdp(self.mdp)

    @property
    def _regime(self) -> str:
        usual = "all-states" if self.belief is None else "single-state"
        return usual if self.regime == "auto" else self.regime

    @property
    def _by_paper(self) -> bool:
        """Whether an option is given that belongs to the paper's algorithm alone."""
        return self.sampling == "queue" or self.update is not None


@contextmanager
def _warnings_shown() -> Iterator[None]:
    """Print what solvers warn about as this command prints warnings: a gap wider than the tolerance, with the way out."""
    from cautious.cli.console import warn
    from cautious.errors import ConvergenceWarning, worded

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for warning in caught:
        warn(worded(getattr(warning.message, "args", ()), ["tolerance"]))
