"""k-of-N CFR against known answers: a hand-worked game, ordinary optima, theorems, and itself in other clothes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cautious import KofN, TabularMDP, optimal_policy, solve_bandit, solve_exact, solve_mdp
from cautious.errors import InvalidInputError
from cautious.ops.bounds import cfr_regret_bound, cumulative_regret_bound, k_of_n_regret_bound, optimality_gap
from cautious.ops.regret import instantaneous_regret, regret_matching, uniform_policy
from cautious.solvers.adversary import ModelQueue

UPDATES = ["regret-matching", "regret-matching+", "as-printed"]

# One state; help always pays 0.25, the gamble pays 1 under one model and 0 under the other.
HELP_OR_GAMBLE = torch.tensor([[[0.25, 1.0]], [[0.25, 0.0]]], dtype=torch.float64)


@pytest.mark.parametrize("regime", ["all-states", "single-state"])
@pytest.mark.parametrize("sampling", ["queue", "exact"])
def test_worst_case_prefers_help_and_average_case_gambles(regime, sampling):
    solution = solve_bandit(HELP_OR_GAMBLE, ["2-of-2", "1-of-2"], regime=regime, sampling=sampling)
    assert solution.policy[0, 0].tolist() == [0.0, 1.0]
    assert float(solution.policy[1, 0, 0]) > 0.8


def test_two_iterations_by_hand():
    # 1-of-2 from the uniform policy: returns 0.625 and 0.125, so model 1 answers; regrets 0.25-0.125 and 0-0.125.
    # Regret matching then plays help alone; all models tie at 0.25, the first one answers: regrets 0 and 0.75.
    # Cumulative regret (0.125, 0.625): help 1/6, gamble 5/6.
    one = solve_bandit(HELP_OR_GAMBLE, "1-of-2", num_iterations=1, sampling="exact")
    assert one.policy.tolist() == [[1.0, 0.0]]
    assert one.trace.sampled_value.tolist() == [0.125]
    two = solve_bandit(HELP_OR_GAMBLE, "1-of-2", num_iterations=2, sampling="exact")
    assert two.policy[0].tolist() == pytest.approx([1 / 6, 5 / 6])
    assert two.trace.exact_value.tolist() == [0.125, 0.25]
    assert two.trace.regret.tolist() == [0.125, 0.625]
    assert two.average_policy[0].tolist() == [0.75, 0.25]
    assert two.best_policy[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("update", UPDATES[:2])
@pytest.mark.parametrize("sampling", ["queue", "exact"])
def test_all_of_n_reaches_the_ordinary_optimum_of_the_mean_reward(random_problem, sampling, update):
    mdp, rewards = random_problem()
    best = optimal_policy(mdp, rewards.mean(dim=0)).expected_return
    solution = solve_mdp(mdp, rewards, "12-of-12", num_iterations=1000, sampling=sampling, update=update)
    certificate = solution.certificate(solution.best_policy)
    assert float(best - certificate.lower) < 1e-3
    assert float(certificate.upper) == pytest.approx(float(best), abs=1e-10)
    bandit = solve_bandit(rewards, "5-of-5", num_iterations=2000, sampling="exact", update=update)
    expected = rewards.mean(dim=0).max(dim=-1).values.mean()
    assert float(bandit.exact_value(bandit.best_policy)) == pytest.approx(float(expected), abs=2e-3)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("sampling", ["queue", "exact"])
def test_regimes_agree_on_a_single_state(generator, sampling, update):
    rewards = torch.randn(40, 1, 5, generator=generator, dtype=torch.float64)
    options = {"sampling": sampling, "update": update, "num_runs": 3, "num_iterations": 60}
    together = solve_bandit(rewards, ["1-of-5", "3-of-5"], regime="all-states", **options)
    apart = solve_bandit(rewards, ["1-of-5", "3-of-5"], regime="single-state", **options)
    assert torch.allclose(together.policy, apart.policy, rtol=0, atol=1e-9)
    assert torch.allclose(together.average_policy, apart.average_policy, rtol=0, atol=1e-9)
    assert torch.allclose(together.certificate().gap, apart.certificate().gap[..., 0], rtol=0, atol=1e-9)


def test_regimes_agree_when_k_equals_n(generator):
    rewards = torch.randn(12, 7, 4, generator=generator, dtype=torch.float64)
    solutions = [solve_bandit(rewards, "6-of-6", regime=regime) for regime in ("all-states", "single-state")]
    assert torch.allclose(solutions[0].policy, solutions[1].policy, rtol=0, atol=1e-12)


def test_a_bandit_is_an_mdp_without_a_future(random_problem):
    mdp, rewards = random_problem(discount=0.0)
    level = KofN(2, 5)
    in_mdp = solve_mdp(mdp, rewards, level, num_iterations=50)
    as_bandit = solve_bandit(rewards, level, state_dist=mdp.initial_state_dist, num_iterations=50)
    assert torch.allclose(in_mdp.policy, as_bandit.policy, rtol=0, atol=1e-9)


@pytest.mark.parametrize("k", [1, 4, 12])
def test_a_queue_that_draws_every_model_is_exact(random_problem, k):
    mdp, rewards = random_problem()
    level = KofN(k, 12)
    for solve in (
        lambda sampling: solve_mdp(mdp, rewards, level, num_iterations=200, sampling=sampling),
        lambda sampling: solve_bandit(rewards, level, num_iterations=200, sampling=sampling),
        lambda sampling: solve_bandit(rewards, level, num_iterations=30, sampling=sampling, regime="single-state"),
    ):
        queue, exact = solve("queue"), solve("exact")
        assert torch.allclose(queue.policy, exact.policy, rtol=0, atol=1e-9)
        assert torch.allclose(queue.trace.sampled_value, exact.trace.exact_value, rtol=0, atol=1e-12)


def test_the_average_policys_return_is_the_average_return(random_problem):
    mdp, rewards = random_problem(discount=0.97)
    solutions = [solve_mdp(mdp, rewards, "2-of-4", num_iterations=t, seed=3) for t in range(1, 31)]
    # π^1 is uniform, and π^{t+1} is the last iterate of a run of t iterations.
    iterates = torch.stack([uniform_policy(mdp.num_states, mdp.num_actions), *(s.policy for s in solutions[:-1])])
    for reward in rewards[:4]:
        average_return = mdp.expected_return(iterates, reward).mean()
        assert abs(float(mdp.expected_return(solutions[-1].average_policy, reward) - average_return)) < 1e-10


@pytest.mark.parametrize("sampling", ["queue", "exact"])
def test_the_trace_says_what_the_iterates_are_worth(random_problem, sampling):
    mdp, rewards = random_problem()
    level = KofN(2, 4)
    solution = solve_mdp(mdp, rewards, level, num_iterations=20, sampling=sampling)
    iterates = [uniform_policy(mdp.num_states, mdp.num_actions)]
    iterates += [solve_mdp(mdp, rewards, level, num_iterations=t, sampling=sampling).policy for t in range(1, 20)]
    returns = torch.einsum("tsa,msa->tm", mdp.occupancy(torch.stack(iterates)), rewards)
    assert torch.allclose(solution.trace.exact_value, level.value(returns), rtol=0, atol=1e-12)
    best = solution.exact_value(solution.best_policy)
    assert float(best) >= float(solution.trace.exact_value.max()) - 1e-12
    assert float(best) >= float(solution.exact_value(solution.average_policy)) - 1e-12
    assert float(best) >= float(solution.exact_value()) - 1e-12


def full_regret(mdp, answers, iterates, t):
    """Regret after t iterations against the best stationary policy in hindsight."""
    hindsight = optimal_policy(mdp, answers[:t].sum(dim=0)).expected_return
    earned = torch.stack([mdp.expected_return(iterates[i], answers[i]) for i in range(t)]).sum()
    return float(hindsight - earned)


@pytest.mark.parametrize("discount", [0.0, 0.9, 0.99])
def test_every_prefix_of_the_regret_stays_under_theorem_1_for_any_rewards(random_problem, generator, discount):
    # CFR against an adversary that picks whatever reward function is worst for the current policy.
    mdp, rewards = random_problem(num_models=20, discount=discount)
    bound = float(rewards.abs().max())
    policy = uniform_policy(1, mdp.num_states, mdp.num_actions)
    cumulative, iterates, answers = torch.zeros_like(policy), [], []
    for t in range(1, 121):
        worst = int(mdp.expected_return(policy, rewards).argmin())
        iterates.append(policy[0])
        answers.append(rewards[worst])
        regret = instantaneous_regret(mdp.evaluate(policy).action_values(rewards[worst : worst + 1]), policy)
        cumulative += regret
        policy = regret_matching(cumulative)
        assert float(cumulative.max()) <= cumulative_regret_bound(bound, mdp.num_actions, t)
        if t % 10 == 0:
            measured = full_regret(mdp, torch.stack(answers), iterates, t)
            assert measured <= cfr_regret_bound(bound, mdp.num_actions, t, discount)


@pytest.mark.parametrize("sampling", ["queue", "exact"])
@pytest.mark.parametrize("update", UPDATES[:2])
def test_every_prefix_of_k_of_n_regret_stays_under_theorems_1_to_3(random_problem, sampling, update):
    for discount in (0.0, 0.8, 0.99):
        mdp, rewards = random_problem(discount=discount, num_models=30)
        bound, level = float(rewards.abs().max()), KofN(1, 6)
        solution = solve_mdp(mdp, rewards, level, num_iterations=300, sampling=sampling, update=update)
        optimum = float(solve_exact(mdp, rewards, level).exact_value())
        failure = 1.0 if sampling == "exact" else 1e-3
        values = solution.trace.exact_value
        for t in range(1, 301):
            assert float(solution.trace.regret[t - 1]) <= cumulative_regret_bound(bound, mdp.num_actions, t)
            k_of_n_regret = float((optimum - values[:t]).sum())
            assert k_of_n_regret <= k_of_n_regret_bound(bound, mdp.num_actions, t, discount, failure)
            gap = optimum - float(values[:t].max())
            assert -1e-9 <= gap <= optimality_gap(bound, mdp.num_actions, t, discount, failure)


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_regret_stays_under_its_bound_for_any_rewards(seed):
    generator = torch.Generator().manual_seed(seed)
    rewards = (
        torch.randn(6, 3, 4, generator=generator, dtype=torch.float64)
        * 10 ** torch.randn(1, generator=generator).double()
    )
    for regime in ("all-states", "single-state"):
        solution = solve_bandit(rewards, "2-of-3", regime=regime, num_iterations=40, seed=seed)
        limits = torch.tensor([cumulative_regret_bound(float(rewards.abs().max()), 4, t) for t in range(1, 41)])
        assert bool((solution.trace.regret <= limits).all())


class TestBatching:
    """Levels and runs are a batch dimension; a member has the same bits alone."""

    LEVELS = ("1-of-20", "1-of-10", "5-of-10", "10-of-10")

    @pytest.mark.parametrize("sampling", ["queue", "exact"])
    @pytest.mark.parametrize(("num_states", "num_models"), [(7, 33), (13, 200)])
    def test_in_an_mdp(self, random_problem, sampling, num_states, num_models):
        mdp, rewards = random_problem(num_states=num_states, num_models=num_models)
        options = {"num_iterations": 120, "sampling": sampling, "seed": 5}
        batch = solve_mdp(mdp, rewards, self.LEVELS, num_runs=3, **options)
        assert batch.policy.shape == (4, 3, num_states, 3)
        for index, level in enumerate(self.LEVELS):
            runs = solve_mdp(mdp, rewards, level, num_runs=3, **options)
            alone = solve_mdp(mdp, rewards, level, **options)
            assert runs.policy.shape == (3, num_states, 3)
            assert alone.policy.shape == (num_states, 3)
            for name in ("policy", "average_policy", "best_policy"):
                assert torch.equal(getattr(batch, name)[index], getattr(runs, name))
                assert torch.equal(getattr(batch, name)[index, 0], getattr(alone, name))
            assert torch.equal(batch.certificate().gap[index, 0], alone.certificate().gap)

    @pytest.mark.parametrize("regime", ["all-states", "single-state"])
    @pytest.mark.parametrize("sampling", ["queue", "exact"])
    def test_in_a_bandit(self, generator, sampling, regime):
        rewards = torch.randn(61, 9, 11, generator=generator)
        options = {"num_iterations": 40, "sampling": sampling, "seed": 5, "regime": regime}
        batch = solve_bandit(rewards, self.LEVELS, num_runs=2, **options)
        for index, level in enumerate(self.LEVELS):
            alone = solve_bandit(rewards, level, **options)
            assert torch.equal(batch.policy[index, 0], alone.policy)
            assert torch.equal(batch.average_policy[index, 0], alone.average_policy)
            assert torch.equal(batch.trace.sampled_value[index, 0], alone.trace.sampled_value)

    @pytest.mark.parametrize("track_exact", [True, False])
    def test_with_ties_in_a_sparse_world_and_untracked(self, generator, track_exact):
        size = 150
        following = torch.randint(0, size, (size * 2, 3), generator=generator)
        transitions = torch.zeros(size * 2, size, dtype=torch.float64).scatter_add_(
            1, following, torch.full((size * 2, 3), 1 / 3, dtype=torch.float64)
        )
        mdp = TabularMDP(transitions.to_sparse(), torch.full((size,), 1 / size), 0.9)
        rewards = (torch.randn(60, size, 2, generator=generator) * 4).round() / 4  # many exact ties
        options = {"num_iterations": 40, "track_exact": track_exact}
        batch = solve_mdp(mdp, rewards, ["1-of-20", "5-of-10"], num_runs=3, **options)
        alone = solve_mdp(mdp, rewards, "5-of-10", **options)
        assert mdp.dynamics.is_sparse
        assert torch.equal(batch.policy[1, 0], alone.policy)

    def test_states_apart_do_not_touch_each_other(self, generator):
        rewards = torch.randn(30, 8, 3, generator=generator)
        whole = solve_bandit(rewards, "1-of-5", regime="single-state", num_iterations=50)
        part = solve_bandit(rewards[:, 2:5], "1-of-5", regime="single-state", num_iterations=50)
        assert torch.equal(whole.policy[2:5], part.policy)


def test_runs_differ_and_seeds_repeat(random_problem):
    mdp, rewards = random_problem(num_models=100)
    one = solve_mdp(mdp, rewards, "1-of-5", num_runs=2, seed=1, num_iterations=20)
    same = solve_mdp(mdp, rewards, "1-of-5", num_runs=2, seed=1, num_iterations=20)
    other = solve_mdp(mdp, rewards, "1-of-5", num_runs=2, seed=2, num_iterations=20)
    assert torch.equal(one.policy, same.policy)
    assert not torch.equal(one.policy[0], one.policy[1])
    assert not torch.equal(one.policy, other.policy)


def test_a_queue_hands_out_every_model_once_before_it_is_shuffled():
    queue = ModelQueue(num_runs=2, num_models=23, seed=4)
    level = KofN(1, 5)
    draws = torch.stack([queue.draw(level, t) for t in range(8)], dim=1)  # two shuffles of four draws, [2, 8, 5]
    for run in draws:
        for shuffle in run.split(4):
            assert len(set(shuffle.flatten().tolist())) == 20
        assert not torch.equal(run[:4], run[4:])
        assert torch.equal(run, run.sort(dim=1).values)
    assert not torch.equal(draws[0], draws[1])


def test_queue_and_exact_agree_on_ties_when_all_are_drawn(generator):
    rewards = (torch.randn(12, 5, 3, generator=generator) * 2).round() / 2
    for regime in ("all-states", "single-state"):
        options = {"regime": regime, "num_iterations": 150}
        queue, exact = (solve_bandit(rewards, "3-of-12", sampling=how, **options) for how in ("queue", "exact"))
        assert torch.equal(queue.policy, exact.policy)


def test_later_changes_to_the_callers_array_do_not_reach_the_certificate(generator):
    rewards = torch.randn(8, 8, 8, generator=generator, dtype=torch.float64)
    solution = solve_bandit(rewards, "1-of-2")
    before = solution.certificate().lower
    rewards.zero_()
    assert torch.equal(solution.certificate().lower, before)


def test_raw_network_outputs_come_in_without_their_graph(random_problem):
    mdp, rewards = random_problem()
    with_graph = rewards.clone().requires_grad_()
    for solution in (
        solve_mdp(mdp, with_graph, "1-of-3", num_iterations=5),
        solve_bandit(with_graph, "1-of-3", regime="single-state", num_iterations=5),
        solve_exact(mdp, with_graph, "1-of-3"),
    ):
        assert not solution.policy.requires_grad


@pytest.mark.parametrize("discount", [0.999, 0.9999, 1 - 1e-7])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_the_upper_bound_holds_for_long_horizons_and_offset_rewards(random_problem, discount, offset):
    mdp, rewards = random_problem(discount=discount, num_models=6)
    solution = solve_mdp(mdp, offset + 1e-3 * rewards, "1-of-3", num_iterations=200, sampling="exact")
    best = solve_mdp(mdp, rewards, "1-of-3", num_iterations=500, sampling="exact").best_policy
    certificate = solution.certificate(best)
    assert float(certificate.upper - certificate.lower) >= -1e-11 * max(offset, 1)


def test_a_policy_that_was_rounded_is_scaled_back(random_problem):
    mdp, rewards = random_problem(discount=0.999)
    solution = solve_mdp(mdp, rewards, "1-of-3", sampling="exact")
    exact = solution.exact_value(solution.best_policy)
    assert float((solution.exact_value(solution.best_policy * (1 + 9e-7)) - exact).abs()) < 1e-12
    for wrong in (torch.full((1, 6, 3), 1 / 3), torch.full((6, 3), 0.5), torch.full((2, 6, 3), 1 / 3)):
        with pytest.raises(InvalidInputError, match="policy"):
            solution.certificate(wrong)


def test_the_record_says_when_the_queue_was_shuffled_again(random_problem):
    mdp, rewards = random_problem(num_models=20)
    enough = solve_mdp(mdp, rewards, "1-of-5", num_iterations=4)
    short = solve_mdp(mdp, rewards, ["1-of-5", "1-of-7"], num_iterations=9)
    assert enough.record["reshuffles"] == [0]
    assert short.record["reshuffles"] == [2, 4]  # 4 draws of 5 a shuffle, 2 draws of 7
    assert solve_mdp(mdp, rewards, "1-of-5", sampling="exact").record["reshuffles"] is None


@pytest.mark.parametrize("seed", range(10))
def test_unreached_states_still_get_a_policy(seed):
    # States 2 and 3 can never be reached from state 0; LU rounding gives them an occupancy of ±1e-17.
    rng = np.random.default_rng(seed)
    transitions = np.zeros((4, 2, 4))
    transitions[0, :, :2], transitions[1, :, :2] = [0.999, 0.001], [0.001, 0.999]
    transitions[2:] = rng.dirichlet(np.ones(4), (2, 2))
    mdp = TabularMDP(transitions, [1.0, 0, 0, 0], 0.99)
    solution = solve_mdp(mdp, rng.normal(size=(6, 4, 2)), "1-of-3", num_iterations=50)
    assert bool((solution.average_policy >= 0).all())
    assert float(solution.certificate(solution.average_policy).gap) >= 0
    policies = torch.from_numpy(rng.dirichlet(np.ones(2), (50, 4)))
    assert bool((mdp.occupancy(policies) >= 0).all())


@pytest.mark.parametrize(("shape", "scale"), [((1, 1, 1), 1.0), ((3, 4, 1), 1.0), ((5, 2, 3), 0.0), ((5, 2, 3), 1e200)])
def test_degenerate_problems_end_in_distributions(shape, scale):
    rewards = scale * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for regime in ("all-states", "single-state"):
        solution = solve_bandit(rewards, "1-of-1", regime=regime, num_iterations=10)
        assert torch.allclose(
            solution.policy.sum(dim=-1), torch.ones(shape[1], dtype=torch.float64), rtol=0, atol=1e-12
        )
        assert bool((solution.certificate().gap >= 0).all())


def test_numpy_comes_in_as_tensors_do(random_problem):
    mdp, rewards = random_problem()
    ours = solve_mdp(mdp, rewards.numpy(), "2-of-4", num_iterations=10)
    assert torch.equal(ours.policy, solve_mdp(mdp, rewards, "2-of-4", num_iterations=10).policy)
    assert isinstance(ours.policy, torch.Tensor)
    assert np.allclose(ours.exact_value(ours.policy.numpy()).numpy(), ours.exact_value().numpy(), rtol=0, atol=1e-12)


def test_progress_is_told():
    told = []
    solve_bandit(HELP_OR_GAMBLE, "1-of-2", num_iterations=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
