"""Behaviour of policies on images: how often each action is taken, overall and by label, in both readings of "frequency"."""

from __future__ import annotations

import torch
from torch import Tensor

from cautious.parallel import single_threaded
from cautious.validation import check_shape
from cautious_paper.worlds.image_tasks import NUM_DIGITS


def most_likely(policy: Tensor) -> Tensor:
    """The policy that always takes the most likely action (the first of several), [..., S, A] -> [..., S, A].

    The mean of a policy over images is the mean probability of each action; the mean of this one is the share of images
    whose most likely action it is. The paper's tables leave open which they print (deviation D9).
    """
    return torch.nn.functional.one_hot(policy.argmax(dim=-1), policy.shape[-1]).to(policy.dtype)


def frequencies(policy: Tensor) -> Tensor:
    """How often each action is taken, over all images: [..., S, A] -> [..., A]."""
    return policy.mean(dim=-2)


@single_threaded  # the order of summing would follow the number of threads
def frequencies_by_label(policy: Tensor, labels: Tensor, num_labels: int) -> Tensor:
    """How often each action is taken on the images of each label: [..., S, A], [S] -> [..., labels, A]; 0 where none is."""
    check_shape(labels, "S", "labels", S=policy.shape[-2])
    member = torch.nn.functional.one_hot(labels, num_labels).double().to(policy.device)  # [S, labels]
    total = torch.einsum("sl,...sa->...la", member, policy.double())
    return (total / member.sum(dim=0).clamp(min=1)[:, None]).to(policy.dtype)


def correct_frequency(policy: Tensor, labels: Tensor) -> Tensor:
    """How often the action with the index of the label is taken: [..., S, A], [S] -> [...]."""
    index = labels.to(policy.device).expand(policy.shape[:-1]).unsqueeze(-1)
    return policy.gather(-1, index).squeeze(-1).mean(dim=-1)


def mean_label_index(frequency: Tensor) -> Tensor:
    """Mean index of the label actions among the times one is taken: [..., A] -> [...]; NaN where none ever is.

    Help is no label and has no index: where it is taken, no index counts (deviation D11).
    """
    labels = frequency[..., :NUM_DIGITS]
    index = torch.arange(NUM_DIGITS, dtype=frequency.dtype, device=frequency.device)
    total = labels.sum(dim=-1)
    return torch.where(total > 0, (labels * index).sum(dim=-1) / total.clamp(min=1e-12), torch.nan)


def summed_label_index(frequency: Tensor) -> Tensor:
    """The same with help counted as index 0, Σ_a a f(a) over the labels: [..., A] -> [...]."""
    index = torch.arange(NUM_DIGITS, dtype=frequency.dtype, device=frequency.device)
    return (frequency[..., :NUM_DIGITS] * index).sum(dim=-1)


@single_threaded
def behaviour(policy: Tensor, help_action: int | None, labels: Tensor | None = None) -> dict[str, Tensor]:
    """All of the above for policies [..., S, A]; each entry [...].

    Args:
        policy: [..., S, A].
        help_action: Which action is help, if any.
        labels: The right actions [S], if there are any: only digits have them.

    Returns:
        ``index`` and ``index_help_as_zero``; with a help action ``help_probability`` and ``help_share``; with labels
        ``correct_probability`` and ``correct_share``.
    """
    taken, chosen = frequencies(policy), most_likely(policy)
    measures = {"index": mean_label_index(taken), "index_help_as_zero": summed_label_index(taken)}
    if help_action is not None:
        measures["help_probability"] = taken[..., help_action]
        measures["help_share"] = frequencies(chosen)[..., help_action]
    if labels is not None:
        measures["correct_probability"] = correct_frequency(policy, labels)
        measures["correct_share"] = correct_frequency(chosen, labels)
    return measures


@single_threaded
def behaviour_of_networks(
    rewards: Tensor, help_action: int | None, right: Tensor | None, labels: Tensor, num_labels: int
) -> tuple[dict[str, dict[str, float | None]], dict[str, Tensor]]:
    """Behaviour of each network's own greedy policy ("optim"), averaged over the networks.

    Args:
        rewards: [M, S, A].
        help_action: Which action is help, if any.
        right: The right actions [S], if there are any.
        labels: Of all images, [S].
        num_labels: How many there are.

    Returns:
        Quantity -> its mean over networks with the 95 % interval; and arrays: the frequency of each action by label and
        overall, and each quantity per network.
    """
    by_quantity: dict[str, list[Tensor]] = {}
    by_label = []
    for block in rewards.split(max(1, 2**24 // (rewards.shape[1] * rewards.shape[2]))):  # greedy policies are as large
        greedy = most_likely(block)  # [m, S, A]
        for name, values in behaviour(greedy, help_action, right).items():
            by_quantity.setdefault(name, []).append(values.cpu())
        by_label.append(frequencies_by_label(greedy, labels, num_labels).sum(dim=0).cpu())
    per_network = {name: torch.cat(parts).double() for name, parts in by_quantity.items()}
    table = torch.stack(by_label).sum(dim=0) / len(rewards)
    counts = torch.bincount(labels, minlength=num_labels).to(table.dtype)
    overall = (table * counts[:, None]).sum(dim=0) / counts.sum()
    arrays = {"optim-by_label": table, "optim-actions": overall}
    arrays |= {f"optim-{name}": values for name, values in per_network.items()}
    return {name: _mean_and_interval(values) for name, values in per_network.items()}, arrays


def _mean_and_interval(values: Tensor) -> dict[str, float | None]:
    """Mean of the known values, and half the width of its 95 % interval; None where there are none."""
    known = values[~values.isnan()]
    if not len(known):
        return {"mean": None, "half_width": None}
    deviation = float(known.std(correction=0))
    return {"mean": float(known.mean()), "half_width": 1.96 * deviation / len(known) ** 0.5}
