"""`cautious demo`: two trained beliefs meet something new, in half a minute; or a small one is trained first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from cautious.cli.console import console, make_table, progress_bar, progress_bars, say
from cautious_paper.cli.report import result_table

if TYPE_CHECKING:
    from cautious.solvers.solution import Certificate
    from cautious_paper.experiments.demos.first_decisions import DemoResult


SET_WORDS = {"digits": "digits", "fashion": "clothes"}


@dataclass
class Demo:
    """Show what two trained beliefs do with something new: digits and clothes, then a road with obstacles.

    The models of the road were trained where obstacles appear in the ditches only; then obstacles appear on the road. No one
    labels them as dangerous. The table shows how each level drives, and bounds how far each policy is from the best possible
    one. The beliefs come with the package; --train trains a small one of driving from scratch instead, in a minute or two.
    """

    seed: int = 0
    """Seed of every random draw."""
    out: Path = Path("demo")
    """Folder of the run and its report; a second call with the same folder resumes the run."""
    train: bool = False
    """Train 32 reward models of driving instead of taking the 128 in the package; they show less, being fewer and trained for a
    shorter time."""
    courier: bool = False
    """Instead, solve a tiny built-in example (seconds, no training): a courier and three routes to the customer."""

    def run(self) -> None:
        """Run the demo."""
        from cautious.seeding import check_seed
        from cautious.validation import check_folder

        check_folder(self.out, "out")
        check_seed(self.seed)  # before the first demo, which does not use it
        if self.courier:
            self._show_courier()
        else:
            self._show_driving(self._show_images())

    def _show_images(self) -> Sequence[DemoResult]:
        from cautious_paper.experiments.demos.first_decisions import LEVELS, first_decisions

        console.print(
            "A hundred reward models were trained on digits: naming the digit pays 1, asking for help always pays a little."
        )
        with progress_bars() as progress:
            results = first_decisions(progress=progress)
        console.print(help_table(LEVELS, results))
        console.print("No model has seen clothes, and nothing marks help as the safe action.\n")
        return results

    def _show_driving(self, first: Sequence[DemoResult]) -> None:
        from cautious_paper.experiments.demos.first_decisions import save_first_decisions
        from cautious_paper.experiments.driving.driving_experiment import (
            experiment_at,
            packaged_experiment,
            run_driving,
            stage_name,
        )
        from cautious_paper.report.driving.driving_report import dial_table
        from cautious_paper.report.html import write_report

        experiment, belief = (experiment_at("demo", self.seed), None) if self.train else packaged_experiment(self.seed)
        models = f"{experiment.training.num_models} reward models"
        opening = f"Training {models}" if self.train else f"{models} were trained"
        console.print(f"{opening} where obstacles appear in the ditches only. Now obstacles appear on the road, too.")
        with progress_bars() as progress:
            store = run_driving(experiment, self.out, progress=progress, belief=belief)
            save_first_decisions(store, first)
            progress("drawing the report", 0, 1)
            path = write_report(store)
            progress("drawing the report", 1, 1)
        numbers = store.numbers(stage_name(experiment.default_probability))
        spread = numbers["belief_spread"]
        console.print(result_table(dial_table(numbers)))
        console.print(
            f"The models differ by {spread['familiar']:.2g} on familiar steps and by {spread['novel']:.2g} on novel ones "
            "(standard deviation of the reward). This disagreement is the only source of caution."
        )
        say(f"report of the driving demo: {path}")
        say("Three things to do next:")
        for words, command in (
            ("turn the dial yourself", "cautious play"),
            ("watch two levels drive", f"cautious watch driving --belief {self.out}"),
            ("use a table of your own", "cautious train log.csv --action COLUMN --reward COLUMN --out belief"),
        ):
            say(f"  {words:25} {command}")

    def _show_courier(self) -> None:
        from cautious.io.arrays import save_json
        from cautious.risk import KofN
        from cautious.solvers.solve import solve_mdp
        from cautious_paper.experiments.demos.courier import EXPLANATION, WAYS, courier
        from cautious_paper.report.plotting import plot_dial, save_figure

        example = courier(seed=self.seed)
        console.print(EXPLANATION)
        levels = [KofN(k, 10) for k in range(10, 0, -1)]
        with progress_bar("solving") as progress:
            solution = solve_mdp(
                example.mdp,
                example.rewards,
                levels,
                method="cfr",
                num_iterations=1000,
                sampling="exact",
                progress=progress,
            )
        certificate = solution.certificate(solution.best_policy)
        names = [str(level) for level in levels]
        shares = {way: solution.best_policy[:, 0, index].tolist() for index, way in enumerate(WAYS)}
        console.print(courier_table(names, shares, certificate))
        lower, upper = certificate.lower.tolist(), certificate.upper.tolist()
        save_figure(plot_dial(names, shares, lower, upper), self.out / "courier.png")
        record = {"levels": names, "shares": shares, "lower": lower, "upper": upper, "solution": solution.record}
        save_json(self.out / "courier.json", record)
        say(f"figure: {self.out / 'courier.png'}   numbers: {self.out / 'courier.json'}")


def help_table(levels: Sequence[str], results: Sequence[DemoResult]) -> Table:
    """What each level does on familiar and on novel images; cautious on the right."""
    rows = []
    for result in results:
        shares_of = {"names the digit": result.correct, "asks for help": result.help}
        for what, shares in shares_of.items():
            if shares is not None:
                percents = (f"{100 * share:.1f}" for share in reversed(shares))
                rows.append((f"{result.num_images} {SET_WORDS[result.images]}", what, *percents))
    return make_table(
        "digits are familiar, clothes are new: what each level does",
        ("images", "action", *reversed(levels)),
        rows,
        text_columns=("images", "action"),
        caption="mean probability in percent, from ordinary to cautious",
    )


def courier_table(levels: Sequence[str], shares: Mapping[str, Sequence[float]], certificate: Certificate) -> Table:
    """Which way the courier takes at each level, with the certificate."""
    rows = []
    for row, level in enumerate(levels):
        bounds = [f"{float(part[row]):.4f}" for part in (certificate.lower, certificate.upper, certificate.gap)]
        rows.append((level, *(f"{100 * share[row]:.1f} %" for share in shares.values()), *bounds))
    return make_table(
        "which route the courier takes",
        ("level", *shares, "value", "bound for all", "gap"),
        rows,
        caption="value and bound are normalised returns",
    )
