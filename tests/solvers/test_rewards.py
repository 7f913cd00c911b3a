"""The same problem from memory, from disk and from a stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import solve_bandit, solve_mdp
from cautious.errors import InvalidInputError
from cautious.solvers import rewards as rewards_module
from cautious.solvers.rewards import as_rewards


class Stream:
    """Rewards asked for a few at a time, counting how many were ever handed out at once."""

    def __init__(self, rewards: torch.Tensor) -> None:
        self.num_models = len(rewards)
        self._rewards = rewards
        self.largest = 0

    def rewards_for(self, indices):
        self.largest = max(self.largest, len(indices))
        return self._rewards[indices]


@pytest.mark.parametrize("sampling", ["queue", "exact"])
@pytest.mark.parametrize("regime", ["all-states", "single-state"])
def test_a_stream_and_a_file_give_what_memory_gives(generator, tmp_path, sampling, regime):
    rewards = torch.randn(24, 6, 3, generator=generator, dtype=torch.float64)
    np.save(tmp_path / "rewards.npy", rewards.numpy())
    on_disk = np.load(tmp_path / "rewards.npy", mmap_mode="r")
    options = {"sampling": sampling, "regime": regime, "num_iterations": 15, "num_runs": 2}
    expected = solve_bandit(rewards, ["1-of-4", "4-of-4"], **options)
    for source in (Stream(rewards), on_disk, rewards.numpy(), rewards.tolist()):
        solution = solve_bandit(source, ["1-of-4", "4-of-4"], **options)
        assert torch.allclose(solution.policy, expected.policy, rtol=0, atol=1e-9)
        certificate = solution.certificate(solution.best_policy)
        assert bool((certificate.gap >= 0).all())
        assert torch.allclose(certificate.lower, solution.exact_value(solution.best_policy), rtol=0, atol=1e-12)


def test_a_stream_works_in_an_mdp(random_problem):
    mdp, rewards = random_problem(num_models=40)
    expected = solve_mdp(mdp, rewards, "2-of-5", num_iterations=30)
    stream = Stream(rewards)
    solution = solve_mdp(mdp, stream, "2-of-5", num_iterations=30)
    assert torch.allclose(solution.policy, expected.policy, rtol=0, atol=1e-9)
    assert stream.largest == 5  # nobody asked for more than a draw


def test_a_stream_is_read_in_blocks(random_problem, monkeypatch):
    mdp, rewards = random_problem(num_models=40)
    monkeypatch.setattr(rewards_module, "BLOCK_BYTES", 7 * 6 * 3 * 8)
    stream = Stream(rewards)
    solution = solve_mdp(mdp, stream, "2-of-5", num_iterations=30, sampling="exact")
    assert stream.largest == 7
    expected = solve_mdp(mdp, rewards, "2-of-5", num_iterations=30, sampling="exact")
    assert torch.allclose(solution.policy, expected.policy, rtol=0, atol=1e-9)


def test_a_stream_is_never_loaded_whole_in_the_single_state_regime(generator, monkeypatch):
    rewards = torch.randn(40, 6, 3, generator=generator, dtype=torch.float64)
    monkeypatch.setattr(rewards_module, "BLOCK_BYTES", 7 * 6 * 3 * 8)
    stream = Stream(rewards)
    solution = solve_bandit(stream, "2-of-5", regime="single-state", num_iterations=20)
    certificate = solution.certificate(solution.best_policy)
    assert stream.largest == 7
    expected = solve_bandit(rewards, "2-of-5", regime="single-state", num_iterations=20, track_exact=False)
    assert torch.allclose(certificate.lower, expected.exact_value(solution.best_policy), rtol=0, atol=1e-12)


def test_lists_keep_their_digits_and_odd_arrays_come_in():
    assert float(as_rewards([[[0.1]]]).rewards_for(torch.tensor([0]))) == 0.1
    array = np.arange(12.0).reshape(3, 2, 2)
    for odd in (array[::-1], array.astype(">f8"), array.astype(np.longdouble), list(torch.tensor(array))):
        assert as_rewards(odd).num_models == 3
    with pytest.raises(InvalidInputError, match="device"):
        as_rewards(array, device="nonsense")


def test_large_float32_rewards_stay_float32_and_are_certified_in_float64(generator, monkeypatch):
    rewards = torch.randn(50, 8, 4, generator=generator)
    exact = solve_bandit(rewards.double(), "1-of-5", num_iterations=50, sampling="exact")
    monkeypatch.setattr(rewards_module, "FLOAT64_BYTES", 0)
    single = solve_bandit(rewards, "1-of-5", num_iterations=50, sampling="exact")
    reference = exact.certificate(single.average_policy)
    certificate = single.certificate(single.average_policy)
    assert float(certificate.lower) == pytest.approx(float(reference.lower), abs=1e-14)
    assert float(certificate.gap) < 0.1


BAD = [
    (torch.zeros(3, 2), "expected shape"),
    (torch.zeros(3, 2, 2, 2), "expected shape"),
    (torch.zeros(0, 2, 2), "empty"),
    (torch.zeros(3, 0, 2), "empty"),
    (torch.full((3, 2, 2), torch.nan), "not finite"),
    (torch.full((3, 2, 2), -torch.inf), "not finite"),
    (np.full((3, 2, 2), np.nan), "not finite"),
    ("rewards", "array of real numbers"),
]


@pytest.mark.parametrize(("rewards", "message"), BAD)
def test_bad_rewards_are_refused(rewards, message):
    for solve in (lambda r: solve_bandit(r, "1-of-2"), as_rewards):
        with pytest.raises(InvalidInputError, match=message):
            solve(rewards)


def test_bad_streams_are_refused():
    class Sizeless:
        def rewards_for(self, indices):
            return torch.zeros(len(indices), 2, 2)

    class Lying(Sizeless):
        num_models = 5

        def rewards_for(self, indices):
            return torch.zeros(1, 2, 2)

    class Spoiled(Sizeless):
        num_models = 5

        def rewards_for(self, indices):
            return torch.where(indices[:, None, None] == 3, torch.nan, 0.0).expand(-1, 2, 2)

    for source, message in ((Sizeless(), "num_models"), (Lying(), "expected shape"), (Spoiled(), "not finite")):
        with pytest.raises(InvalidInputError, match=message):
            solve_bandit(source, "2-of-5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "0-of-3"}, "k=0"),
        ({"level": "4-of-3"}, "k=4 exceeds n=3"),
        ({"level": "1-of-30"}, "n=30 exceeds the 6 models"),
        ({"level": []}, "names no level"),
        ({"level": 3}, "level=3 is not a level"),
        ({"regime": "some-states"}, "'all-states', 'single-state'"),
        ({"sampling": "random"}, "'queue', 'exact'"),
        ({"update": "hedge"}, r"'regret-matching', 'regret-matching\+', 'as-printed'"),
        ({"num_iterations": 0}, "num_iterations=0"),
        ({"num_runs": 0}, "num_runs=0"),
        ({"seed": -1}, "seed=-1"),
        ({"state_dist": [0.5, 0.6]}, "state_dist"),
        ({"state_dist": [1.0]}, r"expected shape \[S\] with S=2"),
    ],
)
def test_bad_requests_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        solve_bandit(torch.zeros(6, 2, 2), **{"level": "1-of-2", **options})


def test_an_mdp_and_its_rewards_must_fit(random_problem):
    mdp, rewards = random_problem()
    with pytest.raises(InvalidInputError, match=r"S=6 A=3 as the MDP has, got \[12, 6, 2\]"):
        solve_mdp(mdp, rewards[..., :2], "1-of-2")
    with pytest.raises(InvalidInputError, match="TabularMDP"):
        solve_mdp("world", rewards, "1-of-2")
