"""Microseconds a model-step of training image networks on one GPU: the usual ways, and ours, stage by stage.

python -m benchmarks.image_training [--models 64 256 1024]      a minute or two
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.image_networks import CompiledStack, as_inputs, first_weights, vmapped_step
from cautious.beliefs.training.adam import adam_step
from cautious_paper.experiments.store import provenance_line
from cautious_paper.kernels.image.step import FusedImageStep
from cautious_paper.kernels.image.tuning import KernelVariant, supported_variants
from cautious_paper.networks.image import LEARNING_RATE
from cautious_paper.timing.plain import plain_image_network

BATCH, ACTIONS = 512, 11
USEFUL_FLOP = {
    "convolve 1": 22 * 22 * 64 * 16 * 2 * BATCH,
    "convolve 2": 8 * 8 * 16 * 1024 * 2 * BATCH,
    "linear layers": 3 * (256 * 50 + 50 * 15 + 15 * ACTIONS) * 2 * BATCH,
    "convolutions' gradients": (2 * 8 * 8 * 16 * 1024 + 22 * 22 * 64 * 16) * 2 * BATCH,
}
USEFUL_FLOP["both convolutions"] = USEFUL_FLOP["convolve 1"] + USEFUL_FLOP["convolve 2"]
"""Of one model-step, counting only outputs that pooling keeps and the second convolution needs."""

PIXELS, MAP, FEATURES, SLOPES = 784 * 2, 121 * 64 * 2, 256 * 2, 64 * 16 * 2


def median_microseconds(run: Callable[[], object], repeats: int = 11) -> float:
    """Median time of one call on the GPU, after three calls to warm up."""
    for _ in range(min(3, repeats)):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return 1e3 * sorted(start.elapsed_time(end) for start, end in events)[repeats // 2]


def least_bytes(kernels: FusedImageStep) -> dict[str, int]:
    """Through device memory in one model-step, by stage: every input once, every output once."""
    space = kernels._workspace(1, BATCH)
    parameters = kernels.network.num_parameters * 4

    def one_model(*tensors: Tensor) -> int:
        return sum(tensor[0].nbytes for tensor in tensors)

    windows = (
        0 if kernels.variant is KernelVariant.HOPPER else 4 * 16 * 1024 * 2
    )  # conv2's weights at four offsets each
    return {
        "pack": parameters + one_model(space.weights_1, space.weights_2t, space.packed) + windows,
        "gather": (PIXELS // 2 + PIXELS) * BATCH,
        "convolve 1": (PIXELS + MAP) * BATCH,
        "convolve 2": (MAP + FEATURES) * BATCH,
        "both convolutions": (PIXELS + MAP + FEATURES) * BATCH,
        "linear layers": (2 * FEATURES + SLOPES) * BATCH,
        "convolutions' gradients": (MAP + SLOPES + PIXELS) * BATCH,
        "collect": one_model(space.conv1_partials, space.conv2_partials, space.dense_partials) + parameters,
        "Adam": 7 * parameters,
    }


def random_batches(num_models: int, num_samples: int) -> Tensor:
    """Distinct samples for each model, [M, 512]."""
    keys = torch.rand(num_models, num_samples, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    return keys.argsort(dim=1)[:, :BATCH].contiguous()


def usual_ways(images: Tensor, rewards: Tensor, counts: list[int]) -> Iterator[str]:
    """Lines for one network after another, vmap, and unfold with batched products and torch.compile.

    Stacks are of as many networks as fit the card's memory with room to spare; more networks take turns.
    """
    batch = random_batches(64, 4096)

    def plain_step() -> Callable[[], None]:
        network = plain_image_network(ACTIONS).cuda()
        optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

        def step() -> None:
            optimiser.zero_grad()
            (network(as_inputs(images[batch[0]])) - rewards[batch[0]]).square().mean().backward()
            optimiser.step()

        return step

    def vmap_step() -> Callable[[], None]:
        stacked = vmapped_step(32, ACTIONS, LEARNING_RATE)
        return lambda: stacked(images[batch[:32]], rewards[batch[:32]])

    def compiled_step() -> Callable[[], object]:
        stack = CompiledStack(first_weights(32, ACTIONS).cuda(), ACTIONS, LEARNING_RATE)
        return lambda: stack.step(images[batch[:32]], rewards[batch[:32]])

    ways: dict[str, tuple[Callable[[], Callable[[], object]], int]] = {
        "one network after another, eager float32": (plain_step, 1),
        "torch.func.vmap, 32 at a time, float32": (vmap_step, 32),
        "unfold + bmm + torch.compile, 32 at a time, TF32": (compiled_step, 32),
    }
    for name, (make, width) in ways.items():
        yield _row(name, [_in_turns(make, count, width) for count in counts], counts)


def _in_turns(make: Callable[[], Callable[[], object]], count: int, width: int) -> float:
    """Microseconds a model-step of `count` networks, `width` of them at a time."""
    gc.collect()
    torch.cuda.empty_cache()
    steps = [make() for _ in range(max(1, count // width))]

    def all_of_them() -> None:
        for step in steps:
            step()

    return median_microseconds(all_of_them, repeats=3) / (len(steps) * width)


def _row(name: str, times: list[float], counts: list[int]) -> str:
    return f"  {name:<50}" + "".join(f"{time:9.2f} ({count:,})" for time, count in zip(times, counts, strict=True))


class OurStep:
    """Parameters, moments and kernels of M models on random batches."""

    def __init__(self, num_models: int, images: Tensor, rewards: Tensor, variant: str) -> None:
        """Take random first weights."""
        self.kernels = FusedImageStep(images, rewards, variant=variant)
        self.parameters = first_weights(num_models, ACTIONS).cuda()
        self.moments = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)
        self.batch = random_batches(num_models, 4096)
        self.gradient = torch.empty_like(self.parameters)

    def adam(self) -> None:
        """One step of Adam with the gradient at hand."""
        adam_step(self.parameters, self.gradient, *self.moments, step=10, learning_rate=LEARNING_RATE)

    def whole(self) -> None:
        """Loss, gradient and Adam."""
        _, self.gradient = self.kernels.loss_and_gradient(self.parameters, self.batch)
        self.adam()


def ours(images: Tensor, rewards: Tensor, counts: list[int]) -> Iterator[str]:
    """Lines for each variant and number of models."""
    for variant in supported_variants(torch.device("cuda")):
        times = [median_microseconds(OurStep(count, images, rewards, variant).whole) / count for count in counts]
        yield _row(f"ours, {variant}", times, counts)


def by_stage(images: Tensor, rewards: Tensor, variant: str, num_models: int = 256) -> Iterator[str]:
    """Lines with microseconds a model, useful TFLOP/s and least GB/s of each stage, beside what this GPU reaches."""
    left = torch.randn(8192, 8192, device="cuda").half()
    rate = 2 * 8192**3 / median_microseconds(lambda: left @ left) / 1e6
    block = torch.empty(2**30, device="cuda", dtype=torch.float32)
    copy = 2 * block.numel() * 2 / median_microseconds(lambda: block[: 2**29].copy_(block[2**29 :])) / 1e3
    yield f"stage by stage, {variant}, {num_models} networks (this GPU: {rate:.0f} TFLOP/s in float16, {copy:.0f} GB/s copying)"
    step = OurStep(num_models, images, rewards, variant)
    step.whole()
    losses = torch.empty(num_models, device="cuda")
    stages = step.kernels.stages(step.parameters, step.batch, step.batch, losses, step.gradient) | {"Adam": step.adam}
    total, work, least = 0.0, 0, least_bytes(step.kernels)
    for name, run in stages.items():
        time = median_microseconds(run) / num_models
        total, work = total + time, work + USEFUL_FLOP.get(name, 0)
        flops = USEFUL_FLOP.get(name, 0) / time / 1e6
        speed = least[name] / time / 1e3
        yield f"  {name:<24} {time:6.2f} µs {flops:6.0f} TFLOP/s ({flops / rate:4.0%}) {speed:6.0f} GB/s ({speed / copy:4.0%})"
    yield f"  {'sum':<24} {total:6.2f} µs {work / total / 1e6:6.0f} TFLOP/s"


def main() -> None:
    """Print the GPU, then one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=[64, 256, 1024])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.image_training needs a CUDA device.")
    print(f"{provenance_line()}, batch {BATCH}")
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60_000, 28, 28), generator=generator, dtype=torch.uint8).cuda()
    rewards = torch.rand(60_000, ACTIONS, generator=generator).cuda()
    print("microseconds a model-step (loss, gradient and Adam), by number of networks")
    for line in tables(images, rewards, options.models):
        print(line, flush=True)


def tables(images: Tensor, rewards: Tensor, counts: list[int]) -> Iterator[str]:
    """All lines of the timing table."""
    yield from ours(images, rewards, counts)
    for variant in supported_variants(torch.device("cuda"))[1:]:
        yield from by_stage(images, rewards, variant)
    yield from usual_ways(images, rewards, counts)


if __name__ == "__main__":
    main()
