"""Certificates and the linear program check each other: one knows nothing of programs, the other nothing of regret."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from cautious import KofN, TabularMDP, optimal_policy, solve_bandit, solve_exact, solve_mdp
from cautious.errors import InvalidInputError

NUM_MDPS, CHUNKS = 200, 20


@pytest.mark.parametrize("chunk", [pytest.param(n, marks=[pytest.mark.long] if n > 3 else []) for n in range(CHUNKS)])
def test_certificates_bracket_the_optimum_on_200_random_mdps(chunk):
    generator = torch.Generator().manual_seed(1000 + chunk)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    for index in range(NUM_MDPS // CHUNKS):
        num_states, num_actions, num_models = whole(1, 12), whole(1, 4), whole(1, 30)
        level = KofN(whole(1, n := whole(1, num_models)), n)
        logits = whole(1, 4) * torch.randn(
            num_states, num_actions, num_states, generator=generator, dtype=torch.float64
        )
        start = torch.softmax(torch.randn(num_states, generator=generator, dtype=torch.float64), dim=-1)
        mdp = TabularMDP(torch.softmax(logits, dim=-1), start, (0.0, 0.5, 0.9, 0.99)[index % 4])
        rewards = torch.randn(num_models, num_states, num_actions, generator=generator, dtype=torch.float64)
        solution = solve_mdp(mdp, rewards, level, num_iterations=1000, sampling="exact")
        certificate = solution.certificate(solution.average_policy)
        optimum = float(solve_exact(mdp, rewards, level).certificate().lower)
        assert float(certificate.lower) <= optimum + 1e-7
        assert optimum <= float(certificate.upper) + 1e-7
        assert 0 <= float(certificate.gap) <= 0.005 * float(rewards.max() - rewards.min())


@pytest.mark.parametrize("update", ["regret-matching", "regret-matching+", "as-printed"])
def test_a_queue_runs_certificate_holds_too(random_problem, update):
    mdp, rewards = random_problem(num_models=25)
    level = KofN(2, 8)
    optimum = solve_exact(mdp, rewards, level).exact_value()
    solution = solve_mdp(mdp, rewards, level, num_iterations=150, update=update, num_runs=4)
    for policy in (None, solution.average_policy, solution.best_policy, torch.full((6, 3), 1 / 3)):
        certificate = solution.certificate(policy)
        assert bool((certificate.lower <= optimum + 1e-9).all())
        assert bool((certificate.upper >= optimum - 1e-9).all())
        assert torch.equal(certificate.gap, certificate.upper - certificate.lower)
    assert certificate.level == level


def test_each_state_is_certified_on_its_own(generator):
    rewards = torch.randn(20, 5, 3, generator=generator, dtype=torch.float64)
    level = KofN(1, 4)
    for sampling in ("queue", "exact"):
        solution = solve_bandit(rewards, level, regime="single-state", sampling=sampling, num_iterations=800)
        certificate = solution.certificate(solution.best_policy)
        assert certificate.gap.shape == (5,)
        optima = torch.stack([solve_exact([1.0], rewards[:, s : s + 1], level).exact_value() for s in range(5)])
        assert bool((certificate.lower <= optima + 1e-9).all())
        assert bool((optima <= certificate.upper + 1e-9).all())
        assert float(certificate.gap.max()) < (0.02 if sampling == "exact" else 0.2)


@pytest.mark.parametrize("regime", ["all-states", "single-state"])
def test_an_untracked_run_is_certified_by_refining(generator, regime):
    rewards = torch.randn(20, 5, 3, generator=generator, dtype=torch.float64)
    solution = solve_bandit(rewards, "1-of-4", regime=regime, track_exact=False, num_iterations=200)
    assert bool(solution.trace.exact_value.isnan().all())
    tracked = solve_bandit(rewards, "1-of-4", regime=regime, track_exact=True, num_iterations=200)
    assert torch.allclose(solution.policy, tracked.policy, rtol=0, atol=1e-9)
    few, many = solution.certificate(refine=5), solution.certificate(refine=500)
    assert bool((few.gap >= 0).all())
    assert float(many.upper.sum()) < float(few.upper.sum())
    optimum = solve_exact(torch.full((5,), 0.2), rewards, "1-of-4").exact_value()
    if regime == "all-states":
        assert float(few.lower) <= float(optimum) <= float(many.upper) + 1e-9
    assert bool((solution.exact_value(solution.best_policy) >= solution.exact_value() - 1e-12).all())


def test_the_program_agrees_with_a_grid_of_policies():
    # Two actions, one state: the policy is one number, so the optimum can be looked up on a fine grid.
    rewards = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.5]], [[0.3, 0.2]], [[0.0, -0.4]]], dtype=torch.float64)
    grid = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    returns = grid[:, None] * rewards[:, 0, 0] + (1 - grid[:, None]) * rewards[:, 0, 1]
    for n in range(1, 5):
        for k in range(1, n + 1):
            solution = solve_exact([1.0], rewards, KofN(k, n))
            assert float(solution.exact_value()) == pytest.approx(float(KofN(k, n).value(returns).max()), abs=1e-4)
            assert float(solution.exact_value()) >= float(KofN(k, n).value(returns).max()) - 1e-9
            assert float(solution.certificate().gap) < 1e-9


def test_the_adversarys_mixture_is_a_point_of_the_risk_envelope(random_problem):
    # The bound holds because the mixture's weights are a mean of permutations of the rank weights: majorised by them.
    mdp, rewards = random_problem(num_models=4)
    level = KofN(1, 3)
    weights = level.rank_weights(4)
    worst = min(
        float(optimal_policy(mdp, torch.einsum("m,msa->sa", weights[list(order)], rewards)).expected_return)
        for order in permutations(range(4))
    )
    optimum = float(solve_exact(mdp, rewards, level).exact_value())
    upper = float(solve_mdp(mdp, rewards, level, num_iterations=400, sampling="exact").certificate().upper)
    assert optimum <= upper + 1e-9
    assert optimum <= worst + 1e-9  # a pure permutation bounds it as well, less tightly


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e12])
def test_the_scale_of_the_rewards_does_not_matter(random_problem, scale):
    mdp, rewards = random_problem()
    expected = float(solve_exact(mdp, rewards, "2-of-5").exact_value())
    assert float(solve_exact(mdp, scale * rewards, "2-of-5").exact_value()) / scale == pytest.approx(expected, abs=1e-7)


def test_refining_tightens_the_bound_of_a_short_queue_run(random_problem):
    mdp, rewards = random_problem(num_models=40)
    solution = solve_mdp(mdp, rewards, "1-of-8", num_iterations=10)
    optimum = float(solve_exact(mdp, rewards, "1-of-8").exact_value())
    loose, tight = solution.certificate(), solution.certificate(refine=300)
    assert optimum <= float(tight.upper) + 1e-9
    assert float(tight.gap) < float(loose.gap)


def test_all_of_n_is_the_ordinary_optimum(random_problem):
    mdp, rewards = random_problem()
    ordinary = optimal_policy(mdp, rewards.mean(dim=0))
    solution = solve_exact(mdp, rewards, "5-of-5")
    assert float(solution.exact_value()) == pytest.approx(float(ordinary.expected_return), abs=1e-9)
    assert torch.allclose(solution.policy, ordinary.policy, rtol=0, atol=1e-7)


def test_bad_requests(random_problem):
    mdp, rewards = random_problem()
    with pytest.raises(InvalidInputError, match="exceeds the 12 models"):
        solve_exact(mdp, rewards, "1-of-13")
    with pytest.raises(InvalidInputError, match="S=6 A=3"):
        solve_exact(mdp, rewards[:, :4], "1-of-2")
    with pytest.raises(InvalidInputError, match="state_dist"):
        solve_exact([0.5, 0.5], rewards, "1-of-2")
    with pytest.raises(InvalidInputError, match="too large a linear program"):
        solve_exact([1.0], torch.rand(2000, 1, 11), "1-of-20")
