"""Stacked training of driving models against one network after another in plain PyTorch."""

from __future__ import annotations

from cautious_paper.report.paper import DRIVING_MODEL_EPOCH
from cautious_paper.timing.measures import driving_training


def bench_training(num_models: int = 64, num_epochs: int = 40) -> list[str]:
    """Milliseconds a model and epoch: the plain loop, and ours on all cores."""
    found = driving_training(num_models, num_epochs, plain_epochs=40, device="cpu")
    lines = ["driving models, batch 800 (3 steps an epoch), milliseconds a model and epoch"]
    lines.append(f"  the paper, as printed (25 min a model, i9-9900K) {1e3 * DRIVING_MODEL_EPOCH:8.2f}")
    lines.append(f"  one network after another, plain PyTorch         {1e3 * found.plain:8.2f}")
    lines.append(
        f"  ours, {num_models} networks stacked                        {1e3 * found.ours:8.2f}   "
        f"{found.ratio:5.1f} x the plain loop"
    )
    return lines
