"""The image worlds: what each action pays on each image, as the paper's four tasks define it.

Digits are familiar. Fashion and letters are novel: there no reward is defined, only what the models make of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.seeding import make_rng
from cautious.validation import as_float_tensor, as_number, check_finite, look_up, parse_choice

NUM_DIGITS = 10
NO_DIGIT = -1
"""The label of an image on which no digit is right."""
UNAVAILABLE_HELP = -11 / 9
"""What asking for help pays when none is there: the worst of all actions (section 4)."""


class RewardUnit(StrEnum):
    """The unit of the rewards of labels, and of unavailable help, where high labels pay more (deviation D18).

    The reward of available help is the same number in both units. Against the labels it is therefore worth ten times as
    much in tenths.
    """

    AS_PRINTED = "as-printed"
    """A right label a pays a + 1: section 4 as printed."""
    TENTHS = "tenths"
    """A right label a pays (a + 1)/10. Only this unit reproduces the paper's tables."""

    @property
    def divisor(self) -> float:
        """What the printed rewards are divided by."""
        return 10.0 if self is RewardUnit.TENTHS else 1.0


def ask_for_help_rewards(labels: Tensor, help_reward: float = 0.25) -> Tensor:
    """Reward of each action on images with these labels: 1 for the right label, 0 for a wrong one, `help_reward` for help.

    Section 2. Args: labels [S] in 0..9, or -1 where no digit is right. Returns: [S, 11], float64.
    """
    right = _one_hot(labels)
    return torch.cat([right, torch.full((len(right), 1), float(help_reward), dtype=torch.float64)], dim=1)


def non_obvious_rewards(labels: Tensor, unit: RewardUnit | str = RewardUnit.AS_PRINTED) -> Tensor:
    """Reward of each label: a + 1 if it is right, -(a + 2)/9 if not. High indices gain more and lose more.

    Section 4, "Discovering Non-Obvious Cautious Actions".

    Args:
        labels: [S] in -1..9.
        unit: "tenths" divides every reward by ten.

    Returns:
        [S, 10], float64.
    """
    right = _one_hot(labels)
    index = torch.arange(NUM_DIGITS, dtype=torch.float64)
    rewards = right * (index + 1) - (1 - right) * (index + 2) / 9
    return rewards / parse_choice(RewardUnit, unit, "unit").divisor


def help_if_available_rewards(
    labels: Tensor,
    help_available: bool,
    help_reward: float = 1 / 20,
    unit: RewardUnit | str = RewardUnit.AS_PRINTED,
) -> Tensor:
    """The rewards of `non_obvious_rewards` and a help action: `help_reward` where help is available, else -11/9.

    Section 4, "Ask for Help Only When it is Available".

    Args:
        labels: [S] in -1..9.
        help_available: Whether help is available.
        help_reward: What available help pays, the same in both units.
        unit: "tenths" divides every other reward by ten: those of labels, and -11/9.

    Returns:
        [S, 11], float64.
    """
    unavailable = UNAVAILABLE_HELP / parse_choice(RewardUnit, unit, "unit").divisor
    pays = float(help_reward) if help_available else unavailable
    help_column = torch.full((len(labels), 1), pays, dtype=torch.float64)
    return torch.cat([non_obvious_rewards(labels, unit), help_column], dim=1)


def index_loss_weights(num_actions: int) -> Tensor:
    """Weight of each output in the loss: 1/(a+1)² for the labels and 1 for help (appendix B.1), [A]."""
    weights = torch.ones(num_actions, dtype=torch.float64)
    weights[:NUM_DIGITS] = 1 / (torch.arange(NUM_DIGITS, dtype=torch.float64) + 1) ** 2
    return weights


def perturbed(rewards: Tensor, deviation: float, seed: int) -> Tensor:
    """Rewards with white noise, drawn once for a training set and shared by all models (deviation D10)."""
    noise = make_rng(seed, "reward noise").normal(0, deviation, tuple(rewards.shape))
    return rewards + torch.from_numpy(noise)


