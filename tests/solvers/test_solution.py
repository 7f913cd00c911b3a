"""A solution is data: saved, loaded and certified again."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from cautious import Solution, solve_bandit, solve_exact, solve_mdp
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.io.arrays import load_json, save_json
from cautious.solvers.certificate import certify, exact_mixtures
from cautious.types import Update

ARRAYS = ("policy", "average_policy", "best_policy")


def solutions(mdp, rewards):
    """One of every kind: game, shape, tracked or not, iterative or exact."""
    yield solve_mdp(mdp, rewards, "2-of-5", num_iterations=12)
    yield solve_mdp(mdp, rewards, ["1-of-5", "5-of-5"], num_iterations=12, num_runs=2, sampling="exact")
    yield solve_bandit(rewards.float(), "1-of-4", num_iterations=12, num_runs=3, track_exact=False)
    yield solve_bandit(rewards, ["1-of-4"], regime="single-state", num_iterations=12, update="regret-matching+")
    yield solve_exact(mdp, rewards, "2-of-5")


@pytest.mark.parametrize("number", range(5))
def test_what_is_loaded_has_the_bits_of_what_was_saved(random_problem, tmp_path, number):
    solution = list(solutions(*random_problem()))[number]
    solution.save(tmp_path)
    loaded = Solution.load(tmp_path)
    assert (loaded.level, loaded.record, repr(loaded)) == (solution.level, solution.record, repr(solution))
    for name in ARRAYS:
        assert torch.equal(getattr(loaded, name), getattr(solution, name))
    for name, column in vars(solution.trace).items():
        assert torch.equal(getattr(loaded.trace, name).nan_to_num(), column.nan_to_num())
    for policy in (None, solution.best_policy):
        ours, theirs = loaded.certificate(policy), solution.certificate(policy)
        assert torch.equal(ours.lower, theirs.lower)
        assert torch.equal(ours.upper, theirs.upper)


def test_a_copy_stands_on_its_own(random_problem):
    solution = solve_mdp(*random_problem(), "2-of-5", num_iterations=5)
    copied = copy.deepcopy(solution)
    assert torch.equal(copied.certificate(copied.best_policy).gap, solution.certificate(solution.best_policy).gap)
    assert not any(callable(value) for value in vars(solution).values())


def test_a_second_save_replaces_the_first(random_problem, tmp_path):
    mdp, rewards = random_problem()
    solve_mdp(mdp, rewards, "2-of-5", num_iterations=3).save(tmp_path)
    solve_bandit(rewards, "1-of-5", num_iterations=3).save(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    assert str(Solution.load(tmp_path).level) == "1-of-5"


def test_streamed_rewards_are_passed_again(random_problem, tmp_path):
    mdp, rewards = random_problem()

    class Stream:
        num_models = len(rewards)

        def rewards_for(self, indices):
            return rewards[indices]

    solution = solve_mdp(mdp, Stream(), "2-of-5", num_iterations=5)
    solution.save(tmp_path)
    without = Solution.load(tmp_path)
    assert torch.equal(without.best_policy, solution.best_policy)
    with pytest.raises(InvalidInputError, match=r"Solution\.load\(folder, rewards\)"):
        without.certificate()
    again = Solution.load(tmp_path, Stream())
    assert torch.equal(again.certificate().upper, solution.certificate().upper)
    with pytest.raises(InvalidInputError, match="5 states"):
        Solution.load(tmp_path, rewards[:, :5])


def test_damaged_and_foreign_files_are_rejected(random_problem, tmp_path):
    with pytest.raises(MissingFileError):
        Solution.load(tmp_path)
    solve_mdp(*random_problem(), "2-of-5", num_iterations=3).save(tmp_path)
    description = tmp_path / "solution.json"
    whole = description.read_text()
    for wrong in (whole.replace("2-of-5", "3-of-5"), whole[:-20], "[]", json.dumps({"format": 2, "kind": "policy"})):
        description.write_text(wrong)
        with pytest.raises(BadFileError):
            Solution.load(tmp_path)
    description.write_text(whole)
    arrays = next(tmp_path.glob("solution-*.safetensors"))
    content = bytearray(arrays.read_bytes())
    content[-5] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(BadFileError, match="checksum"):
        Solution.load(tmp_path)


@pytest.mark.parametrize(
    "change", [{"level": "1-of-x"}, {"level": []}, {"num_runs": 2}, {"num_runs": None}, {"game": "chess"}]
)
def test_files_that_contradict_each_other_are_rejected(random_problem, tmp_path, change):
    solve_mdp(*random_problem(), "2-of-5", num_iterations=3).save(tmp_path)
    save_json(tmp_path / "solution.json", load_json(tmp_path / "solution.json") | change)
    with pytest.raises(BadFileError):
        Solution.load(tmp_path)


def test_a_certificate_is_a_function_of_the_problem_and_a_mixture(random_problem):
    mdp, rewards = random_problem()
    solution = solve_mdp(mdp, rewards, "2-of-5", num_iterations=40, track_exact=False)
    mixtures = exact_mixtures(solution.problem, 40, Update.REGRET_MATCHING)
    found = certify(solution.problem, solution.policy[None], mixtures)
    assert torch.equal(found.upper[0], solution.certificate(refine=40).upper)
    assert torch.equal(found.lower[0], solution.exact_value())
    # One reward function alone is no point of the envelope; their mean is, and bounds every policy too.
    mean = certify(solution.problem, solution.policy[None], rewards.mean(dim=0)[None, None])
    assert float(mean.upper) >= float(solve_exact(mdp, rewards, "2-of-5").exact_value()) - 1e-9
