"""The command line on a user's own files: what it writes, and that bad input writes nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cautious import CautiousPolicy, TabularMDP, optimal_policy, solve_bandit, solve_mdp
from cautious.cli.main import LINES, main
from cautious.mdp.coverage import Coverage
from cautious.mdp.files import save_mdp


@pytest.fixture
def problem(tmp_path, random_problem):
    mdp, rewards = random_problem(num_models=30)
    save_file({"rewards": rewards}, tmp_path / "rewards.safetensors")
    world = {
        "transitions": mdp.transitions.contiguous(),
        "initial_state_dist": mdp.initial_state_dist,
        "discount": torch.tensor([mdp.discount], dtype=torch.float64),
    }
    save_file(world, tmp_path / "mdp.safetensors")
    return tmp_path, mdp, rewards


def run(folder, *arguments: str) -> None:
    main(["solve", "--out", str(folder / "out"), *arguments])


def test_a_users_world_is_solved_and_certified(problem, capsys):
    folder, mdp, rewards = problem
    arguments = [
        "--rewards",
        f"{folder}/rewards.safetensors",
        "--mdp",
        f"{folder}/mdp.safetensors",
        "--level",
        "1-of-20",
    ]
    run(folder, *arguments, "--iterations", "200")
    written = load_file(folder / "out" / "policy.safetensors")
    expected = solve_mdp(mdp, rewards, "1-of-20", sampling="exact", num_iterations=200)
    assert torch.equal(written["policy"], expected.policy)
    assert torch.equal(written["average_policy"], expected.average_policy)
    record = json.loads((folder / "out" / "certificate.json").read_text())
    best = record["certificates"]["best_policy"]
    assert 0 <= best["gap"] == pytest.approx(best["upper"] - best["lower"])
    assert record["solution"]["num_models"] == 30
    assert "1-of-20" in capsys.readouterr().out
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["certificate.json", "policy.safetensors"]


def test_a_wide_gap_is_said_with_the_way_out(problem, capsys):
    """Models that differ by a hundred times the rewards: few iterations leave a wide gap, and a warning says so."""
    folder, _, rewards = problem
    arguments = ["--mdp", f"{folder}/mdp.safetensors", "--level", "1-of-20", "20-of-20"]
    run(folder, "--rewards", f"{folder}/rewards.safetensors", *arguments, "--iterations", "2000")
    assert "the gap at" not in capsys.readouterr().out
    doubts = 100 * torch.randn(rewards.shape, generator=torch.Generator().manual_seed(0)).to(rewards.dtype)
    save_file({"rewards": rewards + doubts}, folder / "doubts.safetensors")
    run(folder, "--rewards", f"{folder}/doubts.safetensors", *arguments, "--iterations", "3")
    said = " ".join(capsys.readouterr().out.split())
    assert "the gap at 1-of-20" in said
    assert "more --iterations" in said


def test_an_estimated_world_is_said_to_be_one(problem, capsys):
    folder, mdp, _ = problem
    visits = torch.full((mdp.num_states, mdp.num_actions), 7)
    visits[0, 0] = 2
    coverage = Coverage(visits, torch.ones(mdp.num_states, dtype=torch.bool))
    save_mdp(
        folder / "seen.safetensors",
        TabularMDP(mdp.transitions, mdp.initial_state_dist, mdp.discount, coverage=coverage),
    )
    arguments = ["--rewards", f"{folder}/rewards.safetensors", "--level", "1-of-20", "--iterations", "5"]
    run(folder, *arguments, "--mdp", f"{folder}/seen.safetensors")
    assert "about the estimated world only" in " ".join(capsys.readouterr().out.split())
    record = json.loads((folder / "out" / "certificate.json").read_text())
    assert "1 less often, 0 never" in record["estimated"]


def test_several_levels_and_a_flat_transition_matrix(problem):
    folder, _, _ = problem
    world = load_file(folder / "mdp.safetensors")
    world["transitions"] = world["transitions"].flatten(0, 1).contiguous()
    save_file(world, folder / "flat.safetensors")
    arguments = [
        "--rewards",
        f"{folder}/rewards.safetensors",
        "--mdp",
        f"{folder}/flat.safetensors",
        "--iterations",
        "50",
    ]
    run(folder, *arguments, "--level", "1-of-20", "20-of-20")
    assert load_file(folder / "out" / "policy.safetensors")["policy"].shape == (2, 6, 3)


def test_decisions_without_dynamics_from_a_numpy_file(problem):
    folder, _, rewards = problem
    np.save(folder / "rewards.npy", rewards.numpy())
    run(
        folder,
        "--rewards",
        f"{folder}/rewards.npy",
        "--level",
        "1-of-5",
        "--regime",
        "single-state",
        "--iterations",
        "50",
    )
    record = json.loads((folder / "out" / "certificate.json").read_text())
    assert len(record["certificates"]["policy"]["gap"]) == 6


def test_decisions_in_a_world_are_those_of_the_policy(problem, capsys):
    folder, mdp, rewards = problem
    levels = ("1-of-20", "20-of-20")
    arguments = ["--rewards", f"{folder}/rewards.safetensors", "--mdp", f"{folder}/mdp.safetensors"]
    run(folder, *arguments, "--iterations", "50", "--level", *levels, "--tables")
    found = load_file(folder / "out" / "policy.safetensors")
    ordinary = optimal_policy(mdp, rewards.mean(dim=0)).policy
    assert not torch.equal(
        ordinary.argmax(dim=1), rewards.mean(dim=0).argmax(dim=1)
    )  # a world in which looking ahead pays
    assert torch.equal(found["ordinary_policy"], ordinary.expand(2, -1, -1))
    for number, level in enumerate(levels):
        decision = CautiousPolicy(rewards, level, mdp=mdp, num_iterations=50).decide(range(6))
        assert torch.equal(found["action"][number], decision.action)
        assert torch.equal(found["caution"][number], decision.caution)
    assert found["caution"][1].tolist() == [0] * 6
    said = capsys.readouterr().out
    assert "distance from ordinary behaviour" in said
    changed = int((found["action"][0] != ordinary.argmax(dim=1)).sum())
    assert changed > 0
    assert f"1-of-20: decides otherwise than the ordinary policy in {changed} of 6 states" in said
    verdict = json.loads((folder / "out" / "certificate.json").read_text())["verdict"]
    assert verdict[1] == "20-of-20: decides as the ordinary policy in all of 6 states."
    run(folder, *arguments, "--iterations", "50", "--level", *levels)
    said = capsys.readouterr().out
    assert "distance from ordinary behaviour" not in said
    assert said.splitlines()[-2:] == verdict


@pytest.mark.parametrize("regime", ["all-states", "single-state"])
def test_where_models_agree_about_the_best_it_is_not_cautious_at_all(tmp_path, regime):
    agreed, argued = [1.0, 0.999, 0.0], [1.0, 0.25, 0.0]
    rewards = torch.tensor([[agreed, argued]] * 19 + [[agreed, [-9.0, 0.25, 0.0]]])
    np.save(tmp_path / "rewards.npy", rewards.numpy())
    run(tmp_path, "--rewards", f"{tmp_path}/rewards.npy", "--regime", regime, "--iterations", "5")
    found = load_file(tmp_path / "out" / "policy.safetensors")
    assert float(found["best_policy"][0, 1]) > 0  # five iterations have not told the first two actions apart
    assert float(found["caution"][0]) == 0
    assert float(found["caution"][1]) > 0.5


@pytest.mark.parametrize("name", ["rewards.npy", "rewards.safetensors"])
def test_the_ordinary_level_is_not_cautious_where_actions_pay_almost_the_same(tmp_path, name):
    rewards = torch.tensor([1.0, 0.9995, 0.0, 0.0]).expand(20, 1, 4) + torch.linspace(-1, 1, 20)[:, None, None]
    np.save(tmp_path / "rewards.npy", rewards.numpy())
    save_file({"rewards": rewards.contiguous()}, tmp_path / "rewards.safetensors")
    run(tmp_path, "--rewards", f"{tmp_path}/{name}", "--level", "20-of-20", "--iterations", "200")
    found = load_file(tmp_path / "out" / "policy.safetensors")
    assert found["ordinary_policy"].tolist() == [[1, 0, 0, 0]]
    assert found["caution"].tolist() == CautiousPolicy(rewards, "20-of-20").decide([0]).caution.tolist() == [0]
    assert found["action"].tolist() == [0]
    solved = solve_bandit(rewards, "20-of-20", num_iterations=200, sampling="exact").best_policy
    assert torch.allclose(found["best_policy"], solved, rtol=0, atol=1e-12)  # another order of the same sums
    assert float(solved[0, 0]) < 0.9  # what the game alone would have called caution


def truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def drop(name):
    def change(folder):
        tensors = load_file(folder / "mdp.safetensors")
        del tensors[name]
        save_file(tensors, folder / "mdp.safetensors")

    return change


def overwrite(file, **tensors):
    def change(folder):
        save_file({**load_file(folder / file), **tensors}, folder / file)

    return change


BAD = [
    (lambda f: truncate(f / "rewards.safetensors"), [], "not a complete safetensors file"),
    (lambda f: (f / "rewards.safetensors").unlink(), [], "no such file"),
    (lambda f: (f / "rewards.safetensors").write_bytes(b""), [], "not a complete safetensors file"),
    (drop("discount"), [], "holds no tensor 'discount'"),
    (overwrite("mdp.safetensors", discount=torch.tensor([1.5])), [], "discount=1.5"),
    (overwrite("mdp.safetensors", discount=torch.tensor([0.5, 0.5])), [], "must be one number"),
    (overwrite("mdp.safetensors", visits=torch.ones(2)), [], "entered"),
    (overwrite("mdp.safetensors", endings=torch.ones(3), endings_chance=torch.ones(3)), [], "must be [E, 2]"),
    (
        overwrite("mdp.safetensors", endings=torch.full((1, 2), 99), endings_chance=torch.ones(1)),
        [],
        "before the state after the end",
    ),
    (overwrite("rewards.safetensors", rewards=torch.full((30, 6, 3), torch.nan)), [], "not finite"),
    (overwrite("rewards.safetensors", rewards=torch.zeros(30, 5, 3)), [], "as the MDP has"),
    (lambda f: None, ["--level", "30-of-20"], "k=30 exceeds n=20"),
    (lambda f: None, ["--level", "1-of-200"], "exceeds the 30 models"),
    (lambda f: None, ["--iterations", "0"], "--iterations 0 is too small"),
    (lambda f: None, ["--regime", "single-state"], "excludes --mdp"),
]


@pytest.mark.parametrize(("change", "extra", "message"), BAD)
def test_bad_input_ends_in_one_plain_line_and_writes_nothing(problem, capsys, change, extra, message):
    folder, _, _ = problem
    change(folder)
    with pytest.raises(SystemExit) as stop:
        run(folder, "--rewards", f"{folder}/rewards.safetensors", "--mdp", f"{folder}/mdp.safetensors", *extra)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
    assert "Traceback" not in error
    assert not (folder / "out").exists()


def test_a_pickled_numpy_file_is_not_opened(problem, capsys):
    folder, _, _ = problem
    np.save(folder / "evil.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(SystemExit):
        run(folder, "--rewards", f"{folder}/evil.npy")
    assert "not a complete .npy file of numbers" in " ".join(capsys.readouterr().err.split())


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "small k/n is cautious" in text
    with pytest.raises(SystemExit):
        main(["solve", "--help"])
    assert "1-of-20" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_a_screen(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= columns
    for verb, (_, example) in LINES.items():
        assert any(line.startswith(f"  {example}" if columns >= 80 else f"  {verb} ") for line in lines)


@pytest.mark.parametrize(("verb", "meant"), [("slove", "Did you mean 'cautious solve'?"), ("fly", "no verb 'fly'")])
def test_an_unknown_verb_is_refused(verb, meant, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb])
    assert stop.value.code == 2
    assert meant in capsys.readouterr().err


def test_single_states_of_an_array_are_decided_by_the_policy(problem):
    """Without an option of the paper's algorithm no number of iterations is made up: each state is solved to the tolerance."""
    folder, _, rewards = problem
    arguments = ["--rewards", f"{folder}/rewards.safetensors", "--regime", "single-state", "--level", "1-of-5"]
    run(folder, *arguments)
    found = load_file(folder / "out" / "policy.safetensors")
    decision = CautiousPolicy(rewards, "1-of-5").decide(range(6))
    assert torch.equal(found["action"], decision.action)
    assert torch.equal(found["best_policy"], decision.probabilities)
    record = json.loads((folder / "out" / "certificate.json").read_text())
    assert record["solution"]["tolerance"] == 1e-4
    assert record["certificates"]["best_policy"]["gap"] == decision.gap.tolist()


def test_the_papers_algorithm_has_the_papers_number_of_iterations(problem):
    folder, mdp, rewards = problem
    arguments = ["--rewards", f"{folder}/rewards.safetensors", "--level", "1-of-5", "--sampling", "queue"]
    for more in ([], ["--mdp", f"{folder}/mdp.safetensors"]):
        run(folder, *arguments, *more)
        assert json.loads((folder / "out" / "certificate.json").read_text())["solution"]["num_iterations"] == 100
    queued = CautiousPolicy(rewards, "1-of-5", sampling="queue").decide(range(6))
    paper = CautiousPolicy(rewards, "1-of-5", sampling="queue", num_iterations=100).decide(range(6))
    assert torch.equal(queued.probabilities, paper.probabilities)
    queued = CautiousPolicy(rewards, "1-of-5", mdp=mdp, sampling="queue").decide(range(6))
    paper = CautiousPolicy(rewards, "1-of-5", mdp=mdp, sampling="queue", num_iterations=100).decide(range(6))
    assert torch.equal(queued.probabilities, paper.probabilities)
