"""The image experiments: familiar digits -> belief -> k-of-N policies -> behaviour on familiar and novel images.

belief-<variant>                    how training went; the models beside it
<variant>-<set>                     behaviour on one set of images; with a help bit -available and -unavailable
<main variant>-<set>-dial           every k of N = 20
<main variant>-<set>-models         behaviour against the number of models
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.errors import InvalidInputError, MissingFileError
from cautious.executors import Executor, LocalExecutor
from cautious.io.arrays import fingerprint_of
from cautious.machine import hardware_name
from cautious.policy.decision import total_variation
from cautious.progress import Progress, ProgressTracker, TitledProgress, titled
from cautious.risk import KofN
from cautious.seeding import make_rng
from cautious.solvers.solve import solve_bandit
from cautious.types import Regime, Sampling
from cautious_paper.evaluation.image_behaviour import (
    behaviour,
    behaviour_of_networks,
    frequencies,
    frequencies_by_label,
)
from cautious_paper.experiments.images.settings import EnsembleVariant, ImageExperiment
from cautious_paper.experiments.runs import RunContext, load_or_train
from cautious_paper.experiments.store import StageResult, Store, as_lists
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.worlds.data import ImageSet, has_images, load_images
from cautious_paper.worlds.data.sources import SETS, complete_size
from cautious_paper.worlds.image_tasks import class_balanced_subset, perturbed

TEST_SETS = ("digits", "fashion", "letters")
DIAL_N = 20
NUM_SAMPLES = 8
"""Images stored of those on which the cautious policy departs most, and least, from the ordinary one."""
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
SOLVED_ENTRIES = 2**22
"""Policies that are solved together on a CPU have at most this many entries, or are of one level. Solving holds about twenty
arrays of that size, in float64."""


def run_images(
    experiment: ImageExperiment,
    folder: Path | str,
    *,
    data: Path | str | None = None,
    device: torch.device | str = "cpu",
    only: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    progress: TitledProgress | None = None,
    executor: Executor | None = None,
) -> Store:
    """Run the experiment, or resume it where an earlier call stopped.

    Args:
        experiment: What to run.
        folder: Folder of the run.
        data: A folder with image data, if not the default places.
        device: Where to train, predict and solve.
        only: Names of the variants to run now; all if not given. The others can follow later, in the same folder.
        sets: Names of the sets of images to decide on now ("digits", "fashion", "letters"); all if not given. The others
            can follow later too.
        progress: Called as each stage advances.
        executor: Runs the pieces; this process if not given.
    """
    variants = _chosen_variants(experiment, only)
    images = load_data(experiment, data)
    settings = {**experiment.as_settings(), "data": images.described()}
    store = Store.create(folder, experiment.task, settings, images.origins())
    run = RunContext(store, executor or LocalExecutor(), device, progress)
    decided = images.only(images.tests if sets is None else sets)
    with store.locked():
        run.executor.run_all([partial(_run_variant, experiment, each, decided, run) for each in variants])
    return store


def _chosen_variants(experiment: ImageExperiment, only: Sequence[str] | None) -> list[EnsembleVariant]:
    by_name = {variant.name: variant for variant in experiment.variants}
    unknown = [name for name in only or () if name not in by_name]
    if unknown:
        raise InvalidInputError(
            f"variant {unknown[0]!r} is not part of {experiment.task}; it has {', '.join(by_name)}."
        )
    return [variant for name, variant in by_name.items() if only is None or name in only]


def _run_variant(experiment: ImageExperiment, variant: EnsembleVariant, images: ImageData, run: RunContext) -> None:
    """Train the variant's ensemble and run its stages, as far as they are missing."""
    missing = [stage for stage in stages_of(experiment, variant, images) if not run.store.has(stage.name)]
    if not missing:
        return
    ensemble = load_or_train(
        run,
        f"belief-{variant.name}",
        partial(training_problem, experiment, variant, images.train),
        variant.training,
        count_name="num_images",
        title=f"training, {variant.name}",
    )
    inputs = ImageStageInputs(experiment, ensemble, images.tests, run.device)
    title = f"solving, {variant.name}"
    results = run.executor.map(run_stage, inputs, missing, device=run.device, title=title, progress=run.progress)
    for stage, (numbers, arrays) in results:
        run.store.save(stage.name, numbers, arrays)


# The data


