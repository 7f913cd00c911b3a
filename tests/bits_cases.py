"""What must have the same bits in any company, by name; run as a script, it prints a digest of each result.

Each case computes something among others and alone, and raises where the two differ. `test_bits.py` runs them here, and as
a script under other instruction sets and numbers of threads.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from cautious import (
    CautiousPolicy,
    KofN,
    RewardEnsemble,
    TabularMDP,
    fit_ensemble,
    optimal_policy,
    solve_bandit,
    solve_mdp,
)
from cautious.beliefs.training.loop import train
from cautious.beliefs.training.state import TrainingProblem, TrainingSettings
from cautious.ops.linear import BatchMatrix, DenseLU
from cautious_paper.networks.driving import DrivingNetwork
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image import ImageNetwork
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.worlds.driving import driving_world

EXACT = {"sampling": "exact", "num_iterations": 25}
QUEUE = {"sampling": "queue", "num_iterations": 25}


def normal(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).normal(size=shape))


def same(alone: Tensor, among_others: Tensor) -> None:
    assert torch.equal(alone, among_others), f"{int((alone != among_others).sum())} of {alone.numel()} differ"


def trained(problem: TrainingProblem, num_models: int, shard_sizes: tuple[int, ...], **options: float) -> Tensor:
    """Weights of some models, the same from shards of any size and with fewer models."""
    settings = {"num_epochs": 2, "batch_size": 100, "learning_rate": 1e-3, "seed": 3} | options
    whole = train(problem, TrainingSettings(num_models, **settings)).parameters
    for size in shard_sizes:
        same(train(problem, TrainingSettings(num_models, **settings), shard_size=size).parameters, whole)
    same(train(problem, TrainingSettings(2, **settings)).parameters, whole[:2])
    return whole


def predicted(belief: RewardEnsemble, states: Tensor) -> Tensor:
    """Rewards, the same for any states and any models asked together."""
    whole = belief.rewards(states)
    for rows in (slice(0, 1), slice(5, 6), slice(37, None), slice(1, None, 3)):
        same(belief.rewards(states[rows]), whole[:, rows])
    some = [belief.num_models - 1, 3, 0]
    same(belief.on(states).rewards_for(some), whole[some])
    return whole


def image_training() -> Tensor:
    images = torch.from_numpy(np.random.default_rng(0).integers(256, size=(150, 28, 28), dtype=np.uint8))
    weights = [trained(ImageTrainingProblem(images, normal(150, 11)), 5, (1, 2, 3, 5))]
    with_help_bit = ImageTrainingProblem(images[:60], normal(2, 60, 11))
    weights.append(trained(with_help_bit, 3, (1, 3), batch_size=37))
    return torch.cat([part.flatten() for part in weights])


def image_prediction() -> Tensor:
    network = ImageNetwork(11)
    weights = np.stack([network.init(np.random.default_rng(model)) for model in range(21)])
    images = torch.from_numpy(np.random.default_rng(1).integers(256, size=(41, 28, 28), dtype=np.uint8))
    return predicted(RewardEnsemble(network, torch.from_numpy(weights)), images)


def vectors() -> Tensor:
    found = []
    for num_features, num_actions in ((3, 3), (19, 5)):
        states, rewards = normal(120, num_features), normal(120, num_actions)
        options = {"num_epochs": 3, "batch_size": 32, "progress": False, "validation_fraction": 0}
        few, many = (fit_ensemble(states, rewards, num_models=count, **options) for count in (3, 21))
        same(few.parameters, many.parameters[:3])
        same(few.rewards(states), many.rewards(states)[:3])
        found.append(predicted(many, states).flatten())
    return torch.cat(found)


def own_module() -> Tensor:
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3))

    options = {"num_epochs": 3, "batch_size": 32, "progress": False, "validation_fraction": 0, "network": factory}
    few, many = (fit_ensemble(normal(90, 5), normal(90, 3), num_models=count, **options) for count in (3, 21))
    same(few.parameters, many.parameters[:3])
    return many.parameters


def driving() -> Tensor:
    weights = trained(DrivingTrainingProblem.familiar(0.5), 19, (1, 3, 7, 19), batch_size=800)
    whole = RewardEnsemble(DrivingNetwork(), weights, torch.zeros(19), {})
    some, world = [18, 2, 5], driving_world(novel=True)
    same(whole.on(world).rewards_for(some), whole.rewards(world)[some])
    return whole.rewards(world)


def per_state_games() -> Tensor:
    rewards, levels = normal(120, 61, 7), ["1-of-20", "5-of-10", "10-of-10"]
    found = []
    for options in (EXACT, QUEUE):
        both = solve_bandit(rewards, levels, regime="single-state", num_runs=2, **options)
        for number, level in enumerate(levels):
            alone = solve_bandit(rewards, level, regime="single-state", num_runs=2, **options)
            same(alone.policy, both.policy[number])
            same(alone.best_policy, both.best_policy[number])
        for states in (slice(0, 1), slice(60, 61), slice(17, 40)):
            few = solve_bandit(rewards[:, states], levels, regime="single-state", num_runs=2, **options)
            same(few.policy, both.policy[:, :, states])
        one_run = solve_bandit(rewards, levels, regime="single-state", num_runs=1, **options)
        same(one_run.policy[:, 0], both.policy[:, 0])
        found += [both.policy.flatten(), both.best_policy.flatten()]
    return torch.cat(found)


def decisions() -> Tensor:
    rewards, found = normal(333, 30, 11).round(decimals=1), []  # rounded: many ties
    for sampling in ("exact", "queue"):
        policy = CautiousPolicy(rewards, "1-of-20", num_iterations=25, sampling=sampling)
        together = policy.decide(range(30))
        for state in (0, 7, 29):
            alone = policy.decide([state])
            for part in ("probabilities", "ordinary", "caution", "disagreement", "gap"):
                same(getattr(alone, part)[0], getattr(together, part)[state])
        found += [together.probabilities, together.disagreement[:, None], together.gap[:, None]]
    beside = CautiousPolicy(rewards, "1-of-20", num_iterations=25).decide_at([KofN(1, 20), KofN(5, 20)], range(30))
    same(beside[0].probabilities, found[0])
    return torch.cat(found, dim=1)


def decisions_of_a_belief() -> Tensor:
    states = normal(150, 5)
    belief = fit_ensemble(states, normal(150, 3), num_models=20, num_epochs=2, progress=False, validation_fraction=0)
    policy = CautiousPolicy(belief, "1-of-20", num_iterations=25)
    together = policy.decide(states[:40])
    for row in (0, 17, 39):
        alone = policy.decide(states[row : row + 1])
        for part in ("probabilities", "caution", "disagreement", "gap"):
            same(getattr(alone, part)[0], getattr(together, part)[row])
    return torch.cat([together.probabilities, together.disagreement[:, None]], dim=1)


def all_states() -> Tensor:
    """The second is large enough for torch to cut its sums by the number of threads, if it were let."""
    found = []
    for shape, num_iterations in (((101, 30, 4), 25), ((24, 12000, 3), 3)):
        rewards, levels, options = normal(*shape), ["1-of-20", "5-of-10"], QUEUE | {"num_iterations": num_iterations}
        both = solve_bandit(rewards, levels, num_runs=3, **options)
        for number, level in enumerate(levels):
            same(solve_bandit(rewards, level, num_runs=3, **options).policy, both.policy[number])
            same(solve_bandit(rewards, level, num_runs=1, **options).policy[0], both.policy[number, 0])
        found += [both.policy.flatten(), both.certificate().upper.flatten()]
    return torch.cat(found)


def worlds() -> Tensor:
    found = []
    for num_states, width in ((40, 40), (150, 150), (150, 3)):  # dense by one call, dense by many, sparse
        rng = np.random.default_rng(num_states + width)
        transitions = np.zeros((num_states, 3, num_states))
        for row in transitions.reshape(-1, num_states):
            row[rng.choice(num_states, width, replace=False)] = rng.dirichlet(np.ones(width))
        mdp = TabularMDP(transitions, np.full(num_states, 1 / num_states), 0.95)
        rewards = normal(60, num_states, 3)
        for options in (EXACT, QUEUE):
            both = solve_mdp(mdp, rewards, ["1-of-20", "5-of-10"], num_runs=2, **options)
            alone = solve_mdp(mdp, rewards, "5-of-10", num_runs=2, **options)
            same(alone.policy, both.policy[1])
            same(alone.best_policy, both.best_policy[1])
            same(solve_mdp(mdp, rewards, "5-of-10", num_runs=1, **options).policy[0], both.policy[1, 0])
            found += [both.policy.flatten(), both.certificate().lower.flatten()]
        best = optimal_policy(mdp, rewards[:7])
        same(optimal_policy(mdp, rewards[3]).action_values, best.action_values[3])
        found.append(best.action_values.flatten())
    return torch.cat(found)


def large_factorisations() -> Tensor:
    """Of a size from which on each has a thread of its own (`ops.linear.PARALLEL_LU_SIZE`)."""
    systems, sides = 30 * torch.eye(520).double() - normal(3, 520, 520), normal(3, 520)
    together = DenseLU(systems)
    for member in range(3):
        alone = DenseLU(systems[member : member + 1].clone())
        same(alone.solve(sides[member : member + 1]), together.solve(sides)[member : member + 1])
    return together.solve(sides, transposed=True)


def large_products() -> Tensor:
    """A matrix of more than one task (`ops.linear.TASK_ENTRIES`)."""
    matrix, vectors = BatchMatrix(normal(700, 9001)), normal(6, 9001)
    products = matrix.dot(vectors)
    same(matrix.dot(vectors[5:]), products[5:])
    mixtures = matrix.combine(products)
    same(matrix.combine(products[2:3]), mixtures[2:3])
    return mixtures


CASES: dict[str, Callable[[], Tensor]] = {
    case.__name__: case
    for case in (
        image_training,
        image_prediction,
        vectors,
        own_module,
        driving,
        per_state_games,
        decisions,
        decisions_of_a_belief,
        all_states,
        worlds,
        large_factorisations,
        large_products,
    )
}


def digest_of(result: Tensor) -> str:
    return hashlib.sha256(result.contiguous().numpy().tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))  # more than there are cores, too, which the environment does not allow
    found: dict[str, str | int] = {"num_threads": torch.get_num_threads()}
    for name, case in CASES.items():
        try:
            found[name] = digest_of(case())
        except AssertionError as error:
            found[name] = f"differs: {error}"
    json.dump(found, sys.stdout)
