"""`make bench`: run every benchmark and print one table each, with the machine beside it."""

from __future__ import annotations

import torch

from benchmarks import deciding, images, solving, training
from cautious_paper.experiments.store import provenance_line


def main() -> None:
    """Print the machine, then each table as it is done."""
    print(f"{provenance_line()}, {torch.get_num_threads()} threads")
    for bench in (
        training.bench_training,
        images.bench_images,
        deciding.bench_deciding,
        solving.bench_driving,
        solving.bench_mdp,
        solving.bench_single_state,
        solving.bench_batch,
        solving.bench_growth,
    ):
        print()
        print("\n".join(bench()), flush=True)


main()
