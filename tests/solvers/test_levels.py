"""Levels other than k-of-N: known weights, the same answers where two levels are one, and refusals by name."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from cautious import (
    CautiousPolicy,
    CVaR,
    InvalidInputError,
    KofN,
    Mean,
    MeanCVaR,
    RiskMeasure,
    Solution,
    TabularMDP,
    WorstCase,
    solve_bandit,
    solve_exact,
    solve_mdp,
)
from cautious.risk import parse_level, risk_value, weights_by_rank


@dataclass(frozen=True)
class Dual:
    """A measure of one's own: w_i = (1 - (i-1)/M)^p - (1 - i/M)^p, which never increases for p >= 1."""

    power: float = 2.0

    def __str__(self) -> str:
        return f"dual power {self.power}"

    def rank_weights(self, num_models: int) -> np.ndarray:
        return -np.diff((1 - np.arange(num_models + 1) / num_models) ** self.power)


class Halved(KofN):
    """A subclass with weights of its own: the worst half of the models."""

    def rank_weights(self, num_models: int, replacement: bool = False) -> torch.Tensor:
        return CVaR(0.5).rank_weights(num_models)


def table(seed=0, num_models=12, num_states=5, num_actions=3):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(num_models, num_states, num_actions)))


def world(seed=0, num_states=5, num_actions=3):
    random = np.random.default_rng(seed)
    transitions = random.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    return TabularMDP(transitions, np.full(num_states, 1 / num_states), 0.9)


@pytest.mark.parametrize(
    ("level", "weights"),
    [
        (CVaR(0.5), [0.5, 0.5, 0, 0]),
        (CVaR(0.4), [0.625, 0.375, 0, 0]),  # 1.6 models count: 1 / 1.6 and 0.6 / 1.6
        (CVaR(1), [0.25, 0.25, 0.25, 0.25]),
        (WorstCase(), [1, 0, 0, 0]),
        (Mean(), [0.25, 0.25, 0.25, 0.25]),
        (MeanCVaR(0.25, 0.2), [0.4, 0.2, 0.2, 0.2]),
        (Dual(2.0), [7 / 16, 5 / 16, 3 / 16, 1 / 16]),
    ],
)
def test_weights_by_hand(level, weights):
    assert isinstance(level, RiskMeasure)
    torch.testing.assert_close(weights_by_rank(level, 4), torch.tensor(weights, dtype=torch.float64))
    assert float(risk_value(level, [4.0, 2.0, 3.0, 1.0])) == pytest.approx(np.dot(weights, [1, 2, 3, 4]))


