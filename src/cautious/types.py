"""Dimension letters, and the choices that have names.

Letters: M models, N sampled models, S states, A actions, T iterations, R runs, B batch (levels x runs).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

ArrayLike: TypeAlias = Tensor | np.ndarray | Sequence[Any]
"""What is accepted wherever an array comes in; tensors come out."""


class Regime(StrEnum):
    """Over which states a model's value is averaged before the worst k are picked."""

    ALL_STATES = "all-states"
    SINGLE_STATE = "single-state"


class Sampling(StrEnum):
    """How each iteration meets the belief: the paper's shuffled queue, or all M models by exact rank weights."""

    QUEUE = "queue"
    EXACT = "exact"


class Update(StrEnum):
    """How this iteration's regret joins the cumulative regret (``ops.regret``)."""

    REGRET_MATCHING = "regret-matching"
    REGRET_MATCHING_PLUS = "regret-matching+"
    AS_PRINTED = "as-printed"
