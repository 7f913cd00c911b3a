"""Solving to a tolerance: against an independent linear program, in worlds of every kind, and where it cannot be reached."""

import warnings

import numpy as np
import pytest
import torch

from cautious import (
    CautiousPolicy,
    ConvergenceWarning,
    CVaR,
    InvalidInputError,
    KofN,
    MeanCVaR,
    Solution,
    TabularMDP,
    WorstCase,
    optimal_policy,
    solve_bandit,
    solve_exact,
    solve_mdp,
)
from cautious.risk import risk_value
from cautious.solvers.envelope import project, worst_weights

LEVELS = ["1-of-4", "3-of-5", CVaR(0.3), WorstCase(), MeanCVaR(0.2, 0.5)]


KINDS = ["mixing", "periodic", "absorbing", "unreachable"]


def random_world(random, num_states=None, num_actions=None, num_models=None, kind=None):
    """A world of a random kind, and reward models of a random scale and kind of doubt."""
    num_states = num_states or int(random.integers(1, 7))
    num_actions = num_actions or int(random.integers(1, 4))
    num_models = num_models or int(random.integers(5, 9))
    kind = kind or random.choice(KINDS)
    if kind == "mixing":
        transitions = random.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    else:
        successor = random.integers(0, num_states, size=(num_states, num_actions))
        if kind == "periodic":
            successor = np.broadcast_to((np.arange(num_states)[:, None] + 1) % num_states, successor.shape)
        if kind == "absorbing":
            successor = np.where(np.arange(num_states)[:, None] == num_states - 1, num_states - 1, successor)
        if kind == "unreachable":  # nothing leads to the last state
            successor = np.minimum(successor, max(num_states - 2, 0))
        transitions = np.eye(num_states)[successor]
    start = np.eye(num_states)[0] if random.random() < 0.5 else np.full(num_states, 1 / num_states)
    mdp = TabularMDP(transitions, start, float(random.choice([0.0, 0.5, 0.9, 0.99])))
    shared = random.random() < 0.5
    doubts = random.normal(size=(num_models, 1, 1) if shared else (num_models, num_states, num_actions))
    novel = random.random(size=(num_states, num_actions)) < 0.5
    rewards = random.normal(size=(num_states, num_actions)) + doubts * novel
    return mdp, torch.from_numpy(rewards * 10.0 ** random.integers(-6, 7) + random.choice([0.0, 1.0]))


def spread(rewards):
    return float(rewards.max() - rewards.min())


def test_each_policy_is_within_its_gap_of_the_linear_program():
    """200 random worlds: what is promised holds against HiGHS, whose rounding is a millionth of the range."""
    random = np.random.default_rng(0)
    for number in range(200):
        mdp, rewards = random_world(random)
        level, unit = LEVELS[number % len(LEVELS)], spread(rewards)
        solution = solve_mdp(mdp, rewards, level)
        certificate = solution.certificate()
        assert float(certificate.gap) <= 1e-4 * unit + 1e-12 * float(rewards.abs().max())
        best = float(solve_exact(mdp, rewards, level).certificate().lower)
        assert float(certificate.lower) >= best - float(certificate.gap) - 1e-6 * unit
        assert float(certificate.upper) >= best - 1e-6 * unit


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_valid_in_every_kind_of_world(kind):
    """1,000 random worlds: no policy of some thirty beats the upper bound; the lower one is the policy's own exact value."""
    random = np.random.default_rng(KINDS.index(kind))
    for _ in range(250):
        mdp, rewards = random_world(random, kind=kind)
        _, num_states, num_actions = rewards.shape
        level, rounding = KofN(1, 4), 1e-12 * float(rewards.abs().max()) / (1 - mdp.discount)
        solution = solve_mdp(mdp, rewards, level, tolerance=1e-2)
        certificate = solution.certificate()
        tried = torch.from_numpy(random.dirichlet(np.full(num_actions, 0.3), size=(20, num_states)))
        tried = torch.cat([tried, solution.policy[None], optimal_policy(mdp, rewards).policy])
        occupancy = mdp.evaluate(tried).occupancy(mdp.initial_state_dist)[..., None] * tried
        values = risk_value(level, torch.einsum("psa,msa->pm", occupancy, rewards))
        assert float(values.max()) <= float(certificate.upper) + rounding
        assert float(certificate.lower) == pytest.approx(float(values[20]), abs=rounding)


