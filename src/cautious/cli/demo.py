"""`cautious demo`: the caution dial on a built-in example, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Demo:
    """Turn the caution dial on a built-in example and see what changes.

    A courier can take a slow road that every reward model knows, or shortcuts that look better on average but about
    which the models disagree. Nobody says which way is careful; the table shows what each level chooses, and proves how
    far each policy is from the best possible one.
    """

    n: int = 10
    """Models sampled an iteration; levels run from n-of-n (ordinary) to 1-of-n (most cautious)."""
    models: int = 200
    """Reward models in the belief."""
    iterations: int = 1000
    """Iterations of k-of-N regret minimisation."""
    seed: int = 0
    """Starts every random draw."""
    out: Path = Path("demo")
    """Folder for the figure and the numbers."""

    def run(self) -> None:
        """Solve all levels in one call, print the table, draw the figure."""
        from rich.table import Table

        from cautious.beliefs.files import save_json
        from cautious.cli.console import console, progress_bar
        from cautious.experiments.courier import WAYS, courier
        from cautious.ops.risk import KofN
        from cautious.report.figures import plot_dial, save_figure
        from cautious.solvers.mdp import solve_mdp

        example = courier(self.models, seed=self.seed)
        levels = [KofN(k, self.n) for k in range(self.n, 0, -1)]
        with progress_bar("solving") as progress:
            solution = solve_mdp(
                example.mdp,
                example.rewards,
                levels,
                num_iterations=self.iterations,
                sampling="exact",
                seed=self.seed,
                progress=progress,
            )
        certificate = solution.certificate(solution.best_policy)
        shares = {way: solution.best_policy[:, 0, index].tolist() for index, way in enumerate(WAYS)}
        table = Table(
            title="the caution dial: which way the courier takes", caption="value and bound are normalised returns"
        )
        for heading in ("level", *WAYS, "value", "bound for every policy", "gap"):
            table.add_column(heading, justify="right")
        names = [str(level) for level in levels]
        for row, name in enumerate(names):
            numbers = [f"{float(part[row]):.4f}" for part in (certificate.lower, certificate.upper, certificate.gap)]
            table.add_row(name, *(f"{100 * share[row]:.1f} %" for share in shares.values()), *numbers)
        console.print(table)
        lower, upper = certificate.lower.tolist(), certificate.upper.tolist()
        save_figure(plot_dial(names, shares, lower, upper), self.out / "dial.png")
        save_json(
            self.out / "dial.json",
            {"levels": names, "shares": shares, "lower": lower, "upper": upper, "solution": solution.record},
        )
        console.print(f"figure: {self.out / 'dial.png'}   numbers: {self.out / 'dial.json'}")
