"""`cautious solve`: a robust policy for a user's own arrays, with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cautious.cli.asked import Asked
    from cautious.solvers.solution import Solution
    from cautious.worlds.mdp import TabularMDP

DECISIONS = "decisions.csv"


@dataclass
class Solve:
    """Solve your own problem: reward models in, a cautious policy and its certificate out.

    The models come as an array (--rewards; safetensors, or .npy, memory-mapped), or as a trained belief that is asked about
    states (--belief and --states). Without --mdp the states are independent decisions.

    Example: cautious solve --rewards rewards.safetensors --mdp world.safetensors --level 1-of-20 --out solution

    Example: cautious solve --belief belief --states new.csv --level 1-of-20 --out decisions
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
    mdp: Path | None = None
    """Tensors "transitions" [S, A, S] or [S*A, S], "initial_state_dist" [S] and "discount" (one number)."""
    regime: Literal["auto", "all-states", "single-state"] = "auto"
    """Without --mdp: rank the models over all states together, or in each state anew (far more cautious). auto: the first,
    but the second with --belief, as CautiousPolicy does."""
    sampling: Literal["queue", "exact"] = "exact"
    """Draw n models an iteration as the paper does, or weigh all models by rank: no sampling noise."""
    update: Literal["regret-matching", "regret-matching+", "as-printed"] = "regret-matching"
    """How regret accumulates."""
    iterations: int = 1000
    """More iterations close the gap that the certificate shows."""
    seed: int = 0
    """Starts the shuffles of queue sampling."""
    out: Path = Path("solution")
    """Folder for policy.safetensors (the policies; and in each state the action, its caution and the ordinary policy, as
    CautiousPolicy decides) and certificate.json; for states of a table also decisions.csv, its rows with what is decided."""

    def run(self) -> None:
        """Load, solve, write, and show the certificate."""
        from cautious.beliefs.familiar import in_units_of
        from cautious.beliefs.files import FORMAT, save_json, save_tensors
        from cautious.cli.asked import write_decisions
        from cautious.cli.console import console, say
        from cautious.cli.tables import actions_table, caution_table, certificate_table
        from cautious.solvers.decision import beside_ordinary, decision_of, spread_of
        from cautious.solvers.solve import parse_levels
        from cautious.types import as_folder

        as_folder(self.out, "out")
        asked, mdp = self._asked(), self._mdp()
        rewards = self._rewards(asked)
        solution = self._solved(rewards, mdp)
        policies = {
            "policy": solution.policy,
            "average_policy": solution.average_policy,
            "best_policy": solution.best_policy,
        }
        certificates = {name: solution.certificate(policy) for name, policy in policies.items()}
        record = {
            name: {part: getattr(certificate, part).tolist() for part in ("lower", "upper", "gap")}
            for name, certificate in certificates.items()
        }
        best = solution.best_policy  # [S, A], or [L, S, A]
        solved = best.reshape(len(self.level), *best.shape[-2:])
        pair = beside_ordinary(solved, parse_levels(self.level), rewards, mdp)
        cautious, ordinary = (policies.reshape(best.shape) for policies in pair)
        familiar = None if asked is None else asked.belief.familiar
        decision = decision_of(cautious, ordinary, lambda: rewards, in_units_of(familiar, spread_of(rewards)))
        decisions = {
            "action": decision.action,
            "caution": decision.caution,
            "ordinary_policy": ordinary.contiguous(),
            "disagreement": decision.disagreement,
        }
        files = {"policy.safetensors": save_tensors(self.out / "policy.safetensors", policies | decisions)}
        save_json(
            self.out / "certificate.json",
            {"format": FORMAT, "solution": solution.record, "certificates": record},
            files,
        )
        columns = None if asked is None else asked.columns
        if asked is not None and columns is not None:
            write_decisions(self.out / DECISIONS, asked, self.level, decision)
        else:
            (self.out / DECISIONS).unlink(missing_ok=True)  # of other states
        console.print(
            actions_table(self.level, decision.action, pair[1][0], None if columns is None else columns.actions)
        )
        console.print(certificate_table(self.level, certificates))
        console.print(caution_table(self.level, decision.caution))
        say(f"wrote {self.out / 'policy.safetensors'} and {self.out / 'certificate.json'}")
        if columns is not None:
            say(f"decisions, row by row: {self.out / DECISIONS}")

    def _asked(self) -> Asked | None:
        """A belief and states, unless there is an array of rewards."""
        from cautious.cli.asked import load_asked
        from cautious.errors import InvalidInputError

        if self.rewards is not None and self.belief is None and self.states is None:
            return None
        if self.rewards is not None or self.belief is None or self.states is None:
            raise InvalidInputError(
                "name where the models come from: either --rewards FILE; or --belief FOLDER and --states FILE together."
            )
        return load_asked(self.belief, self.states)

    def _rewards(self, asked: Asked | None) -> Any:
        """What each model says each action pays in each state, [M, S, A]."""
        from cautious.beliefs.files import load_array

        if asked is not None:
            return asked.belief.rewards(asked.states)
        assert self.rewards is not None
        return load_array(self.rewards, "rewards")

    def _mdp(self) -> TabularMDP | None:
        """The world, where actions move it."""
        from cautious.errors import InvalidInputError
        from cautious.solvers.mdp_files import load_mdp

        if self.mdp is None:
            return None
        if self.regime == "single-state":
            raise InvalidInputError(
                f"regime={self.regime!r} goes without --mdp: in an MDP the states belong together. Leave one of the two out."
            )
        return load_mdp(self.mdp)

    def _solved(self, rewards: Any, mdp: TabularMDP | None) -> Solution:
        from cautious.cli.console import progress_bar
        from cautious.solvers.bandit import solve_bandit
        from cautious.solvers.mdp import solve_mdp

        levels = self.level[0] if len(self.level) == 1 else self.level
        options: dict[str, Any] = {
            "sampling": self.sampling,
            "update": self.update,
            "num_iterations": self.iterations,
            "seed": self.seed,
        }
        usual = "all-states" if self.belief is None else "single-state"
        with progress_bar("solving") as progress:
            if mdp is not None:
                return solve_mdp(mdp, rewards, levels, progress=progress, **options)
            regime = usual if self.regime == "auto" else self.regime
            return solve_bandit(rewards, levels, regime=regime, progress=progress, **options)
