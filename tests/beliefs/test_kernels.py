"""Fused kernels against float64 automatic differentiation: in Triton's interpreter, on the CPU.

Run as a script (with TRITON_INTERPRET=1, which must be set before Triton is imported), this file computes every case of
the interpreter's tests and writes the results to the file it is given.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from cautious.validation import triton_available

needs_triton = pytest.mark.skipif(not triton_available(), reason="Triton is not installed")

SAME_ROUNDING = 5e-3
"""Relative error of each layer's gradient against float64 with the kernels' 16-bit operands: what is left are slopes
rounded to float16 (2⁻¹¹ each, a few in a row; 5e-4 measured) and, rarely, a unit whose sign float32 sums turn over."""

LOSS_ROUNDING = 1e-4
"""Relative error of a loss likewise: sums of float32, no slope in them."""


class Case(NamedTuple):
    num_models: int
    batch_size: int
    num_actions: int
    has_help_bit: bool

    @property
    def name(self) -> str:
        return "-".join(map(str, map(int, self)))


class Problem(NamedTuple):
    images: Tensor
    tables: Tensor
    loss_weights: Tensor
    parameters: Tensor
    batch: Tensor
    help_bits: Tensor | None

    def to(self, device: str) -> Problem:
        return Problem(*(None if part is None else part.to(device) for part in self))

    def models(self, chosen: slice) -> Problem:
        help_bits = None if self.help_bits is None else self.help_bits[chosen]
        return self._replace(parameters=self.parameters[chosen], batch=self.batch[chosen], help_bits=help_bits)


INTERPRETED = [Case(2, 5, 10, False), Case(1, 70, 11, True)]


def shapes(case: Case) -> list[tuple[int, ...]]:
    layers = [(64, 1, 4, 4), (64,), (16, 64, 4, 4), (16,), (50, 256 + case.has_help_bit), (50,), (15, 50), (15,)]
    return [*layers, (case.num_actions, 15), (case.num_actions,)]


def problem(case: Case, seed: int = 0) -> Problem:
    """PyTorch's default initialisation, random images, targets (one missing) and weights."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    num_samples = case.batch_size + 20
    images = (uniform(num_samples, 28, 28) * 256 * (uniform(num_samples, 28, 28) < 0.4)).to(torch.uint8)
    tables = uniform(1 + case.has_help_bit, num_samples, case.num_actions)
    tables[0, : num_samples // 2, 1] = torch.nan
    fan_in = [16, 16, 1024, 1024, 256, 256, 50, 50, 15, 15]
    parts = [
        (2 * uniform(case.num_models, torch.Size(shape).numel()) - 1) / n**0.5
        for n, shape in zip(fan_in, shapes(case), strict=True)
    ]
    order = [torch.randperm(num_samples, generator=generator)[: case.batch_size] for _ in range(case.num_models)]
    help_bits = uniform(case.num_models, case.batch_size) < 0.5 if case.has_help_bit else None
    return Problem(images, tables, 0.5 + uniform(case.num_actions), torch.cat(parts, 1), torch.stack(order), help_bits)


def straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the gradient of `value`."""
    return value + (rounded.to(value.dtype) - value).detach()


def pool(value: Tensor, as_kernels: bool, keep_offset: bool) -> Tensor:
    """2x2 max pool and ReLU; `as_kernels` rounds to float16 whose two lowest bits are the pool offset, or zero."""
    best, index = F.max_pool2d(value, 2, return_indices=True)
    best = best.relu()
    if not as_kernels:
        return best
    row, column = index // value.shape[3], index % value.shape[3]
    offset = (row % 2 * 2 + column % 2).to(torch.int16) if keep_offset else 0
    return straight_through(best, ((best.half().view(torch.int16) & -4) | offset).view(torch.float16))


def oracle(case: Case, given: Problem, as_kernels: bool) -> tuple[Tensor, Tensor]:
    """Losses [M] and gradient [M, P] in float64, with the kernels' 16-bit operands or without."""
    flat = given.parameters.double().requires_grad_()

    def cast(value: Tensor) -> Tensor:
        return straight_through(value, value.half()) if as_kernels else value

    sizes = [torch.Size(shape) for shape in shapes(case)]
    losses = []
    for model in range(case.num_models):
        parts = flat[model].split([size.numel() for size in sizes])
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = (part.view(size) for part, size in zip(parts, sizes, strict=True))
        samples = given.batch[model]
        bits = torch.zeros_like(samples) if given.help_bits is None else given.help_bits[model].long()
        x = F.conv2d(given.images[samples][:, None] / torch.tensor(256, dtype=flat.dtype), cast(w1 * (256 / 255)), b1)
        x = pool(F.conv2d(pool(x, as_kernels, True), cast(w2), b2), as_kernels, False).flatten(1)
        hidden = x @ cast(w3[:, :256]).T + b3 + bits[:, None] * w3[:, 256:].sum(dim=1)
        hidden = cast(F.linear(cast(hidden.relu()), cast(w4), b4).relu())
        target = given.tables[bits, samples].double()
        error = torch.where(target.isnan(), 0.0, F.linear(hidden, cast(w5), b5) - target)
        losses.append((error.square() * given.loss_weights.double()).mean())
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), flat)
    return torch.stack(losses).detach(), gradient


