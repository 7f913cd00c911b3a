"""Kernels that play single states on a GPU, against the CPU's compiled games and stable sorting.

On the CPU they run in Triton's interpreter, which must be asked for before Triton is imported: so this file is also a script,
which makes the check that it is given. The same checks, with more states and models, run on a GPU where there is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from played_states import play_states
from torch import Tensor

from cautious import CautiousPolicy, KofN
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.cfr import CFROptions, PerStateGame, Problem
from cautious.solvers.kernels import FEWEST_MODELS, padded
from cautious.solvers.recorded_states import minimise_regret_in_states
from cautious.solvers.rewards import as_rewards
from cautious.solvers.state_runs import StateGames
from cautious.types import Sampling, Update
from cautious.validation import triton_available

needs_triton = pytest.mark.skipif(not triton_available(), reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

if triton_available():  # kernels must stand at the top of a file
    import triton
    import triton.language as tl

    from cautious.solvers.kernels.state_blocks import ranked

    @triton.jit(do_not_specialize=["count"])
    def rank(values, ranks, same, count, scratch, M: tl.constexpr):
        model = tl.arange(0, M)
        own = tl.load(values + model, mask=model < count, other=float("inf"))
        found, compared = ranked(own, count, scratch, M)
        tl.store(ranks + model, found)
        tl.store(same + model, compared)


def kinds_of_rewards(num_models: int, num_states: int, num_actions: int) -> dict[str, Tensor]:
    """Rewards [M, S, A] with and without ties, from tiny to huge."""
    rng = np.random.default_rng(num_models)
    normal = torch.from_numpy(rng.normal(size=(num_models, num_states, num_actions)))
    constant = normal[:, :, :1].expand_as(normal).contiguous()  # all actions alike, models not
    return {
        "random": normal,
        "float32": normal.float(),
        "tied": torch.from_numpy(rng.integers(-2, 3, size=normal.shape)).double() / 4,
        "constant": constant,
        "huge": normal * 1e200,
        "tiny": normal * 1e-200,
    }


def check_ranks(device: str, sizes: tuple[int, ...]) -> None:
    """Models from the worst on, ties by number: what stable sorting gives."""
    rng = np.random.default_rng(0)
    for size in sizes:
        width = padded(size, FEWEST_MODELS)
        for values in (
            rng.normal(size=size),
            rng.integers(-2, 3, size=size) * 0.5,
            np.zeros(size),
            np.where(rng.random(size) < 0.5, -0.0, 0.0),  # equal to each other
            rng.normal(size=size) * 1e300,
            rng.normal(size=size) * 5e-324,
            np.sort(rng.normal(size=size))[::-1].copy(),
        ):
            given = torch.from_numpy(values.astype(np.float64)).to(device)
            ranks = torch.full((width,), -1, dtype=torch.int32, device=device)
            same, scratch = (torch.empty(width, dtype=torch.float64, device=device) for _ in range(2))
            rank[(1,)](given, ranks, same, size, scratch, width, num_warps=1)
            order = np.argsort(values, kind="stable")
            assert ranks[:size].cpu().numpy()[order].tolist() == list(range(size))
            assert torch.equal(same[:size], given)


def check_games(device: str, shapes: tuple[tuple[int, int, int], ...], num_iterations: int, tolerance: float) -> None:
    """Certified as on the CPU: the bounds of either contain the value of the other's policy, and the value is the policy's."""
    from cautious.solvers.kernels.state_games import play_states_on_gpu

    for shape in shapes:
        levels = [level for level in (KofN(1, 20), KofN(5, 10), KofN(1, 1), KofN(2, 3)) if level.n <= shape[0]]
        for kind, rewards in kinds_of_rewards(*shape).items():
            how = {"num_iterations": num_iterations, "tolerance": tolerance}
            ours = StateGames(*(part.cpu() for part in play_states_on_gpu(rewards.to(device), levels, **how)))
            theirs = play_states(rewards, levels, **how)
            scale = float(rewards.abs().max())
            slack = 1e-12 * scale
            assert bool((ours.lower <= theirs.upper + slack).all()), (shape, kind)
            assert bool((theirs.lower <= ours.upper + slack).all()), (shape, kind)
            assert bool((ours.lower <= ours.upper).all()), (shape, kind)
            torch.testing.assert_close(ours.policy.sum(dim=-1), torch.ones_like(ours.lower), atol=1e-12, rtol=0)
            assert bool((ours.policy >= 0).all())
            for number, level in enumerate(levels):
                returns = (rewards.double() * ours.policy[number]).sum(dim=-1).T  # [S, M]
                torch.testing.assert_close(level.value(returns / scale), ours.lower[number] / scale, atol=1e-12, rtol=0)
            if kind in ("random", "float32", "huge", "tiny"):  # no ties, which the order of sums would break
                torch.testing.assert_close(ours.policy, theirs.policy, atol=1e-9, rtol=0)
            # As good as the CPU's. With ties two games of one state go different ways, so on average.
            reach = rewards.double().amax(dim=(0, 2)) - rewards.double().amin(dim=(0, 2))
            ours_over, theirs_over = (
                (games.upper - games.lower - tolerance * reach).clamp(min=0) for games in (ours, theirs)
            )
            assert float(ours_over.mean()) <= 1.2 * float(theirs_over.mean()) + slack, (shape, kind)


def check_iterations(device: str, shape: tuple[int, int, int], num_iterations: int) -> None:
    """The iterations of `solve_bandit` with all updates and both samplings, exact values tracked or not."""
    from cautious.solvers.kernels import state_blocks
    from cautious.solvers.kernels.state_games import minimise_regret_on_gpu

    num_models = shape[0]
    rewards = kinds_of_rewards(*shape)["random"]
    levels = (KofN(1, 20), KofN(3, 7), KofN(10, 10), KofN(2, num_models))  # the last draws all models
    games = PerStateGame()
    for update in Update:
        for sampling, tracked in ((Sampling.QUEUE, False), (Sampling.QUEUE, True), (Sampling.EXACT, True)):
            options = CFROptions(num_iterations, sampling, update, 3, tracked)
            size = 1 if tracked else state_blocks.BLOCK_BYTES  # one state per launch, or all in one
            with mock.patch.object(state_blocks, "BLOCK_BYTES", size):
                ours = minimise_regret_on_gpu(
                    Problem(games, as_rewards(rewards, device), SolveBatch(levels, 2)), options
                )
            theirs = minimise_regret_in_states(Problem(games, as_rewards(rewards), SolveBatch(levels, 2)), options)
            pairs = [(ours.policy, theirs.policy), (ours.history.average_policy(), theirs.history.average_policy())]
            for name in ("sampled_value", "exact_value", "largest_regret", "best_policy", "best_value"):
                pairs.append((getattr(ours.history, name), getattr(theirs.history, name)))
            assert (ours.mixtures is None) == (theirs.mixtures is None) == (not tracked)
            if ours.mixtures is not None and theirs.mixtures is not None:
                pairs.append((ours.mixtures, theirs.mixtures))
            for found, expected in pairs:
                assert found.device.type == device
                torch.testing.assert_close(found.cpu(), expected.expand_as(found), atol=1e-11, rtol=0, equal_nan=True)


CERTIFIED = {"CHECK": 10, "CERTIFIES": True, "TRACKED": True, "RANKS_ALL": True, "DRAWS": False, "N": 32}
RECORDED = {"CHECK": 10, "CERTIFIES": False, "M": 32, "N": 32, "A": 16, "WIDTH": 32}
"""Constants of a run that draws at most 32 models."""

CHECKS = {
    "ranks": lambda: check_ranks("cpu", (1, 2, 31, 33, 70)),
    "games": lambda: check_games("cpu", ((2, 1, 2), (33, 1, 5)), num_iterations=12, tolerance=1e-3),
    "iterations": lambda: check_iterations("cpu", (21, 2, 3), num_iterations=3),
}


@needs_triton
@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=[pytest.mark.long] if name == "iterations" else []) for name in CHECKS]
)
def test_interpreted_kernels(check):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", __file__, check]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_triton
@pytest.mark.parametrize(
    ("dtype", "constants", "num_warps"),
    [
        ("fp32", CERTIFIED | {"M": 128, "A": 16, "WIDTH": 128}, 1),
        ("fp64", CERTIFIED | {"M": 32, "A": 4, "WIDTH": 32}, 1),
        ("fp32", RECORDED | {"TRACKED": False, "RANKS_ALL": False, "DRAWS": True}, 1),
        ("fp64", RECORDED | {"TRACKED": True, "RANKS_ALL": True, "DRAWS": False}, 2),
    ],
)
def test_kernels_compile_for_hopper(dtype, constants, num_warps, tmp_path, monkeypatch):
    """Without a GPU: the interpreter takes much that the compiler does not."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from cautious.solvers.kernels.state_games import _play as function

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    pointers = {"rewards": f"*{dtype}", "draws": "*i32"}
    kinds: dict[str, str] = {}
    for name in function.arg_names:
        is_number = name in constants or name.startswith(("num_", "first_")) or name in ("count", "k", "batch_size")
        kinds[name] = "constexpr" if name in constants else "i32" if is_number else pointers.get(name, "*fp64")
    places = {name: (number,) for number, name in enumerate(function.arg_names)}
    aligned = {places[name]: [["tt.divisibility", 16]] for name, kind in kinds.items() if kind.startswith("*")}
    source = ASTSource(function, kinds, {places[name]: value for name, value in constants.items()}, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})
    assert ".target sm_90" in compiled.asm["ptx"]
    assert len(compiled.asm["cubin"]) > 0  # NVIDIA's assembler took it


