"""`CautiousPolicy` in an uncertain world: one policy per episode, in loops as Gymnasium's users write them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cautious import BadFileError, CautiousPolicy, InvalidInputError, UncertainMDP, UncertainSolution, solve_mdp

pytestmark = [
    pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning"),
    pytest.mark.filterwarnings("ignore::cautious.errors.ConvergenceWarning"),
]


@pytest.fixture(params=[None, 3])
def world(request) -> UncertainMDP:
    """Two doors, and models that disagree which of them pays: mixing is worth 1/2, either door alone nothing."""
    chance = np.zeros((2, 3, 2, 3))
    chance[0, 0], chance[1, 0] = np.eye(3)[[1, 2]], np.eye(3)[[2, 1]]
    chance[:, 1:] = np.eye(3)[1:, None]
    return UncertainMDP(chance, [1, 0, 0], 0.5, horizon=request.param)


PAYS = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


def test_each_episode_plays_one_policy_of_the_mixture(world):
    policy = CautiousPolicy(PAYS, "1-of-2", mdp=world)
    weights = policy.solution.mixture.weights
    assert sorted(weights.tolist()) == pytest.approx([0.5, 0.5])
    drawn = []
    for seed in range(200):
        policy.reset(seed)
        drawn.append(int(policy.predict(0)[0]))
        policy.reset(seed)
        assert int(policy.predict(0)[0]) == drawn[-1]
    assert 60 < sum(drawn) < 140
    assert policy.gap == pytest.approx(float(policy.solution.certificate().gap))
    assert policy.decide([0, 1]).probabilities.shape == (2, 2)


def test_episode_start_draws_anew(world):
    policy = CautiousPolicy(PAYS, "1-of-2", mdp=world, seed=1)
    actions = {int(policy.predict(np.array([0]), episode_start=np.array([True]))[0][0]) for _ in range(50)}
    assert actions == {0, 1}


def test_time_passes_in_a_world_with_a_horizon():
    """Only the second of two steps pays for action 1: the policy knows which step it is."""
    world = UncertainMDP(np.ones((12, 2, 2, 2)) / 2, [1, 0], 1.0, horizon=2)
    mixture = solve_mdp(world, [[1.0, 0.0], [0.0, 1.0]], "1-of-1").mixture
    assert mixture.policies.shape == (1, 2, 2, 2)
    policy = CautiousPolicy([[1.0, 0.0], [0.0, 1.0]], "1-of-1", mdp=world)
    assert [int(policy.predict(state)[0]) for state in (0, 1)] == [0, 1]


def test_saved_and_loaded(world, tmp_path):
    policy = CautiousPolicy(PAYS, "1-of-2", mdp=world)
    policy.save(tmp_path / "policy")
    again = CautiousPolicy.load(tmp_path / "policy")
    assert torch.equal(again.solution.mixture.policies, policy.solution.mixture.policies)
    policy.solution.save(tmp_path / "solution")
    solution = UncertainSolution.load(tmp_path / "solution")
    assert str(solution.certificate()) == str(policy.solution.certificate())
    assert torch.equal(solution.returns(world, PAYS), policy.solution.returns())
    world.save(tmp_path / "world.safetensors")
    loaded = UncertainMDP.load(tmp_path / "world.safetensors")
    assert torch.equal(loaded.transitions, world.transitions)
    assert (loaded.horizon, loaded.discount) == (world.horizon, world.discount)
    (tmp_path / "other.safetensors").write_bytes(b"no file")
    with pytest.raises(BadFileError):
        UncertainMDP.load(tmp_path / "other.safetensors")


def test_other_levels_and_regret(world):
    policy = CautiousPolicy(PAYS, "1-of-2", mdp=world)
    assert [each.caution.shape for each in policy.decide_at(["2-of-2", "1-of-2"], [0])] == [(1,), (1,)]
    regret = solve_mdp(world, PAYS, "1-of-2", objective="regret")
    assert float(regret.certificate().lower) == pytest.approx(float((regret.returns() - regret.best_returns).min()))


def test_an_interrupt_returns_the_best_so_far():
    """At a call of the progress; the bounds hold all the same."""

    def interrupt(done: int, total: int) -> None:
        if done < total:
            raise KeyboardInterrupt

    rng = np.random.default_rng(0)
    world = UncertainMDP(rng.dirichlet(np.full(4, 0.3), size=(12, 4, 2)), np.eye(4)[0], 0.9)
    rewards = rng.normal(size=(4, 2))
    stopped = solve_mdp(world, rewards, "1-of-4", progress=interrupt)
    whole = solve_mdp(world, rewards, "1-of-4", tolerance=0.01)
    assert stopped.record["interrupted"]
    assert float(stopped.certificate().lower) <= float(whole.certificate().lower) + 1e-9
    assert float(whole.certificate().upper) <= float(stopped.certificate().upper) + 1e-9


def test_both_bounds_are_shown(world, capsys):
    solve_mdp(world, PAYS, "1-of-2", progress=True)
    said = capsys.readouterr().err
    assert said.startswith("solving; the first call of an installation compiles")
    assert "lower" in said
    steps = []
    solve_mdp(world, PAYS, "1-of-2", progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1]
    assert steps == sorted(steps)


EVEN = np.full((2, 2, 2, 2), 0.5)
BAD = {
    "sums to": (lambda: UncertainMDP(EVEN * [[[[1]]], [[[0.9]]]], [1, 0], 0.9), "model 1, state 0, action 0 sums to 0.9"),
    "negative": (lambda: UncertainMDP(EVEN * [[[[3, -1]]], [[[1, 1]]]], [1, 0], 0.9), "of model 0 is -0.5"),
    "not finite": (lambda: UncertainMDP(EVEN * np.nan, [1, 0], 0.9), "model 0 is nan"),
    "sizes": (lambda: UncertainMDP([EVEN[0], np.ones((3, 1, 3)) / 3], [1, 0], 0.9), "model 1 has shape"),
    "sparse sizes": (
        lambda: UncertainMDP([torch.eye(2).to_sparse(), torch.eye(3).to_sparse()], [1, 0], 0.9),
        "model 1 has 3 states and 1 actions, model 0 has 2 states and 1 actions",
    ),
    "horizon": (lambda: UncertainMDP(EVEN, [1, 0], 0.9, horizon=0), "horizon=0 is too small"),
    "discount": (lambda: UncertainMDP(EVEN, [1, 0], 1.0), "without a horizon"),
    "no start": (lambda: UncertainMDP(EVEN), "initial_state_dist: pass it"),
    "start": (lambda: UncertainMDP(EVEN, [1, 0, 0], 0.9), "with S=2"),
    "one model": (lambda: UncertainMDP(EVEN[0], [1, 0], 0.9), "M, S, A, S"),
    "rewards": (lambda: solve_mdp(UncertainMDP(EVEN, [1, 0], 0.9), np.ones((3, 2, 2)), "1-of-2"), "with M=2"),
    "objective": (lambda: solve_mdp(UncertainMDP(EVEN, [1, 0], 0.9), np.ones((2, 2)), "1-of-2", objective="x"), "'regret'"),
    "tolerance": (lambda: solve_mdp(UncertainMDP(EVEN, [1, 0], 0.9), np.ones((2, 2)), "1-of-2", tolerance=2), "tolerance=2"),
    "option": (lambda: solve_mdp(UncertainMDP(EVEN, [1, 0], 0.9), np.ones((2, 2)), "1-of-2", num_iterations=3), "one solver"),
    "level": (lambda: solve_mdp(UncertainMDP(EVEN, [1, 0], 0.9), np.ones((2, 2)), "1-of-3"), "2 models"),
    "policy": (lambda: UncertainMDP(EVEN, [1, 0], 0.9).returns(np.ones((3, 2, 2)) / 2, np.ones((5, 2))), "rewards"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, says = BAD[case]
    with pytest.raises(InvalidInputError, match=says):
        call()


def test_unusual_but_right_input():
    one = UncertainMDP(EVEN[:1], [1, 0], 0.9)
    assert float(solve_mdp(one, [[1.0, 0.0], [0.0, 0.0]], "1-of-1").certificate().gap) < 1e-9
    equal = UncertainMDP(np.repeat(EVEN[:1], 12, axis=0), [1, 0], 0.9)
    assert float(solve_mdp(equal, [[1.0, 0.0], [0.0, 0.0]], "1-of-2").certificate().gap) < 1e-9
    # No transition that two models share, sparse and dense.
    stay, move = np.eye(2)[:, None], np.eye(2)[::-1][:, None]
    apart = UncertainMDP(np.array([stay, move]), [1, 0], 0.9)
    sparse = UncertainMDP([torch.tensor(each[:, 0].copy()).to_sparse() for each in (stay, move)], [1, 0], 0.9)
    assert torch.equal(apart.transitions, sparse.transitions)
    solution = solve_mdp(apart, [[1.0], [0.0]], "1-of-2")
    assert torch.equal(solution.returns(sparse), solution.returns())
    # Models that are worlds of their own give start and discount.
    again = UncertainMDP(list(apart))
    assert (again.discount, again.initial_state_dist.tolist()) == (0.9, [1.0, 0.0])
    assert torch.equal(again.mean_model().transitions, apart.transitions.mean(dim=0, keepdim=True))
    assert len(apart.subset([1])) == 1
    # Rewards alone in doubt.
    assert (
        len(
            solve_mdp(
                UncertainMDP.from_tabular(apart[0]), np.random.default_rng(0).normal(size=(5, 2, 1)), "1-of-2"
            ).returns()
        )
        == 5
    )
    with pytest.raises(IndexError):
        apart[2]


def test_a_world_too_large_for_the_tree_says_h_0():
    rng = np.random.default_rng(0)
    from cautious.solvers.uncertain import revealed

    world = UncertainMDP(rng.dirichlet(np.ones(3), size=(20, 3, 2)), [1, 0, 0], 0.9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revealed, "LARGEST_TREE", 20)
        certificate = solve_mdp(world, rng.normal(size=(3, 2)), "1-of-2").certificate()
    assert certificate.depth == 0
    assert "h = 0" in str(certificate)
