"""`cautious solve`: a robust policy for a user's own arrays, with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass
class Solve:
    """Solve your own problem: reward models in, a cautious policy and its certificate out.

    Files are safetensors (or .npy for the rewards, memory-mapped). Without --mdp the states are independent decisions.

    Example: cautious solve --rewards rewards.safetensors --mdp world.safetensors --level 1-of-20 --out solution
    """

    rewards: Path
    """Tensor "rewards" [M, S, A]: what each of M models says each action pays in each state."""
    level: tuple[str, ...] = ("1-of-20",)
    """How cautious: k-of-n averages the k worst of n sampled models. Several levels are solved in one go."""
    mdp: Path | None = None
    """Tensors "transitions" [S, A, S] or [S*A, S], "initial_state_dist" [S] and "discount" (one number)."""
    regime: Literal["all-states", "single-state"] = "all-states"
    """Without --mdp: rank the models over all states together, or in each state anew (far more cautious)."""
    sampling: Literal["queue", "exact"] = "exact"
    """Draw n models an iteration as the paper does, or weigh all models by rank: no sampling noise."""
    update: Literal["regret-matching", "regret-matching+", "as-printed"] = "regret-matching"
    """How regret accumulates."""
    iterations: int = 1000
    """More iterations close the gap that the certificate shows."""
    seed: int = 0
    """Starts the shuffles of queue sampling."""
    out: Path = Path("solution")
    """Folder for policy.safetensors and certificate.json."""

    def run(self) -> None:
        """Load, solve, write, and show the certificate."""
        from cautious.beliefs.files import FORMAT, load_array, save_json, save_tensors
        from cautious.cli.console import console, progress_bar
        from cautious.cli.tables import certificate_table
        from cautious.errors import InvalidInputError
        from cautious.solvers.bandit import solve_bandit
        from cautious.solvers.mdp import solve_mdp
        from cautious.solvers.mdp_files import load_mdp
        from cautious.types import as_folder

        as_folder(self.out, "out")
        if self.mdp is not None and self.regime != "all-states":
            raise InvalidInputError(
                f"regime={self.regime!r} goes without --mdp: in an MDP the states belong together. Leave one of the two out."
            )
        rewards = load_array(self.rewards, "rewards")
        levels = self.level[0] if len(self.level) == 1 else self.level
        options: dict[str, Any] = {
            "sampling": self.sampling,
            "update": self.update,
            "num_iterations": self.iterations,
            "seed": self.seed,
        }
        with progress_bar("solving") as progress:
            if self.mdp is None:
                solution = solve_bandit(rewards, levels, regime=self.regime, progress=progress, **options)
            else:
                solution = solve_mdp(load_mdp(self.mdp), rewards, levels, progress=progress, **options)
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
        files = {"policy.safetensors": save_tensors(self.out / "policy.safetensors", policies)}
        save_json(
            self.out / "certificate.json",
            {"format": FORMAT, "solution": solution.record, "certificates": record},
            files,
        )
        console.print(certificate_table(self.level, certificates))
        console.print(f"wrote {self.out / 'policy.safetensors'} and {self.out / 'certificate.json'}")
