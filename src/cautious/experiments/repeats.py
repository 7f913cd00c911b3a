"""The same experiment from several seeds, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cautious.experiments.executors.engine import Engine
from cautious.experiments.store import Store
from cautious.progress import TitledProgress


def run_repeats(
    run: Callable[[int, Path, TitledProgress], Store],
    folder: Path,
    first_seed: int,
    num_repeats: int,
    engine: Engine,
    progress: TitledProgress,
) -> dict[int, Store]:
    """Run an experiment from `num_repeats` seeds, counting up, each in `folder`/seed-<n>.

    Args:
        run: Runs it from a seed in a folder.
        folder: Where all of them live.
        first_seed: The first.
        num_repeats: How many.
        engine: Who works on them: one run after another, or their pieces all over a cluster.
        progress: Told how each stage of each run goes.

    Returns:
        The runs by seed.
    """

    def one(seed: int) -> Store:
        def tell(title: str, done: int, total: int) -> None:
            progress(f"seed {seed}: {title}", done, total)

        return run(seed, folder / f"seed-{seed}", tell)

    seeds = range(first_seed, first_seed + num_repeats)
    return dict(zip(seeds, engine.side_by_side([partial(one, seed) for seed in seeds]), strict=True))
