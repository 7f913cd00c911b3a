"""`cautious solve`: a robust policy for a user's own arrays, with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.cli.inputs import DecisionInputs
    from cautious.solvers.certificate import Certificate
    from cautious.worlds.mdp import TabularMDP

DECISIONS = "decisions.csv"


class Solved(NamedTuple):
    """What came out at L levels; of a single level, `policies` and certificates have no dimension for it."""

    policies: dict[str, Tensor]
    """By name, [L, S, A]."""
    certificates: dict[str, Certificate]
    """Of each of them."""
    record: dict[str, Any]
    """How it was solved."""
    cautious: Tensor
    """What is decided, [L, S, A]."""
    ordinary: Tensor
    """What one would ordinarily do, [L, S, A]."""


@dataclass
class Solve:
    """Solve your own problem: reward models in, a cautious policy and its certificate out.

    The models come as an array (--rewards; safetensors, or .npy, memory-mapped), or as a trained belief that is asked about
    states (--belief and --states). Without --mdp the states are independent decisions.

    Example: cautious solve --rewards rewards.safetensors --mdp world.safetensors --level 1-of-20 --out solution

    Example: cautious solve --belief belief --states new.csv --level 1-of-20 --out decisions

    Where one action is known to be safe, a plain rule stands beside the levels: do what one ordinarily would, but the safe
    action where the models differ more than they do in familiar states. It refers every odd row, and needs no k-of-n; the
    levels need no safe action, and are careful only where the decision is in doubt.

    Example: cautious solve --belief belief --states new.csv --fallback ask --at-most 0.05 --out decisions
    """

    rewards: Path | None = None
    """Tensor "rewards" [M, S, A]: what each of M models says each action pays in each state."""
    belief: Path | None = None
    """Instead: a folder that 'cautious train' wrote, or 'ask-for-help' for the one that comes with the package."""
    states: Path | None = None
    """With --belief: states to decide in, array "inputs" [S, ...] of a .npz or .safetensors file, or a .npy file; or a table
    (.csv) with the columns that the belief was trained on."""
    level: tuple[str, ...] = ("1-of-20",)
    """How cautious: k-of-n averages the k worst of n sampled models. Several levels are solved in one go."""
    fallback: str | None = None
    """The safe action, if there is one: its name in the table of the training, or its number. It is taken where the models
    differ by more than --threshold; decisions.csv has it beside the levels, under 'decided with fallback'."""
    threshold: float | None = None
    """With --fallback: the disagreement above which it is taken, as 'cautious calibrate --fallback' finds it. 1 (if neither
    this nor --at-most is given) is what 95 % of familiar states stay below; without --belief it is in units of the reward."""
    at_most: float | None = None
    """With --fallback, instead of --threshold: the share of familiar states in which it may be taken, on average, by the states
    that 'cautious train' kept back. 'cautious calibrate' gives a guarantee."""
    mdp: Path | None = None
    """Tensors "transitions" [S, A, S] or [S*A, S], "initial_state_dist" [S] and "discount" (one number)."""
    regime: Literal["auto", "all-states", "single-state"] = "auto"
    """Without --mdp: rank the models over all states together, or in each state anew (far more cautious). auto: the first,
    but the second with --belief, by the code of CautiousPolicy and with its decisions (unless --sampling or --update name
    another way)."""
    sampling: Literal["queue", "exact"] = "exact"
    """Draw n models an iteration as the paper does, or weigh all models by rank: no sampling noise."""
    update: Literal["regret-matching", "regret-matching+", "as-printed"] | None = None
    """How regret accumulates; if not named, by regret matching, and by regret matching+ where CautiousPolicy decides."""
    iterations: int | None = None
    """More iterations close the gap that the certificate shows. If not named, 1,000; where CautiousPolicy decides, as many as
    each state needs to be certified, 300 at most."""
    seed: int = 0
    """Starts the shuffles of queue sampling."""
    out: Path = Path("solution")
    """Folder for policy.safetensors (the policies: the best one, and unless CautiousPolicy decides the last iterate and
    the average; and in each state the action, its caution and the ordinary policy, as CautiousPolicy has them) and
    certificate.json; for states of a table also decisions.csv, its rows with what is decided."""

    def run(self) -> None:
        """Load, solve, write, and show the certificate."""
        import torch

        from cautious.beliefs.familiar_spread import in_units_of
        from cautious.cli.console import console, say
        from cautious.cli.inputs import write_decisions
        from cautious.cli.tables import actions_table, caution_table, certificate_table, disagreement_table
        from cautious.io.arrays import FORMAT, save_json, save_tensors
        from cautious.policy.decision import make_decision, spread_of
        from cautious.policy.fallback import with_fallback
        from cautious.validation import as_folder

        as_folder(self.out, "out")
        asked, mdp = self._asked(), self._mdp()
        rule = self._fallback_rule(asked)
        rewards = self._rewards(asked)
        by_policy = asked is not None and mdp is None and self._as_cautious_policy()
        solved = self._decided(rewards) if by_policy else self._solved(rewards, mdp)
        record = {
            name: {part: getattr(certificate, part).tolist() for part in ("lower", "upper", "gap")}
            for name, certificate in solved.certificates.items()
        }
        shape = solved.policies["best_policy"].shape  # [S, A], or [L, S, A]
        cautious, ordinary = (policies.reshape(shape) for policies in (solved.cautious, solved.ordinary))
        familiar = None if asked is None else asked.belief.familiar
        decision = make_decision(cautious, ordinary, lambda: rewards, in_units_of(familiar, spread_of(rewards)))
        decisions = {
            "action": decision.action,
            "caution": decision.caution,
            "ordinary_policy": ordinary.contiguous(),
            "disagreement": decision.disagreement,
        }
        fallback = None
        if rule is not None:
            usual = make_decision(solved.ordinary[0], solved.ordinary[0], decision.opinions, decision.disagreement)
            fallback = with_fallback(usual, *rule)
            decisions["fallback_action"] = fallback.action
        files = {"policy.safetensors": save_tensors(self.out / "policy.safetensors", solved.policies | decisions)}
        save_json(
            self.out / "certificate.json",
            {"format": FORMAT, "solution": solved.record, "certificates": record},
            files,
        )
        columns = None if asked is None else asked.columns
        names = None if columns is None else columns.actions
        if asked is not None and columns is not None:
            write_decisions(self.out / DECISIONS, asked, self.level, decision, fallback)
        else:
            (self.out / DECISIONS).unlink(missing_ok=True)  # of other states
        actions = decision.action.reshape(len(self.level), -1)
        if fallback is not None:
            actions = torch.cat([actions, fallback.action[None]])
        rules = (*self.level, *(() if fallback is None else ("with fallback",)))
        console.print(actions_table(rules, actions, solved.ordinary[0], names))
        console.print(certificate_table(self.level, solved.certificates))
        console.print(caution_table(self.level, decision.caution))
        console.print(disagreement_table(decision.disagreement, familiar is not None))
        if rule is not None:
            referred = int((decision.disagreement > rule[1]).sum())
            total = len(decision.disagreement)
            say(f"{self.fallback}: in {referred:,} of {total:,} states the models differ by more than {rule[1]:.4g}")
        say(f"wrote {self.out / 'policy.safetensors'} and {self.out / 'certificate.json'}")
        if columns is not None:
            say(f"decisions, row by row: {self.out / DECISIONS}")

    def _fallback_rule(self, asked: DecisionInputs | None) -> tuple[int, float] | None:
        """The number of the safe action, and the disagreement above which it is taken; None if no such action is named."""
        from cautious.errors import InvalidInputError
        from cautious.policy.fallback import parse_action

        if self.fallback is None:
            if self.threshold is not None or self.at_most is not None:
                raise InvalidInputError("threshold and at_most belong to --fallback ACTION, which is not given.")
            return None
        if self.threshold is not None and self.at_most is not None:
            raise InvalidInputError("threshold and at_most say the same in two ways; give one of them.")
        names = None if asked is None or asked.columns is None else asked.columns.actions
        number = parse_action(
            int(self.fallback) if names is None and self.fallback.isdecimal() else self.fallback, names
        )
        if self.threshold is not None:
            return number, self.threshold
        familiar = None if asked is None else asked.belief.familiar
        if familiar is None:
            raise InvalidInputError(
                "threshold: give one, in units of the reward: no familiar states were kept back that would set it."
            )
        return number, 1.0 if self.at_most is None else familiar.threshold(self.at_most)

    def _asked(self) -> DecisionInputs | None:
        """A belief and states, unless there is an array of rewards."""
        from cautious.cli.inputs import load_asked
        from cautious.errors import InvalidInputError

        if self.rewards is not None and self.belief is None and self.states is None:
            return None
        if self.rewards is not None or self.belief is None or self.states is None:
            raise InvalidInputError(
                "name where the models come from: either --rewards FILE; or --belief FOLDER and --states FILE together."
            )
        return load_asked(self.belief, self.states)

    def _rewards(self, asked: DecisionInputs | None) -> Any:
        """What each model says each action pays in each state, [M, S, A]."""
        from cautious.io.arrays import load_array

        if asked is not None:
            return asked.belief.rewards(asked.states)
        assert self.rewards is not None
        return load_array(self.rewards, "rewards")

    def _mdp(self) -> TabularMDP | None:
        """The world, where actions move it."""
        from cautious.errors import InvalidInputError
        from cautious.worlds.mdp_files import load_mdp

        if self.mdp is None:
            return None
        if self.regime == "single-state":
            raise InvalidInputError(
                f"regime={self.regime!r} goes without --mdp: in an MDP the states belong together. Leave one of the two out."
            )
        return load_mdp(self.mdp)

    def _as_cautious_policy(self) -> bool:
        """Whether a belief's states are decided in as `CautiousPolicy` does: each on its own, and no other way is named."""
        return self.regime != "all-states" and self.sampling == "exact" and self.update is None

    def _decided(self, rewards: Tensor) -> Solved:
        """By the code of `CautiousPolicy`, so that what 'cautious calibrate' promises is about these very decisions."""
        import torch

        from cautious.cli.console import progress_bar
        from cautious.ops.risk import parse_levels
        from cautious.policy.policy import CautiousPolicy
        from cautious.solvers.certificate import Certificate

        levels = parse_levels(self.level)
        policy = CautiousPolicy(rewards, levels[0], num_iterations=self.iterations, seed=self.seed)
        with progress_bar("solving") as progress:
            cautious, ordinary, gap = policy.solve_states(rewards, levels, progress)
        models = rewards.cpu()
        values = [level.value((models * own).sum(dim=-1).T) for level, own in zip(levels, cautious, strict=True)]
        lower = torch.stack(values)  # [L, S]
        several = len(levels) > 1
        lower, upper, gap = (part if several else part[0] for part in (lower, lower + gap, gap))
        best = cautious if several else cautious[0]
        how = {name: value for name, value in policy.describe().items() if name != "level"}
        record = {"regime": "single-state", "levels": list(map(str, levels)), "num_models": len(rewards), **how}
        certificate = Certificate(lower, upper, gap, levels if several else levels[0])
        return Solved(
            {"best_policy": best}, {"best_policy": certificate}, record, cautious, ordinary.expand_as(cautious)
        )

    def _solved(self, rewards: Any, mdp: TabularMDP | None) -> Solved:
        from cautious.cli.console import progress_bar
        from cautious.ops.risk import parse_levels
        from cautious.policy.decision import with_baseline
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