@pytest.mark.parametrize("method", ["auto", "learning", "double-oracle", "lp"])
@pytest.mark.parametrize("level", LEVELS)
def test_methods_agree(method, level):
    random = np.random.default_rng(2)
    mdp = TabularMDP(random.dirichlet(np.ones(12), size=(12, 3)), np.full(12, 1 / 12), 0.9)
    rewards = torch.from_numpy(random.normal(size=(10, 12, 3)))
    best = float(solve_exact(mdp, rewards, level).certificate().lower)
    solution = solve_mdp(mdp, rewards, level, method=method, tolerance=1e-5)
    certificate = solution.certificate()
    assert float(certificate.gap) <= 1e-5 * spread(rewards)
    assert best - 1e-5 * spread(rewards) <= float(certificate.lower) <= best + 1e-8


def lake(scale, num_models=60):
    """Four by four tiles of ice; a step costs about one until the goal; tiles (2, 1) and (2, 2) are unlike anything seen."""
    transitions, goal = np.zeros((17, 4, 17)), 15
    for tile in range(16):
        row, column = divmod(tile, 4)
        for action, (down, right) in enumerate([(0, -1), (1, 0), (0, 1), (-1, 0)]):
            to = 4 * min(max(row + down, 0), 3) + min(max(column + right, 0), 3)
            transitions[tile, action, 16 if tile == goal else to] = 1
    transitions[16, :, 16] = 1  # the end
    draws = torch.Generator().manual_seed(0)
    rewards = torch.zeros(num_models, 17, 4, dtype=torch.float64)
    rewards[:, :16] = (-1 + 0.1 * torch.randn(num_models, 16, 1, generator=draws)).double()
    rewards[:, 9:11] = scale * torch.randn(num_models, 1, 1, generator=draws).double()
    rewards[:, goal] = 0
    return TabularMDP(transitions, np.eye(17)[0], 0.95), rewards


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_lake_is_crossed_around_what_is_unknown(scale):
    """The tiles' range hides differences along the way: to a share of it, doing nothing is as good. The optimum is found."""
    world, rewards = lake(scale)
    best = float(solve_exact(world, rewards, "1-of-20").certificate().lower)
    certificate = solve_mdp(world, rewards, "1-of-20").certificate()
    assert float(certificate.lower) == pytest.approx(best, abs=1e-3)
    assert float(certificate.gap) < 1e-3


def test_several_levels_at_once_are_each_within_the_tolerance():
    random = np.random.default_rng(3)
    mdp, rewards = random_world(random, 6, 3, 8)
    levels = ["1-of-4", WorstCase(), "8-of-8"]
    together = solve_mdp(mdp, rewards, levels)
    assert together.policy.shape == (3, 6, 3)
    assert bool((together.certificate().gap <= 1e-4 * spread(rewards)).all())
    for number, level in enumerate(levels):
        assert torch.equal(together.policy[number], solve_mdp(mdp, rewards, level).policy)


def test_a_solution_is_saved_and_read_back(tmp_path):
    mdp, rewards = random_world(np.random.default_rng(4), 5, 3, 7)
    solution = solve_mdp(mdp, rewards, CVaR(0.25), objective="regret")
    solution.save(tmp_path)
    read = Solution.load(tmp_path)
    assert torch.equal(read.policy, solution.policy)
    assert float(read.certificate().gap) == float(solution.certificate().gap)


def test_streamed_rewards_give_the_same_answer():
    mdp, rewards = random_world(np.random.default_rng(5), 6, 3, 8)

    class Stream:
        num_models = len(rewards)

        def rewards_for(self, indices):
            return rewards[indices]

    for objective in ("return", "regret"):
        streamed, held = (solve_mdp(mdp, form, "1-of-4", objective=objective) for form in (Stream(), rewards))
        bounds = held.certificate()
        assert float(streamed.certificate().lower) == pytest.approx(float(bounds.lower), abs=1e-4 * spread(rewards))


@pytest.mark.parametrize(
    ("states", "actions", "models"),
    [(1, 3, 8), (4, 1, 8), (4, 3, 1), (1, 1, 1)],
    ids=["state", "action", "model", "all"],
)
def test_smallest_problems_are_exact(states, actions, models):
    random = np.random.default_rng(6)
    mdp = TabularMDP(random.dirichlet(np.ones(states), size=(states, actions)), np.full(states, 1 / states), 0.9)
    rewards = torch.from_numpy(random.normal(size=(models, states, actions)))
    level = WorstCase()
    best = float(solve_exact(mdp, rewards, level).certificate().lower)
    certificate = solve_mdp(mdp, rewards, level).certificate()
    assert best <= float(certificate.upper) + 1e-9
    assert float(certificate.lower) >= best - 1e-4 * max(spread(rewards), 1e-9)


