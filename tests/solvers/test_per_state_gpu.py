"""The GPU's games against the compiled ones of the CPU: by Triton's interpreter where there is no GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from cautious import KofN

pytest.importorskip("triton")

LEVELS = [KofN(1, 20), KofN(5, 20), KofN(10, 10)]
OPTIONS = {"num_iterations": 120, "tolerance": 1e-3}


def rewards_of(num_models: int, num_states: int, num_actions: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_models)
    return torch.randn(num_models, num_states, num_actions, generator=generator)


def check(device: str, num_models: int = 30, num_states: int = 4, num_actions: int = 5) -> None:
    from cautious.solvers.per_state import play_states
    from cautious.solvers.per_state_gpu import play_states_on_gpu

    rewards = rewards_of(num_models, num_states, num_actions)
    there = play_states_on_gpu(rewards.to(device), LEVELS, **OPTIONS)
    policy, lower, upper = (part.cpu() for part in there)
    here = play_states(rewards, LEVELS, **OPTIONS)
    span = rewards.amax(dim=(0, 2)) - rewards.amin(dim=(0, 2))
    assert (policy.sum(dim=2) - 1).abs().max() < 1e-12
    assert (policy >= 0).all()
    # Each bound holds for every policy: neither side's policy exceeds the other's.
    assert (lower <= here.upper + 1e-9).all()
    assert (here.lower <= upper + 1e-9).all()
    assert (upper - lower <= torch.maximum(OPTIONS["tolerance"] * span, (here.upper - here.lower) * 1.5 + 1e-9)).all()
    for number, level in enumerate(LEVELS):
        returns = (rewards.double() * policy[number]).sum(dim=2).T  # [S, M]
        torch.testing.assert_close(level.value(returns), lower[number], atol=1e-12, rtol=0)


def test_the_interpreted_kernel_agrees_with_the_compiled_games():
    """In a process of its own: Triton reads the variable when it is imported."""
    code = "import test_per_state_gpu as t; t.check('cpu')"
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join([*sys.path, __file__.rpartition("/")[0]])}
    import os

    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(("num_models", "num_actions"), [(100, 11), (20, 2), (128, 17), (250, 3)])
def test_on_a_gpu(num_models, num_actions):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    check("cuda", num_models, 500, num_actions)