@pytest.mark.parametrize("num_models", [1, 2, 7, 200])
def test_drawing_all_models_is_cvar_and_its_ends_are_the_worst_case_and_the_mean(num_models):
    for k in {1, max(1, num_models // 3), num_models}:
        torch.testing.assert_close(
            KofN(k, num_models).rank_weights(num_models), CVaR(k / num_models).rank_weights(num_models)
        )
    torch.testing.assert_close(KofN(1, num_models).rank_weights(num_models), WorstCase().rank_weights(num_models))
    torch.testing.assert_close(KofN(1, 1).rank_weights(num_models), Mean().rank_weights(num_models))
    torch.testing.assert_close(MeanCVaR(0.3, 1).rank_weights(num_models), CVaR(0.3).rank_weights(num_models))


@pytest.mark.parametrize("level", [KofN(3, 20), CVaR(0.1), CVaR(1 / 3), WorstCase(), Mean(), MeanCVaR(0.05, 0.25)])
def test_text_of_a_level_is_read_back(level):
    assert parse_level(str(level)) == level
    assert parse_level(level) is level


@pytest.mark.parametrize(
    "text",
    [
        "CVaR",
        "CVaR()",
        "CVaR(0)",
        "CVaR(2)",
        "CVaR(x)",
        "CVaR(0.1, 0.2)",
        "Mean(1)",
        "VaR(0.1)",
        "1-of",
        "",
        7,
        None,
        CVaR,
    ],
)
def test_what_is_no_level_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"level|alpha"):
        parse_level(text)


@dataclass(frozen=True)
class Given:
    weights: list

    def __str__(self) -> str:
        return "given"

    def rank_weights(self, num_models: int) -> list:
        return self.weights


@pytest.mark.parametrize(
    ("weights", "rule"),
    [
        ([0.5, 0.5], "expected shape"),
        ([0.2, 0.3, 0.5], "increase with the rank"),
        ([0.9, 0.3, -0.2], "be negative"),
        ([0.5, 0.3, 0.1], "the sum 0.9"),
        ([float("nan"), 0.5, 0.5], "nan"),
        (["a", "b", "c"], "real numbers"),
    ],
)
def test_weights_that_break_a_rule_are_refused_by_the_name_of_the_level(weights, rule):
    with pytest.raises(InvalidInputError, match=rule) as refused:
        solve_bandit(table(num_models=3), Given(weights), sampling="exact")
    assert "given" in str(refused.value)


@pytest.mark.parametrize("level", [CVaR(0.3), WorstCase(), MeanCVaR(0.2, 0.5), Dual(3.0), Halved(1, 2)])
def test_every_solver_serves_every_level(level):
    """All bound the optimum of the linear program; one of one's own is never taken for something else."""
    rewards, mdp = table(), world()
    best = float(solve_exact(mdp, rewards, level).certificate().lower)
    solution = solve_mdp(mdp, rewards, level, sampling="exact", num_iterations=2000, update="regret-matching+")
    certificate = solution.certificate(solution.best_policy)
    assert float(certificate.lower) <= best + 1e-9 <= float(certificate.upper) + 2e-9
    assert float(certificate.gap) < 0.02
    returns = torch.einsum(
        "msa,sa->m", rewards, solution.problem.game.evaluate(solution.best_policy[None]).occupancy[0]
    )
    assert float(certificate.lower) == pytest.approx(float(risk_value(level, returns)))


@pytest.mark.parametrize("regime", ["all-states", "single-state"])
def test_equal_measures_give_equal_policies(regime):
    rewards = table()
    options = {"regime": regime, "sampling": "exact", "num_iterations": 50}
    ours, theirs = (solve_bandit(rewards, level, **options) for level in (CVaR(0.25), KofN(3, 12)))
    torch.testing.assert_close(ours.policy, theirs.policy)
    together = solve_bandit(rewards, [CVaR(0.25), "1-of-4", WorstCase()], **options)
    assert torch.equal(together.policy[0], ours.policy)


def test_single_states_serve_every_level():
    rewards = table(num_states=40)
    ours = CautiousPolicy(rewards, CVaR(0.25)).decide(range(40))
    theirs = CautiousPolicy(rewards, "3-of-12").decide(range(40))
    torch.testing.assert_close(ours.probabilities, theirs.probabilities)
    assert not CautiousPolicy(rewards, Mean()).decide(range(40)).caution.any()
    halved = CautiousPolicy(rewards, Halved(1, 2)).decide(range(40))
    torch.testing.assert_close(halved.probabilities, CautiousPolicy(rewards, CVaR(0.5)).decide(range(40)).probabilities)


@pytest.mark.parametrize("level", [CVaR(0.3), Dual(), Halved(1, 2)])
def test_queue_sampling_refuses_by_name(level):
    for solve in (
        lambda: solve_bandit(table(), level, sampling="queue"),
        lambda: CautiousPolicy(table(), level, sampling="queue").decide([0]),
    ):
        with pytest.raises(InvalidInputError, match=f"{type(level).__name__}.*not k-of-n.*exact"):
            solve()


def test_files_hold_our_levels_and_refuse_others_by_name(tmp_path):
    CautiousPolicy(table(), MeanCVaR(0.1, 0.5)).save(tmp_path / "policy")
    assert CautiousPolicy.load(tmp_path / "policy").level == MeanCVaR(0.1, 0.5)
    solve_bandit(table(), ["CVaR(0.1)", "1-of-3"], sampling="exact").save(tmp_path / "solution")
    assert Solution.load(tmp_path / "solution").level == (CVaR(0.1), KofN(1, 3))
    for level in (Dual(), Halved(1, 2)):
        with pytest.raises(InvalidInputError, match=type(level).__name__):
            CautiousPolicy(table(), level).save(tmp_path / "own")
        with pytest.raises(InvalidInputError, match=type(level).__name__):
            solve_bandit(table(), level, sampling="exact").save(tmp_path / "own")
