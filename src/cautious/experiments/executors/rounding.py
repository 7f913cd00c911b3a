"""Whether two machines round alike, told from a small computation.

Libraries choose their kernels, and with them the order of their sums, by the kind of CPU. Machines that differ in that give
results that differ in their last bits; no list of CPU names says which do, so it is tried.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
import torch

from cautious.beliefs.training.problems import ImageTrainingProblem
from cautious.beliefs.training.state import MiniBatch
from cautious.parallel import single_threaded


@functools.cache
@single_threaded
def rounding_fingerprint(device: str) -> str:
    """A digest of what a device makes of one step of an image network, products, a factorisation, sums and functions.

    Machines with the same digest round alike in all of these; on a GPU, whose kernels are our own, its name stands for it.
    """
    if device == "cuda":
        return torch.cuda.get_device_name()
    rng = np.random.default_rng(0)
    problem = ImageTrainingProblem(rng.integers(256, size=(64, 28, 28), dtype=np.uint8), rng.normal(size=(64, 11)))
    weights = torch.from_numpy(problem.init(rng).astype(np.float32))[None]
    matrix, rows = (torch.from_numpy(rng.normal(size=(size, 152))) for size in (152, 67))
    few = rows.float()
    results = [
        *problem.loss_and_gradient(weights, MiniBatch(torch.arange(64)[None])),
        rows @ matrix,
        few @ matrix.float(),
        torch.linalg.lu_factor(matrix).LU,
        few.sum(dim=1),
        few.sum(dim=0),
        few.tanh(),
        few.exp(),
        few.sin(),
    ]
    digest = hashlib.sha256()
    for result in results:
        digest.update(result.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
