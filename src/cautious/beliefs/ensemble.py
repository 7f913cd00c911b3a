"""`RewardEnsemble`: M trained reward models, a belief about what each action pays in any state; and its files.

On disk, ensemble.json says what the models are and models-STAMP.safetensors holds their weights (`io.content_names`).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.belief import state_numbers
from cautious.beliefs.diagnostics import Diagnosis
from cautious.beliefs.disagreement import MOST, FamiliarDisagreement, disagreement
from cautious.beliefs.fixed_shapes import filled_up, rounds_alike
from cautious.beliefs.labels import expected_rewards, probabilities, unsmoothed
from cautious.beliefs.networks.base import Calls, Network, checked_network, restored
from cautious.beliefs.prior import Prior
from cautious.errors import BadFileError, InvalidInputError, MissingFileError
from cautious.io.arrays import FORMAT, load_json, load_tensors, pick
from cautious.io.content_names import Part, part_of, reading, save_parts
from cautious.parallel import parallel_map, single_threaded
from cautious.progress import Progress, ProgressTracker
from cautious.tables.arrays import PICTURES_KEPT_AS, as_grey, picture_shape
from cautious.tables.frames import as_table, is_named
from cautious.tables.learn import TableWarning
from cautious.tables.payoffs import (
    LABELS_KEPT_AS,
    PAYOFFS_KEPT_AS,
    KeptLabels,
    Payoffs,
    about_unused,
    kept_labels,
    payoffs_for,
)
from cautious.tables.schema import KEPT_AS, TableSchema, action_names, with_actions
from cautious.types import ArrayLike
from cautious.validation import (
    as_device,
    as_float_tensor,
    as_folder,
    as_number,
    as_path,
    check_callable,
    check_finite,
    check_shape,
    parse_flag,
)

DESCRIPTION, WEIGHTS, PRIOR = "ensemble.json", "models.safetensors", "prior.safetensors"
HELD_OUT = "held-out.safetensors"
KEPT_BYTES = 2**26
"""Weights of at most this size are kept in the layout of single predictions beside their own."""
SHIPPED: Mapping[str, str] = MappingProxyType({"ask-for-help": "cautious_paper", "driving": "cautious_paper"})
"""Beliefs that can be loaded by name, with the package that holds them in its folder "shipped"."""


class HeldOut(NamedTuple):
    """States that no model of labels saw in training: other payoffs change how far the models disagree there."""

    states: Tensor
    """As the models were trained on them, [H, ...]."""

    @classmethod
    def of(cls, states: Tensor) -> HeldOut:
        """At most `disagreement.MOST` of them, evenly spaced as `FamiliarDisagreement.of` takes them."""
        return cls(states[:: max(1, math.ceil(len(states) / MOST))].cpu().clone())


class RewardEnsemble:
    """A belief: M reward models of one architecture, trained by `fit_ensemble` or built from weights of one's own.

    >>> import numpy as np
    >>> from cautious.beliefs.networks.vector import VectorNetwork
    >>> network = VectorNetwork(state_shape=(4,), num_actions=5)
    >>> weights = torch.tensor(np.stack([network.init(np.random.default_rng(i)) for i in range(3)])).float()
    >>> belief = RewardEnsemble(network, weights)
    >>> belief.rewards(np.zeros((2, 4))).shape
    torch.Size([3, 2, 5])
    """

    def __init__(
        self,
        network: Network,
        parameters: Tensor,
        losses: Tensor | None = None,
        settings: Mapping[str, Any] | None = None,
        states: tuple[Tensor, ...] | None = None,
        prior: Prior | None = None,
        payoffs: Payoffs | None = None,
    ) -> None:
        """Keep the models.

        Args:
            network: The architecture (`Network`).
            parameters: Weights of all models, [M, P].
            losses: Final loss of each model, [M]; NaN if not given.
            settings: How the models were trained, as plain values that a JSON file can hold.
            states: Of `on`: the states that `rewards_for` is about.
            prior: Each model's random prior; its rewards are added to those of the network.
            payoffs: Where the networks predict labels, what each action pays for each label.
        """
        self.network = checked_network(network)
        self.parameters = as_float_tensor(parameters, "parameters").float()
        check_shape(self.parameters, "M P", "parameters", P=network.num_parameters)
        check_finite(self.parameters, "parameters")
        unknown = torch.full((len(self.parameters),), torch.nan, dtype=torch.float32)
        self.losses = unknown if losses is None else as_float_tensor(losses, "losses").float()
        check_shape(self.losses, "M", "losses", M=len(self.parameters))
        self.settings = _plain({} if settings is None else settings)
        self.prior = prior
        self.payoffs = payoffs
        """Of models that predict labels: what each action pays for each label. None for models that predict rewards."""
        self._states = states
        self._layers: tuple[tuple[int, ...], list[Any]] | None = None
        self._columns: tuple[Any, TableSchema] | None = None
        self.diagnosis: Diagnosis | None = None
        """How the models did on familiar states that were held out; None if none were."""
        self.familiar: FamiliarDisagreement | None = None
        """How far the models disagree in held-out familiar states, the unit of `Decision.disagreement`; None if unknown."""
        self.held_out: HeldOut | None = None
        """Of models that predict labels: some of the states that were held out."""

    @property
    def num_models(self) -> int:
        """Number of models, M."""
        return len(self.parameters)

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.network.num_actions if self.payoffs is None else self.payoffs.num_actions

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels whose probabilities the models predict, in their order; None for models that predict rewards."""
        return None if self.payoffs is None else self.payoffs.labels

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one state."""
        return self.network.state_shape

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one state as it was given in training: of a picture its height, width and channels."""
        found = self.settings.get(PICTURES_KEPT_AS)
        return tuple(found) if isinstance(found, list) and len(found) == 3 else self.state_shape

    @property
    def columns(self) -> TableSchema | None:
        """The columns of the table that the models were trained on; None if they were trained on arrays without names."""
        kept = self.settings.get(KEPT_AS)
        if kept is None:
            return None
        if self._columns is None or self._columns[0] is not kept:  # read once: a policy asks for every decision
            self._columns = kept, TableSchema.of(self)
        return self._columns[1]

    @property
    def actions(self) -> tuple[str, ...] | None:
        """Names of the actions; None if the training had none."""
        return action_names(self)

    def __repr__(self) -> str:
        """Sizes and names, without the weights."""
        columns = self.columns
        about = (
            f"states {list(self.observation_shape)}" if columns is None else _few([f.name for f in columns.features])
        )
        actions = f"{self.num_actions:,} actions" + ("" if self.actions is None else f" ({_few(self.actions)})")
        return f"RewardEnsemble({self.num_models:,} models, {actions}, {about})"

    def to(self, device: torch.device | str) -> RewardEnsemble:
        """The same models on `device`."""
        target = as_device(device)
        moved = self.parameters.to(target), self.losses.to(target)
        prior = None if self.prior is None else self.prior.to(target)
        same = RewardEnsemble(self.network, *moved, self.settings, self._states, prior, self.payoffs)
        return self._with_held_out_results(same)

    @single_threaded
    def with_payoffs(self, payoffs: Any) -> RewardEnsemble:
        """The same belief with other payoffs, as if it had been trained with them: for models that predict labels.

        Only `diagnosis` is left out, which needs the training data.

        Args:
            payoffs: In any form that `fit_ensemble` takes. The actions may be others, too.

        Raises:
            InvalidInputError: The models predict rewards; or payoffs are missing, or of no known form.

        >>> from cautious import fit_ensemble
        >>> belief = fit_ensemble([[0.0], [1.0]] * 10, labels=["bad", "good"] * 10, progress=False, num_models=4,
        ...                       payoffs={"bad": {"lend": -4, "refuse": 0}, "good": {"lend": 1, "refuse": 0}})
        >>> belief.with_payoffs({"bad": {"lend": -9}, "good": {"lend": 1}}).actions
        ('lend',)
        """
        if self.payoffs is None:
            raise InvalidInputError(
                "payoffs: these models predict rewards, in which the payoffs are included; train with labels=... and "
                "payoffs=... to change payoffs later."
            )
        assert self.labels is not None
        example = torch.zeros(2, *self.state_shape) if self.held_out is None else self.held_out.states
        found, unused = payoffs_for(payoffs, self.labels, example, self.columns)
        for note in about_unused(unused):
            warnings.warn(TableWarning(note), stacklevel=3)  # past the wrapper `single_threaded`
        settings = with_actions(self.settings, found.actions) | {PAYOFFS_KEPT_AS: found.described()}
        prior = self.prior
        if prior is not None:
            prior = prior.for_actions(found.num_actions, int(self.settings["seed"])).for_payoffs(
                found.table, self._kept_labels.shares
            )
        same = RewardEnsemble(self.network, self.parameters, self.losses, settings, None, prior, found)
        same.held_out = self.held_out
        if same.held_out is not None:
            opinions = same.rewards(same.held_out.states, bounded=False)
            same.familiar = FamiliarDisagreement.of(disagreement(opinions).cpu())
        return same

    @single_threaded
    def probabilities(self, states: Any) -> Tensor:
        """How likely each label is in each state under every model, without the random prior: [M, S, L], float32.

        Raises:
            InvalidInputError: The models predict rewards, or as of `rewards`.
        """
        if self.payoffs is None:
            raise InvalidInputError("probabilities: these models predict rewards, not labels; train with labels=...")
        arrays = self.network.as_states(self.as_trained(states))
        out = torch.empty(self.num_models, len(arrays[0]), self.network.num_actions, device=self.parameters.device)
        self._fill(out, Calls.of(self.network), torch.arange(self.num_models), arrays, of_labels=True)
        return out

    @single_threaded
    def rewards(self, states: Any, *, bounded: bool = True, progress: Progress | None = None) -> Tensor:
        """Reward of every action in each state under every model, [M, S, A], float32 (for driving float64).

        Args:
            states: What the network takes. Vectors [S, ...]; or a frame or a dictionary with the columns of the training, in
                any order; or images [S, 28, 28], or pictures of the size in training. For an image network with a help bit, a
                pair: images, and whether help is available (one truth value, or one per image). For driving, a whole world
                (`cautious.driving_world`).
            bounded: With a prior, whether rewards stay within each action's familiar range, widened by its length on either
                side, so that one unseen step cannot outweigh an episode. Single decisions, where only the order of actions
                counts, are made with False.
            progress: Called with (blocks done, blocks in all).

        Raises:
            InvalidInputError: States of another shape or with other columns than in training, or numbers that are not finite.
        """
        check_callable(progress, "progress", "blocks done, blocks in all")
        everyone = torch.arange(self.num_models)
        return self._predict(everyone, self._as_states(states), progress, parse_flag(bounded, "bounded"))

    @single_threaded
    def on(self, states: Any) -> RewardEnsemble:
        """The same belief, asked about these states only.

        Solvers take the result in place of an array of rewards, and read it block by block (`rewards_for`). So the rewards of
        all models need not fit into memory at once.
        """
        parts = self.parameters, self.losses, self.settings, self._as_states(states), self.prior, self.payoffs
        return self._with_held_out_results(RewardEnsemble(self.network, *parts))

    @single_threaded
    def rewards_for(self, indices: ArrayLike) -> Tensor:
        """Rewards [N, S, A] of the models at `indices` [N] in the states given to `on`."""
        if self._states is None:
            what = "states" if self.state_shape else "world"
            raise InvalidInputError(f"rewards_for: no {what} given; call it on `ensemble.on({what})`.")
        return self._predict(state_numbers(indices, self.num_models, "indices"), self._states, None)

    def _as_states(self, states: Any) -> tuple[Any, ...]:
        """Arrays as the network takes them; payoffs [S, L, A], where rows differ in them; and with a prior `Prior.novelty`."""
        trained = self.as_trained(states)
        arrays = self.network.as_states(trained)
        first = arrays[0]
        if self.payoffs is not None and self.payoffs.depend_on_rows:
            arrays = (*arrays, self.payoffs.of_rows(trained, self.columns))
        return arrays if self.prior is None else (*arrays, self.prior.novelty(first))

    def as_trained(self, states: Any) -> Any:
        """States as the array that the models were trained on: columns by name and pictures are converted."""
        if Calls.of(self.network).takes_pictures:
            return self._as_images(states)
        if self.columns is not None and is_named(states):
            return self.columns.states(as_table(states, "states"), strict=True)
        return states

    def _as_images(self, states: Any) -> Any:
        """Pictures as images; their height and width must be those of the training, their number of channels need not."""
        shape, known = picture_shape(states), self.observation_shape
        if shape is not None and shape[:2] == known[:2]:
            return as_grey(states)
        if shape is not None and len(known) == 3 and shape[:2] != self.state_shape:
            raise InvalidInputError(f"states: pictures {list(shape)}; those of the training were {list(known)}.")
        return states

    def _predict(
        self, indices: Tensor, states: tuple[Any, ...], progress: Progress | None, bounded: bool = True
    ) -> Tensor:
        """Rewards [N, S, A] of the models at `indices` [N]."""
        calls = Calls.of(self.network)
        size = len(indices), len(states[0]), self.num_actions
        out = torch.empty(size, device=self.parameters.device, dtype=calls.reward_dtype)
        self._fill(out, calls, indices, states, progress, bounded)
        return out

    @torch.no_grad()
    def _fill(
        self,
        out: Tensor,
        calls: Calls,
        indices: Tensor,
        states: tuple[Any, ...],
        progress: Progress | None = None,
        bounded: bool = True,
        of_labels: bool = False,
    ) -> None:
        """Write predictions into `out` [N, S, ...], block by block of models and rows; on the CPU each core has a block.

        With `of_labels` they are the probabilities of labels, and `states` are the network's alone.
        """
        device = self.parameters.device
        num_models, most_rows = calls.block[device.type]
        num_rows = most_rows or out.shape[1]
        row_blocks = -(-out.shape[1] // num_rows)
        num_blocks = -(-len(indices) // num_models) * row_blocks
        tracker = ProgressTracker(num_blocks, progress)
        if most_rows is None:  # a whole world per call: moved once
            states = tuple(part.to(device) for part in states)

        few = out.shape[1] <= calls.fewest_rows and device.type == "cpu" and self._has_short_calls
        rows_per_call = calls.fewest_rows if few else calls.rows_per_call

        kept = self._kept_layers() if device.type == "cpu" and self._is_everyone(indices) else None

        def inputs_of(rows: slice) -> list[Any]:
            if most_rows is None:
                return list(states)
            inputs = [part[rows].to(device) for part in states]
            if device.type != "cpu":
                return inputs
            size = -(-len(inputs[0]) // rows_per_call) * rows_per_call
            return [filled_up(part, size) for part in inputs]

        shared = inputs_of(slice(None)) if few else []
        # Of few rows, what all priors say is found in one call: each call takes as long as a prediction.
        of_few = (
            self.prior.opinions(indices, shared[-1], bounded=bounded)
            if few and self.prior is not None and self.payoffs is None
            else None
        )

        def fill(number: int) -> None:
            model, row = number // row_blocks * num_models, number % row_blocks * num_rows
            models, rows = slice(model, model + num_models), slice(row, row + num_rows)
            inputs, target = list(shared) if few else inputs_of(rows), out[models, rows]
            prior, payoffs = (None, None) if of_labels else (self.prior, self.payoffs)
            novelty = inputs.pop() if prior is not None else None
            at_stake = None if payoffs is None else payoffs.table.to(device)
            if payoffs is not None and payoffs.depend_on_rows:
                at_stake = inputs.pop()
                prior = None if prior is None else prior.for_payoffs(at_stake.cpu(), self._kept_labels.shares)
            if kept is not None:
                predicted = self.network.predict_by(kept[number // row_blocks], *inputs)  # type: ignore[attr-defined]
            else:
                parameters = self.parameters[indices[models].to(device)]
                if device.type == "cpu":
                    # Libraries round by the shape of a call: each has the same, so that no row or model depends on others.
                    parameters = filled_up(parameters, num_models)
                predicted = self.network.predict(parameters, *inputs)
            if self.payoffs is not None:
                shares = self._kept_labels.shares.to(device)
                predicted = unsmoothed(probabilities(predicted), shares, self._kept_labels.smoothing)
            if at_stake is not None:
                predicted = expected_rewards(predicted, at_stake)
            if prior is None or novelty is None:
                target.copy_(predicted[: target.shape[0], : target.shape[1]])
            else:
                count = slice(target.shape[0]), slice(target.shape[1])
                opinions = (
                    prior.opinions(indices[models].to(device), novelty, bounded=bounded)
                    if of_few is None
                    else of_few[models]
                )
                predicted = predicted.to(target.dtype)
                target.copy_((prior.bound(predicted) if bounded else predicted)[count])
                target += opinions[:, : target.shape[1]]
            tracker.report(number)

        size = calls.blocks_per_task

        def fill_some(task: int) -> None:
            for number in range(task * size, min((task + 1) * size, num_blocks)):
                fill(number)

        if device.type == "cpu":
            parallel_map(fill_some, -(-num_blocks // size))
        else:
            for number in range(num_blocks):
                fill(number)

    @cached_property
    def _has_short_calls(self) -> bool:
        """Whether calls with few rows give the same bits as calls with many, for this network on this machine."""
        rng, calls = np.random.default_rng(0), Calls.of(self.network)
        weights = torch.from_numpy(np.stack([self.network.init(rng) for _ in range(calls.block["cpu"][0])])).float()
        rows = torch.from_numpy(rng.normal(size=(calls.rows_per_call, math.prod(self.state_shape)))).float()
        return rounds_alike(partial(self.network.predict, weights), rows, calls.fewest_rows)

    def _is_everyone(self, indices: Tensor) -> bool:
        """Whether these are all models, in their order."""
        return len(indices) == self.num_models and torch.equal(indices, torch.arange(self.num_models))

    def _kept_layers(self) -> list[Any] | None:
        """Weights of all models in the form that `predict_by` takes, kept for the next call; None if they are large."""
        if self.parameters.nbytes > KEPT_BYTES or not hasattr(self.network, "layers_of"):
            return None
        size = Calls.of(self.network).block["cpu"][0]
        state = id(self.parameters), self.parameters._version, size
        if self._layers is None or self._layers[0] != state:
            blocks = [filled_up(block, size) for block in self.parameters.split(size)]
            self._layers = state, [self.network.layers_of(block) for block in blocks]
        return self._layers[1]

    def _with_held_out_results(self, same: RewardEnsemble) -> RewardEnsemble:
        """`same`, which has the same models, with the results on held-out states."""
        same.diagnosis, same.familiar, same.held_out = self.diagnosis, self.familiar, self.held_out
        return same

    @cached_property
    def _kept_labels(self) -> KeptLabels:
        """The labels, and how they were learned."""
        return kept_labels(self.settings)

    def held_out_results(self) -> dict[str, Any]:
        """Results on held-out states, as plain values for JSON."""
        diagnosis = None if self.diagnosis is None else self.diagnosis.describe()
        familiar = None if self.familiar is None else self.familiar.describe()
        return {name: part for name, part in (("diagnosis", diagnosis), ("familiar", familiar)) if part is not None}

    def save(self, folder: Path | str) -> None:
        """Write the belief into a folder: weights (safetensors), settings and results on held-out states (JSON).

        A save over another one leaves the old belief or the new one, whatever happens meanwhile.

        Raises:
            WriteError: The folder cannot be written to.
            FolderInUseError: Another process is saving there.
        """
        path = as_folder(folder)
        described = {"format": FORMAT, "network": self.network.name, **self.network.describe()}
        described |= {"settings": self.settings, **self.held_out_results()}
        if self.prior is not None:
            described["prior"] = {"width": self.prior.width}
        if self.payoffs is not None and self.payoffs.function is not None:
            name = self.settings[PAYOFFS_KEPT_AS]["function"]
            raise InvalidInputError(
                f"payoffs: the function {name!r} cannot be saved, since a file holds no code. Save the belief with payoffs of "
                "a table, belief.with_payoffs(table).save(folder), and call with_payoffs(function) on what you load."
            )
        weights = Part.of({"parameters": self.parameters, "losses": self.losses})
        prior = None if self.prior is None else Part.of(self.prior.tensors())
        held_out = None if self.held_out is None else Part.of({"states": self.held_out.states})
        save_parts(path / DESCRIPTION, described, {WEIGHTS: weights, PRIOR: prior, HELD_OUT: held_out})

    @classmethod
    def load(cls, folder: Path | str, network: Network | Callable[[], torch.nn.Module] | None = None) -> RewardEnsemble:
        """The belief that `save` wrote, or one that comes with the package; no code from a file is run.

        Args:
            folder: Where it was saved; or "ask-for-help" or "driving", two beliefs trained at the paper's settings.
            network: For a network of one's own: the function that makes the module, or the `Network` itself. A file does not
                hold its code.

        Raises:
            MissingFileError: There is no belief.
            BadFileError: A file is damaged, or describes another network than `network`.
        """
        folder = shipped_folder(folder)
        return reading(folder, lambda: cls._read(folder, network))

    @classmethod
    def _read(cls, folder: Path, network: Network | Callable[[], torch.nn.Module] | None) -> RewardEnsemble:
        path = folder / DESCRIPTION
        described = load_json(path)
        if (
            not isinstance(described, dict)
            or described.get("format") != FORMAT
            or not isinstance(described.get("settings"), dict)
        ):
            raise BadFileError(f"{path}: not an ensemble that this version reads (format {FORMAT}, with settings).")
        architecture, settings = restored(described, path, network), described["settings"]
        parameters, losses = _load_models(folder, described, architecture.num_parameters)
        payoffs = _load_payoffs(settings, architecture.num_actions)
        num_actions = architecture.num_actions if payoffs is None else payoffs.num_actions
        sizes = len(parameters), math.prod(architecture.state_shape), num_actions
        prior = _load_prior(folder, described, sizes)
        belief = cls(architecture, parameters, losses, settings, prior=prior, payoffs=payoffs)
        if payoffs is not None:
            belief.held_out = _load_held_out(folder, described, architecture.state_shape)
        try:
            belief.diagnosis = Diagnosis.read(described.get("diagnosis"))
            belief.familiar = FamiliarDisagreement.read(described.get("familiar"))
        except InvalidInputError as error:
            raise BadFileError(f"{path}: {error}") from None
        return belief


def _load_models(folder: Path, described: Mapping[str, Any], num_parameters: int) -> tuple[Tensor, Tensor]:
    """Weights [M, P] and losses [M], as float32."""
    path, expected = part_of(folder, described, WEIGHTS)
    tensors = load_tensors(path, expected, checked=expected is None)
    parameters, losses = (pick(tensors, name, path) for name in ("parameters", "losses"))
    if parameters.dim() != 2 or parameters.shape[1] != num_parameters or not len(parameters):
        raise BadFileError(f"{path}: parameters have shape {list(parameters.shape)}, expected [M, {num_parameters}].")
    if losses.shape != parameters.shape[:1] or not losses.is_floating_point():
        raise BadFileError(f"{path}: losses have shape {list(losses.shape)}, expected one number per model.")
    if not parameters.is_floating_point() or not bool(torch.isfinite(parameters.float()).all()):
        raise BadFileError(f"{path}: some weights are not finite numbers.")
    return parameters.float(), losses.float()


def _load_prior(folder: Path, described: Mapping[str, Any], sizes: tuple[int, int, int]) -> Prior | None:
    """The prior for `sizes` (M, F, A); None where the models have none."""
    prior = described.get("prior")
    if prior is None:
        return None
    if not isinstance(prior, dict) or not 0 <= as_number(prior.get("width")) < math.inf:
        raise BadFileError(f"{folder / DESCRIPTION}: prior must be a width, zero or larger.")
    path, expected = part_of(folder, described, PRIOR)
    return Prior.read(float(prior["width"]), load_tensors(path, expected), sizes, path)


def _load_payoffs(settings: Mapping[str, Any], num_labels: int) -> Payoffs | None:
    """The payoffs of models that predict labels, of which the network knows so many; None of others."""
    if settings.get(LABELS_KEPT_AS) is None:
        return None
    labels = kept_labels(settings).names
    if len(labels) != num_labels:
        raise BadFileError(f"belief: its network predicts {num_labels} labels, and {len(labels)} are named.")
    return Payoffs.restored(settings.get(PAYOFFS_KEPT_AS), labels)


def _load_held_out(folder: Path, described: Mapping[str, Any], state_shape: tuple[int, ...]) -> HeldOut | None:
    """States that were held out; None where none were."""
    path, expected = part_of(folder, described, HELD_OUT)
    if expected is None and not path.exists():
        return None
    states = pick(load_tensors(path, expected), "states", path)
    if tuple(states.shape[1:]) != tuple(state_shape) or not len(states) or not bool(states.float().isfinite().all()):
        raise BadFileError(f"{path}: expected states {list(state_shape)} of finite numbers, got {list(states.shape)}.")
    return HeldOut(states)


def shipped_folder(folder: Path | str) -> Path:
    """The folder of a belief; a name in `SHIPPED` means the folder in the package, unless a folder here has that name."""
    path = as_path(folder, "folder")
    if str(path) not in SHIPPED or (path / DESCRIPTION).exists():
        return path
    if path.exists():  # a user's folder of that name: do not load the shipped belief in its place
        raise MissingFileError(
            f"{path}: this folder exists but contains no belief (no {DESCRIPTION}). To load the belief in the package, rename "
            "the folder or run elsewhere."
        )
    package = find_spec(SHIPPED[str(path)])  # found without running it
    if package is None or not package.submodule_search_locations:
        raise MissingFileError(f"{path}: the package {SHIPPED[str(path)]}, which holds this belief, is not installed.")
    return Path(package.submodule_search_locations[0]) / "shipped" / path


def _few(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:6]) + (f", ... {len(names) - 6} more" if len(names) > 6 else "")


def _plain(settings: Any) -> dict[str, Any]:
    """`settings`, checked to be plain values that a JSON file can hold."""
    try:
        if not isinstance(settings, Mapping):
            raise TypeError(f"got a {type(settings).__name__}")
        json.dumps(dict(settings), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"settings: expected a dictionary of plain values ({error}).") from None
    return dict(settings)
