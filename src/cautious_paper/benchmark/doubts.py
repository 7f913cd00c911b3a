"""A shop and a slippery lake whose dynamics are in doubt: models are draws of a posterior, truths are other draws.

Familiar means that much was seen before, so that the models are close together; novel that little was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from cautious.baselines.comparing import Problem, returns_in_models
from cautious.mdp.models import models_of_parameter
from cautious.seeding import make_rng
from cautious_paper.worlds.uncertain import (
    DISCOUNT,
    LAKE_SIZE,
    SHELF,
    inventory_model,
    slippery_lake_model,
)

NUM_MODELS, NUM_TRUTHS = 60, 60
WEEKS, STEPS = {"familiar": 100, "novel": 3}, {"familiar": 500, "novel": 6}
"""How much was seen."""


def shop(seed: int) -> dict[str, Problem]:
    """A shop that has seen a few weeks of sales: the posterior of its Poisson demand under a gamma prior."""
    rng = make_rng(seed, "shop")
    true = rng.gamma(4, 1.2)
    found = {}
    for split, weeks in WEEKS.items():
        sold = rng.poisson(true, weeks).sum()
        draws = rng.gamma(4 + sold, 1 / (1 / 1.2 + weeks), NUM_MODELS + NUM_TRUTHS)
        found[split] = _problem(inventory_model, draws, SHELF + 1)
    return found


def slippery_lake(seed: int) -> dict[str, Problem]:
    """A lake on which a few steps were tried: the posterior of how often one slips, up to nine times of ten."""
    rng = make_rng(seed, "slippery lake")
    true = rng.beta(2, 3)
    found = {}
    for split, tried in STEPS.items():
        slipped = rng.binomial(tried, true)
        draws = 0.9 * rng.beta(2 + slipped, 3 + tried - slipped, NUM_MODELS + NUM_TRUTHS)
        found[split] = _problem(slippery_lake_model, draws, LAKE_SIZE**2 + 1)
    return found


def _problem(make: Callable[[Any], Any], draws: Sequence[Any] | np.ndarray, num_states: int) -> Problem:
    """Models of the first draws; what may be true are the others. The start is the first state."""
    start = np.eye(num_states)[0]
    ours, truths = (
        models_of_parameter(make, part, start, DISCOUNT) for part in (draws[:NUM_MODELS], draws[NUM_MODELS:])
    )
    return Problem(ours.world, ours.rewards, judge=partial(returns_in_models, truths.world, truths.rewards))
