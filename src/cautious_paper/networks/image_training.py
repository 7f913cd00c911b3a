"""Training the image network: its data and loss, and what `fit_ensemble(network="image")` does with images and pictures."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.diagnostics import BeliefWarning
from cautious.beliefs.labels import cross_entropy
from cautious.beliefs.training.state import BatchLoss, MiniBatch, checked_loss_weights, checked_rewards, squared_error
from cautious.errors import InvalidInputError
from cautious.io.arrays import fingerprint_of
from cautious.tables.arrays import PICTURES_KEPT_AS, as_grey, picture_shape
from cautious.validation import as_float_tensor, check_shape, triton_available
from cautious_paper.networks.image import LEARNING_RATE, SIDE, ImageNetwork, as_images

if TYPE_CHECKING:
    from cautious_paper.kernels.image.step import FusedImageStep

CHUNK = {"cpu": 64, "cuda": 512}
"""Images of a batch that go through the network together: on the CPU as many as its caches hold. It decides the order of
summing, so it is the same however many models train together."""


class ImageTrainingProblem:
    """The stacked network with images and rewards as its training data (`cautious.beliefs.training.state.TrainingProblem`)."""

    name = ImageNetwork.name
    shard_size: Mapping[str, int] = MappingProxyType({"cpu": 2, "cuda": 256})
    models_per_call = 1  # one model's convolutions are also quicker than those of two side by side
    train_epochs = None

    def __init__(
        self,
        images: Any,
        rewards: Any,
        loss_weights: Any = None,
        device: torch.device | None = None,
        kernels: str = "auto",
        loss: BatchLoss = squared_error,
    ) -> None:
        """Take the training data.

        Args:
            images: [S, 28, 28], bytes, or numbers from 0 to 1.
            rewards: What each action pays on each image, [S, A]; or [2, S, A], without and with help available: then the
                network has a help bit, drawn fairly for each image in each epoch. NaN where nothing is known: no loss.
            loss_weights: Weight of each action in the loss, [A]; all 1 if not given.
            device: Where to keep them.
            kernels: How to compute on a GPU: "auto" takes the fused kernels where Triton is installed, "plain" never, and
                any name of `kernels.image.tuning.KernelVariant` that one.
            loss: Of a batch. The fused kernels know the squared error only; with another loss `kernels` is "plain".
        """
        self._images = as_images(images).to(device)
        table = checked_rewards(rewards).float()
        if table.dim() not in (2, 3) or (table.dim() == 3 and len(table) != 2):
            raise InvalidInputError(f"rewards: expected shape [S, A] or [2, S, A], got {list(table.shape)}.")
        check_shape(table, "... S A", "rewards", S=len(self._images))
        self.network = ImageNetwork(table.shape[-1], help_bit=table.dim() == 3)
        self._rewards = table.reshape(-1, *table.shape[-2:]).to(device)
        self._loss_weights = checked_loss_weights(loss_weights, table.shape[-1]).to(device)
        self.num_samples = len(self._images)
        self.num_parameters = self.network.num_parameters
        self.uses_help_bit = self.network.help_bit
        self.fingerprint = fingerprint_of(self._images, self._rewards, self._loss_weights)
        self._batch_loss = loss
        if loss is not squared_error:
            self.name, kernels = f"{ImageNetwork.name}, {loss.__name__}", "plain"
        self._kernels = kernels
        self._fused = self._fused_step() if self._images.is_cuda and kernels != "plain" else None

    def to(self, device: torch.device) -> ImageTrainingProblem:
        """The same on `device`."""
        if self._images.device.type == device.type:
            return self
        return ImageTrainingProblem(
            self._images, self._table(), self._loss_weights, device, self._kernels, self._batch_loss
        )

    @property
    def mean_reward_loss(self) -> float:
        """The loss of always predicting each action's mean reward: what a model has that learned nothing of the images."""
        table = self._rewards.flatten(0, 1)
        constant = table.nanmean(dim=0).nan_to_num().expand_as(table)
        return float(squared_error(constant, table, self._loss_weights, len(table))[0])

    def _table(self) -> Tensor:
        return self._rewards if self.network.help_bit else self._rewards[0]

    def _fused_step(self) -> FusedImageStep | None:
        """The fused kernels, where Triton is installed."""
        if not triton_available():
            return None
        from cautious_paper.kernels.image.step import FusedImageStep

        bit, most, variant = self.network.help_bit, self.shard_size["cuda"], self._kernels
        return FusedImageStep(
            self._images, self._table(), self._loss_weights, has_help_bit=bit, max_models=most, variant=variant
        )

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, [P]."""
        return self.network.init(rng)

    def loss_and_gradient(self, parameters: Tensor, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        """Weighted mean loss of each model on its own batch, and its gradient: [M, P], [M, B] -> [M], [M, P].

        Unless another loss was given, loss = Σ_b Σ_a w_a (r̂(x_b, a) - r(x_b, a))² / (B A)
        """
        if self._fused is not None:
            return self._fused.loss_and_gradient(parameters, batch.samples, batch.help_bits)
        size = batch.samples.shape[1]
        losses = parameters.new_zeros(len(parameters))
        gradient = torch.zeros_like(parameters)
        for first in range(0, size, CHUNK[parameters.device.type]):
            part = slice(first, first + CHUNK[parameters.device.type])
            samples = batch.samples[:, part]
            help_bits = None if batch.help_bits is None else batch.help_bits[:, part]
            activations = self.network.forward(parameters, self._images[samples], help_bits)
            targets = self._rewards[0 if help_bits is None else help_bits, samples]  # [M, b, A]
            loss, slope = self._batch_loss(activations.predictions, targets, self._loss_weights, size)
            losses += loss
            gradient += self.network.backward(parameters, activations, slope)
        return losses, gradient


class ImageLearner:
    """How `fit_ensemble` learns from images (`cautious.beliefs.fit.Learner`)."""

    def as_inputs(self, inputs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Images [S, 28, 28] in bytes; pictures become such images, and the belief keeps their shape."""
        given = inputs if hasattr(inputs, "shape") else as_float_tensor(inputs, "inputs")
        shape = None if tuple(given.shape)[1:] == (SIDE, SIDE) else picture_shape(given)
        if shape is None:
            return as_images(inputs), {}
        if shape != (SIDE, SIDE, 1):
            warnings.warn(
                f"inputs: pictures {list(shape)} are learned from in grey, {SIDE} x {SIDE} pixels: colours and details are "
                "lost. If they matter, pass a network of your own (network=...).",
                BeliefWarning,
                stacklevel=4,  # past `fit_ensemble` and its wrapper
            )
        return as_images(as_grey(given)), {PICTURES_KEPT_AS: list(shape)}

    def learning_rate(self, states: Tensor) -> float:
        """The learning rate of the paper."""
        return LEARNING_RATE

    def prior(self, states: Tensor) -> float:
        """0: distances between images say little about novelty."""
        return 0.0

    def problem(
        self, states: Tensor, rewards: Tensor, loss_weights: Tensor | None, *, each_action: bool
    ) -> ImageTrainingProblem:
        """The network with images [S, 28, 28] and rewards [S, A]."""
        return ImageTrainingProblem(states, rewards, loss_weights)

    def label_problem(self, states: Tensor, targets: Tensor, loss_weights: Tensor | None) -> ImageTrainingProblem:
        """The network with images [S, 28, 28], whose outputs are the scores of labels."""
        return ImageTrainingProblem(states, targets, loss_weights, loss=cross_entropy)
