"""The driving experiment: familiar experience -> belief -> k-of-N policies -> safety in the novel world."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training.problems import DrivingTrainingProblem
from cautious.evaluation.driving_safety import safety_statistics
from cautious.experiments.driving.settings import DrivingExperiment
from cautious.experiments.executors.engine import Engine, LocalEngine
from cautious.experiments.load_or_train import load_or_train
from cautious.experiments.provenance import hardware_name
from cautious.experiments.store import StageResult, Store, as_lists
from cautious.progress import ProgressTracker, TitledProgress, titled
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.solution import Solution
from cautious.solvers.solve import solve_mdp
from cautious.worlds.driving import DrivingWorld, driving_world


def run_driving(
    experiment: DrivingExperiment,
    folder: Path | str,
    *,
    device: torch.device | str = "cpu",
    progress: TitledProgress | None = None,
    engine: Engine | None = None,
) -> Store:
    """Run the experiment, or finish it where an earlier call left off.

    Args:
        experiment: What to run.
        folder: Where the run lives.
        device: Where to train; solving is quickest on the CPU.
        progress: Told how each stage goes.
        engine: Who works on it; this process if not given.
    """
    store = Store.create(folder, "driving", experiment.as_settings())
    engine = engine or LocalEngine()
    with store.alone():
        missing = [p for p in experiment.probabilities if not store.has(stage_name(p))]
        sharing = [[p for p in missing if p < 1], [p for p in missing if p == 1]]  # those that share a belief
        engine.side_by_side([partial(_run_stages, experiment, store, own, device, progress, engine) for own in sharing])
    return store


def _run_stages(
    experiment: DrivingExperiment,
    store: Store,
    probabilities: list[float],
    device: torch.device | str,
    progress: TitledProgress | None,
    engine: Engine,
) -> None:
    """Train the belief that these p share, and solve for each."""
    if not probabilities:
        return
    ensemble = belief(experiment, store, probabilities[0], device, progress, engine)

    def finished(probability: float, findings: StageResult) -> None:
        store.save(stage_name(probability), *findings)

    title = f"solving, p = {', '.join(f'{p:g}' for p in probabilities)}"
    question = StageInputs(experiment, ensemble, store if engine.here else None)
    engine.each(solve_stage, question, probabilities, finished, device="cpu", title=title, progress=progress)


def stage_name(probability: float) -> str:
    """The stage that holds the results for one appearance probability."""
    return f"novel-p{probability:g}"


def belief(
    experiment: DrivingExperiment,
    store: Store,
    probability: float,
    device: torch.device | str = "cpu",
    progress: TitledProgress | None = None,
    engine: Engine | None = None,
) -> RewardEnsemble:
    """The trained ensemble for one p: loaded if it is there, trained (or trained on) if not. All p < 1 share one."""
    certain = probability == 1
    settings = replace(experiment.training, num_epochs=experiment.certain_epochs) if certain else experiment.training
    return load_or_train(
        store,
        "belief-certain" if certain else "belief",
        settings,
        lambda: DrivingTrainingProblem.familiar(probability),
        lambda problem, trained: RewardEnsemble(problem.network, trained.parameters, trained.losses, asdict(settings)),
        counted="num_pairs",
        engine=engine or LocalEngine(),
        device=device,
        tell=titled(progress, "training, p = 1" if certain else "training"),
    )


class StageInputs(NamedTuple):
    """What the stages that share a belief need, wherever they are solved."""

    experiment: DrivingExperiment
    ensemble: RewardEnsemble
    store: Store | None
    """Where to keep what is solved of a stage; None where the run's folder is out of reach."""


