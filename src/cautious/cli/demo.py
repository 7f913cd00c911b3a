"""`cautious demo`: from familiar experience to cautious driving, in a minute or two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Demo:
    """See a trained belief meet clothes after digits; then train one about driving from scratch, and turn the caution dial.

    Reward models are trained where obstacles lie in the ditches only; then obstacles appear on the road. Nobody says what
    is dangerous. The table shows how each level drives, and proves how far each policy is from the best possible one.
    """

    seed: int = 0
    """Starts every random draw."""
    out: Path = Path("demo")
    """Folder of the run and its report; a second call with the same folder goes on from there."""
    courier: bool = False
    """Instead, solve a tiny built-in example (seconds, no training): a courier and three ways to the customer."""

    def run(self) -> None:
        """Run the demo."""
        from cautious.seeding import check_seed
        from cautious.validation import as_folder

        as_folder(self.out, "out")
        check_seed(self.seed)
        if self.courier:
            self._show_courier()
        else:
            self._show_images()
            self._show_driving()

    def _show_images(self) -> None:
        from cautious.cli.console import console, progress_bars
        from cautious.cli.tables import look_table
        from cautious.experiments.demos.first_decisions import LEVELS, first_decisions

        console.print(
            "A hundred reward models learned what naming a digit pays, and that asking for help pays a little."
        )
        with progress_bars() as progress:
            looks = first_decisions(progress=progress)
        console.print(look_table(LEVELS, looks))
        console.print("No model ever saw clothes, and nobody said that help is the careful thing to ask for.\n")

    def _show_driving(self) -> None:
        from cautious.cli.console import console, progress_bars, say
        from cautious.cli.tables import result_table
        from cautious.experiments.driving.experiment import run_driving, stage_name
        from cautious.experiments.driving.settings import experiment_at
        from cautious.report.driving.driving_tables import dial_table
        from cautious.report.html import write_report

        experiment = experiment_at("demo", self.seed)
        console.print(
            f"Training {experiment.training.num_models} reward models where obstacles lie in the ditches only, then solving "
            "for policies where obstacles appear on the road."
        )
        with progress_bars() as progress:
            store = run_driving(experiment, self.out, progress=progress)
            progress("drawing the report", 0, 1)
            path = write_report(store)
            progress("drawing the report", 1, 1)
        numbers = store.numbers(stage_name(experiment.default_probability))
        spread = numbers["belief_spread"]
        console.print(result_table(dial_table(numbers)))
        console.print(
            f"The models differ by {spread['familiar']:.2f} on familiar steps and by {spread['novel']:.2f} on novel ones "
            "(standard deviation of the reward): that is all the caution is made of."
        )
        say(f"report: {path}   watch both drive: cautious watch driving --belief {self.out}")

    def _show_courier(self) -> None:
        from cautious.cli.console import console, progress_bar, say
        from cautious.cli.tables import courier_table
        from cautious.experiments.demos.courier import WAYS, courier
        from cautious.io.arrays import save_json
        from cautious.ops.risk import KofN
        from cautious.report.plotting import plot_dial, save_figure
        from cautious.solvers.solve import solve_mdp

        example = courier(seed=self.seed)
        levels = [KofN(k, 10) for k in range(10, 0, -1)]
        with progress_bar("solving") as progress:
            solution = solve_mdp(
                example.mdp, example.rewards, levels, num_iterations=1000, sampling="exact", progress=progress
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
