"""The same code on a GPU: agreement with the CPU. Skipped, saying so, where there is none."""

from __future__ import annotations

import pytest
import torch

from cautious import solve_bandit, solve_mdp
from cautious.beliefs.training.loop import TrainingSettings, train
from cautious_paper.networks.driving_training import DrivingTrainingProblem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]

LEVELS = ["1-of-20", "5-of-10", "10-of-10"]


@pytest.mark.parametrize("sampling", ["queue", "exact"])
@pytest.mark.parametrize("regime", ["all-states", "single-state"])
def test_bandits_agree(generator, regime, sampling):
    rewards = torch.randn(60, 7, 4, generator=generator, dtype=torch.float64)
    options = {"regime": regime, "sampling": sampling, "num_runs": 2, "num_iterations": 40}
    ours, theirs = (solve_bandit(rewards, LEVELS, device=device, **options) for device in ("cuda", "cpu"))
    assert ours.policy.is_cuda
    assert torch.allclose(ours.policy.cpu(), theirs.policy, rtol=0, atol=1e-12)
    assert torch.allclose(ours.certificate().gap.cpu(), theirs.certificate().gap, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sampling", ["queue", "exact"])
def test_mdps_agree(random_problem, sampling):
    mdp, rewards = random_problem(num_models=60)
    options = {"sampling": sampling, "num_runs": 2, "num_iterations": 40}
    ours, theirs = (solve_mdp(mdp, rewards, LEVELS, device=device, **options) for device in ("cuda", "cpu"))
    assert torch.allclose(ours.policy.cpu(), theirs.policy, rtol=0, atol=1e-12)
    assert torch.allclose(ours.certificate().gap.cpu(), theirs.certificate().gap, rtol=0, atol=1e-12)


def test_training_agrees():
    settings = TrainingSettings(num_models=4, num_epochs=5, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)
    ours, theirs = (train(DrivingTrainingProblem.familiar(0.5), settings, device=device) for device in ("cuda", "cpu"))
    assert torch.allclose(ours.losses, theirs.losses, rtol=1e-4, atol=0)
