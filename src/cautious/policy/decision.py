"""What to do in each state, beside what one would ordinarily do there.

The ordinary policy is the best under the mean of the models. Where no model prefers another action it has the highest k-of-N
value at every level, so no game has to be solved there (`has_disagreement`, and `all_models_agree` in an MDP). Caution is the
distance between the two policies; disagreement is how far the models differ, whether or not that matters for the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cautious.ops.disagreement import model_spread
from cautious.ops.risk import KofN
from cautious.solvers.optimal import optimal_actions, optimal_policy, optimal_under_all
from cautious.solvers.rewards import BLOCK_BYTES, as_rewards, mean_reward, model_blocks
from cautious.worlds.mdp import TabularMDP


@dataclass(frozen=True, eq=False)
class Decision:
    """What to do in each of B states, and how far that is from what one would ordinarily do."""

    action: Tensor
    """The most likely action, [B]."""
    probabilities: Tensor
    """The policy, [B, A]."""
    caution: Tensor
    """Total variation distance from the ordinary (risk-neutral) policy, [B]: 0 acts as usual, 1 entirely differently."""
    ordinary: Tensor
    """The ordinary policy, [B, A]; in an MDP, of several that are equally good, the one nearest to `probabilities`."""
    _opinions: Tensor | None = field(repr=False)
    disagreement: Tensor = field(default_factory=lambda: torch.tensor(torch.nan))
    """How far the models differ in each state, [B] (`ops.disagreement.model_spread`), in units of familiar states: 95 % of
    familiar states that no model was trained on stay below 1. In units of the reward where the policy knows no familiar
    states (`CautiousPolicy.familiar` is None). In an MDP it is about this state's rewards, not about what follows."""
    gap: Tensor = field(default_factory=lambda: torch.tensor(torch.nan))
    """How much more k-of-N value any policy could have in each state, at most, [B], in units of the reward: 0 where no model
    prefers another action than the ordinary one. NaN in an MDP, where states belong together (`Solution.certificate`), and for
    a rule."""

    @property
    def departs(self) -> Tensor:
        """Where another action is taken than ordinarily, [B] (`departs`)."""
        return departs(self.action, self.ordinary)

    def opinions(self) -> Tensor:
        """What each model says each action pays, [M, B, A]; kept, not copied."""
        assert self._opinions is not None, "`cautious solve` does not keep them: they may be larger than memory"
        return self._opinions


def greedy(reward: Tensor) -> Tensor:
    """The ordinary policy: the best action under a reward function, shared evenly where several are best, [B, A]."""
    # Shared evenly, so that the order of equally good actions does not show as caution.
    best = (reward == reward.amax(dim=-1, keepdim=True)).double()
    return best / best.sum(dim=-1, keepdim=True)


def ordinary_policy(rewards: Any) -> Tensor:
    """What one would ordinarily do where actions move nothing: the best under the mean reward, [M, S, A] -> [S, A]."""
    return greedy(mean_reward(rewards).cpu())


def with_baseline(
    solved: Tensor, levels: Sequence[KofN], rewards: Any, mdp: TabularMDP | None
) -> tuple[Tensor, Tensor]:
    """What levels do, and what one would ordinarily do: [L, S, A] as solved -> twice [L, S, A].

    The ordinary policy replaces what was solved where it is known to be the best: where no model prefers another, and for level
    n-of-n, the mean of all models drawn. A solver comes close to it in finitely many iterations, and the rest would show as
    caution.
    """
    is_mean = torch.tensor([level.k == level.n for level in levels])[:, None, None]
    if mdp is None:
        ordinary = ordinary_policy(rewards)
        policies = torch.where(is_mean | ~has_disagreement(rewards, ordinary)[:, None], ordinary, solved.cpu())
        return policies, ordinary.expand_as(policies)
    mean = mean_reward(rewards).cpu()
    ordinary, action_values, _ = optimal_policy(mdp, mean)
    policies = torch.where(is_mean | all_models_agree(rewards, ordinary, mdp)[:, None], ordinary, solved.cpu())
    return policies, nearest_ordinary(policies, ordinary, optimal_actions(mdp, mean, action_values))