@dataclass(frozen=True, eq=False)
class ImageData:
    """The images of an experiment: familiar digits to learn from, and sets to decide on."""

    train: ImageSet
    tests: dict[str, ImageSet]

    @property
    def sets(self) -> dict[str, ImageSet]:
        """All of them, by name and split."""
        return {"digits, train": self.train, **{f"{name}, test": images for name, images in self.tests.items()}}

    def only(self, names: Iterable[str]) -> ImageData:
        """The same with these test sets alone.

        Raises:
            MissingFileError: There is no set of that name, or its images are not available.
        """
        wanted = list(names)
        if lacking := [name for name in wanted if name not in self.tests]:
            raise MissingFileError(f"images {lacking[0]!r} are not available; there are {', '.join(self.tests)}.")
        return ImageData(self.train, {name: images for name, images in self.tests.items() if name in wanted})

    def described(self) -> dict[str, str]:
        """Size and content of each set, for a manifest: other data makes another run, the same data the same run."""
        return {
            name: f"{len(images)} images, {fingerprint_of(images.images, images.labels)}"
            for name, images in self.sets.items()
        }

    def origins(self) -> dict[str, str]:
        """Where each set came from, in words."""
        return {name: images.origin for name, images in self.sets.items()}


def load_data(experiment: ImageExperiment, folder: Path | str | None = None) -> ImageData:
    """The available sets, cut to the sizes of the experiment; letters are left out where they are missing.

    Raises:
        MissingFileError: The experiment needs complete sets (scale "paper"), and only the package's own small cuts exist.
    """
    train = _complete_or_cut(load_images("digits", "train", folder), experiment.num_train)
    tests = {name: load_images(name, "test", folder) for name in available_sets(folder)}
    return ImageData(train, {name: _complete_or_cut(images, experiment.num_test) for name, images in tests.items()})


def available_sets(folder: Path | str | None = None) -> list[str]:
    """Test sets of a run: digits and clothes always, letters where they are available."""
    return [name for name in TEST_SETS if name != "letters" or has_images("letters", "test", folder)]


def _complete_or_cut(images: ImageSet, count: int | None) -> ImageSet:
    wanted = 0 if images.name == "letters" else complete_size(images.name, images.split)  # any letters will do (D15)
    if count is None and len(images) < wanted:
        raise MissingFileError(
            f"{images.name}, {images.split}: this scale needs all {wanted:,} images, and only {len(images):,} are available "
            f"({images.origin}); get the complete sets with 'cautious data fetch', or name their folder with --data."
        )
    return cut(images, count)


def cut(images: ImageSet, count: int | None) -> ImageSet:
    """About `count` images, equally many of each label (at least one), the same ones each time; all if there are no more."""
    if count is None or len(images) <= count:
        return images
    count = max(count, len(torch.unique(images.labels)))
    chosen = class_balanced_subset(images.labels, count / len(images), seed=0)
    origin = f"{len(chosen):,} chosen from {images.origin}"
    return replace(images, images=images.images[chosen], labels=images.labels[chosen], origin=origin)


# The belief


def training_problem(
    experiment: ImageExperiment, variant: EnsembleVariant, train: ImageSet, kernels: str = "auto"
) -> ImageTrainingProblem:
    """The variant's familiar images with the reward of each action; `kernels` as in `ImageTrainingProblem`."""
    chosen = class_balanced_subset(train.labels, variant.fraction, variant.training.seed)
    table = reward_table(experiment, variant, train.labels[chosen])
    return ImageTrainingProblem(train.images[chosen], table, experiment.image_task.loss_weights, kernels=kernels)


def reward_table(experiment: ImageExperiment, variant: EnsembleVariant, labels: Tensor) -> Tensor:
    """Reward of each action on images with these labels, [S, A]; with a help bit [2, S, A], without help first."""
    task = experiment.image_task
    bits = (False, True) if task.help_bit else (True,)
    rewards = torch.stack([task.rewards(labels, variant.help_reward, bit, variant.unit) for bit in bits])
    if variant.noise:
        rewards = perturbed(rewards, variant.noise, variant.training.seed)
    return rewards if task.help_bit else rewards[0]


# The stages


@dataclass(frozen=True)
class Stage:
    """One study of one variant on one set of images."""

    variant: str
    images: str
    help_available: bool | None = None
    """None where the task has no help bit."""
    study: str = "behaviour"
    """Or "dial", or "models"."""

    @property
    def name(self) -> str:
        """The stage's name in the store."""
        bit = {None: "", True: "-available", False: "-unavailable"}[self.help_available]
        return f"{self.variant}-{self.images}{bit}" + ("" if self.study == "behaviour" else f"-{self.study}")


def stages_of(experiment: ImageExperiment, variant: EnsembleVariant, images: ImageData) -> list[Stage]:
    """The stages of a variant, in order."""
    bits = (True, False) if experiment.image_task.help_bit else (None,)
    extra = ("dial", "models") if variant == experiment.main and experiment.num_dial_images else ()
    if variant.training.num_models < DIAL_N:
        extra = ()  # too few models for either
    return [
        Stage(variant.name, name, bit, study)
        for study in ("behaviour", *extra)
        for name in images.tests
        for bit in bits
    ]


