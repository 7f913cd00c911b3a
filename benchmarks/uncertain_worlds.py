"""Uncertain worlds: `solve_mdp` beside what others do, with bounds and seconds, on published and on made worlds.

CAUTIOUS_DATA=FOLDER python -m benchmarks.uncertain_worlds published   (RiverSwim and HIV of Su & Petrik, in FOLDER/multi-model)
python -m benchmarks.uncertain_worlds made [--worlds inventory lake ...] [--models 30]
python -m benchmarks.uncertain_worlds cost
python -m benchmarks.uncertain_worlds held-out     (how many models a level needs)
python -m benchmarks.uncertain_worlds parallel [--ray]     (searches shared by threads, and by a Ray cluster of this machine)

Methods: the nominal policy (optimum of the mean model); CADP (coordinate ascent for the mean of all models, from the nominal
and the mixed-values policies); rectangular robust optimisation (every state-action pair has its own worst models); policy
gradient for the level, started ten times; the double oracle without and with memory, and its bound for every policy.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch

from cautious import CVaR, FewModelsWarning, KofN, Mean, RiskMeasure, UncertainMDP, open_executor, solve_mdp
from cautious.executors import Executor
from cautious.mdp.evaluation import action_values, policy_reach
from cautious.mdp.models import Models, dirichlet_models, models_of_parameter, read_models
from cautious.risk import weights_by_rank
from cautious.solvers.uncertain.ascent import ascend, mixed_values_policy
from cautious.solvers.uncertain.oracle import DoubleOracle, nominal_actions
from cautious.solvers.uncertain.problem import UncertainProblem
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.uncertain import (
    DISCOUNT,
    LAKE_SIZE,
    SHELF,
    WORN,
    inventory_model,
    machine_model,
    slippery_lake_model,
)

STARTS, STEPS, STEP_SIZE = 10, 300, 0.3
"""Of the policy gradient."""


class Found(NamedTuple):
    """What a method does."""

    returns: Callable[[UncertainMDP, np.ndarray], np.ndarray]
    """Returns [M] in the models of a world."""
    seconds: float


def published(args: argparse.Namespace) -> Iterator[str]:
    """RiverSwim and HIV, at four tails, on training and test models; returns are sums, as the paper's."""
    folder = Path(os.environ["CAUTIOUS_DATA"]) / "multi-model"
    columns = "nominal | CADP | double oracle | with memory | bound | gap, % | h | s | on test models: nominal | double oracle"
    yield f"| world | level | {columns} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, horizon, test in (("riverswim", 50, "riverswim_test.csv.gz"), ("hiv", 15, "hiv_test.csv")):
        with (folder / f"{name}_initial.csv").open() as file:
            start = np.array([float(row["probability"]) for row in csv.DictReader(file)])
        training = read_models(folder / f"{name}_training.csv", start, 0.9, horizon=horizon)
        held_out = read_models(folder / test, start, 0.9, horizon=horizon)
        for alpha in (0.05, 0.1, 0.2, 0.5):
            yield published_row(name, training, held_out, CVaR(alpha))
        problem = problem_of(training, Mean())
        means = [value(Mean(), held_out, problem.of_actions(actions)) for actions in mean_policies(problem)]
        best = problem_of(held_out, Mean()).best_returns.mean() * held_out.world.normaliser
        names = ("nominal", "mixed values (WSU)", "CADP")
        each = ", ".join(f"{method} {mean:.5g}" for method, mean in zip(names, means, strict=True))
        yield f"| {name} | mean on test models | {each}, oracle {best:.5g} |"


def published_row(name: str, training: Models, held_out: Models, level: RiskMeasure) -> str:
    """One line of the table of published worlds."""
    problem = problem_of(training, level)
    nominal, _, cadp = (problem.of_actions(actions) for actions in mean_policies(problem))
    scale = training.world.normaliser
    began = time.perf_counter()
    solution = solve_mdp(training.world, training.rewards, level)
    seconds = time.perf_counter() - began
    certificate = solution.certificate()
    memory = float(solve_mdp(training.world, training.rewards, level, memory=True).certificate().lower)
    lower, upper = float(certificate.lower), float(certificate.upper)
    test = weights_by_rank(level, len(held_out.world)).numpy() @ np.sort(
        solution.returns(held_out.world, held_out.rewards).numpy()
    )
    return (
        f"| {name} | {level} | {value(level, training, nominal):.5g} | {value(level, training, cadp):.5g} | "
        f"{lower * scale:.5g} | {memory * scale:.5g} | {upper * scale:.5g} | {100 * (upper - lower) / lower:.2f} | "
        f"{certificate.depth} | {seconds:.1f} | {value(level, held_out, nominal):.5g} | {test * scale:.5g} |"
    )


