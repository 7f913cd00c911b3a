"""The image network in plain PyTorch and float64, one model at a time: what the fused kernels are held against."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def shapes(num_actions: int, has_help_bit: bool) -> list[tuple[int, ...]]:
    inputs = 257 if has_help_bit else 256
    layers = [(64, 1, 4, 4), (64,), (16, 64, 4, 4), (16,), (50, inputs), (50,), (15, 50), (15,)]
    return [*layers, (num_actions, 15), (num_actions,)]


def random_parameters(num_models: int, num_actions: int, has_help_bit: bool, generator: torch.Generator) -> Tensor:
    """PyTorch's default initialisation, flat, [M, P], float32."""
    parts = []
    for weight, bias in zip(*[iter(shapes(num_actions, has_help_bit))] * 2, strict=True):
        fan_in = weight.numel() // weight[0] if isinstance(weight, Tensor) else torch.Size(weight[1:]).numel()
        for shape in (weight, bias):
            size = torch.Size(shape).numel()
            parts.append((torch.rand(num_models, size, generator=generator) * 2 - 1) / fan_in**0.5)
    return torch.cat(parts, dim=1)


def predict(parameters: Tensor, images: Tensor, coins: Tensor | None, num_actions: int) -> Tensor:
    """One model's rewards: [P], uint8 [B, 28, 28], [B] or None -> [B, A]."""
    sizes = [torch.Size(shape) for shape in shapes(num_actions, coins is not None)]
    parts = parameters.split([size.numel() for size in sizes])
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = (part.view(size) for part, size in zip(parts, sizes, strict=True))
    x = images[:, None].to(parameters.dtype) / 255
    x = F.max_pool2d(F.conv2d(x, w1, b1), 2).relu()
    x = F.max_pool2d(F.conv2d(x, w2, b2), 2).relu().flatten(1)
    if coins is not None:
        x = torch.cat([x, coins[:, None].to(x.dtype)], dim=1)
    return F.linear(F.linear(F.linear(x, w3, b3).relu(), w4, b4).relu(), w5, b5)


def loss_and_gradient(
    parameters: Tensor, images: Tensor, tables: Tensor, loss_weights: Tensor, batch: Tensor, coins: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What `FusedImageStep.loss_and_gradient` should return, in float64; `tables` [1 or 2, S, A]."""
    flat = parameters.double().requires_grad_()
    losses = []
    for model in range(len(parameters)):
        own = None if coins is None else coins[model]
        table = torch.zeros_like(batch[model]) if own is None else own.long()
        target = tables[table, batch[model]].double()
        error = predict(flat[model], images[batch[model]], own, tables.shape[2]) - target
        squared = torch.where(target.isnan(), 0.0, error).square() * loss_weights.double()
        losses.append(squared.mean())
    stacked = torch.stack(losses)
    (gradient,) = torch.autograd.grad(stacked.sum(), flat)
    return stacked.detach(), gradient
