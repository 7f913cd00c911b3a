"""Single-state games on a GPU: a million of them at once, beside the torch solver and the compiled games of the CPU.

python -m benchmarks.state_games [--states 1000000]

Rewards are random, in the manner of a belief: models agree on some states and differ in others. 100 models, 11 actions, level
1-of-20, as `CautiousPolicy.decide` plays them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cautious import KofN, solve_bandit
from cautious.experiments.store import provenance_line
from cautious.solvers.per_state import play_states

LEVEL = KofN(1, 20)
TOLERANCE, MOST_ITERATIONS = 1e-4, 300
FEW = 2_000
"""States of the ways that would take too long for all."""


def rewards_of(num_states: int, num_models: int = 100, num_actions: int = 11) -> Tensor:
    """[M, S, A] on the GPU: a common opinion, and doubts whose width differs from state to state."""
    generator = torch.Generator("cuda").manual_seed(0)
    common = torch.randn(num_states, num_actions, generator=generator, device="cuda")
    width = torch.rand(num_states, 1, generator=generator, device="cuda") * 2
    rewards = torch.empty(num_models, num_states, num_actions, device="cuda")
    for model in range(num_models):
        rewards[model] = common + width * torch.randn(num_states, num_actions, generator=generator, device="cuda")
    return rewards


def seconds(work: Callable[[], object]) -> float:
    """Of a second call: the first compiles."""
    work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.state_games needs a CUDA device.")
    from benchmarks.state_games_kernel import play_states_on_gpu

    print(provenance_line())
    rewards = rewards_of(options.states)
    few = rewards[:, :FEW].contiguous()
    here = few.cpu()
    game = {"num_iterations": MOST_ITERATIONS, "tolerance": TOLERANCE}
    plain = {"regime": "single-state", "sampling": "exact", "num_iterations": 200, "track_exact": True}
    ways: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("fused kernel", options.states, lambda: play_states_on_gpu(rewards, [LEVEL], **game)),  # type: ignore[arg-type]
        ("fused kernel", FEW, lambda: play_states_on_gpu(few, [LEVEL], **game)),  # type: ignore[arg-type]
        ("solve_bandit, 200 iterations", FEW, lambda: solve_bandit(few, LEVEL, **plain)),  # type: ignore[arg-type]
        ("compiled games, CPU", FEW, lambda: play_states(here, [LEVEL], **game)),  # type: ignore[arg-type]
    )
    print("| way | states | seconds | microseconds per state |\n|---|---|---|---|")
    for name, count, work in ways:
        took = seconds(work)
        print(f"| {name} | {count:,} | {took:.3f} | {1e6 * took / count:.2f} |", flush=True)
    games = play_states_on_gpu(few, [LEVEL], **game)  # type: ignore[arg-type]
    gap = ((games.upper - games.lower) / (few.amax(dim=(0, 2)) - few.amin(dim=(0, 2)))).flatten()
    compiled = play_states(here, [LEVEL], **game)  # type: ignore[arg-type]
    wrong = LEVEL.value((few.double() * games.policy[0]).sum(dim=2).T.cpu()) - games.lower[0].cpu()
    apart = (games.policy.cpu() - compiled.policy).abs().sum(dim=-1).flatten() / 2
    print(
        f"\nLargest gap {float(gap.max()):.1e} of the range of a state's rewards, median {float(gap.median()):.1e}. "
        f"Policies of GPU and CPU differ by {float(apart.mean()):.1e} on average (total variation). The value that the "
        f"kernel gives its policy is off by {float(wrong.abs().max()):.1e} at most."
    )


if __name__ == "__main__":
    main()