def nearest_ordinary(policies: Tensor, ordinary: Tensor, as_good: Tensor) -> Tensor:
    """The ordinary policy nearest to each policy, where several actions are equally good: [..., S, A] -> [..., S, A].

    Which of them the ordinary policy takes is arbitrary (the first), so taking another one is not a sign of caution.

    Args:
        policies: [..., S, A].
        ordinary: What is returned where a policy takes none of them, [S, A].
        as_good: Which actions are as good as the ordinary one, [S, A].
    """
    shares = policies * as_good
    total = shares.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, shares / total, ordinary)


def all_models_agree(rewards: Any, ordinary: Tensor, mdp: TabularMDP) -> Tensor:
    """States of an MDP from which the ordinary policy [S, A] is best for every model, and so for every k-of-N value: [S]."""
    each = (reward for _, block in model_blocks(as_rewards(rewards)) for reward in block.cpu())
    return optimal_under_all(mdp, ordinary, each)


def has_disagreement(rewards: Any, ordinary: Tensor) -> Tensor:
    """States in which some model prefers another action than the ordinary policy's: [M, S, A], [S, A] -> [S].

    In the others every model's return, and so every k-of-N value, is highest under the ordinary policy: no game is needed.
    """
    # All models in blocks; a model prefers another action where one that the ordinary policy takes is not its best.
    prefers_another = torch.zeros(len(ordinary), dtype=torch.bool)
    is_small = isinstance(rewards, Tensor) and 8 * rewards.numel() <= BLOCK_BYTES
    for _, block in [(None, rewards)] if is_small else model_blocks(as_rewards(rewards)):
        taken_and_worse = (block < block.amax(dim=-1, keepdim=True)) & (ordinary > 0).to(block.device)
        prefers_another |= taken_and_worse.any(dim=0).any(dim=-1).cpu()
    return prefers_another


def total_variation(policy: Tensor, ordinary: Tensor) -> Tensor:
    """How far two policies are apart in each state: [..., B, A], the same or [B, A] -> [..., B]."""
    return 0.5 * (policy - ordinary).abs().sum(dim=-1)


def departs(action: Tensor, ordinary: Tensor) -> Tensor:
    """Where an action is not one that the ordinary policy takes, π_ordinary(a|s) = 0: [..., B], [..., B, A] -> [..., B].

    The action of a decision is its most likely one. Where several actions are equally good ordinarily, none of them departs.
    """
    shared = ordinary.expand(*action.shape, ordinary.shape[-1])
    return shared.gather(-1, action.unsqueeze(-1)).squeeze(-1) == 0


def make_decision(
    cautious: Tensor,
    ordinary: Tensor,
    opinions: Tensor | None,
    disagreement: Tensor,
    gap: Tensor | None = None,
) -> Decision:
    """The decision of a cautious policy [..., B, A], beside the ordinary one (of the same shape, or [B, A])."""
    caution = total_variation(cautious, ordinary)
    unknown = torch.full_like(caution, torch.nan)
    action = cautious.argmax(dim=-1)
    return Decision(action, cautious, caution, ordinary, opinions, disagreement, unknown if gap is None else gap)


def spread_of(rewards: Any) -> Tensor:
    """How far models differ in each state (`model_spread`), [M, S, A] -> [S]; in blocks, so that large arrays fit."""
    if isinstance(rewards, Tensor):
        size = max(1, BLOCK_BYTES // (8 * max(1, len(rewards) * rewards.shape[-1])))  # states in float64 at a time
        return torch.cat([model_spread(block) for block in rewards.split(size, dim=1)]).cpu()
    # Two passes over what is on disk or streamed: the mean, then the squares around it.
    source = as_rewards(rewards)
    mean, squares = mean_reward(source), torch.zeros(source.num_states, dtype=torch.float64, device=source.device)
    for _, block in model_blocks(source):
        squares += (block - mean).square().sum(dim=0).mean(dim=-1)
    return (squares / source.num_models).sqrt().cpu()
