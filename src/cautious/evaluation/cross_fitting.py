"""Decisions about the states of the training by models that never saw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.fit import refit, with_needed
from cautious.beliefs.networks.image import images_are_bytes
from cautious.errors import InvalidInputError
from cautious.policy.policy import CautiousPolicy
from cautious.progress import Progress
from cautious.seeding import make_rng
from cautious.validation import as_float_tensor, check_shape, parse_count

Decide = Callable[[CautiousPolicy, Any, Progress | None], Tensor]
"""What is known of states under a policy's belief: (policy, states [B, ...], progress) -> [..., B]."""


def on_fresh_states(
    decide: Decide, policy: CautiousPolicy, states: Any, rewards: Any, folds: int, progress: Progress | None
) -> Tensor:
    """What `decide` says about states that no model saw: these, or with `rewards` those of the training, by cross-fitting.

    The states are cut into parts; for each, the belief is trained again without it and decides about it.

    Args:
        decide: What is asked about states.
        policy: Whose belief.
        states: Familiar states, [S, ...].
        rewards: None if the belief was not trained on them; else what each action paid in them, [S, A], NaN where not tried.
        folds: How many parts.
        progress: Told (parts done, parts in all) or, without `rewards`, what `decide` tells.

    Returns:
        [..., S], in the order of the parts; states that alone know an action are always learned from, and left out here;
        a part of such states only is passed over.
    """
    if rewards is None:
        return decide(policy, states, progress)
    belief, paid = policy.belief, as_float_tensor(rewards, "rewards")
    inputs = torch.as_tensor(states) if images_are_bytes(states) else as_float_tensor(states, "familiar_states")
    if not isinstance(belief, RewardEnsemble):
        raise InvalidInputError(
            "rewards: cross-fitting trains the belief again, and only one that fit_ensemble made says how; leave it out, and "
            "give familiar states that the belief was not made from."
        )
    check_shape(paid, "S A", "rewards", S=len(inputs), A=belief.num_actions)
    count = parse_count(folds, "folds", 2)
    if count > len(inputs):
        raise InvalidInputError(f"folds={count} exceeds the {len(inputs)} states there are.")
    order = torch.from_numpy(make_rng(int(belief.settings.get("seed", 0)), "folds").permutation(len(inputs)))
    parts = []
    for fold in range(count):
        rest = torch.from_numpy(np.delete(np.arange(len(inputs)), order[fold::count].numpy()))
        familiar, left_out = with_needed(~paid.isnan(), rest, order[fold::count])
        if len(left_out):  # none: a part of states that alone know an action has nothing to decide about
            again = refit(belief, inputs[familiar], paid[familiar])
            parts.append(
                decide(CautiousPolicy.from_description(policy.describe(), again, None), inputs[left_out], None)
            )
        if progress is not None:
            progress(fold + 1, count)
    if not parts:
        raise InvalidInputError(
            f"folds={count}: no part can be left out of the training, because its states alone know an action; give more "
            "experience."
        )
    return torch.cat(parts, dim=-1)