def test_models_that_are_all_equal_are_the_ordinary_problem():
    mdp, rewards = random_world(np.random.default_rng(7), 5, 3, 6)
    same = rewards[:1].expand(6, -1, -1)
    solution = solve_mdp(mdp, same, "1-of-4")
    assert float(solution.certificate().gap) <= 1e-12 * float(rewards.abs().max())
    assert float(solution.certificate().lower) == pytest.approx(float(optimal_policy(mdp, rewards[0]).expected_return))
    constant = solve_mdp(mdp, torch.full((6, 5, 3), 7.0), "1-of-4").certificate()
    assert float(constant.lower) == pytest.approx(7)
    assert float(constant.gap) <= 1e-12


def test_rewards_that_span_twelve_orders_of_magnitude():
    mdp, rewards = random_world(np.random.default_rng(8), 5, 3, 6)
    wide = rewards / rewards.abs().max() * 10.0 ** torch.linspace(-6, 6, 3).double()
    certificate = solve_mdp(mdp, wide, "1-of-4").certificate()
    assert float(certificate.gap) <= 1e-4 * spread(wide)


@pytest.mark.parametrize("tolerance", [0, -1e-3, 1, float("nan"), "small", None])
def test_a_tolerance_that_is_none_is_refused(tolerance):
    mdp, rewards = random_world(np.random.default_rng(9))
    with pytest.raises(InvalidInputError, match="tolerance"):
        solve_mdp(mdp, rewards, "1-of-2", tolerance=tolerance)


def test_other_bad_input_is_named():
    mdp, rewards = random_world(np.random.default_rng(10), 4, 2, 6)
    spoilt = rewards.clone()
    spoilt[0, 0, 0] = float("nan")
    for options, named in [
        ({"rewards": spoilt}, "not finite"),
        ({"method": "simplex"}, "method"),
        ({"objective": "profit"}, "objective"),
        ({"method": "learning", "num_iterations": 5}, "num_iterations"),
        ({"seed": -1}, "seed"),
        ({"progress": 3}, "progress"),
    ]:
        with pytest.raises(InvalidInputError, match=named):
            solve_mdp(mdp, **{"rewards": rewards, "level": "1-of-2"} | options)


def hard_problem():
    random = np.random.default_rng(11)
    mdp = TabularMDP(random.dirichlet(np.ones(40), size=(40, 3)), np.full(40, 1 / 40), 0.9)
    return mdp, torch.from_numpy(random.normal(size=(40, 40, 3)))


def test_a_tolerance_that_is_not_reached_is_said_with_the_gap(monkeypatch):
    monkeypatch.setattr("cautious.solvers.tolerance.MOST_ITERATIONS", 30)
    mdp, rewards = hard_problem()
    with pytest.warns(ConvergenceWarning, match=r"certified within .* tolerance=1e-12 .*") as caught:
        solution = solve_mdp(mdp, rewards, "1-of-20", method="learning", tolerance=1e-12)
    gap = float(solution.certificate().gap)
    assert gap > 0
    assert f"{gap:.3g}" in str(caught[0].message)


@pytest.mark.parametrize("levels", ["1-of-20", ["1-of-20", "2-of-20"]])
def test_an_interruption_gives_the_best_policy_so_far_with_its_gap(levels):
    mdp, rewards = hard_problem()

    def interrupt(done, total):
        if done > 0:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = solve_mdp(mdp, rewards, levels, tolerance=1e-9, progress=interrupt)
    certificate = solution.certificate()
    assert bool(torch.isfinite(certificate.gap).all())
    assert bool((certificate.gap > 0).all())


def test_progress_shows_the_gap_falling():
    mdp, rewards = hard_problem()
    calls = []
    solve_mdp(mdp, rewards, "1-of-20", progress=lambda done, total: calls.append(done / total))
    assert calls == sorted(calls)
    assert calls[-1] == 1
    assert len(set(calls)) > 3


