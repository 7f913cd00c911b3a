"""What to do in each state, beside what one would ordinarily do there.

The ordinary policy is the best under the mean of the models. Where no model prefers another action it has the highest k-of-N
value at every level, so no game has to be solved there (`has_disagreement`, and `all_models_agree` in an MDP). Caution is the
distance between the two policies; disagreement is how far the models differ, whether or not that matters for the decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement, in_units_of
from cautious.errors import Argument, InvalidInputError
from cautious.mdp.tabular import TabularMDP
from cautious.parallel import single_threaded
from cautious.policy.explanation import MOST_EXPLAINED, Explanation
from cautious.risk import RiskMeasure, is_mean
from cautious.solvers.optimal import optimal_actions, optimal_policy, optimal_under_all
from cautious.solvers.rewards import BLOCK_BYTES, as_rewards, mean_reward, model_blocks
from cautious.tables.cells import Problems
from cautious.tables.frames import pandas_for
from cautious.validation import parse_count


def _unknown() -> Tensor:
    return torch.tensor(torch.nan, dtype=torch.float64)


@dataclass(frozen=True, eq=False, repr=False)
class Decision:
    """What to do in each of B states, and how far that is from what one would ordinarily do.

    Every field has one entry per state. A state that no model can judge says why in `reasons`. Where nothing is known about it,
    tensors have NaN (`action` -1), and `to_dict` and `names` have None.
    """

    action: Tensor
    """The most likely action, [B]; -1 where nothing is decided (`undecided`)."""
    probabilities: Tensor
    """The policy, [B, A]."""
    caution: Tensor
    """Total variation distance from the ordinary (risk-neutral) policy, [B]: 0 acts as usual, 1 entirely differently."""
    ordinary: Tensor
    """The ordinary policy, [B, A]; in an MDP, of several that are equally good, the one nearest to `probabilities`."""
    _opinions: Callable[[], Tensor] | None = field(repr=False)
    disagreement: Tensor = field(default_factory=_unknown)
    """How far the models differ in each state, [B] (`beliefs.disagreement.disagreement`), in units of familiar states: 95 % of
    familiar states that no model was trained on stay below 1. In units of the reward where the policy knows no familiar
    states (`CautiousPolicy.familiar` is None). In an MDP it is about this state's rewards, not about what follows."""
    gap: Tensor = field(default_factory=_unknown)
    """How much more k-of-N value any policy could have in each state, at most, [B], in units of the reward: 0 where no model
    prefers another action than the ordinary one. In an MDP, where states belong together, the whole policy's from the world's
    start, the same in every state (`CautiousPolicy.gap`). NaN for a rule."""

    actions: tuple[str, ...] | None = None
    """The actions' names, where the belief knows them."""
    reasons: tuple[str, ...] = ()
    """Why each state could not be judged, B texts; empty where it could."""
    index: Any = None
    """The labels of the rows of a pandas frame, where that is what was asked about."""
    value: Tensor = field(default_factory=_unknown)
    """Exact k-of-N value of the policy in each state, in an MDP of the whole, [B]: no policy has more than `value` + `gap`. NaN
    where `gap` is."""
    problems: Problems | None = None
    """The cells that no model can judge, where there are some."""
    _explain: Callable[..., Explanation] | None = field(default=None, repr=False)
    """Says why the models disagree (`policy.explanation.Asked.explain`), where states have features."""

    def __post_init__(self) -> None:
        """What is not given is unknown, or without a reason, in every state."""
        size = self.action.shape[-1:]
        for name in ("disagreement", "gap", "value"):
            values = getattr(self, name)
            if values.dim() == 0:
                object.__setattr__(self, name, values.expand(size).clone())
        if not self.reasons:
            object.__setattr__(self, "reasons", ("",) * size.numel())

    @property
    def departs(self) -> Tensor:
        """Where another action is taken than ordinarily, [B] (`departs`); False in states that no model can judge."""
        return departs(self.action.clamp(min=0), self.ordinary)

    @property
    def judged(self) -> Tensor:
        """Which states the models could judge, [B]; the others have the fallback action, or none."""
        return torch.tensor([not reason for reason in self.reasons], dtype=torch.bool)

    @property
    def undecided(self) -> Tensor:
        """In which states nothing is decided, [B]: they could not be judged, and there is no fallback action."""
        return self.action < 0

    @property
    def names(self) -> list[str | None]:
        """The action in each state by its name (its number, where actions have no names); None where nothing is decided."""
        return [self._name(action) for action in self.action.tolist()]

    def _name(self, action: int) -> str | None:
        return None if action < 0 else str(action) if self.actions is None else self.actions[action]

    def to_dict(self) -> dict[str, list[Any]]:
        """One list per column, an entry per state: the action (its name, where there are names), the ordinary one, and more.

        Any package of frames takes it, such as ``polars.DataFrame(decision.to_dict())``, and so does JSON: what is not known is
        None, never NaN or infinity. In a state that no model can judge, "reason" says why, and everything else is None but the
        action of `bad_rows_action`; in the others "reason" is empty.
        """
        judged = self.judged.tolist()

        def where_judged(values: Tensor) -> list[Any]:
            return [value if known else None for value, known in zip(values.tolist(), judged, strict=True)]

        def shown(actions: list[int | None]) -> list[Any]:
            named = self.actions is not None
            return [None if a is None or a < 0 else self._name(a) if named else a for a in actions]

        return {
            "action": shown(self.action.tolist()),
            "ordinary": shown(where_judged(self.ordinary.nan_to_num().argmax(dim=-1))),
            "departs": where_judged(self.departs),
            **{name: _finite(getattr(self, name)) for name in ("caution", "disagreement", "gap", "value")},
            "reason": list(self.reasons),
        }

    def why(self, rows: Sequence[int], most: int = MOST_EXPLAINED) -> list[str]:
        """One sentence for each of these states, why the models disagree there (`CautiousPolicy.explain`).

        Args:
            rows: Numbers of the states.
            most: States that are explained at most, the first ones: the belief is asked once per state and feature. The
                sentences of the others say that they are not explained.

        Returns:
            As many texts; empty where states have no features.
        """
        if self._explain is None or not rows:
            return [""] * len(rows)
        found = self._explain(self, rows[:most]).sentences if most else ()
        return [*found, *[f"not explained: more than {MOST_EXPLAINED:,} rows depart"] * (len(rows) - len(found))]

    def to_frame(self) -> Any:
        """The decisions as a pandas frame, a row per state, with the labels of the frame that was asked about.

        Where states have features, the last column says why the models disagree, in rows where the decision departs.

        >>> decision = Decision(torch.tensor([1]), torch.eye(2)[1:], torch.ones(1), torch.eye(2)[:1], None)
        >>> decision.to_dict()["action"], decision.to_dict()["ordinary"]
        ([1], [0])
        """
        columns = self.to_dict()
        if self._explain is not None:
            rows = self.departs.nonzero().flatten().tolist()
            why = dict(zip(rows, self.why(rows), strict=True))
            columns["why"] = [why.get(row, "") for row in range(len(self.action))]
        return pandas_for("to_frame (unlike to_dict)").DataFrame(columns, index=self.index)

    def __repr__(self) -> str:
        """In how many states which action is taken."""
        count = self.action.shape[-1]
        taken = [
            f"{'action ' if self.actions is None else ''}{self._name(action)} in {number}"
            for action, number in enumerate(self.action[self.action >= 0].bincount().tolist())
            if number
        ]
        parts = [", ".join(taken[:6]) + (", ..." if len(taken) > 6 else ""), f"{int(self.departs.sum())} depart"]
        parts += [f"{not_judged} not judged"] if (not_judged := int((~self.judged).sum())) else []
        return f"Decision({count} {'state' if count == 1 else 'states'}: {'; '.join(part for part in parts if part)})"

    def as_usual(self) -> Decision:
        """The decision of the ordinary policy in the same states."""
        action = torch.where(self.judged, self.ordinary.nan_to_num().argmax(dim=-1), -1)
        unknown = torch.full_like(self.caution, torch.nan)
        return replace(
            self, action=action, probabilities=self.ordinary, caution=0 * self.caution, gap=unknown, value=unknown
        )

    def opinions(self) -> Tensor:
        """What each model says each action pays, [M, B, A]; NaN in states that no model can judge.

        The belief is asked again: of many states this is an array far larger than the decision, which does not keep it.
        """
        if self._opinions is None:
            raise InvalidInputError(
                "opinions: this decision does not keep the belief that it was made with, so it cannot ask the models again."
            )
        opinions = self._opinions()
        return opinions if bool(self.judged.all()) else _in_all_rows(opinions, self.judged, -2, torch.nan)


