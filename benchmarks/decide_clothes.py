"""Seconds of `decide` on clothes, belief in the package, by the clock and of CPU time; for `benchmarks.deciding --before`.

python benchmarks/decide_clothes.py [1000]

It imports only names that earlier versions have, too, and nothing from this folder.
"""

from __future__ import annotations

import json
import sys
import time

from cautious import CautiousPolicy, RewardEnsemble
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.data.find import EMBEDDED


def main() -> None:
    """Print both, each the smallest of two calls."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    images = load_images("fashion", "test", EMBEDDED).images[:count]
    policy = CautiousPolicy(RewardEnsemble.load("ask-for-help"), "1-of-20")
    policy.decide(images[:2])
    clock, cpu = [], []
    for _ in range(2):
        started, before = time.perf_counter(), time.process_time()
        policy.decide(images)
        clock.append(time.perf_counter() - started)
        cpu.append(time.process_time() - before)
    print(json.dumps({"clock": min(clock), "cpu": min(cpu)}))


if __name__ == "__main__":
    main()