def test_options_of_the_paper_select_its_algorithm():
    mdp, rewards = random_world(np.random.default_rng(12), 5, 3, 8)
    options = {"num_iterations": 20, "seed": 3}
    named, chosen = (solve_mdp(mdp, rewards, "1-of-4", **options, **more) for more in ({"method": "cfr"}, {}))
    assert torch.equal(named.policy, chosen.policy)
    assert named.trace.exact_value.shape == (20,)
    assert "tolerance" not in named.record
    assert torch.equal(
        solve_mdp(mdp, rewards, "1-of-4", method="cfr").policy,
        solve_mdp(mdp, rewards, "1-of-4", num_iterations=100).policy,
    )


def test_a_bandit_is_solved_to_a_tolerance_where_that_is_asked_for():
    random = np.random.default_rng(13)
    rewards = torch.from_numpy(random.normal(size=(10, 6, 3)))
    certificate = solve_bandit(rewards, "1-of-4", tolerance=1e-5).certificate()
    best = float(solve_exact(np.full(6, 1 / 6), rewards, "1-of-4").certificate().lower)
    assert best - 1e-5 * spread(rewards) <= float(certificate.lower) <= best + 1e-8
    for options in ({"num_iterations": 5}, {"regime": "single-state"}):
        with pytest.raises(InvalidInputError, match="tolerance"):
            solve_bandit(rewards, "1-of-4", tolerance=1e-5, **options)


def test_projection_onto_the_envelope_is_the_nearest_point():
    """Against the optimality condition: no permutation of the weights lies further along point - nearest."""
    random = np.random.default_rng(14)
    for _ in range(200):
        size = int(random.integers(1, 8))
        weights = np.sort(random.dirichlet(np.ones(size)))[::-1]
        point = random.normal(size=size) * 10.0 ** random.integers(-3, 3)
        nearest = project(point, weights)
        assert nearest.sum() == pytest.approx(1)
        direction = point - nearest
        furthest = worst_weights(-direction, weights)
        assert furthest @ direction <= nearest @ direction + 1e-9 * (1 + abs(point).max())
        np.testing.assert_allclose(project(nearest, weights), nearest, atol=1e-9)


def test_regret_is_what_the_linear_program_says_and_differs_from_return():
    """Where the models agree only that one option is bad under each, return gives up; regret weighs what could be won."""
    random = np.random.default_rng(15)
    for _ in range(20):
        mdp, rewards = random_world(random, 5, 3, 8)
        optima = optimal_policy(mdp, rewards).expected_return
        less = rewards - optima[:, None, None]
        best = float(solve_exact(mdp, less, "1-of-4").certificate().lower)
        solution = solve_mdp(mdp, rewards, "1-of-4", objective="regret")
        certificate, unit = solution.certificate(), spread(rewards)
        assert float(certificate.gap) <= 1e-4 * unit + 1e-12 * float(rewards.abs().max())
        assert best - 1.1e-4 * unit <= float(certificate.lower) <= best + 1e-6 * unit
        assert float(certificate.lower) <= 1e-9 * unit  # nobody has negative regret


def test_no_warning_where_the_tolerance_is_reached():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_mdp(*hard_problem(), "1-of-20")


def test_a_cautious_policy_crosses_the_lake_and_knows_its_gap():
    world, rewards = lake(1000.0)
    best = float(solve_exact(world, rewards, "1-of-20").certificate().lower)
    policy = CautiousPolicy(rewards, "1-of-20", mdp=world)
    decision = policy.decide(range(17))
    assert policy.gap is not None
    assert policy.gap < 1e-3
    assert bool((decision.gap == policy.gap).all())
    assert best - policy.gap - 1e-6 <= float(decision.value[0]) <= best + 1e-6
    assert CautiousPolicy(rewards, "1-of-20").gap is None


def test_a_cautious_policy_warns_of_a_gap_wider_than_its_tolerance(monkeypatch):
    monkeypatch.setattr("cautious.solvers.tolerance.MOST_ITERATIONS", 25)
    monkeypatch.setattr("cautious.solvers.tolerance.MOST_POLICIES", 1)
    monkeypatch.setattr("cautious.solvers.tolerance.LARGEST_QUICK_PROGRAM", 0)
    world, rewards = hard_problem()
    with pytest.warns(ConvergenceWarning, match="certified within"):
        policy = CautiousPolicy(rewards, "1-of-20", mdp=world, tolerance=1e-9)
    assert policy.gap > 1e-9 * spread(rewards)
