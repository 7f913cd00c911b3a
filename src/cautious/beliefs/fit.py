"""`fit_ensemble`: from familiar states and rewards to a trained ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from cautious.beliefs.diagnostics import BeliefWarning, examine
from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.networks.base import named
from cautious.beliefs.networks.module import ModuleNetwork, as_inputs
from cautious.beliefs.networks.vector import Standardizer, VectorNetwork
from cautious.beliefs.prior import WIDTH, Prior, checked_width
from cautious.beliefs.training.estimate import LongTrainingWarning, advice, is_large
from cautious.beliefs.training.loop import EnsembleExecutor, TrainingJob, train
from cautious.beliefs.training.state import ModuleTrainingProblem, TrainingProblem, TrainingSettings, checked_rewards
from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.progress import Progress, as_progress
from cautious.seeding import make_rng
from cautious.tables.pictures import SIDE, picture_shape
from cautious.tables.training_data import with_names
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_folder, as_number, check_shape, resolve_device

LEARNERS: Mapping[str, str] = MappingProxyType(
    {
        "vector": "cautious.beliefs.fit:VectorLearner",
        "image": "cautious_paper.networks.image_training:ImageLearner",
    }
)
"""How `fit_ensemble` learns with the networks that have a name."""


class Learner(Protocol):
    """How `fit_ensemble` learns with one kind of network; one of one's own can be passed as its argument `network`."""

    def as_inputs(self, inputs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Familiar states as a tensor [S, ...], checked, and what the settings of the belief keep about them."""
        ...

    def learning_rate(self, states: Tensor) -> float:
        """The learning rate where the caller gives none."""
        ...

    def prior(self, states: Tensor) -> float:
        """The width of the random prior where the caller gives none."""
        ...

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> TrainingProblem:
        """The network with its training data.

        Args:
            states: What `as_inputs` returned, or a part of it, [S, ...].
            rewards: [S, A]; NaN where an action was not tried.
            loss_weights: Weight of each action in the loss, [A]; None: all alike.
            each_action: Whether the rewards of each action have a unit of their own, as with a random prior.
        """
        ...


class VectorLearner:
    """Two hidden layers on vectors (`VectorNetwork`), in units of the training data."""

    def as_inputs(self, inputs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Vectors [S, ...]."""
        return as_inputs(inputs), {}

    def learning_rate(self, states: Tensor) -> float:
        """Smaller for many features, since each step moves a unit by the sum over its inputs.

        `benchmarks/learning_rate.py` compares others.
        """
        return min(0.01, 0.03 / states[0].numel() ** 0.5)

    def prior(self, states: Tensor) -> float:
        """docs/tables.md compares others."""
        return WIDTH

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> TrainingProblem:
        """The default network; with `each_action` it learns each action in a unit of its own."""
        units = Standardizer.of(states.flatten(1), rewards, each_action=each_action)
        network = VectorNetwork(tuple(states.shape[1:]), rewards.shape[1], units=units)
        return ModuleTrainingProblem(network, network.as_states(states)[0], rewards, loss_weights)


class ModuleLearner(VectorLearner):
    """A module of the user's own, which takes states and returns rewards in the units that they come in."""

    def __init__(self, factory: Callable[[], torch.nn.Module]) -> None:
        """Keep the function that makes the module."""
        self._factory = factory

    def learning_rate(self, states: Tensor) -> float:
        """That of Adam where nothing is known about the module."""
        return 0.001

    def prior(self, states: Tensor) -> float:
        """As for vectors; 0 for images and other arrays, whose distances say little."""
        return 0.0 if states.dim() > 2 else WIDTH

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> TrainingProblem:
        """The module, stacked, with its training data."""
        return ModuleTrainingProblem(ModuleNetwork(self._factory, states), states, rewards, loss_weights)


def learner_for(network: Any, inputs: Any) -> Learner:
    """What the argument `network` of `fit_ensemble` stands for, where `inputs` decide about "auto"."""
    if network == "auto":
        given = inputs if hasattr(inputs, "shape") else as_float_tensor(inputs, "inputs")
        is_image = tuple(given.shape)[1:] == (SIDE, SIDE) or picture_shape(given) is not None
        network = "image" if is_image else "vector"
    if isinstance(network, str) and network in LEARNERS:
        learner: Learner = named(LEARNERS, network)()
        return learner
    if callable(getattr(network, "problem", None)):
        return cast(Learner, network)
    if callable(network):
        return ModuleLearner(network)
    raise InvalidInputError(
        f"network={network!r} is not known; choose 'auto', 'image', 'vector', or a function that returns a torch module."
    )


NetworkChoice = str | Callable[[], torch.nn.Module] | Learner


@single_threaded
def fit_ensemble(
    inputs: ArrayLike | Any,
    rewards: ArrayLike | Any,
    *,
    network: NetworkChoice = "auto",
    num_models: int = 100,
    num_epochs: int = 100,
    batch_size: int = 64,
    learning_rate: float | None = None,
    weight_decay: float = 0.0,
    loss_weights: ArrayLike | None = None,
    seed: int = 0,
    device: torch.device | str = "auto",
    checkpoint_dir: Path | str | None = None,
    progress: bool | Progress = True,
    validation_fraction: float = 0.1,
    prior: float | None = None,
    missing: str = "leave-out",
    executor: EnsembleExecutor | None = None,
) -> RewardEnsemble:
    """Train M reward models on familiar data: together they are a belief about what each action pays.

    Args:
        inputs: Familiar states, one row each: vectors [S, ...], or images [S, 28, 28]. Pictures in bytes, as Gymnasium's
            environments show them ([S, H, W, C], at least 16 x 16 pixels), become such images, in grey
            (`beliefs.datasets.pictures`). Or a table: a frame (pandas, polars) or
            a dictionary of columns, whose names the belief keeps: new states may then come by name, in any order. Texts
            become a column of 0 and 1 each (`beliefs.datasets.learn_table` has the rules, and warns of what it leaves out).
        rewards: What each action paid in each of them, [S, A]; NaN where it was not tried (logged feedback): such an entry
            carries no loss. In a frame or a dictionary each column is an action, and the belief keeps their names.
        network: "image" is the paper's convolutional network, "vector" two hidden layers of 64 that learn each feature's
            and the rewards' units by themselves; "auto" takes the first for images and pictures, and the second otherwise. Or a
            function without arguments that returns a torch module from inputs [B, ...] to rewards [B, A], both in
            the units that they come in.
        num_models: M; at least as many as a level's n, and better an even number: priors come in pairs with opposite signs,
            which leave the mean of all models as it was learned.
        num_epochs: Passes over the data.
        batch_size: B.
        learning_rate: Of Adam; if not given, what suits the network: 0.0016 for images (the paper's), 0.001 for a user's
            own module, and for vectors 0.01 or, with more than nine features, 0.03 / √features.
        weight_decay: Of Adam, as L2 penalty.
        loss_weights: Weight of each action in the loss, [A].
        seed: Model i depends on (seed, i) alone: not on how many others are trained, nor on interruptions.
        device: "auto" takes a GPU where there is one.
        checkpoint_dir: Folder to keep unfinished work in; the same call resumes from there.
        progress: True shows a line; or a function that is called with (epochs done, epochs in all); False is silent.
        validation_fraction: Share of the states that is held out to diagnose the belief (`ensemble.diagnosis`): warns if it is
            too narrow, too poor, or blind to what is new. They also set the unit of `Decision.disagreement`
            (`ensemble.familiar`), if they are six or more. 0 trains on all states, without a diagnosis.
        prior: Width of each model's fixed random prior (`beliefs.prior`): it is nothing near familiar states and grows with
            the distance from them, so that models differ about states that are like nothing seen. 0 is the paper's plain
            ensemble. If not given, 0.75 for vectors (where each action's rewards then have a unit of their own) and for a
            module of one's own that takes vectors, 0 for images and other arrays, whose distances say little. The belief
            keeps up to 5,000 familiar states, whitened, to measure distances with; so do its files.
        missing: What becomes of a table's rows with an empty cell: "leave-out", or "indicator": they stay, with the column's
            mean in the cell and one more column that says that it was empty; new states may then be empty there, too.
        executor: What trains the models, with the same bits: a Ray cluster, ``with open_executor("ray") as executor`` of
            `cautious.executors`; this process if not given. `device` is then that of the workers.

    Returns:
        The trained ensemble. Its `losses` are in the rewards' units, squared.

    >>> states = torch.linspace(-1, 1, 40)[:, None]
    >>> belief = fit_ensemble(states, torch.cat([states, -states], dim=1), num_models=4, num_epochs=60, batch_size=8,
    ...                       progress=False)
    >>> belief.rewards(states).shape
    torch.Size([4, 40, 2])
    """
    if executor is not None and not callable(getattr(executor, "train", None)):
        raise InvalidInputError(f"executor={executor!r} must be what open_executor yields, or None.")
    inputs, rewards, names = with_names(inputs, rewards, missing)
    table = checked_rewards(rewards)
    learner = learner_for(network, inputs)
    states, kept_of_states = learner.as_inputs(inputs)
    rate = learner.learning_rate(states) if learning_rate is None else learning_rate
    width = learner.prior(states) if prior is None else checked_width(prior)
    settings = TrainingSettings(num_models, num_epochs, batch_size, rate, weight_decay, seed)
    check_shape(table, "S A", "rewards", S=len(states))
    familiar, held_out = _split(~table.isnan(), validation_fraction, seed)
    weights = None if loss_weights is None else as_float_tensor(loss_weights, "loss_weights")
    problem = learner.problem(states[familiar], table[familiar], weights, each_action=width > 0)
    device_used = resolve_device(device) if executor is None else executor.device(str(device))
    folder = None if checkpoint_dir is None else as_folder(checkpoint_dir, "checkpoint_dir")
    job = TrainingJob(problem, settings, device_used)
    if executor is None and progress is not False and is_large(job):
        sentence = advice(job)
        if sentence is not None:
            warnings.warn(sentence, LongTrainingWarning, stacklevel=3)
    options: dict[str, Any] = {
        "device": device_used,
        "checkpoint_dir": folder,
        "progress": as_progress(progress, "training"),
    }
    trained = (
        train(problem, settings, **options) if executor is None else executor.train(problem, settings, **options).models
    )
    if not bool(trained.parameters.isfinite().all()):
        raise InvalidInputError(
            f"learning_rate={settings.learning_rate:g}: training diverged (weights that are not finite); use a smaller one, "
            "and inputs and rewards of moderate size."
        )
    # A model's reward is its network's prediction plus its fixed random prior. The prior is added after training: networks are
    # trained on the rewards themselves, and the prior is nothing near familiar states.
    priors = None
    if width:
        rows = problem.network.as_states(states[familiar])[0].flatten(1)
        priors = Prior.fitted(
            rows, table[familiar], width=width, num_models=settings.num_models, seed=settings.seed
        ).to(trained.parameters.device)
    kept = asdict(settings) | {"prior": width} | names | kept_of_states
    belief = RewardEnsemble(problem.network, trained.parameters, trained.losses, kept, prior=priors)
    if len(held_out):
        predictions = belief.rewards(states[held_out])
        belief.familiar = FamiliarDisagreement.of(disagreement(predictions).cpu())
        belief.diagnosis = examine(belief, states[familiar], predictions, table[held_out], seed)
        for sentence in belief.diagnosis.concerns:
            # Level 3 is past the wrapper `single_threaded`: the warning points at the caller.
            warnings.warn(sentence, BeliefWarning, stacklevel=3)
    return belief


def _split(known: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Which states to train on and which to hold out, each in order.

    Never hold out the only sample of an action ([S, A]), nor a state without a reward, which could not be compared.
    """
    if not 0 <= as_number(fraction) < 1:
        raise InvalidInputError(f"validation_fraction={fraction!r} must be in [0, 1): the part that no model sees.")
    order = torch.from_numpy(make_rng(seed, "held out").permutation(len(known)))
    has_reward = known[order].any(dim=1)
    order, count = torch.cat([order[has_reward], order[~has_reward]]), int(fraction * int(has_reward.sum()))
    return with_needed(known, order[count:], order[:count])


def with_needed(known: Tensor, familiar: Tensor, held_out: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of states to train on and to hold out, each in order; the only sample of an action ([S, A]) is trained on."""
    needed = known[held_out][:, ~known[familiar].any(dim=0)].any(dim=1)
    return torch.cat([familiar, held_out[needed]]).sort().values, held_out[~needed].sort().values


def refit(belief: RewardEnsemble, inputs: Tensor, rewards: Tensor, progress: Progress | None = None) -> RewardEnsemble:
    """Models that are trained as those of a belief were, on other data: inputs [S, ...], rewards [S, A].

    With the same seed, settings and kind of network (`loss_weights` are not known, and equal here); nothing is held out.
    """
    settings = belief.settings
    network = belief.network
    is_known = type(network) is ModuleNetwork or network.name in LEARNERS
    if not is_known or not set(REFIT) <= set(settings):
        raise InvalidInputError(
            "belief: how it was trained is not known, so that it cannot be trained again; pass one that fit_ensemble made."
        )
    return fit_ensemble(
        inputs,
        rewards,
        network=network.module if type(network) is ModuleNetwork else network.name,
        num_models=belief.num_models,
        prior=settings.get("prior", 0.0),
        **{name: settings[name] for name in REFIT},
        device=belief.parameters.device,
        progress=False if progress is None else progress,
        validation_fraction=0,
    )


REFIT = ("num_epochs", "batch_size", "learning_rate", "weight_decay", "seed")
"""Settings that `refit` takes over."""
