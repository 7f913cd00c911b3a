"""`cautious solve`: a robust policy for a user's own arrays, with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cautious.cli.solution_files import CERTIFICATE, DECISIONS, POLICY, UNDECIDED, Solved, save_solution

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.cli.inputs import DecisionInputs
    from cautious.mdp.tabular import TabularMDP
    from cautious.policy.decision import Decision

SOME_UNDECIDED = 3
"""Exit status if no model can judge some row, and there is no --fallback."""


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

    Rows that no model can judge (empty cells, texts where numbers were, numbers far too large) get the safe action of
    --fallback. Without it they are 'undecided', the other rows are decided, and the exit status is 3.
    """

    rewards: Path | None = None
    """Tensor "rewards" [M, S, A]: the reward of each action in each state under each of M models."""
    belief: Path | None = None
    """Instead: a folder written by 'cautious train', or 'ask-for-help' for the belief in the package."""
    states: Path | None = None
    """With --belief: the states to decide about: array "inputs" [S, ...] of a .npz or .safetensors file, a .npy file, or a
    table (.csv, .parquet) with the columns that the belief was trained on, in any order."""
    level: tuple[str, ...] = ("1-of-20",)
    """How cautious: k-of-n averages the k worst of n sampled models; or "CVaR(0.1)", "WorstCase()", "Mean()" or
    "MeanCVaR(0.1, 0.5)". Several levels are solved in one call."""
    fallback: str | None = None
    """The safe action, if there is one: its name in the training table, or its number. It is taken in rows that cannot be
    judged; and where the models differ by more than --threshold, which decisions.csv lists as 'decided with fallback'."""
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
    all-states with --rewards; single-state with --belief, decided by CautiousPolicy unless --sampling or --update is given."""
    sampling: Literal["queue", "exact"] = "exact"
    """queue: sample n models per iteration, as the paper does; exact: weigh all models by rank, without sampling noise."""
    update: Literal["regret-matching", "regret-matching+", "as-printed"] | None = None
    """How regret accumulates; default: regret-matching, and regret-matching+ where CautiousPolicy decides."""
    iterations: int | None = None
    """More iterations reduce the gap of the certificate. Default: 1,000; where CautiousPolicy decides, as many as each state
    needs to be certified, at most 300."""
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

    def run(self) -> None:
        """Load, solve, write, and print the tables."""
        from cautious.beliefs.familiar_spread import in_units_of
        from cautious.errors import InvalidInputError
        from cautious.policy.bad_rows import overflowing
        from cautious.policy.decision import make_decision, spread_of, with_unjudged
        from cautious.policy.fallback import with_fallback
        from cautious.validation import check_folder

        check_folder(self.out, "out")
        inputs, mdp = self._inputs(), self._mdp()
        rule = self._fallback_rule(inputs)
        if inputs is not None and inputs.rows.bad and not len(inputs.states):
            return self._decide_nothing(inputs, rule)
        by_policy = inputs is not None and mdp is None and self._as_cautious_policy()
        if not by_policy and (self.engine != "local" or self.address is not None):
            raise InvalidInputError(
                f"--engine {self.engine} divides the rows of --states where CautiousPolicy decides; leave it and --address out."
            )
        if by_policy:
            assert inputs is not None
            solved, spread, inputs = self._decided(inputs)
            if not len(inputs.states):
                return self._decide_nothing(inputs, rule)
        else:
            rewards = self._rewards(inputs)
            if inputs is not None and mdp is None and bool((too_large := overflowing(rewards)).any()):
                rewards, inputs = rewards[:, ~too_large], inputs.without(too_large)
                if not len(inputs.states):
                    return self._decide_nothing(inputs, rule)
            solved, spread = self._solved(rewards, mdp), spread_of(rewards)
        shape = solved.policies["best_policy"].shape  # [S, A], or [L, S, A]
        cautious, ordinary = (policies.reshape(shape) for policies in (solved.cautious, solved.ordinary))
        familiar = None if inputs is None else inputs.belief.familiar
        decision = make_decision(cautious, ordinary, None, in_units_of(familiar, spread))
        fallback = None
        if rule is not None:
            usual = make_decision(solved.ordinary[0], solved.ordinary[0], None, decision.disagreement)
            fallback = with_fallback(usual, *rule)
        in_all_rows, everywhere = decision, solved
        if inputs is not None and inputs.rows.bad:
            reasons, safe = inputs.rows.reasons(), None if rule is None else rule[0]
            in_all_rows = with_unjudged(decision, reasons, safe)
            fallback = None if fallback is None else with_unjudged(fallback, reasons, safe)
            everywhere = solved.in_all_rows(in_all_rows)
        save_solution(self.out, inputs, self.level, everywhere, in_all_rows, fallback)
        self._print_actions(inputs, in_all_rows, fallback)
        self._print_tables(inputs, solved, decision, rule)
        self._print_bad_rows(inputs)

    def _decide_nothing(self, inputs: DecisionInputs, rule: tuple[int, float] | None) -> None:
        """Write files about rows of which not one can be judged."""
        import torch

        from cautious.policy.decision import make_decision, with_unjudged

        reasons, safe = inputs.rows.reasons(), None if rule is None else rule[0]
        single = torch.zeros(0, inputs.belief.num_actions, dtype=torch.float64)
        policy = single if len(self.level) == 1 else single.expand(len(self.level), -1, -1)
        decision, rowwise = (
            with_unjudged(make_decision(part, part, None, single.sum(dim=-1)), reasons, safe)
            for part in (policy, single)
        )
        fallback = None if rule is None else rowwise
        policies = {"best_policy": decision.probabilities}
        solved = Solved(policies, {}, {"levels": list(self.level)}, policy, policy)
        save_solution(self.out, inputs, self.level, solved, decision, fallback)
        self._print_actions(inputs, decision, fallback)
        self._print_files(inputs)
        self._print_bad_rows(inputs)

    def _print_tables(
        self, inputs: DecisionInputs | None, solved: Solved, decision: Decision, rule: tuple[int, float] | None
    ) -> None:
        """Print how good the decisions are and how far from ordinary ones, and where the files are."""
        from cautious.cli.console import console, plural, say, warn
        from cautious.cli.solution_tables import caution_table, certificate_table, disagreement_table

        console.print(certificate_table(self.level, solved.certificates))
        wide = [self.level[number] for number in solved.wide_gaps(len(self.level))]
        if wide:
            warn(
                f"the gap at {', '.join(wide)} is more than a tenth of the value: the policy may be far from the best. Use "
                "more --iterations; where models differ by far more than rewards do (a wide prior), many are needed."
            )
        if solved.estimated is not None:
            say(f"these bounds are about the estimated world only: {solved.estimated}.")
        console.print(caution_table(self.level, decision.caution))
        has_unit = inputs is not None and inputs.belief.familiar is not None
        console.print(disagreement_table(decision.disagreement, has_unit))
        if rule is not None:
            referred, total = int((decision.disagreement > rule[1]).sum()), len(decision.disagreement)
            say(
                f"{self.fallback}: the models differ by more than {rule[1]:.4g} in {referred:,} of {plural(total, 'state')}"
            )
        self._print_files(inputs)

    def _print_files(self, inputs: DecisionInputs | None) -> None:
        """Print where the files are."""
        from cautious.cli.console import say

        say(f"wrote {self.out / POLICY} and {self.out / CERTIFICATE}")
        if inputs is not None and inputs.columns is not None:
            say(f"decisions, row by row: {self.out / DECISIONS}")

    def _print_actions(self, inputs: DecisionInputs | None, decision: Decision, fallback: Decision | None) -> None:
        """Print how many rows get which action."""
        import torch

        from cautious.cli.console import console
        from cautious.cli.solution_tables import actions_table

        actions, rules = decision.action.reshape(len(self.level), -1), self.level
        if fallback is not None:
            actions, rules = torch.cat([actions, fallback.action[None]]), (*rules, "with fallback")
        ordinary = decision.ordinary.reshape(len(self.level), -1, decision.ordinary.shape[-1])[0]
        usual = torch.where(decision.judged, ordinary.nan_to_num().argmax(dim=-1), -1)
        names = None if inputs is None else inputs.belief.actions
        console.print(actions_table(rules, actions, usual, ordinary.shape[-1], names))

    def _print_bad_rows(self, inputs: DecisionInputs | None) -> None:
        """Print which rows could not be judged; ends with status 3 if they are undecided."""
        import sys

        from cautious.cli.console import warn

        if inputs is None or not inputs.rows.bad:
            return
        if self.fallback is not None:
            warn(f"{inputs.rows.sentence()}. They get the action {self.fallback}.")
            return
        warn(f"{inputs.rows.sentence()}. They are {UNDECIDED}; --fallback ACTION names an action for them.")
        sys.exit(SOME_UNDECIDED)

    def _fallback_rule(self, inputs: DecisionInputs | None) -> tuple[int, float] | None:
        """The number of the safe action and the disagreement above which it is taken; None without --fallback."""
        from cautious.errors import InvalidInputError
        from cautious.policy.policy import parse_action

        if self.fallback is None:
            if self.threshold is not None or self.at_most is not None:
                raise InvalidInputError("--threshold and --at-most need --fallback ACTION, which is not given.")
            return None
        if self.threshold is not None and self.at_most is not None:
            raise InvalidInputError("--threshold and --at-most exclude each other; give one of them.")
        names = None if inputs is None else inputs.belief.actions
        is_number = self.fallback.isdecimal() and self.fallback not in (names or ())
        number = parse_action(int(self.fallback) if is_number else self.fallback, names)
        if self.threshold is not None:
            return number, self.threshold
        familiar = None if inputs is None else inputs.belief.familiar
        if familiar is None:
            raise InvalidInputError(
                "--threshold is missing: no familiar states were held out to derive it from; give one, in units of the reward."
            )
        return number, 1.0 if self.at_most is None else familiar.threshold(self.at_most)

    def _inputs(self) -> DecisionInputs | None:
        """The belief and the states; None with --rewards."""
        from cautious.cli.inputs import load_decision_inputs
        from cautious.errors import InvalidInputError

        if self.rewards is not None and self.belief is None and self.states is None:
            return None
        if self.rewards is not None or self.belief is None or self.states is None:
            raise InvalidInputError(
                "give the models: either --rewards FILE, or --belief FOLDER and --states FILE together."
            )
        return load_decision_inputs(self.belief, self.states)

    def _rewards(self, inputs: DecisionInputs | None) -> Any:
        """The reward of each action in each state under each model, [M, S, A]."""
        from cautious.io.arrays import load_array

        if inputs is not None:
            return inputs.belief.rewards(inputs.states)
        assert self.rewards is not None
        return load_array(self.rewards, "rewards")

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

    def _as_cautious_policy(self) -> bool:
        """Whether `CautiousPolicy` decides: each state separately, and no other solver option is given."""
        return self.regime != "all-states" and self.sampling == "exact" and self.update is None

    def _decided(self, inputs: DecisionInputs) -> tuple[Solved, Tensor, DecisionInputs]:
        """Decisions of `CautiousPolicy`, which 'cautious calibrate' guarantees something about; and the models' spread [S].

        Also the inputs, less the rows whose predictions overflow, which turns out here.
        """
        from cautious.cli.console import progress_bar
        from cautious.executors import open_executor
        from cautious.policy.policy import CautiousPolicy
        from cautious.risk import parse_levels
        from cautious.solvers.certificate import Certificate

        levels = parse_levels(self.level)
        policy = CautiousPolicy(inputs.belief, levels[0], num_iterations=self.iterations, seed=self.seed)
        with open_executor(self.engine, self.address) as opened, progress_bar("solving") as progress:
            executor = None if opened.is_local else opened
            cautious, ordinary, gap, lower, spread, too_large = policy.solve_rows(
                inputs.states, levels, progress, executor, allow_undecided=True
            )
        if bool(too_large.any()):
            inputs = inputs.without(too_large)
        several = len(levels) > 1
        lower, upper, gap = (part if several else part[0] for part in (lower, lower + gap, gap))
        best = cautious if several else cautious[0]
        how = {name: value for name, value in policy.describe().items() if name not in ("level", "familiar")}
        record = {
            "regime": "single-state",
            "levels": list(map(str, levels)),
            "num_models": inputs.belief.num_models,
            **how,
        }
        certificate = Certificate(lower, upper, gap, levels if several else levels[0])
        solved = Solved(
            {"best_policy": best}, {"best_policy": certificate}, record, cautious, ordinary.expand_as(cautious)
        )
        return solved, spread, inputs

    def _solved(self, rewards: Any, mdp: TabularMDP | None) -> Solved:
        from cautious.cli.console import progress_bar
        from cautious.policy.decision import with_baseline
        from cautious.risk import parse_levels
        from cautious.solvers.solve import COMMAND_ITERATIONS, USER, solve_bandit, solve_mdp

        levels = self.level[0] if len(self.level) == 1 else self.level
        options: dict[str, Any] = {
            "sampling": self.sampling,
            "update": self.update or USER.update,
            "num_iterations": COMMAND_ITERATIONS if self.iterations is None else self.iterations,
            "seed": self.seed,
        }
        usual = "all-states" if self.belief is None else "single-state"
        with progress_bar("solving") as progress:
            if mdp is not None:
                solution = solve_mdp(mdp, rewards, levels, progress=progress, **options)
            else:
                regime = usual if self.regime == "auto" else self.regime
                solution = solve_bandit(rewards, levels, regime=regime, progress=progress, **options)
        policies = {
            "policy": solution.policy,
            "average_policy": solution.average_policy,
            "best_policy": solution.best_policy,
        }
        certificates = {name: solution.certificate(policy) for name, policy in policies.items()}
        best = solution.best_policy
        solved = best.reshape(len(self.level), *best.shape[-2:])
        pair = with_baseline(solved, parse_levels(self.level), rewards, mdp)
        return Solved(policies, certificates, solution.record, *pair)
