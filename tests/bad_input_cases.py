"""What every public name and verb does with bad input: the rows of the page "Bad input", each a test (`test_bad_input.py`).

`tools/bad_input_page.py` makes the page from here, so that the two cannot drift apart.
"""

from __future__ import annotations

from typing import NamedTuple

SETUP = """\
import gymnasium
import numpy as np
import torch
from cautious import *
from cautious import KofNPPO, ScenarioEnv, ScenarioPPO, StepHistory
from cautious.baselines import k_of_n
from cautious_paper.worlds.data import load_images

nan = float("nan")
stay, move = [1.0, 0.0], [0.0, 1.0]
world = TabularMDP([[stay, move], [move, stay]], [1.0, 0.0], 0.9)  # 2 states, 2 actions
models = torch.rand(30, 2, 2, generator=torch.Generator().manual_seed(0))  # 30 models of it, [M, S, A]
states = torch.rand(20, 3, generator=torch.Generator().manual_seed(1))  # 20 states of 3 numbers
paid = torch.rand(20, 2, generator=torch.Generator().manual_seed(2))  # what 2 actions paid there
belief = fit_ensemble(states, paid, num_models=4, num_epochs=1, progress=False, validation_fraction=0)
policy = CautiousPolicy(models, "1-of-20")
table = {"x": states[:, 0], "kind": ["red", "blue"] * 10}  # columns by name
names = {"go": paid[:, 0], "ask": paid[:, 1]}
named = fit_ensemble(table, names, num_models=4, num_epochs=1, progress=False, validation_fraction=0)
car = gymnasium.make("MountainCar-v0")  # two continuous numbers, three actions
lake = gymnasium.make("FrozenLake-v1")  # 16 states, 4 actions
with torch.sparse.check_sparse_tensor_invariants(False):
    outside = torch.sparse_coo_tensor([[0, 9], [0, 0]], [1.0, 1.0], (2, 2))  # row 9 of 2
"""
"""The names that the rows use, as the page shows them."""

INVALID, MISSING, BAD = "InvalidInputError", "MissingFileError", "BadFileError"


class Call(NamedTuple):
    """A call from Python, and how it ends."""

    name: str
    """The public name that the row is about."""
    code: str
    """Run after `SETUP`, in an empty folder that holds `FILES`."""
    error: str
    says: str
    """Part of the message."""


class Command(NamedTuple):
    """A command, run in the same folder, its exit status, and part of what it says."""

    verb: str
    arguments: str
    status: int
    says: str


FILES = {
    "broken.safetensors": "a safetensors file cut off after 10 bytes",
    "flat.npy": "an array of shape [6]",
    "rewards.npy": "rewards of 30 models, [30, 2, 2]",
    "mdp.safetensors": "a world of 3 states: not that of the rewards",
    "experience.npz": "20 states of 3 numbers, and what 2 actions paid there",
    "wider.npz": "the same with 4 numbers per state",
    "huge.npz": "the same with headers that claim 2^50 numbers",
    "uneven.npz": "20 states, and rewards of 5",
    "states.npz": "20 states, and no rewards",
    "objects.npz": "Python objects",
    "cut.npz": "a .npz file cut off in the middle",
    "log.csv": "a table of 20 rows with the columns x, kind, done and paid",
    "ragged.csv": "the same with a cell too few in its second row",
    "holes.csv": "the same with an empty cell in every row",
    "fake.parquet": "the same as log.csv: no Parquet file",
    "text/": "a folder with a `manifest.json`, an `ensemble.json` and a `policy.json` that are no JSON",
    "empty/": "an empty folder",
}
"""Files in the folder where rows are run."""

