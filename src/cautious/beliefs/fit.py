"""`fit_ensemble`: from familiar states and rewards to a trained ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from cautious.beliefs.diagnostics import BeliefWarning, examine
from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement
from cautious.beliefs.ensemble import HeldOut, RewardEnsemble
from cautious.beliefs.labels import SMOOTHING, cross_entropy, smoothed
from cautious.beliefs.networks.base import named
from cautious.beliefs.networks.module import ModuleNetwork, as_inputs
from cautious.beliefs.networks.vector import Standardizer, VectorNetwork
from cautious.beliefs.prior import WIDTH, Prior, checked_width
from cautious.beliefs.training.estimate import LongTrainingWarning, advice, is_large
from cautious.beliefs.training.loop import EnsembleExecutor, TrainingJob, train
from cautious.beliefs.training.state import ModuleTrainingProblem, TrainingProblem, TrainingSettings, checked_rewards
from cautious.errors import Argument, InvalidInputError
from cautious.parallel import single_threaded
from cautious.progress import Progress, as_progress
from cautious.seeding import make_rng
from cautious.tables.arrays import SIDE, picture_shape
from cautious.tables.learn import TrainingData, as_training_data
from cautious.tables.payoffs import LABELS_KEPT_AS, described_labels, kept_labels
from cautious.tables.schema import KEPT_AS, RANGES_KEPT_AS, ROWS_KEPT_AS
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_folder, as_number, check_shape, resolve_device

LEARNERS: Mapping[str, str] = MappingProxyType(
    {
        "vector": "cautious.beliefs.fit:VectorLearner",
        "image": "cautious_paper.networks.image_training:ImageLearner",
    }
)
"""The learners that `fit_ensemble(network=...)` knows by name."""


FEW_ROWS = 2000
"""Up to so many rows, `VectorLearner` trains as long as it always did."""
LABEL_EPOCHS, LABEL_STEPS = 30, 120
"""Labels are learned from few rows in so many epochs, or more where these have fewer steps together."""
PASSES, OF_ROWS, FEWEST_PASSES = 20, 5000, 2
"""From more rows it learns in so many passes over this number of rows, in fewer over more rows (by the root of their number),
but not in fewer than this."""


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


class Schedule(NamedTuple):
    """How long to train where the caller does not say.

    A `Learner` may have a method ``schedule(states, of_labels=...) -> Schedule``.
    """

    num_epochs: int = 100
    batch_size: int = 64


class LabelLearner(Protocol):
    """What a `Learner` needs beside its other methods to learn labels (`fit_ensemble(labels=...)`)."""

    def label_problem(self, states: Tensor, targets: Tensor, loss_weights: Tensor | None) -> TrainingProblem:
        """The network with its training data; its outputs are the scores of labels (`beliefs.labels.cross_entropy`).

        Args:
            states: What `as_inputs` returned, or a part of it, [S, ...].
            targets: 1 for a row's label and 0 for the others, mixed with the labels' shares (`labels.smoothed`), [S, L].
            loss_weights: Weight of each label in the loss, [L]; None: all alike.
        """
        ...


class VectorLearner:
    """Two hidden layers on vectors (`VectorNetwork`), in units of the training data."""

    def as_inputs(self, inputs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Vectors [S, ...]."""
        return as_inputs(inputs), {}

    def learning_rate(self, states: Tensor) -> float:
        """0.01, or less with more than nine features: a step moves a hidden unit by a sum over its inputs.

        `benchmarks/learning_rate.py` compares this rule with others.
        """
        return min(0.01, 0.03 / states[0].numel() ** 0.5)

    def prior(self, states: Tensor) -> float:
        """`WIDTH`; docs/tables.md compares other widths."""
        return WIDTH

    def schedule(self, states: Tensor, *, of_labels: bool) -> Schedule:
        """100 epochs up to `FEW_ROWS` rows S, and 20 · √(5000 / S) for more; batches of 64.

        Of labels 30 epochs up to `FEW_ROWS` rows, or as many as make 120 steps. `benchmarks/table_sizes.py` and
        `benchmarks/label_training.py` compare these rules with others: more passes take longer, and learn noise.
        """
        if len(states) <= FEW_ROWS:
            few = Schedule()
            steps = -(-len(states) // few.batch_size)
            return Schedule(max(LABEL_EPOCHS, -(-LABEL_STEPS // steps))) if of_labels else few
        passes = round(PASSES * (OF_ROWS / len(states)) ** 0.5)
        return Schedule(max(FEWEST_PASSES, passes))

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> TrainingProblem:
        """The default network; with `each_action` it learns each action in a unit of its own."""
        units = Standardizer.of(states.flatten(1), rewards, each_action=each_action)
        network = VectorNetwork(tuple(states.shape[1:]), rewards.shape[1], units=units)
        return ModuleTrainingProblem(network, network.as_states(states)[0], rewards, loss_weights)

    def label_problem(self, states: Tensor, targets: Tensor, loss_weights: Tensor | None) -> TrainingProblem:
        """The default network, whose scores of labels have no unit."""
        units = replace(Standardizer.of(states.flatten(1), targets), reward=1.0)
        network = VectorNetwork(tuple(states.shape[1:]), targets.shape[1], units=units)
        rows = network.as_states(states)[0]
        return ModuleTrainingProblem(network, rows, targets, loss_weights, loss=cross_entropy)


class ModuleLearner(VectorLearner):
    """A module of the user's own: it takes states as they are, and returns rewards in the units of the training data."""

    def __init__(self, factory: Callable[[], torch.nn.Module]) -> None:
        """Keep the function that makes the module."""
        self._factory = factory

    def learning_rate(self, states: Tensor) -> float:
        """The default of Adam in PyTorch: nothing is known about the module."""
        return 0.001

    def schedule(self, states: Tensor, *, of_labels: bool) -> Schedule:
        """100 epochs in batches of 64: nothing is known about the module."""
        return Schedule()

    def prior(self, states: Tensor) -> float:
        """`WIDTH` where the module takes vectors; 0 for images and other arrays, whose distances say little."""
        return 0.0 if states.dim() > 2 else WIDTH

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> TrainingProblem:
        """The module, stacked, with its training data."""
        return ModuleTrainingProblem(ModuleNetwork(self._factory, states), states, rewards, loss_weights)

    def label_problem(self, states: Tensor, targets: Tensor, loss_weights: Tensor | None) -> TrainingProblem:
        """The module, stacked, whose outputs are the scores of labels."""
        return ModuleTrainingProblem(
            ModuleNetwork(self._factory, states), states, targets, loss_weights, loss=cross_entropy
        )


def learner_for(network: Any, inputs: Any) -> Learner:
    """What the argument `network` of `fit_ensemble` stands for, where `inputs` decide about "auto"."""
    if isinstance(network, str) and network == "auto":
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
        Argument("network", network),
        " is not known; choose 'auto', 'image', 'vector', or a function that returns a torch module.",
    )


NetworkChoice = str | Callable[[], torch.nn.Module] | Learner


@single_threaded
def fit_ensemble(
    inputs: ArrayLike | TrainingData | Any,
    rewards: ArrayLike | Any = None,
    *,
    labels: Any = None,
    payoffs: Any = None,
    network: NetworkChoice = "auto",
    num_models: int = 100,
    num_epochs: int | None = None,
    batch_size: int | None = None,
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
    categorical: Sequence[str] = (),
    executor: EnsembleExecutor | None = None,
) -> RewardEnsemble:
    """A belief about what each action pays: M reward models, trained on familiar data.

    Each model is a network that minimises the weighted mean squared error on the entries that are known, each from initial
    weights of its own, and, with a `prior`, plus a fixed random function that is nothing near familiar states:

        r_i(x, a) = network_i(x, a) + prior_i(x, a)

    Where the log says what a row turned out to be (a loan was repaid, a part was faulty), pass `labels` and `payoffs` rather
    than rewards. Models then learn the labels' probabilities (they minimise the cross-entropy), and rewards follow from them:

        r_i(x, a) = Σ_l P_i(l | x) · payoff[l, a] + prior_i(x, a)

    docs/tutorial-own-data.md walks from a CSV file to decisions; docs/extend.md adds a network of one's own.

    Args:
        inputs: Familiar states, one per row. Vectors [S, ...]; or images [S, 28, 28]; or pictures in bytes [S, H, W, C] of at
            least 16 x 16 pixels, which become grey images (`tables.arrays`); or a table, which is a frame (pandas, polars)
            or a dictionary of columns. The belief keeps the names of a table's columns: new states may then come by name, in
            any order. Each text of a column becomes a feature of 0 and 1 (`tables.learn`). Or a whole log, as `read_log`
            returns it, without `rewards`.
        rewards: What each action paid in each state, [S, A]. NaN where an action was not tried: such an entry carries no loss.
            In a frame or a dictionary each column is an action, and the belief keeps the names of the actions.
        labels: Instead of rewards: what each row turned out to be, S texts, numbers or truth values. They are compared as texts
            and sorted: numbers by size, others by the alphabet.
        payoffs: With labels: what each action pays for each label. A dictionary {label: {action: payoff}}; or a frame, or a
            file (.csv, .parquet), whose first column has the labels and whose other columns are the actions; or an array [L, A]
            in the order of the sorted labels. A payoff is a number or, in rows with named columns, "-amount" or "0.1*amount": a
            column of numbers, times a number. Or a function that takes rows and returns payoffs [B, L, A]; a belief with a
            function cannot be saved. `RewardEnsemble.with_payoffs` changes payoffs later, without training again.
        network: "image" is the paper's convolutional network. "vector" is a network with two hidden layers of 64, which learns
            the units of features and rewards from the data. "auto" takes the first for images and pictures, and the second
            for everything else. Or a function without arguments that returns a torch module, from inputs [B, ...] to rewards
            [B, A] in the units that they come in (with `labels`, to one score for each label [B, L]). Or a `Learner`.
        num_models: M. A level such as 1-of-20 needs at least 20. Even numbers are better: priors come in pairs of opposite
            signs, so that they leave the mean of all models as it was learned.
        num_epochs: Passes over the data. By default 100; for labels of vectors 30 (more below 193 rows); for vectors
            fewer above 2,000 rows (20 of 5,000, 6 of 50,000).
        batch_size: B, 64 by default.
        learning_rate: Learning rate of Adam. By default 0.0016 for images (the paper's), 0.001 for a module of one's own, and
            for vectors 0.01 or, with more than nine features, 0.03 / √features.
        weight_decay: L2 penalty of Adam.
        loss_weights: Loss weight per action, shape [A]; with `labels`, per label [L]. Unequal weights of labels change the
            probabilities that are learned, and with them the rewards.
        seed: Model i depends on (seed, i) alone: not on the number of models, and not on interruptions.
        device: "cpu" or "cuda"; "auto" takes a GPU where there is one.
        checkpoint_dir: Folder for unfinished work. The same call resumes from there.
        progress: True shows a line; False is silent; a function is called with (epochs done, epochs in all).
        validation_fraction: Share of the states that is held out of training. They serve to diagnose the belief
            (`ensemble.diagnosis`) and, if there are six or more, to set the unit of `Decision.disagreement`
            (`ensemble.familiar`). 0 trains on all states, without a diagnosis. With `labels` the belief keeps up to 1,000 of
            them: other payoffs change how far the models disagree there.
        prior: Width of each model's fixed random prior (`beliefs.prior`). It grows with the distance from familiar states, so
            that models differ about states that are like nothing seen; 0 is the paper's plain ensemble. By default 0.75 for
            vectors (each action's rewards then have a unit of their own) and for modules that take vectors; 0 for images and
            other arrays, whose distances say little. The belief keeps up to 5,000 familiar states to measure distances with.
        missing: What becomes of a table's rows with an empty cell. "leave-out" leaves them out. "indicator" keeps them: the
            cell gets the column's mean, and a further column says that it was empty; new states may then be empty there, too.
        categorical: Columns of a table whose numbers only name kinds, as postcodes do. Each number becomes a feature of 0 and
            1, and one that training did not have is novel. Columns of pandas' type "category" are taken so anyway.
        executor: Where to train, with the same bits: what `open_executor` yields, for example for a Ray cluster. By default in
            this process. `device` is then a device of the workers.

    Returns:
        The trained ensemble. Its `losses` are in the squared units of the rewards.

    Raises:
        InvalidInputError: An argument breaks its rule, an action was never tried, or training diverged.
        BadFileError: `checkpoint_dir` holds another training.

    Warns:
        BeliefWarning: The diagnosis found the belief too narrow, too poor, or blind to what is new.
        TableWarning: Rows or columns of a table were left out, or look odd.
        LongTrainingWarning: Training will take long; the text says what would shorten it.

    >>> states = torch.linspace(-1, 1, 40)[:, None]
    >>> belief = fit_ensemble(states, torch.cat([states, -states], dim=1), num_models=4, num_epochs=60, batch_size=8,
    ...                       progress=False)
    >>> belief.rewards(states).shape
    torch.Size([4, 40, 2])
    """
    if executor is not None and not callable(getattr(executor, "train", None)):
        raise InvalidInputError(f"executor={executor!r} must be what open_executor yields, or None.")
    data = as_training_data(inputs, rewards, missing, labels, payoffs, categorical)
    inputs, table = data.inputs, checked_rewards(data.rewards)
    learner = learner_for(network, inputs)
    states, kept_of_states = learner.as_inputs(inputs)
    rate = learner.learning_rate(states) if learning_rate is None else learning_rate
    width = learner.prior(states) if prior is None else checked_width(prior)
    schedule = getattr(learner, "schedule", lambda *_, **__: Schedule())
    usual = schedule(states, of_labels=data.labels is not None)
    num_epochs = usual.num_epochs if num_epochs is None else num_epochs
    batch_size = usual.batch_size if batch_size is None else batch_size
    settings = TrainingSettings(num_models, num_epochs, batch_size, rate, weight_decay, seed)
    check_shape(table, "S A", "rewards", S=len(states))
    targets = table  # what is learned: [S, A], or [S, L]
    if data.labels is not None and data.payoffs is not None:
        targets = one_hot(data.labels, len(data.payoffs.labels)).double()
    known = ~table.isnan() if data.labels is None else targets > 0
    familiar, held_out = _split(known, validation_fraction, seed)
    weights = None if loss_weights is None else as_float_tensor(loss_weights, "loss_weights")
    if data.labels is None:
        problem = learner.problem(states[familiar], table[familiar], weights, each_action=width > 0)
    else:
        # Weights of labels change their probabilities, so that smoothing could not be undone.
        smoothing = SMOOTHING if weights is None else 0.0
        mixed = smoothed(targets[familiar], smoothing)
        problem = _label_learner(learner).label_problem(states[familiar], mixed, weights)
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
            Argument("learning_rate", settings.learning_rate),
            ": training diverged (weights that are not finite); use a smaller one, "
            "and inputs and rewards of moderate size.",
        )
    # A model's reward is its network's prediction plus its fixed random prior. The prior is added after training: networks are
    # trained on the rewards themselves, and the prior is nothing near familiar states.
    priors = None
    kept = asdict(settings) | {"prior": width, ROWS_KEPT_AS: len(states)} | data.names | kept_of_states
    if states.dim() == 2 and KEPT_AS not in kept:
        kept[RANGES_KEPT_AS] = torch.stack([states.amin(dim=0), states.amax(dim=0)], dim=1).tolist()
    if data.labels is not None and data.payoffs is not None:
        kept |= {LABELS_KEPT_AS: described_labels(data.payoffs.labels, data.labels[familiar], smoothing)}
    if width:
        rows = problem.network.as_states(states[familiar])[0].flatten(1)
        sizes: dict[str, int] = {"num_models": settings.num_models, "seed": settings.seed}
        priors = Prior.fitted(rows, targets[familiar], width=width, **sizes)
        if data.labels is not None and data.payoffs is not None:
            shares = kept_labels(kept).shares
            priors = priors.for_actions(data.payoffs.num_actions, seed).for_payoffs(data.payoffs.table, shares)
        priors = priors.to(trained.parameters.device)
    belief = RewardEnsemble(
        problem.network, trained.parameters, trained.losses, kept, prior=priors, payoffs=data.payoffs
    )
    if data.labels is not None and len(held_out):
        belief.held_out = HeldOut.of(states[held_out])
    if len(held_out):
        predictions = belief.rewards(states[held_out], bounded=False)
        belief.familiar = FamiliarDisagreement.of(disagreement(predictions).cpu())
        belief.diagnosis = examine(belief, states[familiar], predictions, table[held_out], seed)
        for sentence in belief.diagnosis.concerns:
            # Level 3 is past the wrapper `single_threaded`: the warning points at the caller.
            warnings.warn(sentence, BeliefWarning, stacklevel=3)
    return belief


def _label_learner(learner: Learner) -> LabelLearner:
    """The same, if it can learn labels."""
    if not callable(getattr(learner, "label_problem", None)):
        raise InvalidInputError(
            f"labels: the learner {type(learner).__name__} learns rewards only; give it a method label_problem (see "
            "cautious.beliefs.fit.LabelLearner), or pass rewards instead of labels and payoffs."
        )
    return cast(LabelLearner, learner)


def _split(known: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Numbers of the states to train on, and of those to hold out, both in order.

    The only sample of an action ([S, A]) is never held out. Neither is a state without a known reward: predictions could not
    be compared with it.
    """
    if not 0 <= as_number(fraction) < 1:
        raise InvalidInputError(
            Argument("validation_fraction", fraction), " must be in [0, 1): the part that no model sees."
        )
    order = torch.from_numpy(make_rng(seed, "held out").permutation(len(known)))
    has_reward = known[order].any(dim=1)
    order, count = torch.cat([order[has_reward], order[~has_reward]]), int(fraction * int(has_reward.sum()))
    return with_needed(known, order[count:], order[:count])


def with_needed(known: Tensor, familiar: Tensor, held_out: Tensor) -> tuple[Tensor, Tensor]:
    """The same split in order, with the only samples of an action ([S, A]) moved to the states to train on."""
    needed = known[held_out][:, ~known[familiar].any(dim=0)].any(dim=1)
    return torch.cat([familiar, held_out[needed]]).sort().values, held_out[~needed].sort().values


def refit(belief: RewardEnsemble, inputs: Tensor, targets: Tensor, progress: Progress | None = None) -> RewardEnsemble:
    """A belief that is trained like another one, on other data: inputs [S, ...], rewards [S, A]; or labels as numbers [S].

    Seed, settings and kind of network are the same. Loss weights are not recorded, so all are 1 here. Nothing is held out.
    """
    settings = belief.settings
    network = belief.network
    is_known = type(network) is ModuleNetwork or network.name in LEARNERS
    if not is_known or not set(REFIT) <= set(settings):
        raise InvalidInputError(
            "belief: how it was trained is not known, so that it cannot be trained again; pass one that fit_ensemble made."
        )
    if belief.payoffs is None:
        data = TrainingData(inputs, targets)
    else:
        names = {KEPT_AS: settings[KEPT_AS]} if settings.get(KEPT_AS) is not None else {}
        at_stake = belief.payoffs.of_rows(inputs, belief.columns)
        paid = at_stake[targets] if at_stake.dim() == 2 else at_stake[torch.arange(len(targets)), targets]
        data = TrainingData(inputs, paid, names, belief.columns, (), targets, belief.payoffs)
    return fit_ensemble(
        data,
        network=network.module if type(network) is ModuleNetwork else network.name,
        num_models=belief.num_models,
        prior=settings.get("prior", 0.0),
        **{name: settings[name] for name in REFIT},
        device=belief.parameters.device,
        progress=False if progress is None else progress,
        validation_fraction=0,
    )


REFIT = ("num_epochs", "batch_size", "learning_rate", "weight_decay", "seed")
"""Settings of a belief that `refit` uses again."""