class ImageStageInputs(NamedTuple):
    """What the stages of a variant share, wherever they are run."""

    experiment: ImageExperiment
    ensemble: RewardEnsemble
    tests: dict[str, ImageSet]
    device: torch.device | str


def run_stage(inputs: ImageStageInputs, stage: Stage, progress: TitledProgress | None) -> StageResult:
    """Predict, solve, measure."""
    experiment, images = inputs.experiment, inputs.tests[stage.images]
    ensemble = inputs.ensemble.to(inputs.device)
    if stage.study != "behaviour" and len(images) > experiment.num_dial_images:
        images = cut(images, experiment.num_dial_images)
    states: Any = images.images if stage.help_available is None else (images.images, stage.help_available)
    started = time.perf_counter()
    rewards = ensemble.rewards(states, progress=titled(progress, f"predicting, {stage.name}"))
    seconds = time.perf_counter() - started
    study = {"behaviour": behaviour_study, "dial": dial_study, "models": model_study}[stage.study]
    numbers, arrays = study(experiment, rewards, images, titled(progress, f"solving, {stage.name}"))
    numbers |= {
        "variant": stage.variant,
        "images": stage.images,
        "origin": images.origin,
        "edition": str(images.edition),
        "sha256": images.checksum,
        "help_available": stage.help_available,
        "num_images": len(images),
        "num_models": ensemble.num_models,
        "predict_seconds": seconds,
        "hardware": hardware_name(ensemble.parameters.device),
    }
    return numbers, arrays


def _right_actions(images: ImageSet) -> Tensor | None:
    """The right action on each image, [S]; only digits have one."""
    return images.labels if images.name == "digits" else None


def behaviour_study(
    experiment: ImageExperiment, rewards: Tensor, images: ImageSet, progress: Progress | None
) -> StageResult:
    """Behaviour of each level in both regimes, per run, and of each network's own greedy policy (optim).

    Args:
        experiment: Levels, iterations, runs.
        rewards: [M, S, A].
        images: The set, with its labels.
        progress: Called as solving advances.
    """
    right = _right_actions(images)
    num_labels = SETS[images.name].num_classes
    help_action = experiment.image_task.help_action
    numbers: dict[str, Any] = {
        "levels": list(experiment.levels),
        "behaviour": {},
        "seconds": {},
    }
    arrays: dict[str, Tensor] = {}
    bar = ProgressTracker(2 * len(_levels_per_call(experiment, rewards)), progress)
    for regime in Regime:
        started = time.perf_counter()
        policy, sampled_value, numbers["reshuffles"] = _solve_levels(experiment, rewards, regime, bar)
        numbers["seconds"][str(regime)] = time.perf_counter() - started
        numbers["behaviour"][str(regime)] = as_lists(behaviour(policy, help_action, right))
        arrays |= {
            f"{regime}-sampled_value": sampled_value,
            f"{regime}-actions": frequencies(policy),
            f"{regime}-by_label": frequencies_by_label(policy.mean(dim=1), images.labels, num_labels),
        }
        if regime is Regime.SINGLE_STATE:
            samples, numbers["samples"] = _samples(policy.mean(dim=1), rewards, images, help_action)
            arrays |= samples
    numbers["optim"], optim_arrays = behaviour_of_networks(rewards, help_action, right, images.labels, num_labels)
    return numbers, arrays | optim_arrays


def _levels_per_call(experiment: ImageExperiment, rewards: Tensor) -> list[list[KofN]]:
    """Levels that are solved in one call: all of them, or on a CPU one at a time where all would take much memory.

    A policy has the same bits either way.
    """
    levels = experiment.parsed_levels
    entries = len(levels) * experiment.num_runs * rewards.shape[1] * rewards.shape[2]
    return [levels] if rewards.is_cuda or entries <= SOLVED_ENTRIES else [[level] for level in levels]


def _solve_levels(
    experiment: ImageExperiment, rewards: Tensor, regime: Regime, bar: ProgressTracker
) -> tuple[Tensor, Tensor, list[int]]:
    """Policies of every level and run [L, R, S, A], their values under the sampled rewards [L, R, T], and reshuffles [L]."""
    policies, values, reshuffles = [], [], []
    # The main variant's seed for all variants: the same queues of models, so that two variants differ in their beliefs, not in
    # the draws of the solver.
    seed = experiment.main.training.seed
    calls = _levels_per_call(experiment, rewards)
    for levels in calls:
        solution = solve_bandit(
            rewards,
            levels,
            regime=regime,
            num_iterations=experiment.num_iterations,
            num_runs=experiment.num_runs,
            seed=seed,
            track_exact=False,
            progress=bar.next_call(),
        )
        policies.append(solution.policy.cpu())
        values.append(solution.trace.sampled_value.cpu())
        reshuffles += solution.record["reshuffles"]
        del solution  # its averages and regrets are as large again, several times over
    return torch.cat(policies), torch.cat(values), reshuffles