@pytest.mark.gpu
@needs_gpu
def test_ranks_on_a_gpu():
    check_ranks("cuda", (1, 2, 31, 33, 100, 128, 257, 2000))


@pytest.mark.gpu
@needs_gpu
def test_games_on_a_gpu():
    check_games("cuda", ((2, 40, 2), (33, 40, 5), (100, 300, 11), (300, 40, 20), (1000, 20, 3)), 60, 1e-3)


@pytest.mark.gpu
@needs_gpu
def test_iterations_on_a_gpu():
    check_iterations("cuda", (60, 70, 5), num_iterations=40)
    check_iterations("cuda", (300, 20, 11), num_iterations=40)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_has_the_same_bits_alone_and_among_others(dtype, monkeypatch):
    from cautious.solvers.kernels import state_blocks
    from cautious.solvers.kernels.state_games import play_states_on_gpu

    rewards, levels = kinds_of_rewards(100, 500, 11)["random"].to("cuda", dtype), [KofN(1, 20), KofN(5, 10)]
    together = play_states_on_gpu(rewards, levels, num_iterations=100, tolerance=1e-4)
    for state in (0, 1, 499):
        alone = play_states_on_gpu(rewards[:, state : state + 1], levels, num_iterations=100, tolerance=1e-4)
        for one, all_of_them in zip(alone, together, strict=True):
            assert torch.equal(one[:, 0], all_of_them[:, state])
    monkeypatch.setattr(state_blocks, "BLOCK_BYTES", 2**20)  # many launches
    pieces = play_states_on_gpu(rewards, levels, num_iterations=100, tolerance=1e-4)
    assert all(torch.equal(one, other) for one, other in zip(pieces, together, strict=True))


@pytest.mark.gpu
@needs_gpu
def test_decisions_on_a_gpu_are_those_of_the_cpu():
    rewards = kinds_of_rewards(100, 200, 11)["float32"]
    for belief in (
        rewards,
        rewards.expand(100, 200, 11).repeat(22, 1, 1),
    ):  # the second has too many models for a kernel
        ours, theirs = (CautiousPolicy(table, "1-of-20").decide(torch.arange(200)) for table in (belief.cuda(), belief))
        torch.testing.assert_close(ours.probabilities, theirs.probabilities, atol=1e-9, rtol=0)
        torch.testing.assert_close(ours.gap, theirs.gap, atol=1e-9, rtol=0)


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
