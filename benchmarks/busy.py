"""Whether our defaults suffer on a busy machine: each job with torch's usual threads and with one, beside other processes.

python -m benchmarks.busy [--neighbours 2] [--repeats 3]

Every job is a process of its own, so that the number of threads is what a user's environment says. The ratio is what counts:
threads that wait for each other at every small operation make it large, and the more so the busier the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cautious_paper.experiments.store import provenance_line

MDP = """
import time
import numpy as np
from cautious import CautiousPolicy, TabularMDP
rng = np.random.default_rng(0)
transitions = {transitions}
mdp = TabularMDP(transitions, np.full(401, 1 / 401), 0.95)
rewards = rng.normal(size=(100, 401, 4))
CautiousPolicy(rewards, "1-of-20", mdp=mdp, num_iterations=1)
started = time.perf_counter()
CautiousPolicy(rewards, "1-of-20", mdp=mdp, num_iterations=300)
print(time.perf_counter() - started)
"""
DENSE = "rng.dirichlet(np.full(401, 0.05), size=(401, 4))"
SPARSE = "np.eye(401)[(np.arange(401)[:, None] + rng.integers(1, 400, size=(401, 4))) % 401]"
COMMAND = """
import sys, time
started = time.perf_counter()
from cautious.cli.main import main
main({arguments!r})
print(time.perf_counter() - started)
"""
SETUP = """
import numpy as np
from cautious import fit_ensemble
rng = np.random.default_rng(0)
states, actions = rng.normal(size=(300, 6)), rng.integers(4, size=300)
fit_ensemble(states, np.eye(4)[actions], num_models=100, num_epochs=20, progress=False).save("belief")
np.save("states.npy", 3 * rng.normal(size=(1000, 6)))
"""


def jobs() -> dict[str, str]:
    """Code of each job; it prints its seconds last."""
    solve = ["solve", "--belief", "belief", "--states", "states.npy", "--out", "solution"]
    return {
        "CautiousPolicy, 401 dense states, 100 models, 300 iterations": MDP.format(transitions=DENSE),
        "CautiousPolicy, 401 sparse states, 100 models, 300 iterations": MDP.format(transitions=SPARSE),
        "cautious solve, 1,000 rows, 100 models": COMMAND.format(arguments=solve),
        "cautious demo --courier": COMMAND.format(arguments=["demo", "--courier", "--out", "courier"]),
    }


def seconds_of(code: str, num_threads: int | None, folder: str) -> float:
    """How long a job says it took, on so many threads; None leaves the environment's default."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    if num_threads is not None:
        environment |= {f"{library}_NUM_THREADS": str(num_threads) for library in ("OMP", "MKL", "OPENBLAS")}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print seconds and ratios, job by job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=2, help="busy processes beside each job")
    parser.add_argument("--repeats", type=int, default=3, help="of which the median counts")
    options = parser.parse_args()
    print(f"{provenance_line()}, {options.neighbours} busy processes beside each job", flush=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path("src").resolve()), os.environ.get("PYTHONPATH", "")])
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.neighbours)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", SETUP], cwd=folder, check=True)
            for name, code in jobs().items():
                pairs = [[seconds_of(code, threads, folder) for threads in (None, 1)] for _ in range(options.repeats)]
                usual, single = (statistics.median(column) for column in zip(*pairs, strict=True))
                print(
                    f"  {name:<62} default {usual:6.2f} s, one thread {single:6.2f} s: {usual / single:5.2f} x",
                    flush=True,
                )
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
