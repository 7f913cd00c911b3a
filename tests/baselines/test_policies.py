"""Baselines in worlds small enough to work out by hand."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from cautious import InvalidInputError, KofN, KofNPPO, TabularMDP, WorstCase, baselines, solve_mdp

ONE_STATE = TabularMDP(torch.ones(1, 3, 1), [1.0], 0.9)
BETS = torch.tensor(
    [
        [[0.4, 1.0, 0.3]],
        [[0.4, 1.0, 0.6]],
        [[0.4, 0.1, 0.6]],
        [[0.4, 0.1, 0.6]],
    ]
).double()
"""Four models, three actions: sure .4; on average .55, deviation .52; on average .525, deviation .15, once .3."""


def chosen(policy: torch.Tensor) -> int:
    return int(policy[0].argmax())


def test_each_rule_chooses_what_it_should_in_one_state():
    assert chosen(baselines.risk_neutral(ONE_STATE, BETS)) == 1
    assert chosen(baselines.single_model(ONE_STATE, BETS, model=3)) == 2
    assert chosen(baselines.mean_minus_std(ONE_STATE, BETS, deviations=0.5)) == 2
    assert chosen(baselines.mean_minus_std(ONE_STATE, BETS, deviations=1.0)) == 0
    assert chosen(baselines.one_step_ranking(ONE_STATE, BETS, level=KofN(2, 4))) == 2  # .4, .1, .45
    assert chosen(baselines.one_step_ranking(ONE_STATE, BETS, level=WorstCase())) == 0  # .4, .1, .3


def test_the_worst_case_may_mix_and_is_worth_its_mixture():
    """Of actions 0 and 2: p on the third pays .4 - .1 p, or .4 + .2 p; the second may hedge against the first model."""
    policy = baselines.worst_case(ONE_STATE, BETS)
    worst = float((policy * BETS[:, 0]).sum(dim=1).min())
    certificate = solve_mdp(ONE_STATE, BETS, WorstCase()).certificate(policy)
    assert worst >= 0.4 - 1e-3
    assert float(certificate.gap) <= 1e-3  # the default tolerance is 1e-4 of the range, .9


def test_broil_lies_between_the_mean_and_the_tail():
    """By hand: the second action pays .55 on average and .1 at worst, a quarter of it with the third .53125 and .475."""
    mixed = torch.tensor([[0.0, 0.25, 0.75]], dtype=torch.float64)
    assert chosen(baselines.broil(ONE_STATE, BETS, alpha=0.25, weight=0.0)) == 1
    assert chosen(baselines.broil(ONE_STATE, BETS, alpha=0.25, weight=0.02)) == 1
    for weight in (0.1, 0.5, 1.0):
        policy = baselines.broil(ONE_STATE, BETS, alpha=0.25, weight=weight)
        torch.testing.assert_close(policy, mixed, rtol=0, atol=1e-3)  # the default tolerance is 1e-4 of the range, .9


def test_thompson_sampling_has_the_average_of_the_optima_under_every_reward():
    rng = np.random.default_rng(0)
    world = TabularMDP(rng.dirichlet(np.ones(5), size=(5, 3)), rng.dirichlet(np.ones(5)), 0.8)
    rewards = torch.from_numpy(rng.normal(size=(70, 5, 3)))
    policy = baselines.thompson_sampling(world, rewards)
    from cautious import optimal_policy

    optima = torch.stack([optimal_policy(world, reward).policy for reward in rewards])
    other = torch.from_numpy(rng.normal(size=(5, 3)))
    wanted = world.expected_return(optima, other.expand(70, 5, 3)).mean()
    torch.testing.assert_close(world.expected_return(policy, other), wanted, rtol=0, atol=1e-12)


def test_a_novelty_penalty_avoids_what_is_novel_and_only_that():
    """Two rooms: the left one known, the right one novel and better paid."""
    move = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    world = TabularMDP(move, [1.0, 0.0], 0.9)
    rewards = torch.tensor([[0.2, 0.2], [1.0, 1.0]]).expand(3, 2, 2)
    assert baselines.novelty_penalty(world, rewards, novelty=[0.0, 1.0], weight=0.1).argmax(dim=1).tolist() == [1, 1]
    assert baselines.novelty_penalty(world, rewards, novelty=[0.0, 1.0], weight=2.0).argmax(dim=1).tolist() == [0, 0]
    assert baselines.fixed_fallback(world, rewards, action=0, novelty=[0.0, 1.0]).argmax(dim=1).tolist() == [1, 0]


def test_every_policy_is_one_on_random_worlds_and_none_beats_k_of_n_at_its_own_measure():
    rng = np.random.default_rng(1)
    world = TabularMDP(rng.dirichlet(np.ones(6), size=(6, 3)), rng.dirichlet(np.ones(6)), 0.9)
    rewards = rng.normal(size=(40, 6, 3))
    solution = solve_mdp(world, rewards, "1-of-20")
    best = float(solution.certificate().lower)
    methods = [
        getattr(baselines, name)
        for name in baselines.__all__
        if inspect.isfunction(getattr(baselines, name))
        and "world" in inspect.signature(getattr(baselines, name)).parameters
    ]
    assert len(methods) == 11
    for method in methods:
        policy = method(world, rewards)
        assert policy.shape == (6, 3)
        torch.testing.assert_close(policy.sum(dim=1), torch.ones(6).double(), rtol=0, atol=1e-9)
        assert float(solution.certificate(policy).lower) <= best + 1e-4 * float(np.ptp(rewards))


def test_distance_and_distillation_find_what_is_far():
    rng = np.random.default_rng(2)
    familiar = rng.normal(size=(300, 4)).astype(np.float32)
    near, far = rng.normal(size=(50, 4)), rng.normal(size=(50, 4)) + 6
    for novelty in (baselines.distance_novelty, baselines.rnd_novelty):
        found = novelty(familiar, np.concatenate([near, far]))
        assert float(found[50:].min()) > float(found[:50].median())
    again = [baselines.rnd_novelty(familiar, far, seed=3) for _ in range(2)]
    assert torch.equal(*again)
    assert not torch.equal(again[0], baselines.rnd_novelty(familiar, far, seed=4))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: baselines.single_model(ONE_STATE, BETS, model=4), "model=4 does not exist; the 4 models are 0 to 3"),
        (
            lambda: baselines.novelty_penalty(ONE_STATE, BETS, novelty=[1.0, 2.0]),
            "novelty: expected one number per state",
        ),
        (lambda: baselines.fixed_fallback(ONE_STATE, BETS, action=3), "action=3 does not exist"),
        (lambda: baselines.mean_minus_std(ONE_STATE, BETS, deviations=float("nan")), "deviations"),
        (lambda: baselines.risk_neutral(ONE_STATE, BETS[:, :, :2]), "A=3"),
        (lambda: baselines.distance_novelty([[1.0, 2.0]], [[1.0]]), "they must be the same features"),
        (lambda: baselines.OneReward(3, baselines.mean_reward), "belief is a int"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(InvalidInputError, match=said):
        call()


def test_a_rule_serves_an_agent_that_learns_in_a_simulator():
    """A bandit with one observation: PPO on mean - std takes the sure bet, PPO on the mean the doubtful one."""
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("stable_baselines3")

    class Bets(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.ones(1, np.float32), {}

        def step(self, action):
            return np.ones(1, np.float32), 0.0, False, False, {}

    class Belief:
        def rewards(self, observations):
            return BETS.expand(4, len(observations), 3)

    found = []
    for rule in (baselines.mean_reward, baselines.penalised_reward):
        agent = KofNPPO(
            "MlpPolicy", Bets(), baselines.OneReward(Belief(), rule), "1-of-1", gamma=0.5, n_steps=64, batch_size=64,
            learning_rate=0.02, seed=0, device="cpu",
        ).learn(1_500)  # fmt: skip
        found.append(int(agent.probabilities(np.ones((1, 1), np.float32))[0].argmax()))
    assert found == [1, 0]
