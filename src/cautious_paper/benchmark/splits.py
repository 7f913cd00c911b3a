"""The two splits of a problem, with what rules that go by novelty need to know of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cautious.baselines.comparing import Problem


def both(familiar: Problem, novel: Problem) -> dict[str, Problem]:
    """Familiar and novel. Both get a threshold, that 95 % of the familiar novelty lies below, and the weight of a penalty.

    The weight is one range of the mean familiar reward at the largest novelty of the novel world.
    """
    usual, mean = np.asarray(familiar.novelty), np.asarray(familiar.rewards).mean(axis=0)
    more = {
        "threshold": float(np.quantile(usual, 0.95)) + 1e-3,
        "novelty_weight": float(np.ptp(mean) / np.asarray(novel.novelty).max()),
    }
    known = replace(familiar, extras={**familiar.extras, **more})
    return {"familiar": known, "novel": replace(novel, extras={**novel.extras, **more}, familiar=known)}