def _samples(
    policy: Tensor, rewards: Tensor, images: ImageSet, help_action: int | None
) -> tuple[dict[str, Tensor], dict[str, list[int]]]:
    """Images on which the first level asks for help (or departs from the last level) most and least, with predictions."""
    cautious, ordinary = policy[0], policy[-1]  # [S, A]
    score = total_variation(cautious, ordinary) if help_action is None else cautious[:, help_action]
    order = torch.argsort(score, stable=True)
    count = min(NUM_SAMPLES, len(order) // 2)
    chosen = torch.stack([order.flip(0)[:count], order[:count]])  # [2, n]: most, least
    predictions = rewards[:, chosen.flatten().to(rewards.device)].cpu().double()  # [M, 2n, A]
    quantiles = torch.quantile(predictions, torch.tensor(QUANTILES, dtype=torch.float64), dim=0)  # [Q, 2n, A]
    tensors = {
        "samples-images": images.images[chosen],
        "samples-labels": images.labels[chosen],
        "samples-policy": cautious[chosen],
        "samples-ordinary": ordinary[chosen],
        "samples-quantiles": quantiles.permute(1, 0, 2).unflatten(0, chosen.shape),  # [2, n, Q, A]
    }
    return tensors, {"most": chosen[0].tolist(), "least": chosen[1].tolist()}


def dial_study(
    experiment: ImageExperiment, rewards: Tensor, images: ImageSet, progress: Progress | None
) -> StageResult:
    """Every k of N = 20 in both regimes, by exact sampling, with the mean certified gap."""
    levels = [KofN(k, DIAL_N) for k in range(1, DIAL_N + 1)]
    numbers: dict[str, Any] = {"levels": [str(level) for level in levels], "behaviour": {}, "gap": {}}
    bar = ProgressTracker(2, progress)
    for regime in Regime:
        solution = solve_bandit(
            rewards,
            levels,
            regime=regime,
            num_iterations=experiment.num_iterations,
            sampling="exact",
            progress=bar.next_call(),
        )
        measured = behaviour(solution.policy.cpu(), experiment.image_task.help_action, _right_actions(images))
        numbers["behaviour"][str(regime)] = as_lists(measured)
        gap = solution.certificate(solution.average_policy).gap.cpu().reshape(len(levels), -1)
        numbers["gap"][str(regime)] = gap.mean(dim=1).tolist()
    return numbers, {}


def model_study(
    experiment: ImageExperiment, rewards: Tensor, images: ImageSet, progress: Progress | None
) -> StageResult:
    """Behaviour of the most cautious level against the number of models, by queue and by exact sampling.

    Each number of models is measured on several random parts of the ensemble, so that the spread is that of training fewer
    models, not only of shuffling them.
    """
    fewest = experiment.parsed_levels[0].n
    sizes = [size for size in experiment.curve_sizes if fewest <= size <= len(rewards)] or [len(rewards)]
    by_regime: dict[str, dict[str, Any]] = {str(regime): {} for regime in Regime}
    bar = ProgressTracker(len(Regime) * len(Sampling) * len(sizes) * experiment.num_parts, progress)
    for regime in Regime:
        for sampling in Sampling:
            policies = torch.stack(
                [_policies_of_parts(experiment, rewards, size, regime, sampling, bar) for size in sizes]
            )
            measured = behaviour(policies, experiment.image_task.help_action, _right_actions(images))  # [sizes, parts]
            by_regime[str(regime)][str(sampling)] = as_lists(measured)
    return {"sizes": sizes, "level": experiment.levels[0], "behaviour": by_regime}, {}


def _policies_of_parts(
    experiment: ImageExperiment, rewards: Tensor, size: int, regime: Regime, sampling: Sampling, bar: ProgressTracker
) -> Tensor:
    """Policies of the most cautious level on random parts of `size` models, [parts, S, A]."""
    policies = []
    for number in range(experiment.num_parts):
        rng = make_rng(experiment.main.training.seed, "part of the models", size, number)
        chosen = torch.from_numpy(rng.permutation(len(rewards))[:size]).sort().values
        solution = solve_bandit(
            rewards[chosen.to(rewards.device)],
            experiment.levels[0],
            regime=regime,
            num_iterations=experiment.num_iterations,
            sampling=sampling,
            seed=experiment.main.training.seed + number,
            track_exact=False,
            progress=bar.next_call(),
        )
        policies.append(solution.policy.cpu())
    return torch.stack(policies)
