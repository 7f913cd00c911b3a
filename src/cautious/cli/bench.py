"""`cautious bench`: how fast this machine is, and how long the experiments will take here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Bench:
    """Measure this machine in about a minute: our ways beside what one would do otherwise, and what each experiment will take.

    Each row does the same work twice, the plain way (on a part of it, scaled up) and ours. The second table says about how
    long 'cautious reproduce TASK --scale SCALE' will take here; drawing the report comes on top. Other work on the machine
    makes both tables worse than they need be.

    Example: cautious bench
    """

    device: str = "auto"
    """Where to train, predict and solve: auto, cpu or cuda."""

    def run(self) -> None:
        """Measure, then print both tables."""
        import platform

        import torch

        from cautious.benchmarking.machine import measure_machine
        from cautious.cli.console import console, progress_bars
        from cautious.cli.tables import comparison_table, estimate_table
        from cautious.validation import resolve_device

        device = resolve_device(self.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        console.print(f"{name}, {torch.get_num_threads()} CPU threads, torch {torch.__version__}")
        with progress_bars() as progress:
            found = measure_machine(device, progress)
        console.print(comparison_table(found.comparisons))
        console.print(estimate_table(found.estimates))