def _finite(values: Tensor) -> list[float | None]:
    """Numbers for JSON, which has neither NaN nor infinity."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def decisions_of(
    solved: Tensor,
    levels: Sequence[RiskMeasure],
    rewards: Any,
    mdp: TabularMDP | None,
    familiar: FamiliarDisagreement | None,
) -> list[Decision]:
    """The decisions of policies that a solver found, one per level.

    Args:
        solved: Policies of L levels, [L, S, A].
        levels: The L levels.
        rewards: What each model says each action pays, [M, S, A], or what the solvers stream it from.
        mdp: The world, where actions move it.
        familiar: The unit of disagreement, where it is known.
    """
    apart = in_units_of(familiar, disagreement_of(rewards))
    pairs = zip(*with_baseline(solved, levels, rewards, mdp), strict=True)
    return [make_decision(policy, ordinary, apart) for policy, ordinary in pairs]


def greedy(reward: Tensor) -> Tensor:
    """The ordinary policy: the best action under a reward function, shared evenly where several are best, [B, A]."""
    # Shared evenly, so that the order of equally good actions does not show as caution.
    best = (reward == reward.amax(dim=-1, keepdim=True)).double()
    return best / best.sum(dim=-1, keepdim=True)


def ordinary_policy(rewards: Any) -> Tensor:
    """What one would ordinarily do where actions move nothing: the best under the mean reward, [M, S, A] -> [S, A]."""
    return greedy(mean_reward(rewards).cpu())


def with_baseline(
    solved: Tensor, levels: Sequence[RiskMeasure], rewards: Any, mdp: TabularMDP | None
) -> tuple[Tensor, Tensor]:
    """What levels do, and what one would ordinarily do: [L, S, A] as solved -> twice [L, S, A].

    The ordinary policy replaces what was solved where it is known to be the best: where no model prefers another, and for level
    n-of-n, the mean of all models drawn. A solver comes close to it in finitely many iterations, and the rest would show as
    caution.
    """
    num_models = as_rewards(rewards).num_models
    ordinarily = torch.tensor([is_mean(level, num_models) for level in levels])[:, None, None]
    if mdp is None:
        ordinary = ordinary_policy(rewards)
        policies = torch.where(ordinarily | ~has_disagreement(rewards, ordinary)[:, None], ordinary, solved.cpu())
        return policies, ordinary.expand_as(policies)
    mean = mean_reward(rewards).cpu()
    ordinary, action_values, _ = optimal_policy(mdp, mean)
    policies = torch.where(ordinarily | all_models_agree(rewards, ordinary, mdp)[:, None], ordinary, solved.cpu())
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
    is_small = isinstance(rewards, Tensor) and 8 * rewards.numel() <= BLOCK_BYTES
    source = rewards if is_small else as_rewards(rewards)
    taken = (ordinary > 0).to(source.device)
    prefers_another = torch.zeros(len(ordinary), dtype=torch.bool, device=source.device)
    for _, block in [(None, rewards)] if is_small else model_blocks(source):
        taken_and_worse = (block < block.amax(dim=-1, keepdim=True)) & taken
        prefers_another |= taken_and_worse.any(dim=0).any(dim=-1)
    return prefers_another.cpu()


def total_variation(policy: Tensor, ordinary: Tensor) -> Tensor:
    """How far two policies are apart in each state: [..., B, A], the same or [B, A] -> [..., B]."""
    return 0.5 * (policy - ordinary).abs().sum(dim=-1)


@single_threaded
def departs(action: Tensor, ordinary: Tensor) -> Tensor:
    """Where an action is not one that the ordinary policy takes, π_ordinary(a|s) = 0: [..., B], [..., B, A] -> [..., B].

    The action of a decision is its most likely one. Where several actions are equally good ordinarily, none of them departs.
    """
    shared = ordinary.expand(*action.shape, ordinary.shape[-1])
    return shared.gather(-1, action.unsqueeze(-1)).squeeze(-1) == 0


def make_decision(
    cautious: Tensor,
    ordinary: Tensor,
    disagreement: Tensor,
    *,
    gap: Tensor | None = None,
    value: Tensor | None = None,
    opinions: Callable[[], Tensor] | None = None,
) -> Decision:
    """The decision of a cautious policy [B, A], beside the ordinary one [B, A].

    Args:
        cautious: The policy to follow.
        ordinary: What one would ordinarily do.
        disagreement: How far the models differ, [B].
        gap: `Decision.gap`, [B], where it is known.
        value: `Decision.value`, [B], where it is known.
        opinions: Returns what each model says each action pays, [M, B, A].
    """
    caution = total_variation(cautious, ordinary)
    unknown = torch.full_like(caution, torch.nan)
    gap, value = (unknown if part is None else part for part in (gap, value))
    return Decision(cautious.argmax(dim=-1), cautious, caution, ordinary, opinions, disagreement, gap, value=value)


def with_unjudged(decision: Decision, problems: Problems, action: int | None) -> Decision:
    """A decision about G states as one about all B, of which the others could not be judged.

    Args:
        decision: About the states without problems, in their order.
        problems: What is wrong with which of the B states.
        action: What to do in states that could not be judged; None leaves them undecided (action -1).
    """
    judged = torch.from_numpy(problems.usable)
    num_actions = decision.probabilities.shape[-1]
    probabilities = _in_all_rows(decision.probabilities, judged, -2, torch.nan)
    if action is not None:
        probabilities[~judged] = torch.eye(num_actions, dtype=probabilities.dtype)[action]
    return replace(
        decision,
        action=_in_all_rows(decision.action, judged, -1, -1 if action is None else action),
        probabilities=probabilities,
        caution=_in_all_rows(decision.caution, judged, -1, torch.nan),
        ordinary=_in_all_rows(decision.ordinary, judged, -2, torch.nan),
        disagreement=_in_all_rows(decision.disagreement, judged, -1, torch.nan),
        gap=_in_all_rows(decision.gap, judged, -1, torch.nan),
        value=_in_all_rows(decision.value, judged, -1, torch.nan),
        reasons=problems.reasons,
        problems=problems,
    )


def _in_all_rows(values: Tensor, judged: Tensor, dim: int, missing: float) -> Tensor:
    """Values about G rows as values about B rows: `judged` [B] says which rows they are about; `missing` in the others."""
    shape = list(values.shape)
    shape[dim] = len(judged)
    return torch.full(shape, missing, dtype=values.dtype).index_copy_(dim, judged.nonzero().flatten(), values.cpu())


def disagreement_of(rewards: Any) -> Tensor:
    """How far models differ in each state (`disagreement`), [M, S, A] -> [S]; in blocks, so that large arrays fit."""
    if isinstance(rewards, Tensor) and not rewards.shape[1]:
        return torch.zeros(0, dtype=torch.float64)
    if isinstance(rewards, Tensor):
        size = max(1, BLOCK_BYTES // (8 * max(1, len(rewards) * rewards.shape[-1])))  # states in float64 at a time
        return torch.cat([disagreement(block) for block in rewards.split(size, dim=1)]).cpu()
    # Two passes over what is on disk or streamed: the mean, then the squares around it.
    source = as_rewards(rewards)
    mean, squares = mean_reward(source), torch.zeros(source.num_states, dtype=torch.float64, device=source.device)
    for _, block in model_blocks(source):
        squares += (block - mean).square().sum(dim=0).mean(dim=-1)
    return (squares / source.num_models).sqrt().cpu()


def parse_action(action: int | str, names: Sequence[str] | None, what: str = "action") -> int:
    """The number of an action that is given by its number or, where there are names, by its name."""
    if not isinstance(action, str):
        return parse_count(action, what, 0)
    if names is None:
        raise InvalidInputError(
            Argument(what, action),
            " is a name, but the belief has no names for its actions; give a number, counted from 0.",
        )
    if action not in names:
        raise InvalidInputError(Argument(what, action), f" is not known; choose one of {', '.join(map(repr, names))}.")
    return list(names).index(action)


def check_action(action: int | None, num_actions: int | None, what: str = "action") -> None:
    """Raise unless there is an action of this number, if it is known how many there are."""
    if action is not None and num_actions is not None and action >= num_actions:
        raise InvalidInputError(Argument(what, action), f": there are {num_actions} actions, counted from 0.")