def fused(case: Case, given: Problem, variant: str = "auto", max_models: int = 256) -> tuple[Tensor, Tensor]:
    from cautious_paper.kernels.image.step import FusedImageStep

    targets = given.tables if case.has_help_bit else given.tables[0]
    options = {"has_help_bit": case.has_help_bit, "variant": variant, "max_models": max_models}
    step = FusedImageStep(given.images, targets, given.loss_weights, **options)
    return step.loss_and_gradient(given.parameters, given.batch, given.help_bits)


def assert_close(case: Case, found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], tolerance: float) -> None:
    torch.testing.assert_close(found[0].double(), wanted[0], rtol=LOSS_ROUNDING, atol=0)
    sizes = [torch.Size(shape).numel() for shape in shapes(case)]
    for own, true, shape in zip(
        found[1].double().split(sizes, 1), wanted[1].split(sizes, 1), shapes(case), strict=True
    ):
        error = ((own - true).norm() / true.norm()).item()
        assert error < tolerance, f"gradient of the layer of shape {shape}: relative error {error:.1e}"


def adam_pair(device: str) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters and moments after three steps with weight decay: the fused kernel's, and the engine's."""
    from cautious.beliefs.training.adam import adam_step
    from cautious.beliefs.training.loop import adam_step as plain_step
    from cautious.beliefs.training.state import TrainState

    generator = torch.Generator().manual_seed(1)
    weights, *gradients = (torch.randn(3, 1111, generator=generator).to(device) for _ in range(4))
    own = [weights.clone(), torch.zeros_like(weights), torch.zeros_like(weights)]
    names = ("parameters", "first_moment", "second_moment")
    tensors = dict(zip(names, (part.clone() for part in own), strict=True)) | {"losses": torch.zeros(3, device=device)}
    shard = TrainState(range(3), tensors, 0, torch.device(device))
    for step, gradient in enumerate(gradients, start=1):
        adam_step(own[0], gradient, *own[1:], step=step, learning_rate=1e-2, weight_decay=1e-3)
        plain_step(shard, gradient.clone(), step, 1e-2, 1e-3)
    return own, [getattr(shard, name) for name in names]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory) -> dict[str, Tensor]:
    """What the kernels give in Triton's interpreter, in a process of its own."""
    path = tmp_path_factory.mktemp("kernels") / "results.safetensors"
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, Path(__file__), path], check=True, env=environment)
    return load_file(path)


@needs_triton
@pytest.mark.parametrize("case", INTERPRETED, ids=lambda case: case.name)
def test_interpreted_kernels_match_float64(interpreted, case):
    found = interpreted[f"{case.name}/losses"], interpreted[f"{case.name}/gradient"]
    assert_close(case, found, oracle(case, problem(case), as_kernels=True), SAME_ROUNDING)


@needs_triton
def test_interpreted_adam_is_the_engines(interpreted):
    for i in range(3):  # float32 in another order of operations
        torch.testing.assert_close(interpreted[f"adam/{i}"], interpreted[f"engine/{i}"], rtol=1e-5, atol=1e-7)


@needs_triton
def test_interpreted_encoding_is_its_definition(interpreted):
    import encoding_cases

    encoding_cases.check({name: interpreted[f"encoding/{name}"] for name in ("codes", "parts")})


@needs_triton
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes the CPU")
def test_a_cpu_is_refused_with_a_way_out():
    case = INTERPRETED[0]
    with pytest.raises(ValueError, match="need a GPU"):
        fused(case, problem(case))


if __name__ == "__main__":
    import encoding_cases

    results = {f"encoding/{name}": tensor for name, tensor in encoding_cases.run("cpu", ptx=False).items()}
    for each in INTERPRETED:
        results[f"{each.name}/losses"], results[f"{each.name}/gradient"] = fused(each, problem(each))
    own, plain = adam_pair("cpu")
    results |= {f"adam/{i}": part for i, part in enumerate(own)} | {f"engine/{i}": part for i, part in enumerate(plain)}
    save_file(results, sys.argv[1])