CALLS = [
    Call("KofN", "KofN(3, 2)", INVALID, "k=3 exceeds n=2"),
    Call("KofN", "KofN(0, 2)", INVALID, "it must be at least 1"),
    Call("KofN", "KofN(1.5, 2)", INVALID, "must be a whole number"),
    Call("KofN", "KofN(True, 2)", INVALID, "must be a whole number"),
    Call("KofN", 'KofN.parse("1 of 20")', INVALID, "write it as 'k-of-n', for example '1-of-20'"),
    Call("KofN", "KofN.parse(None)", INVALID, "is not a level"),
    Call("KofN", "KofN(1, 20).rank_weights(10)", INVALID, "n=20 exceeds the 10 models there are"),
    Call("KofN", "KofN(1, 2).value([1.0, nan])", INVALID, "every entry must be a finite number"),
    Call("KofN", "KofN(1, 2).value([])", INVALID, "is empty; it needs at least one"),
    Call("CVaR", "CVaR(0)", INVALID, "the mean of no model"),
    Call("CVaR", "CVaR(1.5)", INVALID, "CVaR: alpha=1.5 must lie between 0 and 1"),
    Call("CVaR", 'solve_mdp(world, models, "CVaR(x)")', INVALID, "'x' is not a number"),
    Call("CVaR", 'solve_mdp(world, models, CVaR(0.1), sampling="queue")', INVALID, 'pass sampling="exact"'),
    Call("MeanCVaR", "MeanCVaR(0.1, -1)", INVALID, "MeanCVaR: weight=-1 must lie between 0 and 1"),
    Call("Mean", "Mean().rank_weights(0)", INVALID, "it must be at least 1"),
    Call("WorstCase", "WorstCase().rank_weights(1.5)", INVALID, "must be a whole number"),
    Call("RiskMeasure", "solve_mdp(world, models, torch.zeros(3))", INVALID, "rank_weights(num_models) -> [M]"),
    Call("KofN", "KofN(1, 2**70)", INVALID, "KofN: n is too large; it must be at most 2,147,483,647"),
    Call("KofN", "KofN(1, 2).rank_weights(10**400)", INVALID, "num_models is too large"),
    Call("KofN", 'KofN(1, 2).rank_weights(10, replacement="no")', INVALID, "replacement='no' must be True or False"),
    Call("KofN", "KofN(1, 2).value([1.0, 2.0], replacement=None)", INVALID, "replacement=None must be True or False"),
    Call("KofN", 'KofN(1, 2).value(torch.zeros(2, device="meta"))', INVALID, "a meta tensor holds no numbers"),
    Call(
        "KofN",
        'KofN(1, 2).value(np.array(["2020-01-01"], dtype="datetime64[D]"))',
        INVALID,
        "entries are of type datetime64[D]",
    ),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, models, "1-of-20")', INVALID, "A=4, got [30, 1, 2]"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, np.full((30, 16, 4), nan), "1-of-20")', INVALID, "finite number"),
    Call(
        "KofNPPO", 'KofNPPO("MlpPolicy", lake, np.ones((10, 16, 4)), "1-of-20")', INVALID, "n=20 exceeds the 10 models"
    ),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, "driving", "1-of-20")', INVALID, "rewards(observations) -> [M, B, A]"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", 3, models, "1-of-20")', INVALID, "pass the id of a Gymnasium environment"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, models, "1-of-20", gamma=1)', INVALID, "gamma=1 must lie in [0, 1)"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, models, smoothing=2)', INVALID, "smoothing=2 must lie in (0, 1]"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", lake, models, num_starts=0)', INVALID, "it must be at least 1"),
    Call("KofNPPO", 'KofNPPO("MlpPolicy", "Pendulum-v1", models)', INVALID, "step_rewards(observations, actions, "),
    Call(
        "KofNPPO",
        'KofNPPO("MlpPolicy", lake, models, mixture="soft")',
        INVALID,
        "mixture is a str; pass an object with",
    ),
    Call(
        "ScenarioPPO",
        'ScenarioPPO("MlpPolicy", lake, 20, "10-of-20")',
        INVALID,
        'does reset heed options={"scenario": m}?',
    ),
    Call("ScenarioPPO", 'ScenarioPPO("MlpPolicy", lake, 1)', INVALID, "use stable_baselines3.PPO"),
    Call(
        "ScenarioPPO",
        'ScenarioPPO("MlpPolicy", [lake, lake], 3, "3-of-3")',
        INVALID,
        "num_scenarios=3, but the environment has 2",
    ),
    Call("ScenarioPPO", 'ScenarioPPO("MlpPolicy", [lake, car], 2, "2-of-2")', INVALID, "of scenario 1 are Box"),
    Call("ScenarioEnv", "ScenarioEnv([lake, car])", INVALID, "one policy must serve all scenarios"),
    Call("ScenarioEnv", "ScenarioEnv(lambda m: lake)", INVALID, "num_scenarios: pass it"),
    Call("ScenarioEnv", "ScenarioEnv([3])", INVALID, "scenario 0 is a int, not a gymnasium.Env"),
    Call("StepHistory", "StepHistory(lake, 0)", INVALID, "num_steps=0"),
    Call("KofNPPO", 'KofNPPO.load("empty", lake, models)', MISSING, "there is no such file"),
    Call(
        "TabularMDP",
        "TabularMDP([[stay, [0.5, 0.4]], [move, stay]], stay, 0.9)",
        INVALID,
        "state 0, action 1 sums to 0.9",
    ),
    Call("TabularMDP", "TabularMDP([[[-1.0, 2.0]], [stay]], stay, 0.9)", INVALID, "P(s'=0 | s=0, a=0) is -1"),
    Call("TabularMDP", "TabularMDP([[[nan, 1.0]], [stay]], stay, 0.9)", INVALID, "must be finite and 0 or more"),
    Call("TabularMDP", "TabularMDP(np.ones((2, 2)), stay, 0.9)", INVALID, "expected shape [S, A, S]"),
    Call("TabularMDP", "TabularMDP(np.ones((0, 1, 0)), [], 0.9)", INVALID, "is empty; it needs at least one"),
    Call("TabularMDP", 'TabularMDP([["a"]], stay, 0.9)', INVALID, "cannot be read as an array of real numbers"),
    Call(
        "TabularMDP",
        "TabularMDP(np.eye(2)[:, None] + 0j, stay, 0.9)",
        INVALID,
        "cannot be read as an array of real numbers",
    ),
    Call(
        "TabularMDP",
        "TabularMDP(torch.tensor([[1 + 1j, 0], [0, 1]]).to_sparse(), stay, 0.9)",
        INVALID,
        "complex numbers are not probabilities",
    ),
    Call(
        "TabularMDP",
        "world.expected_return(torch.full((3, 2, 2), 0.5), torch.zeros(6, 2, 2))",
        INVALID,
        "batches [3] and [6] cannot be combined",
    ),
    Call("TabularMDP", "TabularMDP([[stay], [move]], [0.5, 0.6], 0.9)", INVALID, "sums to 1.1; each must sum to 1"),
    Call("TabularMDP", "TabularMDP([[stay], [move]], [1.0], 0.9)", INVALID, "expected shape [S] with S=2"),
    Call("TabularMDP", "TabularMDP([[stay], [move]], stay, 1.0)", INVALID, "must lie in [0, 1)"),
    Call("TabularMDP", "TabularMDP([[stay], [move]], stay, nan)", INVALID, "must lie in [0, 1)"),
    Call("TabularMDP", 'TabularMDP([[stay], [move]], stay, "0.9")', INVALID, "must lie in [0, 1)"),
    Call("TabularMDP", "TabularMDP.from_gymnasium(None)", INVALID, "states and actions must be discrete"),
    Call("TabularMDP", 'TabularMDP.from_gymnasium(gymnasium.make("CartPole-v1"))', INVALID, "must be discrete"),
    Call(
        "TabularMDP",
        'TabularMDP.from_gymnasium(gymnasium.make("MountainCar-v0"), num_steps=10)',
        INVALID,
        "cautious.DiscretizeObservation(env, bins=20)",
    ),
    Call(
        "TabularMDP",
        'TabularMDP.from_gymnasium(gymnasium.make("Pendulum-v1"), num_steps=10)',
        INVALID,
        "gymnasium.wrappers.DiscretizeAction",
    ),
    Call(
        "TabularMDP",
        'TabularMDP.from_gymnasium(gymnasium.wrappers.StickyAction(gymnasium.make("FrozenLake-v1"), 0.1))',
        INVALID,
        "its wrapper StickyAction may change what is seen or what happens",
    ),
    Call(
        "TabularMDP",
        "TabularMDP.from_gymnasium(DiscretizeObservation(car), num_steps=9, prior=-1)",
        INVALID,
        "zero or a positive number of pseudo-steps",
    ),
    Call(
        "TabularMDP",
        "TabularMDP.from_gymnasium(DiscretizeObservation(car), num_steps=9, explore=lambda state: 7)",
        INVALID,
        "explore chose action 7; there are 3",
    ),
    Call("TabularMDP", "world.expected_rewards(np.zeros((2, 2, 3)))", INVALID, "expected shape [..., S, A, S]"),
    Call("TabularMDP", "world.expected_rewards(np.zeros(3))", INVALID, "expected shape [..., S]"),
    Call("TabularMDP", "world.expected_rewards(3.0)", INVALID, "[S] or [M, S] (of entering a state)"),
    Call("TabularMDP", "world.occupancy([[0.5, 0.5]])", INVALID, "expected shape [..., S, A] with S=2 with A=2"),
    Call("TabularMDP", "world.occupancy([[0.5, 0.6], stay])", INVALID, "each must sum to 1"),
    Call(
        "TabularMDP",
        "world.expected_return([stay, stay], [[1.0, nan], [0.0, 0.0]])",
        INVALID,
        "must be a finite number",
    ),
    Call("TabularMDP", "TabularMDP([[stay], [move]], stay, 10**400)", INVALID, "must lie in [0, 1)"),
    Call("TabularMDP", "TabularMDP([[stay], [move]], stay, True)", INVALID, "discount=True must lie in [0, 1)"),
    Call("TabularMDP", "TabularMDP(np.full((2, 1, 2), None), stay, 0.9)", INVALID, "entries are of type object"),
    Call(
        "TabularMDP",
        "TabularMDP(outside, stay, 0.9)",
        INVALID,
        "entries lie outside of the sparse tensor's shape [2, 2]",
    ),
    Call(
        "TabularMDP",
        'TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), num_steps=0)',
        INVALID,
        "num_steps=0 is too small",
    ),
    Call(
        "TabularMDP",
        'TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), seed=-1)',
        INVALID,
        "must be a whole number, zero or larger",
    ),
    Call("DiscretizeObservation", "DiscretizeObservation(car, bins=0)", INVALID, "bins=0 is too small"),
    Call("DiscretizeObservation", "DiscretizeObservation(car, bins=(4, 4, 4))", INVALID, "3 counts for 2 numbers"),
    Call("DiscretizeObservation", "DiscretizeObservation(car, bins=2000)", INVALID, "4,000,000 cells are too many"),
    Call("DiscretizeObservation", "DiscretizeObservation(car, low=1, high=0)", INVALID, "must lie below high=0"),
    Call("DiscretizeObservation", 'DiscretizeObservation(car, low="a")', INVALID, "low='a' must be a number"),
    Call(
        "DiscretizeObservation",
        'DiscretizeObservation(gymnasium.make("CartPole-v1"))',
        INVALID,
        "has no limits (-inf to inf); pass low and high",
    ),
    Call(
        "DiscretizeObservation",
        'DiscretizeObservation(gymnasium.make("FrozenLake-v1"))',
        INVALID,
        "divides a Box, a MultiDiscrete or a Tuple of Discrete spaces",
    ),
    Call("solve_bandit", 'solve_bandit(models[0], "1-of-20")', INVALID, "expected shape [M, S, A]"),
    Call("solve_bandit", 'solve_bandit(models * nan, "1-of-20")', INVALID, "every entry must be a finite number"),
    Call(
        "solve_bandit",
        'solve_bandit("models", "1-of-20")',
        INVALID,
        "rewards: cannot be read as an array of real numbers",
    ),
    Call("solve_bandit", 'solve_bandit(models, "1-of-50")', INVALID, "n=50 exceeds the 30 models there are"),
    Call("solve_bandit", "solve_bandit(models, [])", INVALID, "names no level; pass one, such as '1-of-20'"),
    Call(
        "solve_bandit",
        'solve_bandit(models, "1-of-20", regime="every-state")',
        INVALID,
        "choose one of 'all-states', 'single-state'",
    ),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", sampling="some")', INVALID, "choose one of 'queue', 'exact'"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", update="sgd")', INVALID, "choose one of 'regret-matching'"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", num_iterations=0)', INVALID, "it must be at least 1"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", num_runs=0)', INVALID, "it must be at least 1"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", seed=-1)', INVALID, "must be a whole number, zero or larger"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", state_dist=[0.5, 0.6])', INVALID, "each must sum to 1"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", state_dist=[1.0])', INVALID, "expected shape [S] with S=2"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", device="abacus")', INVALID, "cannot be used here"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", device="meta")', INVALID, "cannot be used here"),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", device=2**70)', INVALID, "cannot be used here"),
    Call("solve_bandit", 'solve_bandit(models.double() * 1e308, "1-of-20")', INVALID, "sums may overflow: scale them"),
    Call("solve_bandit", 'solve_bandit(models[:0], "1-of-20")', INVALID, "dimension M of shape [0, 2, 2] is empty"),
    Call(
        "solve_bandit", 'solve_bandit(models, "1-of-20", num_iterations=2**70)', INVALID, "num_iterations is too large"
    ),
    Call("solve_bandit", 'solve_bandit(models, "1-of-20", num_runs=2.0)', INVALID, "must be a whole number"),
    Call(
        "solve_bandit",
        'solve_bandit(models, "1-of-20", regime=np.zeros(3, dtype=[("a", "f4")]))',
        INVALID,
        "is not known; choose one of 'all-states', 'single-state'",
    ),
    Call(
        "solve_bandit",
        'solve_bandit(models, "1-of-20", track_exact="yes")',
        INVALID,
        "track_exact='yes' must be True or False",
    ),
    Call(
        "solve_bandit",
        'solve_bandit(models, "1-of-20", progress=3)',
        INVALID,
        "progress=3 must be a function of (iterations done, iterations in all), or None",
    ),
    Call(
        "solve_mdp",
        'solve_mdp(TabularMDP.from_gymnasium(gymnasium.make("FrozenLake-v1")), torch.rand(30, 16, 4), "1-of-20")',
        INVALID,
        "append it with torch.nn.functional.pad(rewards, (0, 0, 0, 1))",
    ),
    Call("solve_mdp", 'solve_mdp("world", models, "1-of-20")', INVALID, "pass a cautious.TabularMDP"),
    Call("solve_mdp", 'solve_mdp(driving_world(), models, "1-of-20")', INVALID, "(its .mdp is one)"),
    Call(
        "solve_mdp",
        'solve_mdp(world, models[:, :1], "1-of-20")',
        INVALID,
        "with S=2 A=2 as the MDP has, got [30, 1, 2]",
    ),
    Call("solve_mdp", 'solve_mdp(world, models, "20")', INVALID, "is not a level"),
    Call("solve_mdp", 'solve_mdp(world, models, "1-of-20", num_iterations=1.5)', INVALID, "must be a whole number"),
    Call("solve_mdp", 'solve_mdp(world, models, "1-of-20").certificate([[0.5, 0.5]])', INVALID, "expected shape"),
    Call("solve_mdp", 'solve_mdp(world, models, "1-of-20").certificate(refine=0)', INVALID, "refine=0 is too small"),
    Call(
        "solve_mdp",
        'solve_mdp(world, models, "1-of-20", track_exact=1)',
        INVALID,
        "track_exact=1 must be True or False",
    ),
    Call("solve_mdp", 'solve_mdp(world, models, "1-of-20", progress=3)', INVALID, "progress=3"),
    Call("solve_exact", 'solve_exact(world, models[:, :1], "1-of-20")', INVALID, "with S=2 A=2 as the MDP has"),
    Call("solve_exact", 'solve_exact([0.5, 0.6], models, "1-of-20")', INVALID, "each must sum to 1"),
    Call(
        "solve_exact", 'solve_exact("world", models, "1-of-20")', INVALID, "cannot be read as an array of real numbers"
    ),
    Call("solve_exact", 'solve_exact(world, models, "31-of-31")', INVALID, "n=31 exceeds the 30 models there are"),
    Call(
        "solve_exact",
        'solve_exact([1.0], torch.rand(3000, 1, 2), "1-of-20")',
        INVALID,
        "make too large a linear program",
    ),
    Call("optimal_policy", "optimal_policy(None, models[0])", INVALID, "pass a cautious.TabularMDP"),
    Call(
        "optimal_policy", "optimal_policy(world, [[1.0, 2.0]])", INVALID, "expected shape [..., S, A] with S=2 with A=2"
    ),
    Call(
        "optimal_policy",
        "optimal_policy(world, [[1.0, nan], [0.0, 0.0]])",
        INVALID,
        "every entry must be a finite number",
    ),
    Call("optimal_policy", "optimal_policy(world, np.full((2, 2), 1e308))", INVALID, "sums may overflow: scale them"),
    Call(
        "driving_world",
        "driving_world(appearance_probability=1.5)",
        INVALID,
        "must lie in (0, 1]: at 0 no obstacle would ever appear",
    ),
    Call(
        "driving_world",
        "driving_world(appearance_probability=nan)",
        INVALID,
        "must lie in (0, 1]: at 0 no obstacle would ever appear",
    ),
    Call(
        "driving_world",
        'driving_world(appearance_probability="often")',
        INVALID,
        "must lie in (0, 1]: at 0 no obstacle would ever appear",
    ),
    Call(
        "fit_ensemble",
        'fit_ensemble(states, paid, executor="ray")',
        INVALID,
        "executor='ray' must be what open_executor yields",
    ),
    Call("fit_ensemble", "fit_ensemble(states[0], paid)", INVALID, "expected one row per state"),
    Call("fit_ensemble", "fit_ensemble(states * nan, paid)", INVALID, "every entry must be a finite number"),
    Call("fit_ensemble", "fit_ensemble(states, paid[:5])", INVALID, "expected shape [S, A] with S=20"),
    Call("fit_ensemble", "fit_ensemble(states, paid / 0)", INVALID, "use NaN for what was not tried"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid * torch.tensor([1.0, nan]))",
        INVALID,
        "actions [1] have no reward in any state",
    ),
    Call(
        "fit_ensemble", 'fit_ensemble(states, paid, network="transformer")', INVALID, "choose 'auto', 'image', 'vector'"
    ),
    Call(
        "fit_ensemble",
        'fit_ensemble(states, paid, network="image")',
        INVALID,
        "images: expected shape [S, 28, 28], got [20, 3]",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=lambda: 3)",
        INVALID,
        "expected a function that returns a torch module",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=lambda: torch.nn.Linear(7, 2))",
        INVALID,
        "does not take inputs of shape",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=lambda: torch.nn.Linear(3, 9))",
        INVALID,
        "the module gives 9 numbers per state, and there are rewards of 2 actions",
    ),
    Call(
        "fit_ensemble", "fit_ensemble(states, paid, network=lambda: torch.nn.BatchNorm1d(3))", INVALID, "keeps buffers"
    ),
    Call("fit_ensemble", "fit_ensemble(states, paid, network=torch.nn.Identity)", INVALID, "has no parameters"),
    Call("fit_ensemble", "fit_ensemble(states, paid, num_models=0)", INVALID, "num_models=0 is too small"),
    Call("fit_ensemble", "fit_ensemble(states, paid, num_epochs=-1)", INVALID, "num_epochs=-1 is too small"),
    Call("fit_ensemble", "fit_ensemble(states, paid, batch_size=0)", INVALID, "batch_size=0 is too small"),
    Call("fit_ensemble", 'fit_ensemble(states, paid, learning_rate="a")', INVALID, "must be a positive number"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, loss_weights=[-1.0, 1.0])",
        INVALID,
        "loss_weights: some are negative",
    ),
    Call("fit_ensemble", 'fit_ensemble(states, paid, validation_fraction="a")', INVALID, "must be in [0, 1)"),
    Call("fit_ensemble", 'fit_ensemble(states, paid, prior="wide")', INVALID, "must be zero or a positive number"),
    Call("fit_ensemble", "fit_ensemble(states, paid, prior=-1)", INVALID, "must be zero or a positive number"),
    Call("driving_world", "driving_world(appearance_probability=True)", INVALID, "must lie in (0, 1]"),
    Call("driving_world", "driving_world(appearance_probability=10**400)", INVALID, "must lie in (0, 1]"),
    Call("driving_world", 'driving_world(novel="maybe")', INVALID, "novel='maybe' must be True or False"),
    Call("driving_world", "driving_world(novel=None)", INVALID, "novel=None must be True or False"),
    Call(
        "driving_world",
        "driving_world().index((9, 0, None, None))",
        INVALID,
        "is not a state of the novel driving world",
    ),
    Call(
        "driving_world",
        "driving_world().sample_next(784, 0, 0.5)",
        INVALID,
        "there are 784 states and 5 actions, counted from 0",
    ),
    Call("driving_world", "driving_world().sample_next(0, -1, 0.5)", INVALID, "action=-1 is too small"),
    Call("driving_world", "driving_world().sample_next(0, 0, 1.0)", INVALID, "uniform is a number in [0, 1)"),
    Call("driving_world", "driving_world().expected([1.0])", INVALID, "pair_values: expected shape [..., Q]"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, learning_rate=0)",
        INVALID,
        "learning_rate=0 must be a positive number",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, weight_decay=-1)",
        INVALID,
        "weight_decay=-1 must be zero or a positive number",
    ),
    Call(
        "fit_ensemble", "fit_ensemble(states, paid, loss_weights=[0.0, 0.0])", INVALID, "all are 0, so nothing would be"
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=lambda: torch.nn.Linear(3, 2).requires_grad_(False))",
        INVALID,
        "no parameters to train",
    ),
    Call("fit_ensemble", "fit_ensemble(states, paid, loss_weights=[1.0])", INVALID, "expected shape [A] with A=2"),
    Call("fit_ensemble", "fit_ensemble(states, paid, validation_fraction=1)", INVALID, "must be in [0, 1)"),
    Call("fit_ensemble", "fit_ensemble(states, paid, seed=0.5)", INVALID, "must be a whole number, zero or larger"),
    Call("fit_ensemble", 'fit_ensemble(states, paid, device="abacus")', INVALID, "cannot be used here"),
    Call("fit_ensemble", "fit_ensemble(states, paid, device=np.zeros(2))", INVALID, "cannot be used here"),
    Call("fit_ensemble", "fit_ensemble(None, paid)", INVALID, "inputs: cannot be read as an array of real numbers"),
    Call("fit_ensemble", "fit_ensemble(states, None)", INVALID, "rewards: missing"),
    Call("fit_ensemble", "fit_ensemble(states[:0], paid[:0])", INVALID, "dimension S of shape [0, 2] is empty"),
    Call("fit_ensemble", "fit_ensemble(states[:, :0], paid)", INVALID, "states of shape [0] hold no number"),
    Call("fit_ensemble", "fit_ensemble(states, paid.double() * 1e300)", INVALID, "sums may overflow: scale them"),
    Call("fit_ensemble", "fit_ensemble(states, paid, network=None)", INVALID, "choose 'auto', 'image', 'vector'"),
    Call(
        "fit_ensemble", "fit_ensemble(states, paid, network=np.zeros(2))", INVALID, "choose 'auto', 'image', 'vector'"
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=torch.nn.Linear)",
        INVALID,
        "made no module when called without arguments",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, network=torch.nn.Linear(3, 2))",
        INVALID,
        "pass a function that does, such as lambda: MyModule(3)",
    ),
    Call(
        "fit_ensemble", "fit_ensemble(states, paid, num_models=2.0)", INVALID, "num_models=2.0 must be a whole number"
    ),
    Call("fit_ensemble", "fit_ensemble(states, paid, num_epochs=2**70)", INVALID, "num_epochs is too large"),
    Call("fit_ensemble", "fit_ensemble(states, paid, learning_rate=10**400)", INVALID, "must be a positive number"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, paid, learning_rate=1e30, num_models=2, num_epochs=3)",
        INVALID,
        "training diverged",
    ),
    Call("fit_ensemble", "fit_ensemble(states, paid, checkpoint_dir=3)", INVALID, "checkpoint_dir=3 must be a path"),
    Call(
        "fit_ensemble",
        'fit_ensemble(states, paid, checkpoint_dir="flat.npy")',
        INVALID,
        "flat.npy is a file; choose a folder, or a new name",
    ),
    Call("fit_ensemble", 'fit_ensemble(states, paid, progress="yes")', INVALID, "progress='yes' must be True or False"),
    Call(
        "fit_ensemble",
        'fit_ensemble({**table, "x": [nan] * 20}, {"go": paid[:, 0]}, missing="guess")',
        INVALID,
        "missing='guess' is not known; choose one of 'leave-out', 'indicator'",
    ),
    Call(
        "fit_ensemble",
        'fit_ensemble({**table, "x": [1, None] * 10, "kind": [None, "red"] * 10}, paid)',
        BAD,
        "inputs: 20 of 20 rows cannot be used: column 'kind' is empty in rows 0, 2, 4, 6, 8, 10, 12, 14, 16, 18; column 'x'",
    ),
    Call(
        "fit_ensemble",
        'fit_ensemble({"name": [f"case {n}" for n in range(20)]}, paid)',
        INVALID,
        "column 'name' has 20 different texts in 20 rows: a name or a note of each row",
    ),
    Call("fit_ensemble", 'fit_ensemble({"x": [1, 2], "y": [1]}, paid)', INVALID, "columns of different lengths"),
    Call("fit_ensemble", 'fit_ensemble({"x": states}, paid)', INVALID, "expected one value per row, got an array"),
    Call(
        "fit_ensemble",
        'fit_ensemble(table, {"go": ["a"] * 20})',
        INVALID,
        "column 'go' is not a number in rows 0-19 ('a')",
    ),
    Call("fit_ensemble", "fit_ensemble({}, paid)", INVALID, "inputs: there is no column"),
    Call(
        "fit_ensemble",
        "fit_ensemble(np.zeros((8, 84, 84, 4), np.uint8), np.zeros((8, 2)))",
        INVALID,
        "pictures [84, 84] with 4 channels: transparency, or frames of a film?",
    ),
    Call("RewardEnsemble", "belief.rewards(states[:, :2])", INVALID, "expected shape [S, 3], got [20, 2]"),
    Call("RewardEnsemble", "belief.rewards(states * nan)", INVALID, "every entry must be a finite number"),
    Call("RewardEnsemble", "belief.rewards(states[:0])", INVALID, "inputs: there are none (shape [0, 3])"),
    Call(
        "RewardEnsemble",
        "RewardEnsemble(belief.network, belief.parameters * nan)",
        INVALID,
        "parameters: entry [0, 0] is nan",
    ),
    Call("RewardEnsemble", "belief.rewards(table)", INVALID, "the belief was trained on arrays without names"),
    Call(
        "RewardEnsemble", 'named.rewards({"x": [1.0]})', INVALID, "states: no column 'kind'. A state needs 'x', 'kind'"
    ),
    Call(
        "RewardEnsemble",
        'named.rewards({"X": [1.0], "kind": ["red"]})',
        INVALID,
        "no column 'x'; there are 'X' instead",
    ),
    Call(
        "RewardEnsemble",
        'named.rewards({**table, "age": [3] * 20})',
        INVALID,
        "'age' was not in the training; give the columns 'x', 'kind'",
    ),
    Call(
        "RewardEnsemble",
        'named.rewards({"x": [0.5, nan, 1e30, 0.5], "kind": ["red", "red", "red", None]})',
        INVALID,
        "3 of 4 rows cannot be used: column 'x' is empty in row 1; column 'x' is too large in row 2 (1e+30); column 'kind' is "
        "empty in row 3",
    ),
    Call("RewardEnsemble", "belief.rewards_for([0])", INVALID, "call it on `ensemble.on(states)`"),
    Call("RewardEnsemble", "belief.on(states).rewards_for([9])", INVALID, "there are 4, counted from 0"),
    Call("RewardEnsemble", "belief.on(states).rewards_for([-1])", INVALID, "there are 4, counted from 0"),
    Call(
        "RewardEnsemble", "belief.on(states).rewards_for([True, False])", INVALID, "expected numbers, got truth values"
    ),
    Call("RewardEnsemble", "belief.rewards(None)", INVALID, "inputs: cannot be read as an array of real numbers"),
    Call(
        "RewardEnsemble",
        "belief.rewards(states, progress=3)",
        INVALID,
        "must be a function of (blocks done, blocks in all), or None",
    ),
    Call("RewardEnsemble", 'belief.to("abacus")', INVALID, "cannot be used here"),
    Call("RewardEnsemble", "RewardEnsemble(None, belief.parameters)", INVALID, "network is a NoneType"),
    Call(
        "RewardEnsemble",
        "RewardEnsemble(belief.network, belief.parameters[:, :5])",
        INVALID,
        "parameters: expected shape [M, P]",
    ),
    Call(
        "RewardEnsemble",
        "RewardEnsemble(belief.network, belief.parameters, losses=[0.0])",
        INVALID,
        "losses: expected shape [M] with M=4",
    ),
    Call(
        "RewardEnsemble",
        "RewardEnsemble(belief.network, belief.parameters, settings={1, 2})",
        INVALID,
        "expected a dictionary of plain values",
    ),
    Call("RewardEnsemble", "belief.save(None)", INVALID, "folder=None must be a path"),
    Call("RewardEnsemble", 'belief.save("")', INVALID, "folder='' must be a path"),
    Call("RewardEnsemble", 'belief.save("flat.npy")', INVALID, "flat.npy is a file; choose a folder, or a new name"),
    Call(
        "RewardEnsemble", 'belief.save("flat.npy/below")', INVALID, "flat.npy is a file; choose a folder, or a new name"
    ),
    Call("RewardEnsemble", "RewardEnsemble.load(None)", INVALID, "folder=None must be a path"),
    Call("RewardEnsemble", 'RewardEnsemble.load("a" * 5000)', INVALID, "cannot be a path (File name too long)"),
    Call("RewardEnsemble", 'RewardEnsemble.load("ask-for-help", network=3)', INVALID, "network is a int"),
    Call("RewardEnsemble", 'RewardEnsemble.load("ask-for-help", network=lambda: None)', BAD, "is built in"),
    Call("RewardEnsemble", 'RewardEnsemble.load("driving", network=belief.network)', BAD, "leave network out"),
    Call("RewardEnsemble", 'RewardEnsemble.load("nowhere")', MISSING, "nowhere/ensemble.json: there is no such file"),
    Call("RewardEnsemble", 'RewardEnsemble.load("text")', BAD, "text/ensemble.json: not a complete JSON file"),
    Call(
        "RewardEnsemble",
        'RewardEnsemble.load("ask-for-help").rewards(np.zeros((2, 5, 5)))',
        INVALID,
        "expected shape [S, 28, 28], got [2, 5, 5]",
    ),
    Call(
        "RewardEnsemble", 'RewardEnsemble.load("driving").rewards([[0.0]])', INVALID, "world is a list: a belief about"
    ),
    Call("RewardEnsemble", 'RewardEnsemble.load("driving").on("x")', INVALID, "Pass world = cautious.driving_world()"),
    Call("RewardEnsemble", 'RewardEnsemble.load("driving").save(5)', INVALID, "folder=5 must be a path"),
    Call("RewardEnsemble", 'type(RewardEnsemble.load("driving")).load(5)', INVALID, "folder=5 must be a path"),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(models, mdp=gymnasium.make("FrozenLake-v1"))',
        INVALID,
        "pass a cautious.TabularMDP",
    ),
    Call("CautiousPolicy", "CautiousPolicy(models[0])", INVALID, "expected shape [M, S, A]"),
    Call("CautiousPolicy", "CautiousPolicy(models * nan)", INVALID, "every entry must be a finite number"),
    Call("CautiousPolicy", 'CautiousPolicy(models, "1-of-50")', INVALID, "n=50 exceeds the 30 models there are"),
    Call("CautiousPolicy", 'CautiousPolicy(models, "cautious")', INVALID, "is not a level"),
    Call("CautiousPolicy", 'CautiousPolicy(models, sampling="some")', INVALID, "choose one of 'queue', 'exact'"),
    Call("CautiousPolicy", "CautiousPolicy(models, tolerance=-1)", INVALID, "tolerance=-1 must be in [0, 1)"),
    Call("CautiousPolicy", "CautiousPolicy(models, tolerance=nan)", INVALID, "tolerance=nan must be in [0, 1)"),
    Call("CautiousPolicy", "CautiousPolicy(models, num_iterations=0)", INVALID, "it must be at least 1"),
    Call("CautiousPolicy", "CautiousPolicy(models, seed=-1)", INVALID, "must be a whole number, zero or larger"),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(belief, "1-of-2", mdp=world)',
        INVALID,
        "with an MDP it must be an array [M, S, A]",
    ),
    Call("CautiousPolicy", "CautiousPolicy(models[:, :1], mdp=world)", INVALID, "as the MDP has"),
    Call("CautiousPolicy", "CautiousPolicy(None)", INVALID, "belief: cannot be read as an array of real numbers"),
    Call("CautiousPolicy", "CautiousPolicy(models.double() * 1e308)", INVALID, "sums may overflow: scale them"),
    Call("CautiousPolicy", "CautiousPolicy(models, mdp=3)", INVALID, "pass a cautious.TabularMDP"),
    Call("CautiousPolicy", "policy.decide([True, False])", INVALID, "expected numbers, got truth values"),
    Call("CautiousPolicy", "policy.decide([nan])", INVALID, "expected whole numbers [B]"),
    Call("CautiousPolicy", "policy.predict([[1], [2, 3]])", INVALID, "observation: cannot be read as an array"),
    Call(
        "CautiousPolicy", 'policy.predict(0, deterministic="no")', INVALID, "deterministic='no' must be True or False"
    ),
    Call(
        "CautiousPolicy",
        "policy.predict([torch.tensor(1.0, requires_grad=True), torch.tensor(1.0)])",
        INVALID,
        "observation: cannot be read as an array",
    ),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(RewardEnsemble.load("driving"), "1-of-20").decide([0])',
        INVALID,
        "for a policy, CautiousPolicy(belief.rewards(world), mdp=world.mdp)",
    ),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(named, "1-of-2").decide({"x": [0.5, "?"], "kind": ["red", "red"]})',
        INVALID,
        "column 'x' is not a number in row 1 ('?'). Name an action for such rows, CautiousPolicy(belief, level, bad_rows_",
    ),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(belief, "1-of-2").decide(states * torch.tensor([1.0, 1.0, 1e37]))',
        INVALID,
        "20 of 20 rows cannot be used: column '2' is too large in rows 0-19",
    ),
    Call(
        "CautiousPolicy", 'CautiousPolicy(named, "1-of-2", bad_rows_action="run")', INVALID, "choose one of 'go', 'ask'"
    ),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(named, "1-of-2", bad_rows_action=2)',
        INVALID,
        "bad_rows_action=2: there are 2 actions",
    ),
    Call("CautiousPolicy", 'policy.decide([0], allow_undecided="no")', INVALID, "allow_undecided='no' must be True"),
    Call("CautiousPolicy", "policy.caution_at(None, [0])", INVALID, "is not a level"),
    Call(
        "CautiousPolicy",
        "CautiousPolicy(models, familiar_states=[0, 1])",
        INVALID,
        "familiar_states: fewer than 6 states cannot set a unit",
    ),
    Call("CautiousPolicy", "CautiousPolicy(models, familiar_states=[0, 1, 9])", INVALID, "there are 2, counted from 0"),
    Call("CautiousPolicy", "policy.explain([0])", INVALID, "numbered states or a whole world, which have no features"),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(belief, "1-of-2").explain(states, familiar=states[:, :1])',
        INVALID,
        "familiar: expected shape [L, D] with D=3, got [20, 1]",
    ),
    Call(
        "CautiousPolicy",
        'CautiousPolicy(named, "1-of-2").explain({"x": [0.5]})',
        INVALID,
        "states: no column 'kind'",
    ),
    Call("CautiousPolicy", "policy.save(3)", INVALID, "folder=3 must be a path"),
    Call("CautiousPolicy", 'policy.save("flat.npy")', INVALID, "flat.npy is a file; choose a folder, or a new name"),
    Call("CautiousPolicy", "CautiousPolicy.load(None)", INVALID, "folder=None must be a path"),
    Call("CautiousPolicy", "policy.decide([2])", INVALID, "there are 2, counted from 0"),
    Call("CautiousPolicy", "policy.decide([0.5])", INVALID, "expected whole numbers [B]"),
    Call("CautiousPolicy", "policy.decide([])", INVALID, "expected whole numbers [B]"),
    Call("CautiousPolicy", 'CautiousPolicy(belief, "1-of-2").decide([[1.0]])', INVALID, "expected shape [S, 3]"),
    Call("CautiousPolicy", "policy.predict({})", INVALID, "an empty dictionary says nothing about the state"),
    Call("CautiousPolicy", "policy.predict(7)", INVALID, "there are 2, counted from 0"),
    Call("CautiousPolicy", 'CautiousPolicy.load("nowhere")', MISSING, "nowhere/policy.json: there is no such file"),
    Call("CautiousPolicy", 'CautiousPolicy.load("text")', BAD, "text/policy.json: not a complete JSON file"),
    Call("departure_limit", "departure_limit(1.5)", INVALID, "rate=1.5 must be in [0, 1]"),
    Call("departure_limit", "departure_limit(0.05, 0)", INVALID, "num_rows=0"),
    Call(
        "DepartureMonitor", "DepartureMonitor(0.05, false_alarms=1)", INVALID, "must be between 0 and 1, both excluded"
    ),
    Call("DepartureMonitor", "DepartureMonitor(0.05).add([0])", INVALID, "pass what policy.decide returned"),
    Call("DepartureMonitor", "DepartureMonitor.of(0.05)", INVALID, "pass policy.decide(familiar_rows)"),
    Call("calibrate", 'calibrate("policy", [0, 1])', INVALID, "pass a cautious.CautiousPolicy"),
    Call("calibrate", 'calibrate(policy, [0, 1], at_most="few")', INVALID, "must be between 0 and 1, both excluded"),
    Call("calibrate", "calibrate(policy, [0, 1], at_most=0)", INVALID, "must be between 0 and 1, both excluded"),
    Call(
        "calibrate",
        'calibrate(CautiousPolicy(named, "1-of-2"), table, {"go": paid[:, 0], "wait": paid[:, 1]}, progress=False)',
        INVALID,
        "rewards: columns 'go', 'wait'; the actions of the training were 'go', 'ask'",
    ),
    Call(
        "calibrate",
        'calibrate(CautiousPolicy(named, "1-of-2"), {"x": [1.0]}, progress=False)',
        INVALID,
        "states: no column 'kind'",
    ),
    Call("calibrate", "calibrate(policy, [0, 1], at_most=nan)", INVALID, "must be between 0 and 1, both excluded"),
    Call("calibrate", "calibrate(policy, [0, 1], confidence=1)", INVALID, "must be between 0 and 1, both excluded"),
    Call("calibrate", "calibrate(policy, [])", INVALID, "expected whole numbers [B]"),
    Call("calibrate", "calibrate(policy, [5])", INVALID, "there are 2, counted from 0"),
    Call("calibrate", "calibrate(policy, None)", INVALID, "cannot be read as an array of real numbers"),
    Call("calibrate", "calibrate(policy, [0, 1], confidence=None)", INVALID, "must be between 0 and 1, both excluded"),
    Call(
        "calibrate",
        'calibrate(policy, [0, 1], measure="mean")',
        INVALID,
        "measure='mean' is not known; choose one of 'decisions', 'total-variation'",
    ),
    Call(
        "calibrate",
        'calibrate(policy, [0, 1], guarantee="sure")',
        INVALID,
        "guarantee='sure' is not known; choose one of 'confidence', 'average'",
    ),
    Call(
        "calibrate",
        "calibrate(policy, [0, 1], rewards=paid[:2])",
        INVALID,
        "only a belief made by fit_ensemble can be retrained",
    ),
    Call(
        "calibrate",
        "calibrate(CautiousPolicy(belief, '1-of-2'), states, paid[:5])",
        INVALID,
        "rewards: expected shape [S, A] with S=20 with A=2, got [5, 2]",
    ),
    Call(
        "calibrate",
        "calibrate(CautiousPolicy(belief, '1-of-2'), states, paid, folds=1)",
        INVALID,
        "folds=1 is too small; it must be at least 2",
    ),
    Call(
        "calibrate",
        "calibrate(CautiousPolicy(belief, '1-of-2'), states, paid, folds=21)",
        INVALID,
        "folds=21 exceeds the 20 states there are",
    ),
    Call(
        "calibrate",
        "calibrate(FallbackRule(models, 1, threshold=1.0), [0, 1], measure='total-variation')",
        INVALID,
        "a FallbackRule has decisions only",
    ),
    Call("FallbackRule", 'FallbackRule("policy", 1)', INVALID, "belief='policy' is a name"),
    Call("FallbackRule", "FallbackRule(models, 1)", INVALID, "has no familiar states to derive one from"),
    Call(
        "FallbackRule",
        "FallbackRule(models, 2, threshold=1.0)",
        INVALID,
        "action=2: there are 2 actions, counted from 0",
    ),
    Call("FallbackRule", "FallbackRule(models, -1, threshold=1.0)", INVALID, "action=-1 is too small"),
    Call("FallbackRule", "FallbackRule(models, None, threshold=1.0)", INVALID, "action=None must be a whole number"),
    Call("FallbackRule", 'FallbackRule(models, "ask", threshold=1.0)', INVALID, "give a number, counted from 0"),
    Call("FallbackRule", "FallbackRule(models, 1, threshold=-1)", INVALID, "must be a number, zero or larger"),
    Call("FallbackRule", 'FallbackRule(models, 1, threshold="low")', INVALID, "must be a number, zero or larger"),
    Call("FallbackRule", "FallbackRule(models, 1, threshold=nan)", INVALID, "must be a number, zero or larger"),
    Call("FallbackRule", "FallbackRule(models, 1, threshold=1.0).decide([5])", INVALID, "there are 2, counted from 0"),
    Call(
        "FallbackRule",
        'FallbackRule(models, 1, threshold=1.0).predict(0, deterministic="no")',
        INVALID,
        "deterministic='no' must be True or False",
    ),
    Call("FallbackRule", "FallbackRule(models, 1, threshold=1.0).save(3)", INVALID, "folder=3 must be a path"),
    Call("FallbackRule", 'FallbackRule.load("nowhere")', MISSING, "nowhere/policy.json: there is no such file"),
    Call("FallbackRule", 'FallbackRule.load("text")', BAD, "text/policy.json: not a complete JSON file"),
    Call("load_images", 'load_images("birds")', INVALID, "choose one of 'digits', 'fashion', 'letters'"),
    Call("load_images", 'load_images("digits", "validation")', INVALID, "only 'train' and 'test' are used"),
    Call("load_images", 'load_images("digits", data="nowhere")', MISSING, "there is no such folder"),
    Call("load_images", 'load_images("digits", data="empty")', MISSING, "holds no image set that is known here"),
    Call("load_images", "load_images(3)", INVALID, "choose one of 'digits', 'fashion', 'letters'"),
    Call("load_images", "load_images([])", INVALID, "choose one of 'digits', 'fashion', 'letters'"),
    Call("RewardModels", "RewardModels([], familiar=states)", INVALID, "models: there is none"),
    Call(
        "RewardModels", "RewardModels([np.array([1.0]), np.array([2.0])], familiar=states)", INVALID, "without predict"
    ),
    Call("RewardModels", "RewardModels([policy, policy])", INVALID, "familiar: none are given"),
    Call("TableBelief", "TableBelief(torch.zeros(3, 2))", INVALID, "expected shape [M, S, A], got [3, 2]"),
    Call("TableBelief", "TableBelief(models).rewards([7])", INVALID, "there are 2, counted from 0"),
    Call("disagreement", "disagreement(torch.zeros(3))", INVALID, "expected shape [..., S, A], got [3]"),
    Call("disagreement", "disagreement(nan)", INVALID, "expected shape [..., S, A], got []"),
    Call("open_executor", 'open_executor("slurm").__enter__()', INVALID, "choose one of 'local', 'ray'"),
    Call("open_executor", 'open_executor("local", address="here").__enter__()', INVALID, "that of a Ray cluster"),
    Call("read_log", 'read_log(3, action="a", reward="r")', INVALID, "data=3 must be a path"),
    Call("fit_ensemble", "fit_ensemble(states)", INVALID, "rewards: missing; pass what each action paid"),
    Call("fit_ensemble", "fit_ensemble(states, paid, labels=[0, 1] * 10)", INVALID, "pass one of them"),
    Call("fit_ensemble", "fit_ensemble(states, paid, payoffs=[[1]])", INVALID, "they go with labels=..."),
    Call(
        "fit_ensemble", "fit_ensemble(states, labels=[0, 1] * 10)", INVALID, "say what each action pays for each label"
    ),
    Call("fit_ensemble", "fit_ensemble(states, labels=[0, 1], payoffs=np.eye(2))", INVALID, "2 labels for 20 rows"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0] * 20, payoffs=np.eye(2))",
        INVALID,
        "every row has the label '0'",
    ),
    Call("fit_ensemble", 'fit_ensemble(states, labels="ab" * 10, payoffs=np.eye(2))', INVALID, "one label per row"),
    Call(
        "fit_ensemble", "fit_ensemble(states, labels=[None, 1] * 10, payoffs=np.eye(2))", INVALID, "10 rows have none"
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[[0], 1] * 10, payoffs=np.eye(2))",
        INVALID,
        "one of them is a list",
    ),
    Call(
        "fit_ensemble", 'fit_ensemble(states, labels=["a", "A"] * 10, payoffs=np.eye(2))', INVALID, "use one spelling"
    ),
    Call(
        "fit_ensemble", "fit_ensemble(states, labels=[0, 1] * 10, payoffs=np.eye(3))", INVALID, "with L=2, got [3, 3]"
    ),
    Call("fit_ensemble", "fit_ensemble(states, labels=[0, 1] * 10, payoffs=[[0, nan], [1, 0]])", INVALID, "is nan"),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs={0: {'go': 1}})",
        INVALID,
        "none for the label '1'",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs={0: {'go': 1}, 1: {'ask': 1}})",
        INVALID,
        "label '0', action 'ask': no payoff",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs={0: 1, 1: 2})",
        INVALID,
        "{label: {action: payoff}}",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs={0: {'go': '2*'}, 1: {'go': 1}})",
        INVALID,
        "'2*' is not known; a payoff is a number, a column of numbers",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs={0: {'go': '-x'}, 1: {'go': 1}})",
        INVALID,
        "the states are an array without named columns",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(table, labels=[0, 1] * 10, payoffs={0: {'go': '-kind'}, 1: {'go': 1}})",
        INVALID,
        "'kind' is neither a number nor a column of numbers of the states; these are 'x'",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs=lambda rows: 1 / 0)",
        INVALID,
        "the function failed",
    ),
    Call(
        "fit_ensemble",
        "fit_ensemble(states, labels=[0, 1] * 10, payoffs=lambda rows: np.zeros((3, 2, 2)))",
        INVALID,
        "expected shape [B, L, A] with B=20",
    ),
    Call("RewardEnsemble", "belief.with_payoffs(np.eye(2))", INVALID, "these models predict rewards"),
    Call("RewardEnsemble", "belief.probabilities(states)", INVALID, "these models predict rewards, not labels"),
    Call("read_log", 'read_log(table, label="kind")', INVALID, "payoffs: missing"),
    Call(
        "read_log",
        'read_log(table, action="kind", reward="x", payoffs=[1])',
        INVALID,
        "payoffs go with a column of labels",
    ),
    Call("read_log", "read_log(table)", INVALID, "a table needs one of these: a column of labels"),
    Call("read_log", 'read_log(table, action="go", reward="x")', INVALID, "no column 'go'"),
    Call("read_log", 'read_log("nothing.csv", action="a", reward="r")', MISSING, "there is no such file"),
    Call("smallest_rate", "smallest_rate(0)", INVALID, "num_states=0 is too small"),
    Call("smallest_rate", "smallest_rate(10, 1.5)", INVALID, "must lie between 0 and 1"),
    Call("compare", "compare({}, [k_of_n])", INVALID, "pass a dictionary of names and problems"),
    Call("compare", 'compare({"two": Problem(world, models)}, [])', INVALID, "pass functions of (world, rewards)"),
    Call("compare", 'compare({"two": Problem(world, models)}, [k_of_n], 0)', INVALID, "seeds: there are none"),
    Call("UncertainMDP", "UncertainMDP([], [1.0, 0.0], 0.9)", INVALID, "expected shape [M, S, A, S]"),
    Call(
        "UncertainMDP",
        "UncertainMDP(torch.ones(3, 2, 2, 2), [1.0, 0.0], 0.9)",
        INVALID,
        "model 0, state 0, action 0 sums to 2",
    ),
    Call("UncertainMDP", "UncertainMDP([world, lake], [1.0, 0.0], 0.9)", INVALID, "model 1 is a TimeLimit"),
    Call("UncertainMDP", "UncertainMDP([world, world], horizon=0)", INVALID, "horizon=0 is too small"),
    Call("dirichlet_models", "dirichlet_models(torch.zeros(2, 2), 3)", INVALID, "expected shape [S, A, S]"),
    Call("resampled_models", "resampled_models([], 3, 0.9)", INVALID, "episodes"),
    Call("models_of_parameter", "models_of_parameter(lambda p: world, [], [1.0, 0.0], 0.9)", INVALID, "parameters"),
    Call("read_models", 'read_models("nothing.csv", [1.0, 0.0], 0.9)', MISSING, "there is no such file"),
    Call("load_images", 'load_images("digits", None)', INVALID, "only 'train' and 'test' are used"),
    Call("load_images", 'load_images("digits", data=3)', INVALID, "data=3 must be a path"),
    Call("load_images", 'load_images("digits", data="")', INVALID, "data='' must be a path"),
    Call("load_images", 'load_images("digits", data="flat.npy")', MISSING, "there is no such folder"),
    Call("load_images", 'load_images("letters")', MISSING, "Run 'cautious data fetch letters' once"),
]