def made(args: argparse.Namespace) -> Iterator[str]:
    """Five made worlds at three levels, solved on some models and looked at on as many others."""
    yield "| world | level | method | value | on other models | s |"
    yield "|---|---|---|---|---|---|"
    for name in args.worlds:
        both = WORLDS[name](2 * args.models)
        numbers = np.arange(2 * args.models)
        training, held_out = (
            Models(both.world.subset(part), both.rewards[part])
            for part in (numbers[: args.models], numbers[args.models :])
        )
        for level in (Mean(), KofN(5, 20), KofN(1, 20)):
            for method, found in methods(training, level):
                here, there = (
                    weights_by_rank(level, len(models.world)).numpy()
                    @ np.sort(found.returns(models.world, models.rewards.numpy()))
                    for models in (training, held_out)
                )
                yield f"| {name} | {level} | {method} | {here:.4f} | {there:.4f} | {found.seconds:.1f} |"
            upper = solve_mdp(training.world, training.rewards, level).certificate()
            yield f"| {name} | {level} | bound for every policy, h = {upper.depth} | {float(upper.upper):.4f} | | |"


def methods(models: Models, level: RiskMeasure) -> Iterator[tuple[str, Found]]:
    """Every method on one world at one level."""
    problem = problem_of(models, level)
    for name, search in (
        ("nominal", lambda: problem.of_actions(mean_policies(problem)[0])),
        ("CADP", lambda: max(map(problem.of_actions, mean_policies(problem)), key=lambda p: problem.returns(p).mean())),
        ("rectangular robust", lambda: rectangular(problem)),
        ("policy gradient, best of 10", lambda: policy_gradient(problem)),
    ):
        began = time.perf_counter()
        policy = search()
        played = policy[0] if models.world.horizon is None else policy

        def returns(world: UncertainMDP, rewards: np.ndarray, played: np.ndarray = played) -> np.ndarray:
            return world.returns(played, rewards).numpy()

        yield name, Found(returns, time.perf_counter() - began)
    for name, memory in (("double oracle", False), ("double oracle, with memory", True)):
        began = time.perf_counter()
        solution = solve_mdp(models.world, models.rewards, level, memory=memory)

        def mixture(world: UncertainMDP, rewards: np.ndarray, solution=solution) -> np.ndarray:  # type: ignore[no-untyped-def]
            return solution.returns(world, rewards).numpy()

        yield name, Found(mixture, time.perf_counter() - began)


def held_out(args: argparse.Namespace) -> Iterator[str]:
    """The value on 500 models that were held out, by the number of models solved for; three draws of these."""
    draws, most, judged = 3, 320, 500
    yield "| world | level | models | in the tail | nominal, held out | double oracle, held out (each) | on its own models |"
    yield "|---|---|---|---|---|---|---|"
    for name in ("inventory", "lake", "machine"):
        every = WORLDS[name](draws * most + judged)

        def part(first: int, count: int, level: RiskMeasure, every: Models = every) -> UncertainProblem:
            numbers = np.arange(first, first + count)
            return problem_of(Models(every.world.subset(numbers), every.rewards[numbers]), level)

        for level in (CVaR(0.25), CVaR(0.05)):
            others = part(draws * most, judged, level)
            for count in (10, 20, 40, 80, 160, 320):
                nominal, found, promised = [], [], []
                for draw in range(draws):
                    problem = part(draw * most, count, level)
                    uniform = np.full(count, 1 / count)
                    nominal.append(others.value(others.returns(problem.of_actions(nominal_actions(problem, uniform)))))
                    oracle = DoubleOracle(problem)
                    oracle.run(lambda _: False)
                    shares = oracle.equilibrium.mixture[oracle.support]
                    returns = [others.returns(oracle.policies[k]) for k in oracle.support]
                    found.append(others.value(shares @ np.array(returns)))
                    promised.append(oracle.equilibrium.value)
                tail = max(1.0, 1 / float(weights_by_rank(level, count)[0]))
                each = ", ".join(f"{value:.4f}" for value in found)
                yield (
                    f"| {name} | {level} | {count} | {tail:.3g} | {np.mean(nominal):.4f} | "
                    f"{np.mean(found):.4f} ({each}) | {np.mean(promised):.4f} |"
                )


