"""`make bench`: run every benchmark and print one table each, with the machine beside it."""

from __future__ import annotations

import datetime
import platform
import subprocess

import torch

from benchmarks import deciding, images, solving, training


def main() -> None:
    """Print the machine, then each table as it is done."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(
        f"{datetime.date.today()}  commit {commit or 'unknown'}  {platform.machine()}, {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )
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
