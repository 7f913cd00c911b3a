"""Fused kernels on a GPU, every variant it can run: against float64, and the same bits whatever runs beside a model."""

from __future__ import annotations

import pytest
import torch
from test_kernels import SAME_ROUNDING, Case, Problem, adam_pair, assert_close, fused, needs_triton, oracle, problem
from torch import Tensor

FULL_PRECISION = 3e-2
"""Relative error of each layer's gradient against plain float64 at 512 images: 16-bit operands (2⁻¹¹; 2⁻⁹ for pooled
values) turn over some pool decisions between places of nearly the same value. Measured: 0.7 % at most, in conv1."""


ON_GPU = [
    Case(3, 512, 11, True),
    Case(2, 512, 10, False),
    Case(3, 96, 11, False),
    Case(2, 180, 12, False),
    Case(2, 24, 16, True),
    Case(2, 1, 3, False),
]


def maps_and_features(case: Case, given: Problem, variant: str) -> tuple[Tensor, Tensor]:
    """What both convolutions leave behind: the first map and the features, encoded, of every model."""
    from cautious_paper.kernels.image import launches
    from cautious_paper.kernels.image.layout import dense_size, padded_batch
    from cautious_paper.kernels.image.tuning import KernelVariant
    from cautious_paper.kernels.image.workspace import Workspace
    from cautious_paper.networks.image import ImageNetwork

    shape, chosen = ImageNetwork(case.num_actions, case.has_help_bit), KernelVariant(variant)
    padded = padded_batch(case.batch_size)
    space = Workspace(case.num_models, padded, dense_size(shape) + 1, chosen, given.images.device)
    launches.pack(space, given.parameters, shape, chosen)
    launches.gather(space, given.images, given.batch)
    if chosen is KernelVariant.HOPPER:
        launches.convolutions(space, given.parameters)
    else:
        launches.convolve_1(space, given.parameters, chosen)
        launches.convolve_2(space, given.parameters, chosen)
    return space.map_1, space.features


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@needs_triton
class TestOnGPU:
    @pytest.fixture(params=["portable", "ptx", "hopper"])
    def variant(self, request) -> str:
        from cautious_paper.kernels.image.tuning import supported_variants

        if request.param not in supported_variants(torch.device("cuda")):
            pytest.skip(f"this device does not run {request.param!r}")
        return request.param

    @pytest.mark.parametrize("case", ON_GPU, ids=lambda case: case.name)
    def test_loss_and_gradient_match_float64(self, variant, case):
        given = problem(case).to("cuda")
        assert_close(case, fused(case, given, variant), oracle(case, given, as_kernels=True), SAME_ROUNDING)

    def test_sixteen_bit_operands_stay_near_full_precision(self, variant):
        given = problem(ON_GPU[0]).to("cuda")
        assert_close(ON_GPU[0], fused(ON_GPU[0], given, variant), oracle(ON_GPU[0], given, False), FULL_PRECISION)

    @pytest.mark.parametrize("case", ON_GPU[:3], ids=lambda case: case.name)
    def test_the_same_bits_alone_and_among_others(self, variant, case):
        given = problem(case).to("cuda")
        losses, gradient = fused(case, given, variant)
        in_parts = fused(case, given, variant, max_models=2)
        assert torch.equal(in_parts[0], losses)
        assert torch.equal(in_parts[1], gradient)
        for model in range(case.num_models):
            alone = fused(case, given.models(slice(model, model + 1)), variant)
            assert torch.equal(alone[0][0], losses[model])
            assert torch.equal(alone[1][0], gradient[model])

    @pytest.mark.parametrize("batch", [128, 256])
    def test_the_same_bits_in_many_repeats_of_a_full_device(self, variant, batch):
        case = Case(200, batch, 11, False)  # enough programs to run beside and after each other, in ever new orders
        given = problem(case).to("cuda")
        runs = [fused(case, given, variant) for _ in range(50)]
        assert all(torch.equal(losses, runs[0][0]) and torch.equal(gradient, runs[0][1]) for losses, gradient in runs)

    @pytest.mark.parametrize("case", ON_GPU, ids=lambda case: case.name)
    def test_both_convolutions_at_once_have_the_bits_of_one_after_the_other(self, case):
        from cautious_paper.kernels.image.tuning import supported_variants

        if "hopper" not in supported_variants(torch.device("cuda")):
            pytest.skip("this device does not run 'hopper'")
        given = problem(case).to("cuda")
        at_once, in_turn = (maps_and_features(case, given, variant) for variant in ("hopper", "ptx"))
        assert torch.equal(at_once[0], in_turn[0])
        assert torch.equal(at_once[1], in_turn[1])

    @pytest.mark.parametrize("ptx", [False, True])
    def test_encoding_is_its_definition(self, ptx):
        import encoding_cases

        encoding_cases.check(encoding_cases.run("cuda", ptx))

    def test_adam_is_the_engines(self):
        for own, plain in zip(*adam_pair("cuda"), strict=True):
            torch.testing.assert_close(own, plain, rtol=1e-5, atol=1e-7)
