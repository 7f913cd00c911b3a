"""`cautious data`: which image sets are at hand, and the download of those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rich.table import Table

    from cautious.worlds.data import FoundImages


@dataclass
class Data:
    """Show which image sets are at hand and where they come from, or fetch the complete ones.

    digits (MNIST) and fashion (Fashion-MNIST) come with the package, as small cuts; letters (EMNIST) have to be fetched or
    given. Each set is taken from the first place that has it: --data FOLDER (or the variable CAUTIOUS_DATA), then the cache
    (CAUTIOUS_CACHE, or the platform's), then the package. A folder may be laid out as torchvision does.

    Examples: cautious data    cautious data --data FOLDER    cautious data fetch digits fashion    cautious data fetch letters
    """

    action: Annotated[Literal["show", "fetch"], tyro.conf.Positional] = "show"
    """'show' reads every set to the end and lists it; 'fetch' downloads, checks and keeps."""
    names: Annotated[tuple[Literal["digits", "fashion", "letters"], ...], tyro.conf.Positional] = (
        "digits",
        "fashion",
        "letters",
    )
    """Which sets. Sizes to fetch: digits 12 MB, fashion 4 MB, letters 0.5 GB, of which 5 MB are kept."""
    data: Path | None = None
    """With 'show': a folder with sets of yours, looked in first."""
    out: Path | None = None
    """With 'fetch': where to put the files, the cache if not given. Name it by --data, or CAUTIOUS_DATA, to use them."""

    def run(self) -> None:
        """Show or fetch."""
        from cautious.errors import InvalidInputError

        if self.action == "fetch":
            if self.data is not None:
                raise InvalidInputError(f"data={self.data} goes with 'show'; where 'fetch' writes is chosen by --out.")
            self._fetch()
        else:
            if self.out is not None:
                raise InvalidInputError(f"out={self.out} goes with 'fetch'; where 'show' looks is chosen by --data.")
            self._show()

    def _show(self) -> None:
        from cautious.cli.console import console, say
        from cautious.worlds.data import find_images
        from cautious.worlds.data.find import places

        found = [line for line in find_images(self.data) if line.name in self.names]
        console.print(_found_table(found))
        say(f"looked in, first choice first: {'; '.join(map(str, places(self.data)))}")
        console.print("complete sets: cautious data fetch [digits] [fashion] [letters]", markup=False)

    def _fetch(self) -> None:
        from cautious.cli.console import progress_bars, say
        from cautious.validation import as_folder
        from cautious.worlds.data import fetch_images

        if self.out is not None:
            as_folder(self.out, "out")
        with progress_bars() as progress:
            paths = fetch_images(self.names, progress, folder=self.out)
        for path in paths:
            say(str(path))


def _found_table(found: Sequence[FoundImages]) -> Table:
    """A row a set and split."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="image sets at hand")
    for heading in ("set", "split", "images", "where it comes from"):
        table.add_column(heading, justify="right" if heading == "images" else "left")
    for line in found:
        origin = Text(line.origin, style="" if line.count else "red")
        table.add_row(line.name, line.split, f"{line.count:,}" if line.count else "-", origin)
    return table