def cost(args: argparse.Namespace) -> Iterator[str]:
    """CPU seconds of a solution, bound included, as states, models and the horizon grow; sparse worlds have shared doubts."""
    yield "| world | states | models | horizon | CPU s | policies found | histories | gap, % of the range of the rewards |"
    yield "|---|---|---|---|---|---|---|---|"
    base = (20, 30, 20)
    cost_row("", garnet(20, 5))  # compiles
    for sizes in (
        base,
        (80, 30, 20),
        (320, 30, 20),
        (20, 120, 20),
        (20, 480, 20),
        (20, 30, 80),
        (20, 30, 320),
        (20, 30, None),
        (80, 30, None),
    ):
        num_states, num_models, horizon = sizes
        yield cost_row("estimated", garnet(num_models, 5, num_states=num_states, horizon=horizon))
    for num_states, num_models, horizon in (
        (300, 20, None),
        (1000, 20, None),
        (3000, 20, None),
        (10_000, 20, None),
        (300, 100, None),
        (10_000, 20, 50),
    ):
        yield cost_row("sparse", sparse_world(num_states, num_models, horizon))


def cost_row(name: str, models: Models) -> str:
    """One line of the table of costs."""
    world = models.world
    began = time.process_time()
    solution = solve_mdp(world, models.rewards, "5-of-20")
    seconds = time.process_time() - began
    gap = 100 * float(solution.certificate().gap / (models.rewards.max() - models.rewards.min()))
    size = f"{name} | {world.num_states:,} | {len(world)} | {world.horizon or 'none'}"
    found = solution.record["num_policies_found"]
    return f"| {size} | {seconds:.1f} | {found} | {solution.num_histories:,} | {gap:.3f} |"


def parallel(args: argparse.Namespace) -> Iterator[str]:
    """Seconds of three rounds of searches in a sparse world of 500 states; the policies are the same to the bit."""
    models = sparse_world(500, 20)
    problem = problem_of(models, KofN(5, 20))
    yield "| searches on | s | times as fast |"
    yield "|---|---|---|"
    seconds, first = {}, None

    def timed(name: str, executor: Executor | None) -> str:
        nonlocal first
        oracle, rounds = DoubleOracle(problem, executor), iter(range(3))
        began = time.perf_counter()
        oracle.run(lambda _: next(rounds, None) is None)
        seconds[name] = time.perf_counter() - began
        first = oracle.rows if first is None else first
        if not np.array_equal(first, oracle.rows):
            raise SystemExit(f"{name}: other policies were found than by one thread.")
        return f"| {name} | {seconds[name]:.1f} | {next(iter(seconds.values())) / seconds[name]:.1f} |"

    oracle = DoubleOracle(problem)
    oracle.run(lambda found: len(oracle.policies) > 2)  # compiles
    cores = len(os.sched_getaffinity(0))
    for count in (1, 2, 4, 8, 16):
        if count <= cores:
            torch.set_num_threads(count)
            yield timed(f"{count} thread{'s' * (count > 1)}", None)
    if args.ray:
        with open_executor("ray") as executor:
            yield timed(f"Ray, {cores} workers of this machine", executor)


def problem_of(models: Models, level: RiskMeasure) -> UncertainProblem:
    """As the solver has it."""
    weights = weights_by_rank(level, len(models.world)).numpy()
    return UncertainProblem(
        models.world.dynamics, models.world.scaled_rewards(models.rewards), weights, models.world.horizon
    )


def value(level: RiskMeasure, models: Models, policy: np.ndarray) -> float:
    """What a policy is worth at a level, as a sum of discounted rewards."""
    problem = problem_of(models, level)
    return problem.value(problem.returns(policy)) * models.world.normaliser


def mean_policies(problem: UncertainProblem) -> list[np.ndarray]:
    """For the mean of all models: the nominal policy, the one of mixed values, and what coordinate ascent makes of them."""
    uniform = np.full(problem.num_models, 1 / problem.num_models)
    starts = [nominal_actions(problem, uniform), mixed_values_policy(problem, uniform)]
    ascended = [ascend(problem, uniform, start) for start in starts]
    return [*starts, max(ascended, key=lambda actions: problem.returns(problem.of_actions(actions)).mean())]


def rectangular(problem: UncertainProblem) -> np.ndarray:
    """Value iteration in which every pair (s, a) ranks the models by itself, as if each had its own adversary."""
    num_stages, num_states, num_actions = problem.policy_shape
    values = np.zeros(num_states)
    actions = np.zeros((num_stages, num_states), np.int64)
    for t in reversed(range(num_stages if problem.horizon else 2000)):
        q = action_values(
            problem.dynamics, problem.rewards, np.repeat(values[:, None], problem.num_models, 1)[None], None
        )
        ranked = np.sort(q[0], axis=-1) @ problem.rank_weights
        table = ranked.reshape(num_states, num_actions)
        actions[min(t, num_stages - 1)], values = table.argmax(axis=1), table.max(axis=1)
    return problem.of_actions(actions)