def class_balanced_subset(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Indices of a random part of a data set with as many of each class as of any other, in order (deviation D10).

    Args:
        labels: [S].
        fraction: How much of it, in (0, 1]. 1 takes everything as it is.
        seed: Starts the draw; smaller fractions are not parts of larger ones.
    """
    if not 0 < as_number(fraction) <= 1:
        raise InvalidInputError(f"fraction={fraction!r} must be in (0, 1]: the share of the data to keep.")
    if fraction == 1:
        return torch.arange(len(labels))
    classes = torch.unique(labels).tolist()
    each = round(fraction * len(labels) / len(classes))
    if each < 1:
        raise InvalidInputError(
            f"fraction={fraction} of {len(labels)} images leaves none for some of {len(classes)} classes."
        )
    rng = make_rng(seed, "subset", f"{fraction:g}")
    parts = []
    for label in classes:
        members = torch.nonzero(labels == label).flatten()
        parts.append(members[torch.from_numpy(rng.permutation(len(members)))[:each]])
    return torch.cat(parts).sort().values


@dataclass(frozen=True)
class ImageTask:
    """One of the image tasks: its actions, and whether a bit says if help is available."""

    name: str
    num_actions: int
    help_action: int | None
    help_bit: bool
    weighted_loss: bool
    help_reward: float | None
    """The paper's main choice."""

    def rewards(
        self,
        labels: Tensor,
        help_reward: float | None = None,
        help_available: bool = True,
        unit: RewardUnit | str = RewardUnit.AS_PRINTED,
    ) -> Tensor:
        """What each action pays on images with these labels, [S] -> [S, A]; `unit` only where high labels pay more."""
        if not self.weighted_loss and parse_choice(RewardUnit, unit, "unit") is not RewardUnit.AS_PRINTED:
            raise InvalidInputError(f"unit={str(unit)!r}: {self.name} has its rewards in one unit; leave it out.")
        pays = self.help_reward if help_reward is None else help_reward
        if pays is not None and not math.isfinite(as_number(pays)):
            raise InvalidInputError(f"help_reward={pays!r} must be a finite number.")
        if self.help_action is None:
            if help_reward is not None:
                raise InvalidInputError(
                    f"help_reward={help_reward!r}: {self.name} has no action for help; leave it out."
                )
            return non_obvious_rewards(labels, unit)
        if self.help_bit:
            return help_if_available_rewards(labels, help_available, float(pays or 0), unit)
        return ask_for_help_rewards(labels, float(pays or 0))

    @property
    def loss_weights(self) -> Tensor:
        """Loss weight per action, shape [A]."""
        return (
            index_loss_weights(self.num_actions)
            if self.weighted_loss
            else torch.ones(self.num_actions, dtype=torch.float64)
        )


TASKS = {
    task.name: task
    for task in (
        ImageTask("ask-for-help", 11, help_action=10, help_bit=False, weighted_loss=False, help_reward=0.25),
        ImageTask("non-obvious", 10, help_action=None, help_bit=False, weighted_loss=True, help_reward=None),
        ImageTask("help-if-available", 11, help_action=10, help_bit=True, weighted_loss=True, help_reward=1 / 20),
        ImageTask("data-extent", 11, help_action=10, help_bit=False, weighted_loss=False, help_reward=0.25),
    )
}
"""The paper's image tasks by name; data-extent is ask-for-help with noisy rewards and less data."""


def image_task(name: str) -> ImageTask:
    """The task of this name; an error that lists the known names otherwise."""
    return look_up(TASKS, name, "task")


def _one_hot(labels: Tensor) -> Tensor:
    """Digits as unit vectors, [S, 10], float64; no digit (-1) as zeros."""
    numbers = as_float_tensor(labels, "labels")
    check_finite(numbers, "labels")
    digits = numbers.long()
    if digits.dim() != 1 or bool(((digits < NO_DIGIT) | (digits >= NUM_DIGITS) | (digits != numbers)).any()):
        raise InvalidInputError(
            f"labels: expected shape [S] with digits 0 to 9 (or {NO_DIGIT} for none), got shape {list(digits.shape)}"
            + (f" from {int(digits.min())} to {int(digits.max())}." if digits.numel() else ".")
        )
    return torch.nn.functional.one_hot(digits + 1, NUM_DIGITS + 1)[:, 1:].double()
