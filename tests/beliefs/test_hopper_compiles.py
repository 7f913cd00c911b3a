"""Hopper kernels through Triton's compiler and NVIDIA's assembler, without a GPU: every matrix instruction is there.

An assembler has dropped products whose accumulators it took for zero, and has run others one after the other: neither is
an error, and the second does not show in results.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cautious.validation import triton_available

pytestmark = pytest.mark.skipif(not triton_available(), reason="Triton is not installed")

SIGNATURES = {
    "forward": {"pixels": [4, 4, 2, 64], "maps": [64, 64], "weights": [64, 64], "weights_1": "*fp16", "parameters": "*fp32",
                "features": "*i16", "num_parameters": "i32", "padded": "i32", "blocks": "i32", "num_warps": 4},
    "gradients": {"slopes": [128, 64], "maps": [64, 64], "pixels": [1, 4, 4, 64], "weights": [16, 64],
                  "conv2_partials": "*fp32", "conv1_partials": "*fp32", "BLOCKS": 0, "num_warps": 4},
}  # fmt: skip
"""What a kernel is given: blocks that are copied, pointers, numbers, and constants."""

MATRIX_INSTRUCTIONS = {
    # Left and right group: filter rows over the rows of the first map, four steps of 16 channels each; then four offsets
    # in each of the two groups of the first map.
    "forward": 2 * (1 + 2 + 3 + 5 * 4 + 3 + 2 + 1) * 4 + 2 * 4,
    # conv2's weights likewise, its full rows in one loop; then, in two groups and for one to four filter rows: its four
    # columns, or two of them at either edge, and four steps of 16 images for the biases and for each of four offsets.
    "gradients": (1 + 2 + 3 + 4 + 3 + 2 + 1) * 4 + 2 * ((1 + 2 + 3 + 4) * (4 + 2 + 2) + 4 * 5 * 4),
}


def described(block: list[int]) -> str:
    from triton.experimental.gluon import language as gl

    return f"tensordesc<fp16{block},{gl.NVMMASharedLayout(128, 16, rank=len(block))!r}>"


def assembled(kernel: str, constants: dict[str, int], cache: Path) -> tuple[str, str]:
    """Machine code of one kernel for compute capability 9.0, as text, and what the assembler remarks on it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    from cautious_paper.kernels.image import hopper, hopper_forward

    function = {"forward": hopper_forward._convolutions, "gradients": hopper._gradients}[kernel]
    given = SIGNATURES[kernel] | constants
    kinds = {name: described(kind) if isinstance(kind, list) else kind for name, kind in given.items()}
    signature = {name: kind if isinstance(kind, str) else "constexpr" for name, kind in kinds.items()}
    fixed = {(i,): kind for i, kind in enumerate(kinds.values()) if isinstance(kind, int)}
    multiples = [name == "padded" or str(kind).startswith("*") for name, kind in kinds.items()]
    aligned = {(i,): [["tt.divisibility", 16]] for i, multiple in enumerate(multiples) if multiple}
    source = GluonASTSource(function, signature, fixed, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "maxnreg": 128})
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    (cache / "kernel.ptx").write_text(compiled.asm["ptx"])
    command = [tools / "ptxas", "-v", "--gpu-name", "sm_90a", cache / "kernel.ptx", "-o", cache / "kernel.cubin"]
    remarks = subprocess.run(command, capture_output=True, text=True, check=True)
    code = subprocess.run(
        [tools / "cuobjdump", "-sass", cache / "kernel.cubin"], capture_output=True, text=True, check=True
    )
    return code.stdout, remarks.stdout + remarks.stderr


@pytest.mark.parametrize(
    ("kernel", "constants"),
    [
        ("forward", {}),
        pytest.param("forward", {"blocks": 1}, marks=pytest.mark.long),  # Triton takes a one for a constant
        ("gradients", {"BLOCKS": 1}),
        pytest.param("gradients", {"BLOCKS": 2}, marks=pytest.mark.long),
        pytest.param("gradients", {"BLOCKS": 4}, marks=pytest.mark.long),
    ],
)
def test_no_product_is_dropped_and_none_waits_for_another(kernel, constants, tmp_path, monkeypatch):
    import triton

    from cautious_paper.kernels.image.tuning import GLUON_COMPILED, GLUON_RUN

    if not triton.__version__.startswith((GLUON_RUN, GLUON_COMPILED)):
        pytest.skip(f"the Hopper kernels need Triton {GLUON_RUN}x or {GLUON_COMPILED}x, this is {triton.__version__}")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    code, remarks = assembled(kernel, constants, tmp_path)
    assert len(re.findall(r"HGMMA\.64x(?:64|16)x16", code)) == MATRIX_INSTRUCTIONS[kernel]
    assert "serialized" not in remarks