def policy_gradient(problem: UncertainProblem) -> np.ndarray:
    """Softmax policies by Adam on the gradient under the present rank weights; the best iterate of ten starts."""
    shape, rng = problem.policy_shape, np.random.default_rng(0)
    best, best_value = np.full(shape, 1 / shape[2]), -np.inf
    for start in range(STARTS):
        logits = (start > 0) * rng.normal(size=shape)
        first, second = np.zeros(shape), np.zeros(shape)
        for step in range(STEPS):
            policy = np.exp(logits - logits.max(axis=-1, keepdims=True))
            policy /= policy.sum(axis=-1, keepdims=True)
            values = problem.values(policy)
            returns = problem.dynamics.start @ values[0]
            if (worth := problem.value(returns)) > best_value:
                best, best_value = policy, worth
            reach = policy_reach(problem.dynamics, policy, problem.horizon) * problem.ranked(returns)
            q = action_values(problem.dynamics, problem.rewards, values, problem.horizon).reshape(*shape, -1)
            slope = policy * np.einsum("tsm,tsam->tsa", reach, q - values[:, :, None])
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
            size = np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-12
            logits = logits + STEP_SIZE * (1 - step / STEPS) * first / (1 - 0.9 ** (step + 1)) / size
    return best


def inventory(num_models: int) -> Models:
    """A shop whose demand nobody knows (`inventory_model`)."""
    rates = np.random.default_rng(0).gamma(4, 1.2, num_models)
    return models_of_parameter(inventory_model, rates, np.eye(SHELF + 1)[0], DISCOUNT)


def lake(num_models: int) -> Models:
    """A lake whose slipperiness nobody knows (`slippery_lake_model`)."""
    slips = 0.9 * np.random.default_rng(0).beta(2, 3, num_models)
    return models_of_parameter(slippery_lake_model, slips, np.eye(LAKE_SIZE**2 + 1)[0], DISCOUNT)


def garnet(num_models: int, visits: int, num_states: int = 20, horizon: int | None = None) -> Models:
    """A random world, estimated from some visits to each pair: every row has a Dirichlet doubt of its own."""
    rng = np.random.default_rng(visits)
    truth = rng.dirichlet(np.full(num_states, 3 / num_states), size=(num_states, 4))
    counts = np.array([[rng.multinomial(visits, row) for row in rows] for rows in truth])
    start = np.full(num_states, 1 / num_states)
    world = dirichlet_models(counts, num_models, start, 0.9, horizon=horizon)
    pays = rng.random((num_states, 4)) ** 3
    return Models(world, torch.from_numpy(pays).expand(num_models, -1, -1))


def sparse_world(num_states: int, num_models: int, horizon: int | None = None) -> Models:
    """Four actions with four successors anywhere; twelve shared doubts move all chances."""
    rng = np.random.default_rng(0)
    num_pairs = 4 * num_states
    rows, columns = np.repeat(np.arange(num_pairs), 4), rng.integers(0, num_states, 4 * num_pairs)
    base, shown = np.log(rng.dirichlet(np.ones(4), num_pairs).ravel() + 1e-9), rng.normal(size=(12, 4 * num_pairs))
    chances = [np.exp(base + 0.5 * rng.normal(size=12) @ shown).reshape(-1, 4) for _ in range(num_models)]
    matrices = [
        scipy.sparse.csr_array(
            ((one / one.sum(axis=1, keepdims=True)).ravel(), (rows, columns)), (num_pairs, num_states)
        )
        for one in chances
    ]
    world = UncertainMDP(matrices, np.full(num_states, 1 / num_states), 0.95, horizon=horizon)
    pays = rng.random((num_states, 4)) ** 3
    return Models(world, torch.from_numpy(pays).expand(num_models, -1, -1))


def machine(num_models: int) -> Models:
    """A machine whose wear and whose repairs nobody knows (`machine_model`)."""
    rng = np.random.default_rng(0)
    doubts = list(zip(rng.beta(2, 4, num_models), rng.beta(2, 2, num_models), strict=True))
    return models_of_parameter(machine_model, doubts, np.eye(WORN + 1)[0], DISCOUNT)


WORLDS: dict[str, Callable[[int], Models]] = {
    "inventory": inventory,
    "lake": lake,
    "estimated, 5 visits": lambda count: garnet(count, 5),
    "estimated, 20 visits": lambda count: garnet(count, 20),
    "machine": machine,
}


def main() -> None:
    """Print the machine, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"published": published, "made": made, "cost": cost, "held-out": held_out, "parallel": parallel}
    parser.add_argument("table", choices=tables)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--models", type=int, default=30)
    args = parser.parse_args()
    warnings.simplefilter("ignore", FewModelsWarning)
    print(provenance_line(), end="\n\n")
    for line in tables[args.table](args):
        print(line, flush=True)


if __name__ == "__main__":
    main()
