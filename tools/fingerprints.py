"""Digests of what fixed seeds give: predictions, policies, certificates and whole runs, through public names alone.

python tools/fingerprints.py write FILE      compute them (about two minutes on two cores)
python tools/fingerprints.py compare A B     name every entry that differs; exit status 1 if there is one

Two versions of the package that agree on a machine give the same file there: write one before a change and one after it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

import cautious
from cautious import (
    CautiousPolicy,
    KofN,
    RewardEnsemble,
    TabularMDP,
    fit_ensemble,
    solve_bandit,
    solve_exact,
    solve_mdp,
)

RUNS = ("ask-for-help", "non-obvious", "help-if-available", "data-extent", "driving")
VARYING = ("hardware", "run", "files", "checksum", "resumed", "edition", "sha256")
"""What a stage keeps of its surroundings, and of the files that its images came from."""
LEVELS = [KofN(1, 20), KofN(5, 20), KofN(10, 10)]


def digest(*arrays: object) -> str:
    """Of numbers, shapes and types."""
    found = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(torch.as_tensor(array).detach().cpu().numpy())
        found.update(f"{values.dtype} {values.shape}".encode())
        found.update(values.tobytes())
    return found.hexdigest()[:16]


def small_module() -> torch.nn.Module:
    """One hidden layer, from five features to three actions."""
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def beliefs() -> Iterator[tuple[str, str]]:
    """Training and prediction, with and without a prior, from complete and logged rewards, of images and of modules."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(120, 5))
    rewards = np.stack([rows[:, 0], -rows[:, 1], np.full(120, 0.2)], axis=1)
    logged = np.where(np.eye(3, dtype=bool)[random.integers(3, size=120)], rewards, np.nan)
    new = random.normal(size=(70, 5)) * 3
    options = {"num_models": 20, "num_epochs": 12, "progress": False}
    for name, paid, more in (
        ("vectors", rewards, {}),
        ("vectors, prior=0", rewards, {"prior": 0}),
        ("logged", logged, {}),
        ("module", rewards, {"network": small_module}),
    ):
        belief = fit_ensemble(rows, paid, **options, **more)
        yield f"belief: {name}", digest(belief.parameters, belief.losses, belief.rewards(new))
        decision = CautiousPolicy(belief, "1-of-20").decide(new)
        yield (
            f"decide: {name}",
            digest(decision.action, decision.probabilities, decision.caution, decision.disagreement),
        )
    images = random.integers(256, size=(90, 28, 28), dtype=np.uint8)
    belief = fit_ensemble(images, random.normal(size=(90, 11)), num_models=5, num_epochs=1, progress=False)
    yield "belief: images", digest(belief.parameters, belief.losses, belief.rewards(images[:30]))
    shipped = RewardEnsemble.load("ask-for-help")
    yield "shipped: ask-for-help", digest(shipped.rewards(images[:30]))
    world = cautious.driving_world()
    driving = RewardEnsemble.load("driving").on(world).rewards_for(list(range(20)))
    yield "shipped: driving", digest(driving)
    for sampling in ("queue", "exact"):
        solution = solve_mdp(world.mdp, driving, LEVELS, sampling=sampling, num_iterations=8)
        yield f"solve_mdp: driving, {sampling}", digest(solution.policy, solution.average_policy)


def policies() -> Iterator[tuple[str, str]]:
    """Both solvers in every setting, certificates, and the independent optimum."""
    random = np.random.default_rng(1)
    rewards = random.normal(size=(40, 12, 4))
    rows = random.random((12, 4, 12))
    mdp = TabularMDP(rows / rows.sum(axis=2, keepdims=True), np.full(12, 1 / 12), 0.9)
    for sampling in ("queue", "exact"):
        for update in ("regret-matching", "regret-matching+", "as-printed"):
            setting = {"sampling": sampling, "update": update, "num_iterations": 30, "seed": 4}
            for regime in ("all-states", "single-state"):
                solution = solve_bandit(rewards, LEVELS, regime=regime, **setting)
                yield f"solve_bandit: {regime}, {sampling}, {update}", solved(solution)
            yield f"solve_mdp: {sampling}, {update}", solved(solve_mdp(mdp, rewards, LEVELS, **setting))
    exact = solve_exact(mdp, rewards[:10, :, :], KofN(2, 5))
    yield "solve_exact", digest(torch.as_tensor(exact.policy).round(decimals=6))
    best = cautious.optimal_policy(mdp, rewards[0])
    yield "optimal_policy", digest(best.policy, best.action_values, best.expected_return)


def solved(solution: cautious.Solution) -> str:
    """Policies, trace and certificate."""
    certificate = solution.certificate()
    parts = (solution.policy, solution.average_policy, solution.best_policy, certificate.lower, certificate.upper)
    return digest(*parts, *(part for part in vars(solution.trace).values() if part is not None))


def runs() -> Iterator[tuple[str, str]]:
    """Whole experiments at scale smoke, by the command line: every number and array that they keep."""
    for task in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "cautious", "reproduce", task, "--scale", "smoke", "--out", folder]
            subprocess.run(command, check=True, capture_output=True)
            for path in sorted(Path(folder).glob("*.safetensors")):
                name = path.stem.split("models-")[0]
                arrays = load_file(path)
                yield f"{task}: {name}", digest(*(arrays[key] for key in sorted(arrays)))
            for path in sorted(Path(folder).glob("*.json")):
                if path.name != "manifest.json":
                    numbers = json.loads(path.read_text())
                    kept = {key: value for key, value in numbers.items() if key not in VARYING and "seconds" not in key}
                    text = json.dumps(kept, sort_keys=True)
                    yield f"{task}: numbers of {path.stem}", hashlib.sha256(text.encode()).hexdigest()[:16]


def compare(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names of entries that differ or are in one of them alone."""
    return [name for name in sorted(before | after) if before.get(name) != after.get(name)]


def main() -> None:
    """As the module says."""
    if len(sys.argv) == 3 and sys.argv[1] == "write":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = dict(entry for part in (beliefs, policies, runs) for entry in part())
        Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n")
        print(f"{len(found)} entries")
        return
    if len(sys.argv) == 4 and sys.argv[1] == "compare":
        before, after = (json.loads(Path(name).read_text()) for name in sys.argv[2:])
        differing = compare(before, after)
        print(*(f"differs: {name}" for name in differing), sep="\n")
        print(f"{len(before | after) - len(differing)} of {len(before | after)} entries are the same")
        sys.exit(bool(differing))
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
