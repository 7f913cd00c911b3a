"""CautiousPolicy: decisions by hand, in loops, on disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious import CautiousPolicy, KofN, RewardEnsemble, TabularMDP, fit_ensemble, solve_exact, solve_mdp
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import CHECKSUM, load_json, save_json
from cautious.policy.decision import has_disagreement, ordinary_policy
from cautious.solvers.per_state import STATES_PER_TASK
from cautious_paper.networks.image import ImageNetwork

GAMBLE = torch.tensor([[[1.0, 0.25], [0.9, 0.0]], [[0.0, 0.25], [0.9, 0.0]]])
"""Two models, two states, two actions: they disagree about the gamble in state 0, and agree in state 1."""


def test_careful_where_models_disagree_and_ordinary_where_they_agree():
    decision = CautiousPolicy(GAMBLE, "1-of-2").decide([0, 1, 0])
    assert decision.action.tolist() == [1, 0, 1]
    assert decision.ordinary.tolist() == [[1, 0], [1, 0], [1, 0]]
    # 1-of-2 maximises E min over both orders of draw = the worse model's value: p * 0 + (1 - p) * 0.25
    assert float(decision.caution[0]) > 0.98
    assert float(decision.caution[1]) < 0.02
    assert torch.equal(decision.caution, 0.5 * (decision.probabilities - decision.ordinary).abs().sum(dim=1))
    assert torch.equal(decision.opinions(), GAMBLE[:, [0, 1, 0]])
    assert decision.probabilities.requires_grad_().sum().requires_grad  # a tensor as any other


def test_the_ordinary_level_is_not_cautious_at_all():
    decision = CautiousPolicy(GAMBLE, "2-of-2").decide([0, 1])
    assert decision.caution.tolist() == [0, 0]


def test_a_decision_does_not_depend_on_what_else_is_asked(generator):
    belief = torch.randn(40, 12, 4, generator=generator)
    policy = CautiousPolicy(belief, "1-of-10")
    together = policy.decide(range(12))
    for state in (0, 7, 11):
        alone = policy.decide([state])
        assert torch.equal(alone.probabilities[0], together.probabilities[state])
        assert torch.equal(alone.caution[0], together.caution[state])


@pytest.fixture
def three_threads() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(usual)


@pytest.mark.usefixtures("three_threads")
def test_more_states_than_one_core_takes_decide_the_same(generator):
    belief = torch.randn(10, 3 * STATES_PER_TASK + 5, 3, generator=generator)
    policy = CautiousPolicy(belief, "1-of-5", num_iterations=20)
    told: list[tuple[int, int]] = []
    levels, states = [KofN(1, 5), KofN(5, 5)], range(belief.shape[1])
    together = [each.caution for each in policy.decide_at(levels, states, progress=lambda *step: told.append(step))]
    assert torch.equal(together[0], policy.decide(range(belief.shape[1])).caution)
    assert not together[1].any()
    for state in (0, STATES_PER_TASK - 1, belief.shape[1] - 1):
        assert torch.equal(policy.decide([state]).caution[0], together[0][state])
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]  # tasks: 196 of the 197 states need a game


@pytest.mark.usefixtures("three_threads")
def test_who_is_told_may_stop_it_at_once(generator):
    policy = CautiousPolicy(
        torch.randn(10, 40 * STATES_PER_TASK, 3, generator=generator), "1-of-5", num_iterations=1000, tolerance=0
    )
    told = []

    def stop(done: int, total: int) -> None:
        told.append(done)
        if done == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        policy.decide_at([KofN(1, 5)], range(40 * STATES_PER_TASK), progress=stop)
    assert len(told) < 20  # the others may be some tasks further until they hear of it


@pytest.mark.usefixtures("three_threads")
def test_deciding_in_several_threads_leaves_torch_as_it_was(generator):
    policy = CautiousPolicy(torch.randn(10, 200, 3, generator=generator), "1-of-5", num_iterations=20)
    threads = [threading.Thread(target=policy.decide, args=(range(200),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [3]


@settings(deadline=None)  # the first example may compile
@given(rewards=arrays(np.float64, (4, 3, 3), elements=st.sampled_from([0.0, 0.5, 1.0])), k=st.integers(1, 4))
def test_where_no_model_objects_the_ordinary_policy_is_best(rewards: np.ndarray, k: int):
    """Few different numbers, so that there are ties; the optimum is that of the linear programme."""
    table = torch.from_numpy(rewards)
    ordinary = ordinary_policy(table)
    settled = ~has_disagreement(table, ordinary)
    level = KofN(k, 4)
    for state in settled.nonzero().flatten().tolist():
        value = level.value(table[:, state] @ ordinary[state])
        best = solve_exact([1.0], table[:, state : state + 1], level)
        assert float(value) >= float(best.certificate(best.policy).lower) - 1e-9
        decision = CautiousPolicy(table, level).decide([state])
        assert torch.equal(decision.probabilities[0], ordinary[state])
        assert float(decision.caution) == 0
    for state in (~settled).nonzero().flatten().tolist():
        likes = table[:, state] == table[:, state].amax(dim=1, keepdim=True)
        assert not bool((likes | (ordinary[state] == 0)).all())


def test_predict_takes_one_or_many(generator):
    states = torch.randn(30, 2, generator=generator)
    belief = fit_ensemble(
        states, torch.cat([states, -states], dim=1), num_models=20, num_epochs=3, progress=False, validation_fraction=0
    )
    policy = CautiousPolicy(belief, "1-of-10", num_iterations=10)
    one, memory = policy.predict(states[0].numpy())
    assert np.ndim(one) == 0
    assert memory is None
    many, _ = policy.predict(states[:5].numpy(), deterministic=True)
    assert many.shape == (5,)
    assert many[0] == one
    assert policy.predict(states[:5])[0].tolist() == many.tolist()
    drawn = np.stack([policy.predict(states[:5], deterministic=False)[0] for _ in range(100)])
    expected = policy.decide(states[:5]).probabilities.numpy()
    seen = np.stack([(drawn == action).mean(axis=0) for action in range(4)], axis=1)
    assert np.abs(seen - expected).max() < 0.2  # 100 draws: four deviations of 0.05


def test_it_drives_a_gymnasium_loop():
    network = ImageNetwork(11, help_bit=True)
    weights = torch.from_numpy(np.stack([network.init(np.random.default_rng(i)) for i in range(20)])).float()
    policy = CautiousPolicy(RewardEnsemble(network, weights), "1-of-20", num_iterations=5)
    env = gymnasium.make("cautious/HelpIfAvailable-v0", world="fashion")
    seen, _ = env.reset(seed=0)
    for _ in range(3):
        action, _ = policy.predict(seen)
        assert env.action_space.contains(action)
        own = (seen["image"][None], [bool(seen["help_available"])])
        assert int(action) == int(policy.decide(own).action)
        seen, *_ = env.step(action)


def test_in_an_mdp_the_policy_is_that_of_the_solver(random_problem):
    mdp, rewards = random_problem()
    policy = CautiousPolicy(rewards, "1-of-6", mdp=mdp, num_iterations=50)
    solution = solve_mdp(mdp, rewards, ["1-of-6"], sampling="exact", num_iterations=50)
    decision = policy.decide(range(6))
    assert torch.equal(decision.probabilities, solution.best_policy[0])
    assert policy.predict(3)[0] == decision.action[3]


def test_what_is_saved_decides_the_same(tmp_path, random_problem, generator):
    mdp, rewards = random_problem()
    states = torch.randn(20, 2, generator=generator)
    ensemble = fit_ensemble(states, states, num_models=10, num_epochs=2, progress=False, validation_fraction=0)
    for name, policy, asked in (
        ("table", CautiousPolicy(GAMBLE, "1-of-2"), [0, 1]),
        ("mdp", CautiousPolicy(rewards, "1-of-6", mdp=mdp, num_iterations=20), range(6)),
        ("ensemble", CautiousPolicy(ensemble, "2-of-5"), states),
    ):
        policy.save(tmp_path / name)
        loaded = CautiousPolicy.load(tmp_path / name)
        assert loaded.level == policy.level
        assert torch.equal(loaded.decide(asked).probabilities, policy.decide(asked).probabilities)
    path = tmp_path / "table" / "policy.json"
    save_json(path, {name: value for name, value in load_json(path).items() if name != CHECKSUM} | {"level": "3-of-2"})
    with pytest.raises(BadFileError, match="k=3 exceeds n=2"):
        CautiousPolicy.load(tmp_path / "table")


def test_mistakes_are_named(generator):
    with pytest.raises(InvalidInputError, match="n=20"):
        CautiousPolicy(GAMBLE, "1-of-20")
    with pytest.raises(InvalidInputError, match="counted from 0"):
        CautiousPolicy(GAMBLE, "1-of-2").decide([2])
    with pytest.raises(InvalidInputError, match="whole numbers"):
        CautiousPolicy(GAMBLE, "1-of-2").decide([0.5])
    with pytest.raises(InvalidInputError, match="belief"):
        CautiousPolicy(GAMBLE * torch.nan, "1-of-2")
    with pytest.raises(InvalidInputError, match="sampling"):
        CautiousPolicy(GAMBLE, "1-of-2", sampling="some")
    with pytest.raises(InvalidInputError, match=r"RewardEnsemble\.load"):
        CautiousPolicy("ask-for-help", "1-of-2")

    class Own:
        num_models = 2

        def rewards(self, states):
            return torch.zeros(2, len(states), 2)

    policy = CautiousPolicy(Own(), "1-of-2")
    assert policy.decide(torch.zeros(3, 4)).caution.shape == (3,)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        policy.save("nowhere")
    mdp = TabularMDP(torch.ones(1, 2, 1), [1.0], 0.5)
    with pytest.raises(InvalidInputError, match="array"):
        CautiousPolicy(Own(), "1-of-2", mdp=mdp)


def test_a_decision_shows_what_it_decides_and_nothing_private():
    gamble_or_help = torch.tensor([[[1.0, 0.25], [1.0, 0.25]], [[1.0, 0.25], [0.0, 0.25]]])
    policy = CautiousPolicy(gamble_or_help, "1-of-2")
    assert repr(policy) == "CautiousPolicy(1-of-2, 2 models, 2 actions)"
    assert repr(policy.decide([0, 1])) == "Decision(2 states: action 0 in 1, action 1 in 1; 1 depart)"


def test_a_table_is_the_policys_own():
    table = np.random.default_rng(0).random((20, 3, 4))
    policy = CautiousPolicy(table, "1-of-5")
    before = policy.decide([0, 1, 2]).probabilities
    table[:] = np.eye(4)[2]
    assert torch.equal(policy.decide([0, 1, 2]).probabilities, before)
