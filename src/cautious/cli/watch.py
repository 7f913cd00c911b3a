"""`cautious watch`: two policies driving side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass
class Watch:
    """Watch a cautious and an ordinary policy drive the same novel road, side by side in the terminal.

    Example: cautious watch driving --level 1-of-20 --against 20-of-20 --gif drive.gif
    """

    task: Annotated[Literal["driving"], tyro.conf.Positional]
    """Which world."""
    level: str = "1-of-20"
    """The policy on the left."""
    against: str = "20-of-20"
    """The policy on the right."""
    probability: float = 0.5
    """How likely obstacles appear."""
    steps: int = 60
    """How long to drive."""
    seed: int = 0
    """The same seed meets both cars with the same luck."""
    fps: float = 4.0
    """Frames a second."""
    belief: Path | None = None
    """A run whose reward models to use, or 'driving' for those that come with the package; if not given, one nearby (that in
    --out, of the demo, of 'reproduce driving'), or else they are trained first."""
    out: Path = Path("demo")
    """Folder for reward models that have to be trained: that of the demo, which then goes on with them."""
    gif: Path | None = None
    """Write the animation to this file instead of showing it."""

    def run(self) -> None:
        """Solve both levels on the belief at hand, then drive."""
        import time

        from rich.live import Live

        from cautious.cli.console import console, progress_bars, say
        from cautious.cli.tables import drive_columns
        from cautious.errors import InvalidInputError
        from cautious.experiments.demos.rollouts import drive_both, trained_belief
        from cautious.ops.risk import KofN
        from cautious.report.driving.animation import save_gif
        from cautious.validation import as_folder, parse_count

        parse_count(self.steps, "steps")
        if not self.fps > 0:
            raise InvalidInputError(f"fps={self.fps} must be positive.")
        if self.gif is not None:
            if self.gif.suffix.lower() != ".gif" or self.gif.is_dir():
                raise InvalidInputError(
                    f"gif={self.gif} must be a file that ends in .gif, since that is what is written."
                )
            as_folder(self.gif.parent, "gif's folder")
        as_folder(self.out, "out")
        levels = [KofN.parse(self.level), KofN.parse(self.against)]
        with progress_bars() as progress:
            ensemble = trained_belief(self.belief, self.out, progress)
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
        for drive in drives:
            last = drive.frames[-1]
            console.print(f"{drive.title}: {last.distance} rows driven, {last.collisions} obstacles hit")
