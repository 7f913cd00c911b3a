"""`cautious watch`: two policies driving side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.columns import Columns
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cautious.cli.console import console, make_table, progress_bars, say
from cautious.errors import Argument, InvalidInputError

if TYPE_CHECKING:
    from cautious_paper.experiments.demos.rollouts import Drive


@dataclass
class Watch:
    """Watch a cautious and an ordinary policy drive the same novel road, side by side in the terminal.

    Sixty steps are a matter of luck, so that both then drive ten thousand without being watched, and their hits are counted.

    Example: cautious watch driving --level 1-of-20 --against 20-of-20 --gif drive.gif
    """

    task: Annotated[Literal["driving"], tyro.conf.Positional]
    """Which world."""
    level: str = "1-of-20"
    """The policy on the left."""
    against: str = "20-of-20"
    """The policy on the right."""
    probability: float = 0.5
    """Probability that an obstacle appears."""
    steps: int = 60
    """Number of steps to drive."""
    seed: int = 0
    """Seed of every random draw: the obstacles, which are the same for both cars."""
    fps: float = 4.0
    """Frames per second."""
    belief: Path = Path("driving")
    """Whose reward models: 'driving' are the 128 in the package; or the folder of a run of 'demo' or 'reproduce driving'."""
    gif: Path | None = None
    """Write the animation to this .gif file instead of the terminal."""

    def run(self) -> None:
        """Solve both levels for the belief, then drive."""
        import time

        from cautious.risk import KofN
        from cautious.validation import check_count, check_folder
        from cautious_paper.experiments.demos.rollouts import drive_both, trained_belief
        from cautious_paper.report.driving.animation import save_gif

        check_count(self.steps, "steps")
        if not self.fps > 0:
            raise InvalidInputError(Argument("fps", self.fps), " must be positive.")
        if self.gif is not None:
            if self.gif.suffix.lower() != ".gif" or self.gif.is_dir():
                raise InvalidInputError(
                    Argument("gif", str(self.gif)),
                    " must be a file name that ends in .gif, the only format that is written.",
                )
            check_folder(self.gif.parent, "folder of --gif")
        levels = [KofN.parse(self.against), KofN.parse(self.level)]  # cautious on the right, as everywhere
        with progress_bars() as progress:
            ensemble = trained_belief(self.belief)
            drives = drive_both(ensemble, levels, self.probability, self.steps, self.seed, progress)
        if self.gif is not None:
            save_gif(drives, self.gif, self.fps)
            say(f"wrote {self.gif}")
        else:
            with Live(console=console, auto_refresh=False) as live:
                for step in range(self.steps + 1):
                    live.update(drive_columns(drives, step), refresh=True)
                    time.sleep(1 / self.fps if console.is_terminal else 0)
            console.print()
        console.print(hits_table(drives))


def hits_table(drives: Sequence[Drive]) -> Table:
    """What was hit while watching, and on the long run."""
    from cautious_paper.experiments.demos.rollouts import LONG

    rows = []
    for drive in drives:
        last, long_run = drive.frames[-1], drive.long_run
        rates = (
            long_run.distance / LONG,
            100 * long_run.collisions / LONG,
            100 * long_run.collisions / long_run.distance,
        )
        rows.append((drive.title, f"{last.distance}", f"{last.collisions}", *(f"{rate:.2f}" for rate in rates)))
    return make_table(
        "obstacles hit",
        ("policy", "rows driven", "hits", "speed", "hits per 100 steps", "hits per 100 rows"),
        rows,
        caption=f"rows and hits: as watched; the rest: over {LONG:,} steps. Both cars meet the same chances.",
    )


LOOKS = ("#2b6cd4", "#d47400")
"""Frames: blue is ordinary, orange is cautious."""


def drive_columns(drives: Sequence[Drive], step: int) -> Group:
    """All drives after `step` steps, side by side, and what the signs mean."""
    from cautious_paper.report.driving.animation import caption, terminal_lines

    panels: list[Panel] = []
    for drive in drives:
        text = Text()
        for line in terminal_lines(drive, step):
            for signs, colour in line:
                text.append(signs * 2, Style(bgcolor=f"rgb({colour[0]},{colour[1]},{colour[2]})", bold=True))
            text.append("\n")
        frame = drive.frames[step]
        text.append(f"{frame.action}\n{caption(frame)}")
        style = LOOKS[len(panels) % len(LOOKS)]
        panels.append(Panel(text, title=drive.title, width=38, border_style=style))  # two fit a terminal of 80 columns
    return Group(Columns(panels), Text("/\\ the car   ## an obstacle   >< a hit", "dim"))
