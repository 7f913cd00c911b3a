"""`cautious data`: which image sets are available, and the download of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table
from rich.text import Text

from cautious.cli.console import console, make_table, progress_bars, say
from cautious.errors import Argument, InvalidInputError

if TYPE_CHECKING:
    from cautious_paper.worlds.data import FoundImages


@dataclass
class Data:
    """Show which image sets are available and where they come from, or fetch the complete ones.

    The package contains small subsets of digits (MNIST) and fashion (Fashion-MNIST); letters (EMNIST) must be fetched or
    provided. Each set is read from the first place that has it: --data FOLDER (or the variable CAUTIOUS_DATA), then the cache
    (CAUTIOUS_CACHE, or the platform's), then the package. A folder may have torchvision's layout.

    Examples: cautious data    cautious data --data FOLDER    cautious data fetch digits fashion    cautious data fetch letters
    """

    action: Annotated[Literal["show", "fetch"], tyro.conf.Positional] = "show"
    """'show' reads and lists every set; 'fetch' downloads sets, checks them and stores them in the cache."""
    names: Annotated[tuple[Literal["digits", "fashion", "letters"], ...], tyro.conf.Positional] = (
        "digits",
        "fashion",
        "letters",
    )
    """Which sets. Download sizes: digits 12 MB, fashion 4 MB, letters 0.5 GB, of which 5 MB are kept."""
    data: Path | None = None
    """With 'show': a folder with your own sets, which is searched first."""
    out: Path | None = None
    """With 'fetch': where to store the files; default: the cache. To use them, pass this folder as --data or CAUTIOUS_DATA."""

    def run(self) -> None:
        """Show or fetch."""
        if self.action == "fetch":
            if self.data is not None:
                raise InvalidInputError(
                    Argument("data", self.data), " belongs to 'show'; use --out for the folder that 'fetch' writes to."
                )
            self._fetch()
        else:
            if self.out is not None:
                raise InvalidInputError(
                    Argument("out", self.out), " belongs to 'fetch'; use --data for the folder that 'show' searches."
                )
            self._show()

    def _show(self) -> None:
        from cautious_paper.worlds.data import find_images
        from cautious_paper.worlds.data.find import data_folders

        console.print(_sets_table([line for line in find_images(self.data) if line.name in self.names]))
        say(f"searched in this order: {'; '.join(map(str, data_folders(self.data)))}")
        say("download complete sets: cautious data fetch [digits] [fashion] [letters]")

    def _fetch(self) -> None:
        from cautious.validation import check_folder
        from cautious_paper.worlds.data import fetch_images

        if self.out is not None:
            check_folder(self.out, "out")
        with progress_bars() as progress:
            paths = fetch_images(self.names, progress, folder=self.out)
        for path in paths:
            say(str(path))


def _sets_table(sets: Sequence[FoundImages]) -> Table:
    """One row per set and split."""
    rows = [
        (one.name, one.split, f"{one.count:,}" if one.count else "-", Text(one.origin, "" if one.count else "red"))
        for one in sets
    ]
    headings = ("set", "split", "images", "source")
    return make_table("image sets", headings, rows, text_columns=("set", "split", "source"))
