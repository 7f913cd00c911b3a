"""Matrix products and LU solves over a batch, in which no member's bits depend on the rest of the batch.

k-of-N ranks returns, near an optimum many of them tie, and one flipped last bit then moves a policy. BLAS rounds by the
shape and the alignment of its operands, so on the CPU every call here has one fixed width and 64-byte aligned rows.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor

from cautious.parallel import parallel_map

BLOCK = 4
"""Batch members per CPU product; a shorter block is filled up with zeros, so that every product has this width."""

TASK_ENTRIES = 2**22
"""Entries of a matrix that one thread multiplies at a time: some milliseconds, so that starting a thread costs little."""

BATCHED_LU_SIZE = 128
"""Sparse worlds of at most this many states are factorised as dense ones, which is quicker."""

PARALLEL_LU_SIZE = 512
"""From this size on systems are factorised in parallel; smaller ones take less time than it takes to start a thread."""

FULLEST_SPARSE_LU = 0.2
"""Share of entries up to which sparse factors are used; beyond, they cost about what dense ones do."""

MIXING_TOLERANCE = 4e-15
"""How constant a term of the Neumann series must be, relative to the first; values are then off by about that share."""

MIXING_STEPS = 200
"""Most products before a chain is taken not to mix."""

LARGEST_DENSE = 20_000
"""Worlds of more states are not factorised densely, which would take more than 3 GB; nor are factors tried where a chain
mixes."""


def padded_size(size: int, itemsize: int = 8) -> int:
    """`size` rounded up to whole 64-byte lines."""
    line = 64 // itemsize
    return -(-size // line) * line


def sparse_tensor(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The sparse tensor with `values` [Z] at `indices` [dimensions, Z], values at equal indices summed; indices are checked.

    By the context manager, not by the argument for it: some versions of torch warn in spite of the argument.
    """
    with torch.sparse.check_sparse_tensor_invariants():
        return torch.sparse_coo_tensor(indices, values, shape).coalesce()


