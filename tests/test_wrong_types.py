"""Every argument of every public function, given something of a wrong kind: it works, or ends in an error of our family."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from cautious import (
    CautiousPolicy,
    KofN,
    RewardEnsemble,
    TabularMDP,
    calibrate,
    driving_world,
    fit_ensemble,
    optimal_policy,
    solve_bandit,
    solve_exact,
    solve_mdp,
)
from cautious.errors import CautiousError
from cautious_paper.worlds.data import find_images, has_images, load_images


class Strange:
    def __repr__(self) -> str:
        return "Strange()"


VALUES = {
    "None": None,
    "minus one": -1,
    "a fraction": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "a huge number": 10**400,
    "a text": "text",
    "no text": "",
    "a path of a file": "a file",
    "a path with a hole": "a\0b",
    "an empty list": [],
    "a dictionary": {"a": 1},
    "ragged lists": [[1, 2], [3]],
    "texts": np.array(["a", "b"]),
    "objects": np.array([[1, "a"], [None, 2]], dtype=object),
    "complex numbers": np.zeros((2, 2, 2), dtype=complex),
    "records": np.zeros(3, dtype=[("a", "f4")]),
    "an empty array": np.zeros((2, 0, 2)),
    "five dimensions": np.zeros((1,) * 5),
    "truth values": torch.tensor([True, False]),
    "missing numbers": torch.full((2, 2, 2), torch.nan),
    "huge numbers": torch.full((2, 2, 2), 1.7e308, dtype=torch.float64),
    "no numbers": torch.zeros(2, 2, 2, device="meta"),
    "an object": Strange(),
}

STAY, MOVE = [1.0, 0.0], [0.0, 1.0]
WORLD = TabularMDP([[STAY, MOVE], [MOVE, STAY]], STAY, 0.9)
MODELS = torch.rand(30, 2, 2, generator=torch.Generator().manual_seed(0))
STATES = torch.rand(20, 3, generator=torch.Generator().manual_seed(1))
PAID = torch.rand(20, 2, generator=torch.Generator().manual_seed(2))
FEW = {"num_models": 2, "num_epochs": 1, "validation_fraction": 0}
BELIEF = fit_ensemble(STATES, PAID, progress=False, **FEW)
POLICY = CautiousPolicy(MODELS, "1-of-20", num_iterations=2)
BY_STATE = CautiousPolicy(BELIEF, "1-of-2", num_iterations=2)
SOLUTION = solve_mdp(WORLD, MODELS, "1-of-20", num_iterations=2)
ROAD = driving_world(novel=False)
LAKE = gymnasium.make("FrozenLake-v1")
SOLVE = {"level": "1-of-20", "num_iterations": 2, "sampling": "queue", "update": "regret-matching", "num_runs": None}
SOLVE |= {"seed": 0, "device": None, "track_exact": None, "progress": None}
FIT = {"network": "auto", "num_models": 2, "num_epochs": 1, "batch_size": 8, "learning_rate": 0.1, "weight_decay": 0}
FIT |= {"loss_weights": None, "seed": 0, "device": "cpu", "checkpoint_dir": None, "progress": False}

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "KofN": (KofN, {"k": 1, "n": 2}),
    "KofN.parse": (KofN.parse, {"text": "1-of-2"}),
    "KofN.rank_weights": (KofN(1, 2).rank_weights, {"num_models": 5, "replacement": False}),
    "KofN.value": (KofN(1, 2).value, {"returns": [1.0, 2.0], "replacement": False}),
    "TabularMDP": (TabularMDP, {"transitions": [[STAY], [MOVE]], "initial_state_dist": STAY, "discount": 0.9}),
    "from_gymnasium": (TabularMDP.from_gymnasium, {"env": LAKE, "discount": 0.9, "num_steps": None, "seed": 0}),
    "evaluate": (WORLD.evaluate, {"policy": [STAY, STAY]}),
    "expected_return": (WORLD.expected_return, {"policy": [STAY, STAY], "reward": [STAY, STAY]}),
    "solve_bandit": (solve_bandit, {"rewards": MODELS, "regime": "all-states", "state_dist": None, **SOLVE}),
    "solve_mdp": (solve_mdp, {"mdp": WORLD, "rewards": MODELS, **SOLVE}),
    "solve_exact": (solve_exact, {"mdp_or_state_dist": WORLD, "rewards": MODELS, "level": "1-of-20"}),
    "certificate": (SOLUTION.certificate, {"policy": None, "refine": None}),
    "optimal_policy": (optimal_policy, {"mdp": WORLD, "reward": [STAY, STAY]}),
    "driving_world": (driving_world, {"novel": True, "appearance_probability": 0.5}),
    "DrivingWorld.index": (ROAD.index, {"state": (2, 0, None, None)}),
    "DrivingWorld.sample_next": (ROAD.sample_next, {"state": 0, "action": 0, "uniform": 0.5}),
    "DrivingWorld.expected": (ROAD.expected, {"pair_values": torch.zeros(len(ROAD.every_pair))}),
    "fit_ensemble": (fit_ensemble, {"inputs": STATES, "rewards": PAID, "validation_fraction": 0, **FIT}),
    "RewardEnsemble": (RewardEnsemble, {"network": BELIEF.network, "parameters": BELIEF.parameters, "settings": None}),
    "rewards": (BELIEF.rewards, {"states": STATES, "progress": None}),
    "rewards_for": (BELIEF.on(STATES).rewards_for, {"indices": [0]}),
    "to": (BELIEF.to, {"device": "cpu"}),
    "RewardEnsemble.save": (BELIEF.save, {"folder": "belief"}),
    "RewardEnsemble.load": (RewardEnsemble.load, {"folder": "driving", "network": None}),
    "CautiousPolicy": (
        CautiousPolicy,
        {"belief": MODELS, "level": "1-of-2", "mdp": None, "sampling": "exact", "seed": 0},
    ),
    "decide by number": (POLICY.decide, {"states": [0]}),
    "decide by state": (BY_STATE.decide, {"states": STATES}),
    "predict": (BY_STATE.predict, {"observation": STATES, "deterministic": True}),
    "decide_at": (POLICY.decide_at, {"levels": [KofN(1, 2)], "states": [0]}),
    "CautiousPolicy.save": (POLICY.save, {"folder": "policy"}),
    "CautiousPolicy.load": (CautiousPolicy.load, {"folder": "policy"}),
    "calibrate": (
        calibrate,
        {"policy": POLICY, "familiar_states": [0, 1], "at_most": 0.1, "confidence": 0.9, "progress": False},
    ),
    "has_images": (has_images, {"name": "digits", "split": "test", "data": None}),
    "find_images": (find_images, {"data": "nowhere"}),
    "load_images": (load_images, {"name": "fashion", "split": "test", "data": None}),
}
SENSELESS = set(VALUES) - {"None", "a text", "a path of a file", "a dictionary", "truth values", "an empty array"}
"""What no argument at all can take: those left out are a path, a set of settings, features, or an empty batch somewhere."""

SENSIBLE = {
    ("seed", "a huge number"),
    ("learning_rate", "a fraction"),
    ("weight_decay", "a fraction"),
    ("returns", "huge numbers"),  # their weighted mean stays among them
    ("reward", "huge numbers"),
}
"""But for these."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    Path("a file").touch()


@pytest.mark.parametrize("name", CALLS)
def test_whatever_is_passed_ends_well_or_in_our_error(name: str):
    call, usual = CALLS[name]
    for argument, (kind, value) in itertools.product(usual, VALUES.items()):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(**usual | {argument: value})
        except CautiousError:
            continue
        except Exception as error:
            raise AssertionError(f"{name}({argument}={kind}) leaks {type(error).__name__}: {error}") from error
        assert kind not in SENSELESS or (argument, kind) in SENSIBLE, f"{name}({argument}={kind}) is accepted"
