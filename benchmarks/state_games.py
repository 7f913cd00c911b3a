"""Single-state games on a GPU: decisions by the million, and the paper's single-image runs.

python -m benchmarks.state_games [--states 1000000] [--images 40000]

Rewards are random, in the manner of a belief: models agree on some states and differ in others. Decisions are those of
`CautiousPolicy.decide`: 100 models, 11 actions, level 1-of-20, until certified. The paper's runs are those of
`solve_bandit(regime="single-state")`: 2,000 models, four levels x ten runs, 100 iterations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cautious import CautiousPolicy, KofN
from cautious.risk import parse_levels
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, CFRResult, PerStateGame, Problem, minimise_regret, minimise_regret_of_all
from cautious.solvers.per_state import decide_states
from cautious.solvers.recorded_states import minimise_regret_in_states
from cautious.solvers.rewards import as_rewards
from cautious.solvers.solve import STATE_GAME_ITERATIONS, STATE_GAME_TOLERANCE
from cautious.solvers.state_runs import StateDecisions, StateGames
from cautious.types import Sampling, Update
from cautious_paper.experiments.store import provenance_line

LEVEL = KofN(1, 20)
PAPER_LEVELS = ("1-of-20", "5-of-20", "10-of-20", "20-of-20")
FEW = 10_000
"""States of the CPU's games, which would take too long for all."""


def rewards_of(num_models: int, num_states: int, num_actions: int = 11) -> Tensor:
    """[M, S, A] on the GPU, float32: a common opinion, and doubts whose width differs from state to state."""
    generator = torch.Generator("cuda").manual_seed(0)
    common = torch.randn(num_states, num_actions, generator=generator, device="cuda")
    width = torch.rand(num_states, 1, generator=generator, device="cuda") * 2
    rewards = torch.empty(num_models, num_states, num_actions, device="cuda")
    for model in range(num_models):
        rewards[model] = common + width * torch.randn(num_states, num_actions, generator=generator, device="cuda")
    return rewards


def timed(work: Callable[[], object], times: int = 3) -> tuple[float, float]:
    """Seconds of the first call, which compiles, and the median of `times` others."""
    taken = []
    for _ in range(1 + times):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return taken[0], sorted(taken[1:])[times // 2]


def decisions(num_states: int) -> None:
    """Games until certified."""
    from cautious.solvers.kernels.state_games import play_states_on_gpu

    rewards = rewards_of(100, num_states)
    few = rewards[:, :FEW].contiguous()
    here = few.cpu()

    def on_gpu(given: Tensor) -> StateGames:
        return play_states_on_gpu(given, [LEVEL], num_iterations=STATE_GAME_ITERATIONS, tolerance=STATE_GAME_TOLERANCE)

    def on_cpu() -> StateDecisions:
        return decide_states(here, [LEVEL], num_iterations=STATE_GAME_ITERATIONS, tolerance=STATE_GAME_TOLERANCE)

    policy = CautiousPolicy(few[:, :1], LEVEL)
    ways: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("games, GPU", num_states, lambda: on_gpu(rewards)),
        ("games, GPU", FEW, lambda: on_gpu(few)),
        ("games, GPU", 1, lambda: on_gpu(few[:, :1])),
        ("games, CPU, all cores", FEW, on_cpu),
        ("decide without prediction, GPU", num_states, lambda: policy.games.play(rewards, [LEVEL])),
    )
    print("| way | states | seconds | microseconds per state | first call |\n|---|---|---|---|---|")
    for name, count, work in ways:
        first, took = timed(work)
        print(f"| {name} | {count:,} | {took:.4f} | {1e6 * took / count:.3f} | {first:.2f} |", flush=True)
    games, compiled = on_gpu(rewards), on_cpu()
    reach = torch.cat([part.amax(dim=(0, 2)) - part.amin(dim=(0, 2)) for part in rewards.split(100_000, dim=1)])
    gap = ((games.upper - games.lower) / reach).flatten()
    returns = (here.double() * games.policy[0, :FEW].cpu()).sum(dim=2).T  # [S, M]
    wrong = LEVEL.value(returns) - games.lower[0, :FEW].cpu()
    apart = (games.policy[:, :FEW].cpu() - compiled.policies).abs().sum(dim=-1).flatten() / 2
    certified = float((gap <= STATE_GAME_TOLERANCE).double().mean())
    certified_here = (compiled.gaps / reach[:FEW].cpu() <= STATE_GAME_TOLERANCE).double().mean()
    print(
        f"Certified within the tolerance: {100 * certified:.2f} % of the GPU's {num_states:,} games, "
        f"{100 * float(certified_here):.2f} % of the CPU's {FEW:,}. "
        f"Largest gap {float(gap.max()):.1e} of the range of a state's rewards, median {float(gap.median()):.1e}. "
        f"Policies of GPU and CPU are {float(apart.mean()):.1e} apart on average, {float(apart.max()):.1e} at most (total "
        f"variation). The kernel's value of a policy is off by {float(wrong.abs().max()):.1e} at most (float64 sums)."
    )


def timed_solving(
    solve: Callable[[Problem, CFROptions], CFRResult], problem: Problem, options: CFROptions, times: int
) -> tuple[tuple[float, float], Tensor]:
    """Seconds as in `timed`, and the last iterates [B, S, A]."""
    return timed(lambda: solve(problem, options), times), solve(problem, options).policy


def iterations(num_images: int) -> None:
    """The runs of `solve_bandit`."""
    cases = (
        ("paper: queue, 4 levels x 10 runs", 2000, num_images, PAPER_LEVELS, 10, 100, Sampling.QUEUE),
        ("2,000 models, exact, 1 level", 2000, num_images // 20, PAPER_LEVELS[:1], 1, 100, Sampling.EXACT),
        ("100 models, exact, 1 level", 100, num_images, PAPER_LEVELS[:1], 1, 200, Sampling.EXACT),
    )
    print(
        "\n| solve_bandit, single states | states | kernel, s | tensors on the GPU, s | policies apart | from the CPU's |"
    )
    print("|---|---|---|---|---|---|")
    for name, num_models, num_states, levels, num_runs, num_iterations, sampling in cases:
        rewards = rewards_of(num_models, num_states)
        batch = SolveBatch(parse_levels(levels), num_runs)
        problem = Problem(PerStateGame(), as_rewards(rewards), batch)
        options = CFROptions(num_iterations, sampling, Update.REGRET_MATCHING, 0, sampling is Sampling.EXACT)
        minimise_regret_of_all(problem, options._replace(num_iterations=2))
        (_, taken), ours = timed_solving(minimise_regret, problem, options, 3)
        (_, taken_in_tensors), theirs = timed_solving(minimise_regret_of_all, problem, options, 1)
        apart = float((ours - theirs).abs().sum(dim=-1).mean()) / 2
        some = slice(0, 100)
        here = Problem(PerStateGame(), as_rewards(rewards[:, some].cpu()), batch)
        from_cpu = (minimise_regret_in_states(here, options).policy - ours[:, some].cpu()).abs().sum(dim=-1) / 2
        print(
            f"| {name} | {num_states:,} | {taken:.3f} | {taken_in_tensors:.3f} | {apart:.0e} | {float(from_cpu.max()):.0e} |",
            flush=True,
        )
        del rewards, problem, ours, theirs  # room for the next


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--images", type=int, default=40_000)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.state_games needs a CUDA device.")
    print(provenance_line(), flush=True)
    decisions(given.states)
    iterations(given.images)


if __name__ == "__main__":
    main()
