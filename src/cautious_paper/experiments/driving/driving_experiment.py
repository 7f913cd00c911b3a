"""The driving experiment: familiar experience -> belief -> k-of-N policies -> safety in the novel world.

belief, belief-certain      how training went; the models beside it
novel-p<p>                  policies, statistics and certificates at one appearance probability
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.training.state import TrainingSettings
from cautious.errors import InvalidInputError
from cautious.executors import Executor, LocalExecutor
from cautious.machine import hardware_name
from cautious.mdp.tabular import TabularMDP
from cautious.progress import ProgressTracker, TitledProgress, titled
from cautious.risk import KofN
from cautious.solvers.optimal import optimal_policy
from cautious.solvers.solve import solve_mdp
from cautious.validation import look_up, parse_count
from cautious_paper.beliefs import SHIPPED
from cautious_paper.evaluation.driving_safety import safety_statistics
from cautious_paper.experiments.runs import RunContext, load_or_train, save_stage_belief
from cautious_paper.experiments.store import StageResult, Store, as_lists
from cautious_paper.networks.driving import pair_rewards
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.worlds.driving import DrivingWorld, driving_world


@dataclass(frozen=True)
class DrivingExperiment:
    """Everything that decides the results."""

    training: TrainingSettings
    certain_epochs: int
    """Epochs of the separate belief for p = 1, whose training set is smaller (218 pairs: one batch per epoch)."""
    ks: tuple[int, ...] = (1, 2, 4, 5, 10, 20)  # section 4, Driving Gridworld
    n: int = 20
    num_iterations: int = 100  # T; appendix B.2
    num_runs: int = 5  # "five random repetitions", appendix B.2
    probabilities: tuple[float, ...] = (0.1, 0.2, 0.5, 0.8, 1.0)  # the paper gives none (deviation D5)
    default_probability: float = 0.5
    num_optim: int = 100
    """How many single networks' own optimal policies make up the baseline."""

    @property
    def levels(self) -> list[KofN]:
        """The levels, most cautious first."""
        return [KofN(k, self.n) for k in self.ks]

    def checked(self) -> DrivingExperiment:
        """The experiment, if it can be run to its end; raises before the training what would fail after it."""
        for name in ("certain_epochs", "num_iterations", "num_runs", "num_optim", "n"):
            parse_count(getattr(self, name), name)
        if not self.ks or not self.probabilities:
            raise InvalidInputError("ks and probabilities: give one value of each at least.")
        for level in self.levels:
            level.check_num_models(self.training.num_models)
        for probability in (*self.probabilities, self.default_probability):
            if not 0 < probability <= 1:
                raise InvalidInputError(f"probability {probability:g} must be above 0 and at most 1.")
        if self.default_probability not in self.probabilities:
            known = ", ".join(f"{probability:g}" for probability in self.probabilities)
            raise InvalidInputError(
                f"default_probability={self.default_probability:g} must be one of the probabilities {known}."
            )
        return self

    def as_settings(self) -> dict[str, Any]:
        """Plain values, for a manifest."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


SCALES = {
    "smoke": DrivingExperiment(
        TrainingSettings(num_models=24, num_epochs=30, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=30,
        ks=(1, 5, 20),
        num_iterations=8,
        num_runs=2,
        probabilities=(0.5, 1.0),
        num_optim=8,
    ),
    "demo": DrivingExperiment(
        TrainingSettings(num_models=32, num_epochs=1500, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=3000,
        num_runs=3,
        probabilities=(0.5,),
        num_optim=32,
    ),
    "small": DrivingExperiment(
        TrainingSettings(num_models=64, num_epochs=2500, batch_size=800, learning_rate=1e-3, weight_decay=1e-5),
        certain_epochs=6000,
        num_optim=64,
    ),
    "paper": DrivingExperiment(  # appendix B.2: 51,200 epochs, batch 800, Adam 1e-4, weight decay 1e-5, 2,000 models
        TrainingSettings(num_models=2000, num_epochs=51_200, batch_size=800, learning_rate=1e-4, weight_decay=1e-5),
        certain_epochs=51_200,
    ),
}
"""smoke: seconds, no result; demo: one or two minutes; small: minutes on two cores, reproduces the claims; paper: the paper.

The learning rate of the small scales is ten times the paper's, so that a twentieth of its epochs reaches its fit."""


def experiment_at(scale: str, seed: int = 0) -> DrivingExperiment:
    """The experiment at a named scale."""
    preset = look_up(SCALES, scale, "scale")
    return replace(preset, training=replace(preset.training, seed=seed))


def packaged_experiment(seed: int = 0) -> tuple[DrivingExperiment, RewardEnsemble]:
    """The demo with the belief that comes with the package: trained at the paper's settings, so nothing has to be trained."""
    belief = RewardEnsemble.load(SHIPPED / "driving")
    training = replace(TrainingSettings(**belief.settings), seed=seed)
    return replace(SCALES["demo"], training=training), belief


