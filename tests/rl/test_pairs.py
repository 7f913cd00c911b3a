"""Beliefs from models of pairs and of the states that are entered."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_worlds import Bandit, Line

from cautious import KofNPPO, fit_ensemble, rewards_of_next_states, rewards_of_pairs
from cautious.errors import InvalidInputError

SMALL = {
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 4,
    "learning_rate": 3e-3,
    "gamma": 0.9,
    "seed": 0,
    "device": "cpu",
}
STATES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_a_function_a_list_and_a_belief_say_the_same():
    actions = np.array([1, 0, 1])

    class Rows:
        """Of a row (s0, s1, [a = 0], [a = 1]): s0 for action 1, -s1 for action 0, and twice that."""

        def rewards(self, rows):
            paid = rows[:, 0] * rows[:, 3] - rows[:, 1] * rows[:, 2]
            return np.stack([paid, 2 * paid])[:, :, None]

    def one(states, actions):
        return np.where(actions == 1, states[:, 0], -states[:, 1])

    beliefs = [
        rewards_of_pairs(lambda s, a: np.stack([one(s, a), 2 * one(s, a)]), num_actions=2),
        rewards_of_pairs([one, lambda s, a: 2 * one(s, a)], num_actions=2),
        rewards_of_pairs(Rows(), num_actions=2),
    ]
    for belief in beliefs:
        paid = belief.step_rewards(STATES, actions, None)
        assert paid.tolist() == [[1, -4, 5], [2, -8, 10]]
        every = belief.rewards(STATES)
        assert every[0].tolist() == [[-2, 1], [-4, 3], [-6, 5]]
        assert torch.equal(every[:, [0, 1, 2], actions], paid)


def test_continuous_actions_are_joined_as_they_are():
    class Rows:
        def rewards(self, rows):
            assert rows.shape == (3, 3)
            return rows.sum(axis=1)[None, :, None]

    belief = rewards_of_pairs(Rows())
    assert not hasattr(belief, "rewards")
    assert belief.step_rewards(STATES, np.array([[0.5], [0.0], [-1.0]]), None).tolist() == [[3.5, 7, 10]]


def test_an_ensemble_trained_on_pairs_steers_an_agent():
    """Logged pairs of a place and a push pay the push to the right; PPO pushes right, with continuous actions."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    ensemble = fit_ensemble(rows, rows[:, 1:], num_models=3, num_epochs=20, progress=False)
    agent = KofNPPO("MlpPolicy", Line(), rewards_of_pairs(ensemble), "1-of-3", **SMALL).learn(3000)
    assert agent.predict(np.zeros(1, np.float32), deterministic=True)[0] > 0.3


def test_models_of_the_state_entered_steer_an_agent():
    belief = rewards_of_next_states([lambda entered: -entered[:, 0], lambda entered: -2 * entered[:, 0]])
    agent = KofNPPO("MlpPolicy", Line(), belief, "1-of-2", **{**SMALL, "n_steps": 256}).learn(4000)
    assert agent.predict(np.zeros(1, np.float32), deterministic=True)[0] < -0.3


def test_numbered_pairs_have_a_certificate_too(random_problem):
    from small_worlds import TableVectorEnv

    mdp, rewards = random_problem(num_states=4, num_actions=2, num_models=5)
    table = np.asarray(rewards)
    belief = rewards_of_pairs(lambda states, actions: table[:, states, actions], num_actions=2)
    settings = {**SMALL, "batch_size": 128}
    ours, theirs = (
        KofNPPO("MlpPolicy", TableVectorEnv(mdp), known, "1-of-3", **settings).learn(2048) for known in (belief, table)
    )
    assert torch.equal(ours.probabilities(np.arange(4)), theirs.probabilities(np.arange(4)))
    assert ours.certificate(mdp, np.arange(4)).lower == theirs.certificate(mdp, np.arange(4)).lower


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rewards_of_pairs(3), "rewards_of_pairs: model is a int; pass a function"),
        (lambda: rewards_of_pairs([]), "model is a list"),
        (lambda: rewards_of_next_states([1, 2]), "rewards_of_next_states: model is a list"),
        (lambda: rewards_of_pairs(lambda s, a: s, num_actions=0), "num_actions"),
        (
            lambda: rewards_of_pairs(fitted()).step_rewards(STATES, np.array([0, 1, 0]), None),
            "actions are numbered; pass num_actions",
        ),
        (
            lambda: rewards_of_pairs(fitted(), 2).step_rewards({"place": STATES}, np.array([0, 1, 0]), None),
            "observations are dictionaries",
        ),
        (
            lambda: rewards_of_next_states(lambda s: s[:, 0]).step_rewards(None, None, STATES),
            r"expected shape \[M, B\]",
        ),
        (lambda: rewards_of_next_states([lambda s: s]).step_rewards(None, None, STATES), r"expected shape \[B\]"),
        (lambda: rewards_of_next_states(fitted(2)).step_rewards(None, None, STATES), "A=1"),
    ],
)
def test_what_is_no_model_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def fitted(outputs: int = 1):
    class Zeros:
        def rewards(self, rows):
            return np.zeros((2, len(rows), outputs))

    return Zeros()


def test_a_bandit_of_pairs_is_careful():
    belief = rewards_of_pairs(
        [lambda s, a: np.where(a == 1, 1.0, 0.2), lambda s, a: np.where(a == 1, -0.4, 0.2)], num_actions=2
    )
    agent = KofNPPO("MlpPolicy", Bandit(), belief, "1-of-2", **SMALL).learn(3000)
    assert agent.probabilities([0])[0, 0] > 0.95
