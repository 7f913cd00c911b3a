"""`import cautious`: quick, lazy, complete."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cautious


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_every_public_name_loads():
    for name in cautious.__all__:
        assert getattr(cautious, name) is not None
        assert name in dir(cautious)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match="KofN"):
        cautious.Kofn  # noqa: B018


def test_import_alone_loads_nothing_heavy():
    heavy = ("torch", "scipy", "matplotlib", "tyro", "gymnasium", "cautious_paper")
    code = f"import sys, cautious; print([name for name in {heavy} if name in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_the_core_works_without_the_optional_dependencies():
    code = """
import sys
for name in ("gymnasium", "tyro", "pooch", "ray"):
    sys.modules[name] = None
import torch, cautious
for name in cautious.__all__:
    try:
        getattr(cautious, name)
    except ImportError:
        assert name in ("DiscretizeObservation", "KofNPPO"), name  # about Gymnasium's environments
print(cautious.solve_bandit(torch.rand(4, 2, 3), "1-of-2", num_iterations=2).policy.shape)
"""
    assert "torch.Size([2, 3])" in run_python(code)


def test_sparse_tensors_are_built_without_a_warning():
    """Torch warns once a process where nobody said whether to check them, so this needs one of its own."""
    code = """
import warnings
warnings.simplefilter("error")
import torch
from cautious_paper.networks.driving import PairInputs
from cautious_paper.worlds.driving import driving_world
from cautious_paper.worlds.driving_rules import START
from cautious.mdp.from_gymnasium import _joined
print(driving_world(novel=False).mdp.transitions.layout)
pairs = PairInputs([START, START], torch.tensor([[0, 1], [1, 0]]))
print(torch.sparse.mm(pairs.incidence[0], torch.ones(2, 1)).sum().item())
print(_joined([(0, 0, 0, 1.0, 0.0, False)], 1, 1, torch.ones(1)).transitions.layout)
"""
    assert run_python(code).split() == ["torch.sparse_coo", "2.0", "torch.sparse_coo"]


def test_the_library_loads_nothing_of_the_reproduction():
    """From training to decisions, in a world and by rollouts, saved and read again."""
    code = """
import sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
from cautious import CautiousPolicy, KofNPPO, RewardEnsemble, TabularMDP, fit_ensemble, solve_mdp

states = np.random.default_rng(0).normal(size=(40, 3))
belief = fit_ensemble(states, np.stack([states[:, 0], 0.2 + 0 * states[:, 0]], 1), num_models=4, num_epochs=2, progress=False)
policy = CautiousPolicy(belief, "1-of-3")
policy.decide(5 * states)
with tempfile.TemporaryDirectory() as folder:
    policy.save(folder)
    CautiousPolicy.load(folder).decide(states)
mdp = TabularMDP(torch.full((3, 2, 3), 1 / 3), torch.full((3,), 1 / 3), 0.9)
solve_mdp(mdp, torch.rand(4, 3, 2), "1-of-3", num_iterations=2)
import gymnasium
env = gymnasium.make("FrozenLake-v1")
KofNPPO("MlpPolicy", env, np.zeros((4, 16, 4)), "1-of-3", n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
print([name for name in sys.modules if name.startswith("cautious_paper")])
"""
    pytest.importorskip("stable_baselines3")
    assert run_python(code).split() == ["[]"]


def test_environments_are_made_by_their_ids():
    code = """
import sys, gymnasium, cautious
print([name for name in gymnasium.registry if name.startswith("cautious")])
print(gymnasium.make("cautious_paper.worlds:cautious/Driving-v0").unwrapped, gymnasium.make("cautious/Driving-v0").unwrapped)
"""
    lines = run_python(code).splitlines()
    assert lines[0] == "[]"  # `import cautious` registers nothing
    assert lines[1].count("DrivingEnv") == 2


OLD_PATHS = {
    "cautious.worlds.mdp": "TabularMDP",
    "cautious.worlds.driving": "driving_world",
    "cautious.worlds.data": "load_images",
    "cautious.worlds.coverage": "Coverage",
    "cautious.worlds.envs.random_stops": "RandomStops",
    "cautious.ops.risk": "KofN",
    "cautious.beliefs.datasets.training_data": "TableWarning",
    "cautious.beliefs.networks.image": "ImageNetwork",
    "cautious.evaluation.calibration": "calibrate",
    "cautious.experiments": "load_run",
    "cautious.experiments.store": "provenance_line",
    "cautious.experiments.executors.executor": "open_executor",
}


def test_old_import_paths_lead_to_the_same_things():
    """All in one process, without a warning; each module is there once, under its new name."""
    code = f"""
import importlib, warnings
warnings.simplefilter("error")
for old, name in {OLD_PATHS!r}.items():
    module = importlib.import_module(old)
    found = getattr(module, name)
    print(old, module.__name__, module.__spec__.name, found.__module__, found.__name__)
    assert module is importlib.import_module(module.__name__), old
"""
    lines = [line.split() for line in run_python(code).splitlines()]
    assert [(old, name) for old, *_, name in lines] == list(OLD_PATHS.items())
    for old, module, spec, home, _ in lines:
        assert module == spec
        assert old not in (module, home)


def test_old_names_warn_and_work():
    for old, new in (("DiscretiseObservation", "DiscretizeObservation"), ("FamiliarSpread", "FamiliarDisagreement")):
        with pytest.warns(DeprecationWarning, match=new):
            assert getattr(cautious, old) is getattr(cautious, new)