def run_driving(
    experiment: DrivingExperiment,
    folder: Path | str,
    *,
    device: torch.device | str = "cpu",
    progress: TitledProgress | None = None,
    executor: Executor | None = None,
    belief: RewardEnsemble | None = None,
) -> Store:
    """Run the experiment, or resume it where an earlier call stopped.

    Args:
        experiment: What to run.
        folder: Folder of the run.
        device: Where to train; solving is fastest on the CPU.
        progress: Called as each stage advances.
        executor: Runs the pieces; this process if not given.
        belief: Models to use instead of training some, for probabilities below 1; those of `packaged_experiment`.
    """
    store = Store.create(folder, "driving", experiment.as_settings())
    run = RunContext(store, executor or LocalExecutor(), device, progress)
    with store.locked():
        if belief is not None and not store.has("belief"):
            save_stage_belief(store, "belief", belief, {"origin": "comes with the package"})
        missing = [p for p in experiment.probabilities if not store.has(stage_name(p))]
        # All p < 1 share one belief; p = 1 has its own, because its familiar world has fewer pairs of states.
        groups = [group for group in ([p for p in missing if p < 1], [p for p in missing if p == 1]) if group]
        run.executor.run_all([partial(_run_probabilities, experiment, group, run) for group in groups])
    return store


def _run_probabilities(experiment: DrivingExperiment, probabilities: list[float], run: RunContext) -> None:
    """Train the belief that these probabilities share, then solve and measure at each."""
    certain = probabilities[0] == 1
    settings = replace(experiment.training, num_epochs=experiment.certain_epochs) if certain else experiment.training
    ensemble = load_or_train(
        run,
        "belief-certain" if certain else "belief",
        partial(DrivingTrainingProblem.familiar, probabilities[0]),
        settings,
        count_name="num_pairs",
        title="training, p = 1" if certain else "training",
    )
    inputs = DrivingStageInputs(experiment, ensemble, run.store if run.executor.is_local else None)
    title = f"solving, p = {', '.join(f'{p:g}' for p in probabilities)}"
    solved = run.executor.map(solve_stage, inputs, probabilities, device="cpu", title=title, progress=run.progress)
    for probability, (numbers, arrays) in solved:
        run.store.save(stage_name(probability), numbers, arrays)


def stage_name(probability: float) -> str:
    """The stage that holds the results for one appearance probability."""
    return f"novel-p{probability:g}"


class DrivingStageInputs(NamedTuple):
    """What the stages that share a belief need, wherever they are solved."""

    experiment: DrivingExperiment
    ensemble: RewardEnsemble
    store: Store | None
    """Where to save the pieces of a stage; None on a worker that cannot reach the run's folder."""


def solve_stage(inputs: DrivingStageInputs, probability: float, progress: TitledProgress | None) -> StageResult:
    """Policies, statistics and certificates for one p."""
    experiment, ensemble, store = inputs
    parts = None if store is None else store.parts(stage_name(probability))
    world = driving_world(novel=True, appearance_probability=probability)
    rewards = ensemble.rewards(world)
    title, levels = f"solving, p = {probability:g}", experiment.levels
    options: dict[str, Any] = {"num_iterations": experiment.num_iterations, "seed": experiment.training.seed}

    # One call per level, so that an interruption costs one level at most.
    bar = ProgressTracker(len(levels), titled(progress, f"{title}, queue"))
    by_level = []
    for level in levels:
        runs = {"num_runs": experiment.num_runs, "progress": bar.next_call(), **options}
        by_level.append(_load_or_solve(parts, f"queue-{level}", world.mdp, rewards, level, runs))
    exactly = {"sampling": "exact", "progress": titled(progress, f"{title}, exact"), **options}
    _, exact = _load_or_solve(parts, "exact", world.mdp, rewards, levels, exactly)
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


def _load_or_solve(
    parts: Store | None,
    name: str,
    mdp: TabularMDP,
    rewards: Tensor,
    levels: KofN | list[KofN],
    options: dict[str, Any],
) -> StageResult:
    """Policy, trace and certificates of a solution: loaded if an interrupted call saved them, solved if not."""
    if parts is not None and parts.has(name):
        return parts.numbers(name), parts.arrays(name)
    started = time.perf_counter()
    solution = solve_mdp(mdp, rewards, levels, method="cfr", **options)
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
    """Mean standard deviation between the models on familiar pairs of states, and on novel ones."""
    familiar = driving_world(novel=False, appearance_probability=world.appearance_probability)
    known = {(familiar.states[s], familiar.states[t]) for s, t in familiar.pairs.tolist()}
    seen = torch.tensor([(world.states[s], world.states[t]) in known for s, t in world.every_pair.tolist()])
    deviation = pair_rewards(ensemble, world).double().std(dim=0)
    return {"familiar": float(deviation[seen].mean()), "novel": float(deviation[~seen].mean())}
