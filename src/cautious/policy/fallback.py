"""`FallbackRule`: take one safe action wherever the models differ more than they do in familiar states."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.belief import Belief
from cautious.errors import Argument, BadFileError, InvalidInputError
from cautious.policy.decision import Decision, check_action, make_decision, parse_action
from cautious.policy.explanation import Explanation, explained
from cautious.policy.files import load_policy, save_policy
from cautious.policy.policy import CautiousPolicy
from cautious.risk import KofN
from cautious.tables.schema import action_names
from cautious.validation import as_folder, as_number, as_path, parse_flag

ENTRY = "fallback"
"""The entry of policy.json that holds the rule."""
ORDINARY = KofN(1, 1)
"""Acts on the mean of all models: the rule alone is cautious."""


class FallbackRule:
    """Takes a named action where the models differ more than they do in familiar states, and follows a policy elsewhere.

    For users who have a safe action: k-of-N needs none, and is careful only where the *decision* is in doubt; this rule takes
    the safe action in every unusual state. Its threshold is in units of `Decision.disagreement`: at 1 it does so in about
    one familiar state in twenty. `cautious.calibrate` finds the threshold for any other share, with a guarantee.

    >>> models = torch.tensor([[[1.0, 0.3], [1.0, 0.3]], [[1.0, 0.3], [0.6, 0.3]]])  # state 1: they differ
    >>> rule = FallbackRule(models, action=1, threshold=0.1)
    >>> rule.decide([0, 1]).action.tolist(), rule.policy.decide([0, 1]).action.tolist()
    ([0, 1], [0, 0])
    """

    def __init__(
        self, policy: CautiousPolicy | Belief | Any, action: int | str, *, threshold: float | None = None
    ) -> None:
        """Name the safe action.

        Args:
            policy: What to do elsewhere: a `CautiousPolicy`; or a belief, as it takes one, for the ordinary policy.
            action: The safe action: its number, or its name where the belief was trained on a table.
            threshold: States with more disagreement than this are referred. If not given, 1: what 95 % of familiar states stay
                below. It is in units of the reward where the policy has no familiar states, and must be given then.
        """
        self.policy = policy if isinstance(policy, CautiousPolicy) else CautiousPolicy(policy, ORDINARY)
        self.action = parse_action(action, action_names(self.policy.belief))
        check_action(self.action, getattr(self.policy.belief, "num_actions", None))
        if threshold is None and self.policy.familiar is None:
            raise InvalidInputError(
                "threshold: none is given, and the policy has no familiar states to derive one from. Pass "
                "CautiousPolicy(belief, level, familiar_states=...), or a threshold in units of the reward."
            )
        self.threshold = 1.0 if threshold is None else as_number(threshold)
        if not self.threshold >= 0:
            raise InvalidInputError(Argument("threshold", threshold), " must be a number, zero or larger.")

    def __repr__(self) -> str:
        """The safe action, and when it is taken."""
        names = action_names(self.policy.belief)
        action = f"action {self.action}" if names is None else names[self.action]
        return f"FallbackRule({action} where disagreement > {self.threshold:.4g}, else {self.policy!r})"

    def decide(self, states: Any) -> Decision:
        """What to do in each state, as `CautiousPolicy.decide` says it; `Decision.caution` counts referrals too.

        States that no model can judge get the safe action.
        """
        return with_fallback(self.policy.decide(states, allow_undecided=True), self.action, self.threshold)

    def explain(self, states: Any, *, familiar: Any = None) -> Explanation:
        """Why the models disagree about each row, as `CautiousPolicy.explain` says it, with the actions of the rule."""
        return explained(self.policy.belief, self.decide(states), familiar)

    def refers(self, decision: Decision) -> Tensor:
        """In which states of a decision the models differ too much, or cannot judge, [B]."""
        return (decision.disagreement > self.threshold) | ~decision.judged

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """The action for one observation or a batch of them, as `CautiousPolicy.predict` gives it."""
        most_likely = parse_flag(deterministic, "deterministic")
        single, states = self.policy.as_batch(observation)
        decision = self.decide(states)
        actions = decision.action.numpy() if most_likely else self.policy.sample_actions(decision.probabilities.numpy())
        return (actions[0] if single else actions), state

    def save(self, folder: Path | str) -> None:
        """Write the rule with its policy and belief (safetensors, JSON)."""
        threshold = self.threshold if math.isfinite(self.threshold) else None  # JSON has no infinity
        settings = {**self.policy.describe(), ENTRY: {"action": self.action, "threshold": threshold}}
        save_policy(as_folder(folder), settings, self.policy.belief, self.policy.mdp)

    @classmethod
    def load(cls, folder: Path | str, network: Any = None) -> FallbackRule:
        """Read what `save` wrote; runs no code from it. `network` as in `RewardEnsemble.load`."""
        path = as_path(folder, "folder")
        description, belief, mdp = load_policy(path, network)
        rule = description.get(ENTRY)
        if not isinstance(rule, dict):
            raise BadFileError(
                f"{path}: a policy without a fallback action; read it with cautious.CautiousPolicy.load."
            )
        try:
            threshold = math.inf if rule.get("threshold") is None else rule["threshold"]
            policy = CautiousPolicy.from_description(description, belief, mdp)
            return cls(policy, rule.get("action"), threshold=threshold)  # type: ignore[arg-type]
        except InvalidInputError as error:
            raise BadFileError(f"{path}: {error}") from None


def with_fallback(decision: Decision, action: int, threshold: float) -> Decision:
    """The same decision, but `action` for sure where the models differ by more than `threshold`, or cannot judge.

        π'(a|s) = 1[a = action]  where disagreement(s) > threshold,  else π(a|s)

    Args:
        decision: About B states.
        action: The safe action.
        threshold: In the units of `Decision.disagreement`.
    """
    num_actions = decision.probabilities.shape[-1]
    check_action(action, num_actions)
    safe = torch.nn.functional.one_hot(torch.tensor(action), num_actions).double()
    refers = ((decision.disagreement > threshold) | ~decision.judged).unsqueeze(-1)
    policy = torch.where(refers, safe, decision.probabilities)
    # Without a gap: the rule is not the solution of a k-of-N problem.
    ruled = make_decision(policy, decision.ordinary, decision.disagreement, opinions=decision._opinions)
    known = {name: getattr(decision, name) for name in ("actions", "reasons", "problems", "index", "_explain")}
    return replace(ruled, **known)
