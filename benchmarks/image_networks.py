"""The image network in the usual ways: one module, vmap over stacked modules, and unfold with batched products."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from cautious.seeding import make_rng
from cautious_paper.networks.image import ImageNetwork
from cautious_paper.timing.plain import plain_image_network


def as_inputs(images: Tensor) -> Tensor:
    """What one plain network takes: bytes [B, 28, 28] -> [B, 1, 28, 28]."""
    return images[:, None].float() / 255


def first_weights(num_models: int, num_actions: int) -> Tensor:
    """PyTorch's default initialisation, flat, [M, P]; model i is the same however many there are."""
    network = ImageNetwork(num_actions)
    return torch.tensor(
        np.stack([network.init(make_rng(0, "bench", i)) for i in range(num_models)]), dtype=torch.float32
    )


def vmapped_step(num_models: int, num_actions: int, learning_rate: float) -> Callable[[Tensor, Tensor], None]:
    """One step of M networks by `torch.func`, on images [M, B, 28, 28] and rewards [M, B, A]."""
    networks = [plain_image_network(num_actions).cuda() for _ in range(num_models)]
    weights, _ = stack_module_state(networks)
    optimiser = torch.optim.Adam(list(weights.values()), lr=learning_rate)

    def loss(own: dict[str, Tensor], images: Tensor, rewards: Tensor) -> Tensor:
        return (functional_call(networks[0], own, (as_inputs(images),)) - rewards).square().mean()

    def step(images: Tensor, rewards: Tensor) -> None:
        gradients, _ = vmap(grad_and_value(loss))(weights, images, rewards)
        for name, weight in weights.items():
            weight.grad = gradients[name].detach()
        optimiser.step()

    return step


def stacked_loss(parts: list[Tensor], images: Tensor, rewards: Tensor) -> Tensor:
    """Mean squared error of each model, [M], by unfold and batched products; images [M, B, 28, 28], rewards [M, B, A]."""
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = parts
    num_models, batch_size = images.shape[:2]
    patches = (images.float() / 255).unfold(2, 4, 1).unfold(3, 4, 1)[:, :, :24, :24].reshape(num_models, -1, 16)
    x = torch.baddbmm(b1[:, None], patches, w1.view(num_models, 64, 16).transpose(1, 2))
    x = x.view(num_models, batch_size, 12, 2, 12, 2, 64).amax((3, 5)).relu()
    patches = x.unfold(2, 4, 1).unfold(3, 4, 1)[:, :, :8, :8].reshape(num_models, -1, 1024)  # channel, row, column
    x = torch.baddbmm(b2[:, None], patches, w2.view(num_models, 16, 1024).transpose(1, 2))
    x = x.view(num_models, batch_size, 4, 2, 4, 2, 16).amax((3, 5)).relu()
    x = x.permute(0, 1, 4, 2, 3).reshape(num_models, batch_size, 256)
    for weight, bias in ((w3, b3), (w4, b4)):
        x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2)).relu()
    return (torch.baddbmm(b5[:, None], x, w5.transpose(1, 2)) - rewards).square().mean((1, 2))


@cache
def compiled_loss() -> Callable[[list[Tensor], Tensor, Tensor], Tensor]:
    """`stacked_loss`, compiled once for all stacks."""
    return torch.compile(stacked_loss)


class CompiledStack:
    """M networks by `stacked_loss` under torch.compile, TF32 products, float32 everywhere else, fused Adam."""

    def __init__(self, weights: Tensor, num_actions: int, learning_rate: float) -> None:
        """Take first weights [M, P]."""
        parts = ImageNetwork(num_actions).split(weights)
        self._parts = [part.clone(memory_format=torch.contiguous_format).requires_grad_() for part in parts.values()]
        self._optimiser = torch.optim.Adam(self._parts, lr=learning_rate, fused=True)
        self._loss = compiled_loss()

    def step(self, images: Tensor, rewards: Tensor) -> Tensor:
        """One step on images [M, B, 28, 28] and rewards [M, B, A]; losses [M]."""
        torch.backends.cuda.matmul.allow_tf32 = True
        losses = self._loss(self._parts, images, rewards)
        self._optimiser.zero_grad()
        losses.sum().backward()
        self._optimiser.step()
        torch.backends.cuda.matmul.allow_tf32 = False
        return losses.detach()
