"""This machine, measured in about a minute."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cautious.benchmarking import measures
from cautious.benchmarking.estimates import Rates, estimates, looking
from cautious.benchmarking.measures import Comparison
from cautious.progress import TitledProgress, titled


class Machine(NamedTuple):
    """What was found."""

    comparisons: list[Comparison]
    estimates: dict[str, dict[str, float]]
    """About how many seconds each task takes at each scale."""


def measure_machine(device: torch.device, progress: TitledProgress | None = None) -> Machine:
    """Each kind of work the plain way and ours, and what that makes of the experiments."""
    cores, on_gpu = torch.get_num_threads(), device.type == "cuda"
    num_driving, num_image = (2048, 256) if on_gpu else (16 * cores, 2 * cores)  # as many as are trained together
    images = measures.image_belief()
    works = (
        lambda: measures.driving_training(num_driving, 20, 10, device),
        lambda: measures.image_training(32, 1024, num_image, device),
        lambda: measures.image_training(512, 2048, num_image, device),
        lambda: measures.driving_solving(2000, 100, 1),
        lambda: measures.state_solving(5000, 1000, 50, 20),
        lambda: measures.deciding(images, 1, 1, repeats=5),
        lambda: measures.deciding(images, 64, 4),
    )
    comparing, estimating = titled(progress, "comparing"), titled(progress, "estimating")
    comparisons = []
    for number, work in enumerate(works):
        if comparing is not None:
            comparing(number, len(works))
        comparisons.append(work())
    driving, small_batch, large_batch = (one.ours for one in comparisons[:3])
    rates = Rates(driving, {32: small_batch, 512: large_batch}, looking(2 * num_image, 64, device))
    return Machine(comparisons, estimates(rates, device, estimating))
