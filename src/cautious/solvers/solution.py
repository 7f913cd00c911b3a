"""What a solver hands back: policies, how they came about, and how far from optimal they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.ops.risk import KofN
from cautious.parallel import single_threaded
from cautious.types import ArrayLike
from cautious.validation import as_distribution, check_shape


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds on the k-of-N problem that hold for every policy, whatever the solver did.

    Shapes: scalar for one level and run, the batch's leading dimensions otherwise, and [..., S] in the single-state
    regime, where each state is a problem of its own.

    Attributes:
        lower: Exact k-of-N value of the certified policy over the M models.
        upper: The ordinary optimum under the averaged adversary's mixture of reward functions. That mixture is a point
            of the risk envelope, so no policy at all has a k-of-N value above it. (Averaged over all iterations, the
            last half and the last quarter; the lowest bound is kept.)
        gap: upper - lower, at least 0: how much any policy could still gain.
        level: The level, or the levels of the batch.
    """

    lower: Tensor
    upper: Tensor
    gap: Tensor
    level: KofN | tuple[KofN, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """How a run went, iteration by iteration; each [..., T]. In the single-state regime values are means over states."""

    sampled_value: Tensor
    """Mean return of the iterate under the k worst of the models it met (with exact sampling: its exact value)."""
    exact_value: Tensor
    """Exact k-of-N value of the iterate over all M models; NaN where it was not computed (`track_exact`)."""
    regret: Tensor
    """Largest cumulative regret over states and actions so far: what C^T of Theorem 1 bounds."""


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Policies of one or several levels and runs.

    For one level and one run arrays are plain [S, A]; a sequence of levels adds a leading dimension [L], `num_runs` one
    more, [R] or [L, R].

    Attributes:
        policy: The last iterate, which is what the paper reports.
        average_policy: Weighted by occupancy in an MDP, so that its return is the average return of the iterates.
        best_policy: The highest exact k-of-N value seen: among the iterates where values were tracked, the last iterate
            and the average. In the single-state regime the best is taken in each state.
        trace: Values and regret an iteration.
        level: The level, or the levels of the batch.
        record: How it was made: sampling, update, seed, sizes, how often the queue had to be shuffled again.
    """

    policy: Tensor
    average_policy: Tensor
    trace: Trace
    level: KofN | tuple[KofN, ...]
    record: dict[str, Any]
    _best_policy: Callable[[], Tensor] = field(repr=False)
    _exact_value: Callable[[Tensor], Tensor] = field(repr=False)
    """Exact k-of-N value of policies [B, S, A]."""
    _upper_bound: Callable[[int | None], Tensor] = field(repr=False)
    """Bound on every policy's value; the argument is how many exact iterations may be spent where none were tracked."""

    def __repr__(self) -> str:
        """Level and shape; the arrays are long."""
        levels = [str(level) for level in self.level] if isinstance(self.level, tuple) else str(self.level)
        return f"Solution(level={levels}, policy={list(self.policy.shape)}, record={self.record})"

    @cached_property
    @single_threaded
    def best_policy(self) -> Tensor:
        """The policy with the highest exact k-of-N value seen (see the class's attributes)."""
        return self._best_policy()

    @single_threaded
    def exact_value(self, policy: ArrayLike | None = None) -> Tensor:
        """Exact k-of-N value over all M models of `policy` (of ``self.policy`` if none is given)."""
        batch = self._as_batch(policy)
        value = self._exact_value(batch)
        return value.reshape(self.policy.shape[:-2] + value.shape[1:])

    @single_threaded
    def certificate(self, policy: ArrayLike | None = None, *, refine: int | None = None) -> Certificate:
        """How far `policy` is from the best possible k-of-N policy.

        Args:
            policy: [S, A], or of the solution's batch shape; ``self.policy`` (the last iterate) if none is given. The
                average and the best policy are usually closer to optimal.
            refine: Make this many exact iterations first to find a better adversary: a tighter upper bound for more
                work. Where the run did not track exact values (very large beliefs), a few are made in any case.
        """
        lower = self.exact_value(policy)
        upper = self._upper_bound(refine).reshape(lower.shape)
        return Certificate(lower, upper, (upper - lower).clamp(min=0), self.level)

    def _as_batch(self, policy: ArrayLike | None) -> Tensor:
        num_states, num_actions = self.policy.shape[-2:]
        own = self.policy if policy is None else as_distribution(policy, "policy", self.policy.device)
        check_shape(own, "... S A", "policy", S=num_states, A=num_actions)
        if own.dim() != 2 and own.shape != self.policy.shape:
            raise InvalidInputError(
                f"policy: expected shape {[num_states, num_actions]} or {list(self.policy.shape)} as this solution has, "
                f"got {list(own.shape)}."
            )
        return torch.broadcast_to(own, self.policy.shape).reshape(-1, num_states, num_actions)