COMMANDS = [
    Command("demo", "--seed -1", 2, "must be a whole number, zero or larger"),
    Command("demo", "--seed soon", 2, "Error parsing --seed"),
    Command("demo", "--courier --seed -1", 2, "must be a whole number, zero or larger"),
    Command("demo", "--out flat.npy", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command("demo", "--courier --out flat.npy", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command("data", "fetch birds", 2, "invalid choice 'birds'"),
    Command("data", "--data nowhere", 2, "there is no such folder"),
    Command("data", "--data empty", 2, "holds no image set that is known here"),
    Command("data", "fetch --data empty", 2, "use --out"),
    Command("data", "--out empty", 2, "belongs to 'fetch'"),
    Command("data", "fetch digits --out flat.npy", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command("train", "", 2, "no file is named; pass at least one"),
    Command("train", "nowhere.npz", 2, "nowhere.npz: there is no such file"),
    Command("train", "flat.npy", 2, "expected a file that ends in .csv, .parquet, .npz or .safetensors"),
    Command("train", "broken.safetensors", 2, "broken.safetensors: not a complete safetensors file"),
    Command(
        "train", "mdp.safetensors", 2, "holds no tensor 'inputs'; it holds discount, initial_state_dist, transitions"
    ),
    Command("train", "states.npz", 2, "holds no array 'rewards'; it holds inputs"),
    Command("train", "cut.npz", 2, "cut.npz: not a complete .npz file of numbers"),
    Command("train", "huge.npz", 2, "it may be truncated or of another kind, or larger than memory"),
    Command(
        "train", "objects.npz", 2, "objects.npz: not a complete .npz file of numbers (Object arrays cannot be loaded"
    ),
    Command("train", "uneven.npz", 2, "uneven.npz: rewards: expected shape [S, A] with S=20, got [5, 2]"),
    Command(
        "train",
        "experience.npz wider.npz",
        2,
        "wider.npz: inputs [20, 4] and rewards [20, 2] differ in shape from those",
    ),
    Command("train", "experience.npz --out flat.npy", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command(
        "train",
        "experience.npz --out text",
        2,
        "already holds a belief; choose another folder, or replace it with --overwrite",
    ),
    Command("train", "experience.npz --num-models 0", 2, "--num-models 0 is too small"),
    Command("train", "experience.npz --learning-rate -1", 2, "must be a positive number"),
    Command("train", "experience.npz --validation-fraction 1", 2, "must be in [0, 1)"),
    Command("train", "experience.npz --network deep", 2, "invalid choice 'deep'"),
    Command("train", "experience.npz --network image", 2, "images: expected shape [S, 28, 28], got [20, 3]"),
    Command("train", "experience.npz --device abacus", 2, "cannot be used here"),
    Command("train", "experience.npz --seed -1", 2, "must be a whole number, zero or larger"),
    Command("train", "log.csv", 2, "one reward column per action"),
    Command("train", "log.csv --action done", 2, "one reward column per action"),
    Command("train", "experience.npz --address 127.0.0.1:6379", 2, "it goes with --engine ray"),
    Command("train", "experience.npz --engine dask", 2, "invalid choice 'dask'"),
    Command(
        "train", "log.csv --action done --reward cost", 2, "no column 'cost'; there are 'x', 'kind', 'done', 'paid'"
    ),
    Command(
        "train",
        "log.csv --action done --reward kind",
        2,
        "column 'kind' is not a number in lines 2-21 ('red', 'blue'); none is left",
    ),
    Command("train", "log.csv --action done --reward paid --ignore x kind", 2, "no column is left"),
    Command(
        "train",
        "holes.csv --action done --reward paid",
        2,
        "none is left to learn from. --missing indicator would keep 20 of them.",
    ),
    Command("train", "log.csv --action done --reward paid --missing guess", 2, "invalid choice 'guess'"),
    Command(
        "train", "fake.parquet --action done --reward paid", 2, "fake.parquet: not a Parquet file that can be read"
    ),
    Command("train", "log.csv --rewards paid paid", 2, "a column is named twice"),
    Command(
        "train", "ragged.csv --action done --reward paid", 2, "ragged.csv, line 3: 3 cells, where the headings are 4"
    ),
    Command("train", "log.csv experience.npz --action done --reward paid", 2, "pass files of one kind"),
    Command("train", "experience.npz --action done", 2, "arrays have none"),
    Command("calibrate", "", 2, "Missing from cautious calibrate"),
    Command("calibrate", "--belief nowhere --states states.npz", 2, "nowhere/ensemble.json: there is no such file"),
    Command("calibrate", "--belief ask-for-help --states log.csv", 2, "it was not trained on a table"),
    Command("calibrate", "--belief ask-for-help --states states.npz", 2, "expected shape [S, 28, 28], got [20, 3]"),
    Command("calibrate", "--belief driving --states states.npz", 2, "is about driving"),
    Command("calibrate", "--belief ask-for-help --states states.npz --at-most 2", 2, "between 0 and 1, both excluded"),
    Command("calibrate", "--belief ask-for-help --states states.npz --n 0", 2, "it must be at least 1"),
    Command(
        "calibrate", "--belief ask-for-help", 2, "either --states FILE with states that were not used for training"
    ),
    Command("calibrate", "--belief ask-for-help --states states.npz --data log.csv", 2, "either --states FILE"),
    Command("calibrate", "--belief ask-for-help --data log.csv", 2, "it was not trained on a table"),
    Command("calibrate", "--belief ask-for-help --data uneven.npz", 2, "rewards: expected shape [S, A] with S=20"),
    Command(
        "calibrate", "--belief ask-for-help --states states.npz --fallback ask", 2, "give a number, counted from 0"
    ),
    Command(
        "calibrate",
        "--belief ask-for-help --states states.npz --fallback 11",
        2,
        "there are 11 actions, counted from 0",
    ),
    Command("calibrate", "--belief ask-for-help --states states.npz --n 5000", 2, "--n 5000 exceeds the 100 models"),
    Command("solve", "--rewards rewards.npy --threshold 1", 2, "need --fallback ACTION, which is not given"),
    Command("solve", "--rewards rewards.npy --fallback 1", 2, "give one, in units of the reward"),
    Command("solve", "--rewards rewards.npy --fallback ask --threshold 1", 2, "--fallback 'ask' is a name"),
    Command(
        "solve",
        "--rewards rewards.npy --fallback 1 --threshold 1 --at-most 0.1",
        2,
        "--threshold and --at-most exclude each other",
    ),
    Command("solve", "--rewards rewards.npy --engine ray", 2, "leave it and --address out"),
    Command("solve", "", 2, "either --rewards FILE, or --belief FOLDER and --states FILE together"),
    Command("solve", "--rewards rewards.npy --belief ask-for-help", 2, "either --rewards FILE, or --belief FOLDER"),
    Command("solve", "--belief ask-for-help", 2, "--belief FOLDER and --states FILE together"),
    Command("solve", "--belief nowhere --states states.npz", 2, "nowhere/ensemble.json: there is no such file"),
    Command("solve", "--belief ask-for-help --states states.npz", 2, "expected shape [S, 28, 28], got [20, 3]"),
    Command(
        "solve",
        "--belief ask-for-help --states uneven.txt",
        2,
        "expected a file that ends in .csv, .parquet, .npz or .safetensors",
    ),
    Command("solve", "--belief ask-for-help --states nowhere.csv", 2, "nowhere.csv: there is no such file"),
    Command("solve", "--belief ask-for-help --states log.csv", 2, "it was not trained on a table"),
    Command(
        "solve", "--belief driving --states states.npz", 2, "is about driving; see 'cautious watch driving --help'"
    ),
    Command("solve", "--rewards nowhere.npy", 2, "nowhere.npy: there is no such file"),
    Command("solve", "--rewards broken.safetensors", 2, "broken.safetensors"),
    Command("solve", "--rewards flat.npy", 2, "expected shape [M, S, A]"),
    Command("solve", "--rewards rewards.npy --level 1-of-50", 2, "n=50 exceeds the 30 models there are"),
    Command("solve", "--rewards rewards.npy --level hot", 2, "write it as 'k-of-n'"),
    Command("solve", "--rewards rewards.npy --iterations 0", 2, "--iterations 0 is too small"),
    Command("solve", "--rewards rewards.npy --mdp broken.safetensors", 2, "broken.safetensors"),
    Command("solve", "--rewards rewards.npy --mdp mdp.safetensors", 2, "as the MDP has"),
    Command(
        "solve", "--rewards rewards.npy --mdp mdp.safetensors --regime single-state", 2, "Leave one of the two out"
    ),
    Command("solve", "--rewards rewards.npy --sampling some", 2, "invalid choice 'some'"),
    Command("solve", "--rewards rewards.npy --out flat.npy", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command("solve", "--rewards rewards.npy --seed -1", 2, "must be a whole number, zero or larger"),
    Command("solve", "--rewards rewards.npy --iterations 99999999999999999999", 2, "--iterations is too large"),
    Command("solve", "--rewards rewards.npy --level", 2, "names no level"),
    Command("solve", "--rewards empty", 2, "empty: there is no such file"),
    Command(
        "reproduce",
        "driving --set colour=red",
        2,
        "no setting of driving; it has certain_epochs, ks, n, num_iterations",
    ),
    Command("reproduce", "driving --set num_runs", 2, "write it as NAME=VALUE, for example num_iterations=200"),
    Command("reproduce", "driving --set num_runs=two", 2, "num_runs must be a whole number"),
    Command("reproduce", "driving --set num_runs=2 --set num_runs=3", 2, "--set num_runs is given twice"),
    Command("reproduce", "driving --set levels=1-of-5,1-of-9", 2, "levels with the same n, such as 1-of-20,20-of-20"),
    Command("reproduce", "ask-for-help --set levels=1-of-90", 2, "n=90 exceeds the 64 models there are"),
    Command("reproduce", "ask-for-help --set help_reward=much", 2, "help_reward must be a number"),
    Command("reproduce", "data-extent --set fraction=0", 2, "must be a share of the digits, above 0 and at most 1"),
    Command("reproduce", "", 2, "Missing from cautious reproduce"),
    Command("reproduce", "chess", 2, "invalid choice 'chess'"),
    Command("reproduce", "driving --scale huge", 2, "invalid choice 'huge'"),
    Command("reproduce", "driving --scale smoke --data empty", 2, "driving uses no image data"),
    Command("reproduce", "driving --scale smoke --device abacus", 2, "cannot be used here"),
    Command("reproduce", "driving --scale smoke --seed -1", 2, "must be a whole number, zero or larger"),
    Command("reproduce", "ask-for-help --scale smoke --data nowhere", 2, "there is no such folder"),
    Command("reproduce", "ask-for-help --scale smoke --setting whole", 2, "invalid choice 'whole'"),
    Command("reproduce", "ask-for-help --scale smoke --setting draws", 2, "'draws' is not a setting of ask-for-help"),
    Command("reproduce", "driving --scale smoke --setting as-printed", 2, "driving has a single setting"),
    Command("reproduce", "driving --scale smoke --repeats 0", 2, "--repeats 0 is too small; it must be at least 1"),
    Command("reproduce", "driving --scale smoke --engine dask", 2, "invalid choice 'dask'"),
    Command("reproduce", "driving --scale smoke --address 127.0.0.1:6379", 2, "it goes with --engine ray"),
    Command(
        "reproduce",
        "driving --scale smoke --engine ray --address 127.0.0.1:1",
        2,
        "no Ray cluster can be reached there",
    ),
    Command("reproduce", "driving --scale smoke --engine ray --address here", 2, "no Ray cluster can be reached there"),
    Command("reproduce", "driving --scale smoke --out text", 2, "text/manifest.json: not a complete JSON file"),
    Command("reproduce", "driving --scale smoke --out flat.npy", 2, "flat.npy: could not be written"),
    Command("report", "", 2, "Missing from cautious report"),
    Command("report", "nowhere", 2, "nowhere/manifest.json: there is no such file"),
    Command("report", "empty", 2, "empty/manifest.json: there is no such file"),
    Command("report", "text", 2, "text/manifest.json: not a complete JSON file"),
    Command("watch", "chess", 2, "invalid choice 'chess'"),
    Command("watch", "driving --steps 0", 2, "--steps 0 is too small"),
    Command("watch", "driving --fps 0", 2, "must be positive"),
    Command("watch", "driving --gif drive.mp4", 2, "must be a file name that ends in .gif"),
    Command("watch", "driving --gif flat.npy/drive.gif", 2, "flat.npy is a file; choose a folder, or a new name"),
    Command("watch", "driving --fps nan", 2, "must be positive"),
    Command("watch", "driving --steps 99999999999999999999", 2, "steps is too large"),
    Command("watch", "driving --level hot", 2, "write it as 'k-of-n'"),
    Command("watch", "driving --belief empty", 2, "empty: holds no trained belief"),
    Command("watch", "driving --belief nowhere", 2, "nowhere: holds no trained belief"),
    Command("bench", "--device abacus", 2, "cannot be used here"),
    Command("bench", "--quick", 2, "Unrecognized options: --quick"),
]