class BatchMatrix:
    """A fixed matrix [m, n] to be multiplied by batches of vectors from either side."""

    def __init__(self, matrix: Tensor) -> None:
        """Keep `matrix` [m, n]; copied only where its rows or their number do not fill whole 64-byte lines."""
        self.shape = (matrix.shape[0], matrix.shape[1])
        padded = [padded_size(size, matrix.element_size()) for size in self.shape]
        aligned = matrix.is_contiguous() and matrix.data_ptr() % 64 == 0
        if matrix.is_cuda or (aligned and padded == list(self.shape)):
            self._matrix = matrix
        else:
            self._matrix = matrix.new_zeros(padded)
            self._matrix[: self.shape[0], : self.shape[1]] = matrix

    def dot(self, vectors: Tensor, width: int = BLOCK) -> Tensor:
        """Row by row inner products: [B, n] -> [B, m]; bits depend on `width`, the members a product takes at a time."""
        return self._multiply(vectors, self._matrix.T, width)[:, : self.shape[0]]

    def combine(self, weights: Tensor) -> Tensor:
        """Weighted sums of rows: [B, m] -> [B, n]."""
        return self._multiply(weights, self._matrix, BLOCK)[:, : self.shape[1]]

    @staticmethod
    def _multiply(left: Tensor, right: Tensor, width: int) -> Tensor:
        left = left.to(right.dtype)
        if right.is_cuda:
            return left @ right
        num_blocks = -(-left.shape[0] // width)
        # BLAS picks its algorithm by the shape of the operands: blocks of one width round alike in any batch.
        filled = left.new_zeros(num_blocks * width, right.shape[0])
        filled[: left.shape[0], : left.shape[1]] = left
        # A large matrix is cut into pieces of a size that does not depend on the number of threads, for whichever are there.
        columns = padded_size(max(1, TASK_ENTRIES // right.shape[0]))
        pieces = right.split(columns, dim=1)
        blocks = filled.split(width)
        products = parallel_map(lambda number: torch.cat([block @ pieces[number] for block in blocks]), len(pieces))
        return (products[0] if len(products) == 1 else torch.cat(products, dim=1))[: left.shape[0]]


class DenseLU:
    """LU factors of a batch of square systems [B, S, S]."""

    def __init__(self, systems: Tensor) -> None:
        """Factorise every system of the batch."""
        self._size = systems.shape[-1]
        padded = self._size if systems.is_cuda else padded_size(self._size)
        if padded != self._size:  # an identity block leaves the solution as it is
            filled = torch.eye(padded, dtype=systems.dtype).expand(len(systems), -1, -1).clone()
            filled[:, : self._size, : self._size] = systems
            systems = filled
        if systems.is_cuda:
            self._factors = [torch.linalg.lu_factor(systems)]
        elif padded < PARALLEL_LU_SIZE:  # one call per system: a batched one may round by the size of the batch
            self._factors = [torch.linalg.lu_factor(system) for system in systems.split(1)]
        else:
            self._factors = parallel_map(lambda member: torch.linalg.lu_factor(systems[member, None]), len(systems))
        self._padding = padded - self._size

    def solve(self, right_hand_sides: Tensor, transposed: bool = False) -> Tensor:
        """X with A x = b, or Aᵀ x = b, for each system: [B, S] -> [B, S]."""
        columns = torch.nn.functional.pad(right_hand_sides, (0, self._padding)).unsqueeze(-1)
        parts = columns.split(len(columns) // len(self._factors))
        solutions = [
            torch.linalg.lu_solve(lu, pivots, part, adjoint=transposed)
            for (lu, pivots), part in zip(self._factors, parts, strict=True)
        ]
        return torch.cat(solutions)[:, : self._size, 0]


class SparseLU:
    """LU factors of a batch of sparse systems I - γP (SuperLU, on the CPU), in an order found once for their pattern."""

    def __init__(self, systems: list[scipy.sparse.csc_array], order: np.ndarray) -> None:
        """Factorise every system.

        Args:
            systems: [S, S] each, rows and columns already in `order`.
            order: Which state stands at each position (`fill_reducing_order`), [S].
        """
        # Diagonally dominant, so the diagonal is always a safe pivot, and the order need not change for stability.
        self._factors = [_factorise(system, "NATURAL") for system in systems]
        self._order = order

    def solve(self, right_hand_sides: Tensor, transposed: bool = False) -> Tensor:
        """The x with A x = b, or Aᵀ x = b, for each system: [B, S] -> [B, S]."""
        mode = "T" if transposed else "N"
        columns = right_hand_sides.numpy()[:, self._order]
        solutions = np.empty_like(columns)
        for member, (factor, b) in enumerate(zip(self._factors, columns, strict=True)):
            solutions[member, self._order] = factor.solve(b, mode)
        return torch.from_numpy(solutions)


class MixingSolver:
    """Sparse systems I - γP whose factors would fill up: the Neumann series, with its tail summed in closed form.

    Chains whose LU factors fill up usually mix quickly. Pⁱb then becomes a constant vector c·1 after some tens of products
    (and (Pᵀ)ⁱb stationary), from where on the series is geometric: Σ_{i>=k} γⁱPⁱb = γᵏ/(1-γ) c·1. A chain that does not
    mix within `MIXING_STEPS` products is factorised densely instead; where it is too large for that, the series is summed
    until γᵏ/(1-γ) is nothing.
    """

    def __init__(self, chains: list[scipy.sparse.csr_array], discount: float) -> None:
        """Keep P_π of each policy, and its transpose, by rows."""
        self._chains = {False: chains, True: [chain.T.tocsr() for chain in chains]}
        self._discount = discount
        self._factors: dict[int, DenseLU] = {}

    def solve(self, right_hand_sides: Tensor, transposed: bool = False) -> Tensor:
        """The x with A x = b, or Aᵀ x = b, for each system: [B, S] -> [B, S]."""
        columns = right_hand_sides.numpy()
        solutions = np.empty_like(columns)
        for member, b in enumerate(columns):
            series = None if member in self._factors else self._series(self._chains[transposed][member], b, transposed)
            solutions[member] = self._factorised(member, b, transposed) if series is None else series
        return torch.from_numpy(solutions)

    def _series(self, chain: scipy.sparse.csr_array, b: np.ndarray, transposed: bool) -> np.ndarray | None:
        """Σ_i γⁱPⁱb; None if the chain does not mix in time, unless it is too large for anything else."""
        total, term, weight = np.zeros_like(b), b, 1.0  # Σ_{i<k} γⁱPⁱb, Pᵏb, γᵏ
        size = np.abs(b).sum() if transposed else np.abs(b).max()
        most = MIXING_STEPS
        if len(b) > LARGEST_DENSE:  # what is left out then is below the tolerance
            rate = max(self._discount, 0.5)
            most = max(most, math.ceil(math.log(MIXING_TOLERANCE * (1 - rate)) / math.log(rate)))
        for _ in range(most):
            total += weight * term
            following = chain @ term
            weight *= self._discount
            # How far the next term still is from the limit: its span (P keeps constants), or its last change.
            distance = np.abs(following - term).sum() if transposed else np.ptp(following)
            term = following
            if distance <= MIXING_TOLERANCE * size:
                limit = term if transposed else term.mean()
                return total + weight / (1 - self._discount) * limit
        return total if most > MIXING_STEPS else None

    def _factorised(self, member: int, b: np.ndarray, transposed: bool) -> np.ndarray:
        if member not in self._factors:
            system = np.eye(len(b)) - self._discount * self._chains[False][member].toarray()
            self._factors[member] = DenseLU(torch.from_numpy(system[None]))
        return self._factors[member].solve(torch.from_numpy(b[None]), transposed)[0].numpy()


def mixes(chain: scipy.sparse.csr_array) -> bool:
    """Whether Pⁱb becomes constant within `MIXING_STEPS` products, seen from one b that is different in every state."""
    # At this discount the series has no more than `MIXING_STEPS` terms at any size.
    return MixingSolver([chain], 0.5)._series(chain, np.linspace(0, 1, chain.shape[0]), transposed=False) is not None


def _factorise(system: scipy.sparse.csc_array, ordering: str) -> scipy.sparse.linalg.SuperLU:
    return scipy.sparse.linalg.splu(system, permc_spec=ordering, diag_pivot_thresh=0.0)


def fill_reducing_order(pattern: scipy.sparse.csc_array) -> np.ndarray | None:
    """An order of the states in which LU factors stay sparse (minimum degree), [S].

    Args:
        pattern: Diagonally dominant, with an entry wherever any policy's I - γP may have one.

    Returns:
        None where even then more than a fifth fills up, from where on sparse factors do not pay.
    """
    limit = FULLEST_SPARSE_LU * pattern.shape[0] ** 2
    if pattern.nnz > limit:
        return None
    factors = _factorise(pattern, "MMD_AT_PLUS_A")
    return np.argsort(factors.perm_c) if factors.nnz <= limit else None
