"""`CautiousPolicy.decide`: how long one observation and batches take, against loops over models, states and iterations.

python -m benchmarks.deciding [--neighbours 0] [--games-only] [--before FOLDER]

On a shared machine, look at the ratios, and at CPU time: the time that the process itself was running. With --before, instead,
1,000 clothes by this source and by that of an earlier commit in turn: ``git worktree add FOLDER COMMIT``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from torch import Tensor

from cautious import CautiousPolicy, RewardEnsemble, solve_bandit
from cautious.parallel import single_thread
from cautious.solvers.per_state import decide_states
from cautious.solvers.solve import STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE
from cautious_paper.experiments.store import provenance_line
from cautious_paper.timing.measures import LEVEL, deciding, image_belief, vector_belief
from cautious_paper.timing.plain import plain_decision, plain_decisions

COUNTS = {1: (1, 15), 32: (8, 3), 1000: (16, 3)}
"""Observations -> (observations of the plain way, which is scaled up; calls of which the median counts)."""


def bench_deciding() -> list[str]:
    """Milliseconds a call, and observations a second."""
    lines = ["decide at 1-of-20, 100 models, against loops of 200 iterations: milliseconds per call"]
    beliefs = {
        "clothes (shipped, ask-for-help)": image_belief(),
        "digits (the same)": image_belief("digits"),
        "vectors of 8 numbers": vector_belief(),
    }
    for name, twice in beliefs.items():
        for count, (plain_count, repeats) in COUNTS.items():
            found = deciding(twice, count, plain_count, repeats)
            lines.append(
                f"  {name:<31} {count:5,} at a time: loops {1e3 * found.plain:9.1f}, ours {1e3 * found.ours:9.1f}  "
                f"{found.ratio:5.1f} x   {count / found.ours:7.0f} a second"
            )
    return lines


class _Predicted(RewardEnsemble):
    """A belief that looks its predictions up, each [M, 1, A], by the number of a state: what is left is all but prediction."""

    def __init__(self, belief: RewardEnsemble, each: list[Tensor]) -> None:
        super().__init__(belief.network, belief.parameters)
        self._each = each

    def rewards(self, states: Any, **_: Any) -> Tensor:
        return self._each[states]


def bench_games(count: int = 100) -> list[str]:
    """One novel decision with 100 models and 11 actions, prediction apart: CPU milliseconds, one state at a time; and gaps."""
    pair = vector_belief(num_actions=11)
    policy = CautiousPolicy(pair.belief, LEVEL)
    rewards = pair.belief.rewards(pair.states[:count])
    states, weights = range(count), LEVEL.rank_weights(len(rewards)).numpy()
    options = {"num_iterations": STATE_GAME_ITERATIONS, "tolerance": STATE_GAME_TOLERANCE}
    each = [rewards[:, state : state + 1] for state in states]
    plain = [own[:, 0].double().numpy() for own in each]
    predicted = CautiousPolicy(_Predicted(pair.belief, each), LEVEL)
    ways: dict[str, Callable[[int], object]] = {
        "numpy loop, 200 iterations": lambda state: plain_decision(plain[state], weights, 200),
        "ours, the game": lambda state: decide_states(each[state], [LEVEL], **options),  # type: ignore[arg-type]
        "ours, decide but prediction": lambda state: predicted.decide(state),
        "ours, prediction": lambda state: pair.belief.rewards(pair.states[state : state + 1]),
        "ours, all of decide": lambda state: policy.decide(pair.states[state : state + 1]),
    }
    with single_thread():
        taken = {name: _cpu_milliseconds(work, count) for name, work in ways.items()}
    loop = taken["numpy loop, 200 iterations"]
    lines = [f"one novel decision, 100 models x 11 actions, median of {count} states: milliseconds of CPU time"]
    lines += [f"  {name:<28} {own:7.3f}   {loop / own:5.1f} x the loop" for name, own in taken.items()]
    games = decide_states(rewards, [LEVEL], **options)  # type: ignore[arg-type]
    before = solve_bandit(rewards, LEVEL, regime="single-state", sampling="exact", num_iterations=200, track_exact=True)
    ours, theirs = games.gaps[0], before.certificate(before.best_policy).gap
    lines.append(
        f"  certified gap, mean and largest: {float(ours.mean()):.2g}, {float(ours.max()):.2g}; after 200 iterations of regret "
        f"matching {float(theirs.mean()):.2g}, {float(theirs.max()):.2g}; ours is smaller in {int((ours <= theirs).sum())} of "
        f"{count} states"
    )
    return lines


def bench_batches() -> list[str]:
    """Many decisions in one call: CPU seconds of `decide`, of prediction in it, and of the loop (a few states, scaled up)."""
    lines = ["many decisions at 1-of-20, 100 models: seconds of CPU time, of all cores together"]
    for name, pair, count in (("novel vectors", vector_belief(), 1000), ("clothes", image_belief(), 200)):
        policy, few = CautiousPolicy(pair.belief, LEVEL), 20 if count == 1000 else 4
        states = pair.states[:count]
        policy.decide(states[:2])
        ways: tuple[Callable[[], object], ...] = (
            lambda policy=policy, states=states: policy.decide(states),  # type: ignore[misc]
            lambda pair=pair, states=states: pair.belief.rewards(states),  # type: ignore[misc]
            lambda pair=pair, few=few: plain_decisions(pair.networks, pair.inputs[:few], LEVEL, 200),  # type: ignore[misc]
        )
        with single_thread():
            ours, predicting, loop = (_cpu_seconds(work) for work in ways)
        loop *= count / few
        lines.append(
            f"  {count:,} {name}: {ours:.2f}, of which prediction {predicting:.2f}; loops {loop:.1f}, {loop / ours:.1f} x"
        )
    return lines


def bench_before(before: Path, count: int = 1000, repeats: int = 2) -> list[str]:
    """Clothes decided about by the source in a folder and by ours, in turn, each in processes of its own."""
    here = Path(__file__).parents[1]
    took: dict[Path, list[dict[str, float]]] = {before: [], here: []}
    for folder in (before, here) * repeats:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        call = [sys.executable, str(here / "benchmarks" / "decide_clothes.py"), str(count)]
        took[folder].append(
            json.loads(subprocess.run(call, env=environment, check=True, stdout=subprocess.PIPE).stdout)
        )
    lines = [
        f"{count:,} clothes, 100 models: seconds of the source before and of ours, each the smallest of {2 * repeats}"
    ]
    for what in ("clock", "cpu"):
        theirs, ours = (min(each[what] for each in took[folder]) for folder in (before, here))
        lines.append(f"  {what:<5} {theirs:6.2f} before, {ours:6.2f} now: {theirs / ours:4.2f} x")
    return lines


def _cpu_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(2):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def _cpu_milliseconds(work: Callable[[int], object], count: int) -> float:
    """The median over states, each the smallest of three calls."""
    work(0)
    times = np.empty((3, count))
    for repeat in range(3):
        for state in range(count):
            started = time.thread_time()
            work(state)
            times[repeat, state] = time.thread_time() - started
    return 1e3 * float(median(times.min(axis=0)))


def main() -> None:
    """Print all, beside some busy processes if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside this one")
    parser.add_argument("--games-only", action="store_true", help="CPU times alone, which other work hardly moves")
    parser.add_argument("--before", type=Path, help="a folder with the source of an earlier commit")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.neighbours)]
    try:
        print(f"{provenance_line()}, {options.neighbours} busy processes beside it", flush=True)
        if options.before is not None:
            print("\n".join(bench_before(options.before.resolve())), flush=True)
            return
        print("\n".join(bench_games()), flush=True)
        print("\n".join(bench_batches()), flush=True)
        if not options.games_only:
            print("\n".join(bench_deciding()), flush=True)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
