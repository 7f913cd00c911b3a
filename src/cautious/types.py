"""Dimension letters, and the choices that have names.

Letters of every room: M models, N sampled models, S states, A actions, T iterations, L levels, R runs, B batch (L x R).
In beliefs: P parameters of one model, F features of a state (G after whitening, D columns of a table), H held-out states,
U made-up states, Q pairs of states of the driving world; there B is a batch of samples, and of images H, W and C are height,
width and channels. In solvers: W windows of iterations. A small letter counts a part of what the large one counts: m models
of a block, s states of a chunk, b members of a batch.
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
    """How models enter an iteration: by the paper's shuffled queue, or all M models by exact rank weights."""

    QUEUE = "queue"
    EXACT = "exact"


class Update(StrEnum):
    """How this iteration's regret joins the cumulative regret (``ops.regret``)."""

    REGRET_MATCHING = "regret-matching"
    REGRET_MATCHING_PLUS = "regret-matching+"
    AS_PRINTED = "as-printed"
    PREDICTIVE = "predictive-regret-matching+"
    DISCOUNTED = "discounted-regret-matching"


class Method(StrEnum):
    """How a k-of-N problem in a world is solved (``solvers.solve``)."""

    AUTO = "auto"
    CFR = "cfr"
    LEARNING = "learning"
    DOUBLE_ORACLE = "double-oracle"
    LP = "lp"


class Objective(StrEnum):
    """What the models are ranked by: a policy's returns, or these less each model's own optimum."""

    RETURN = "return"
    REGRET = "regret"