def solve_stage(question: StageInputs, probability: float, progress: TitledProgress | None) -> StageResult:
    """Policies, statistics and certificates for one p."""
    experiment, ensemble, store = question
    parts = None if store is None else store.parts(stage_name(probability))
    world = driving_world(novel=True, appearance_probability=probability)
    rewards = ensemble.rewards(world)
    title, levels = f"solving, p = {probability:g}", experiment.levels
    options: dict[str, Any] = {"num_iterations": experiment.num_iterations, "seed": experiment.training.seed}
    bar = ProgressTracker(len(levels), titled(progress, f"{title}, queue"))
    runs: dict[str, Any] = {"num_runs": experiment.num_runs, **options}
    by_level = [
        _solved(
            parts, f"queue-{level}", partial(solve_mdp, world.mdp, rewards, level, progress=bar.next_call(), **runs)
        )
        for level in levels
    ]
    tell = titled(progress, f"{title}, exact")
    solve_exactly = partial(solve_mdp, world.mdp, rewards, levels, sampling="exact", progress=tell, **options)
    _, exact = _solved(parts, "exact", solve_exactly)
    queue = {name: torch.stack([arrays[name] for _, arrays in by_level]) for name in exact}
    optim = optimal_policy(world.mdp, rewards[: experiment.num_optim]).policy
    mean = optimal_policy(world.mdp, rewards.mean(dim=0)).policy
    policies = {"queue": queue["policy"], "exact": exact["policy"], "optim": optim, "mean": mean}
    seconds = sum(numbers["seconds"] for numbers, _ in by_level)
    numbers = {
        "probability": probability,
        "levels": [str(level) for level in levels],
        "statistics": {name: as_lists(safety_statistics(world, policy)) for name, policy in policies.items()},
        "certificates": {"queue": _certificates(queue), "exact": _certificates(exact)},
        "reward_bound": float(rewards.abs().max()),
        "discount": world.mdp.discount,
        "num_actions": world.mdp.num_actions,
        "reshuffles": [count for numbers, _ in by_level for count in numbers["reshuffles"]],
        "belief_spread": _belief_spread(ensemble, world),
        "solve_seconds": {"queue": seconds, "members": len(levels) * experiment.num_runs},
        "hardware": hardware_name("cpu"),
    }
    arrays = {f"{name}_policy": policy for name, policy in policies.items() if name != "optim"}
    for name, solved in (("queue", queue), ("exact", exact)):
        arrays |= {f"{name}_{part}": solved[part] for part in TRACE}
    return numbers, arrays


TRACE, BOUNDS = ("sampled_value", "exact_value", "regret"), ("lower", "upper", "gap")


def _solved(parts: Store | None, name: str, solve: Callable[[], Solution]) -> StageResult:
    """What is kept of a solution, which is solved if it is not there: policy, trace, and bounds for three policies."""
    if parts is not None and parts.has(name):
        return parts.numbers(name), parts.arrays(name)
    started = time.perf_counter()
    solution = solve()
    numbers = {"seconds": time.perf_counter() - started, "reshuffles": solution.record["reshuffles"]}
    arrays = {"policy": solution.policy} | {part: getattr(solution.trace, part) for part in TRACE}
    policies = {"last": solution.policy, "average": solution.average_policy, "best": solution.best_policy}
    for which, policy in policies.items():
        certificate = solution.certificate(policy)
        arrays |= {f"{which}-{bound}": getattr(certificate, bound) for bound in BOUNDS}
    if parts is not None:
        parts.save(name, numbers, arrays)
    return numbers, arrays


def _certificates(solved: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Bounds for the last, the average and the best policy."""
    return {
        which: {bound: solved[f"{which}-{bound}"].tolist() for bound in BOUNDS} for which in ("last", "average", "best")
    }


def _belief_spread(ensemble: RewardEnsemble, world: DrivingWorld) -> dict[str, float]:
    """Mean standard deviation between the models on pairs that are familiar, and on those that are not."""
    familiar = driving_world(novel=False, appearance_probability=world.appearance_probability)
    known = {(familiar.states[s], familiar.states[t]) for s, t in familiar.pairs.tolist()}
    seen = torch.tensor([(world.states[s], world.states[t]) in known for s, t in world.every_pair.tolist()])
    deviation = ensemble.pair_rewards(world).double().std(dim=0)
    return {"familiar": float(deviation[seen].mean()), "novel": float(deviation[~seen].mean())}
