"""What an agent's file may say: every setting, every size and every tensor is checked before anything is made of it.

Whoever can write a file can compute its checksum too. So a file of KofNPPO is believed only where it says what `save` could
have written: settings of a fixed list, each within its range, and tensors of the shapes that those settings lead to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.validation import LARGEST_COUNT, as_number

if TYPE_CHECKING:
    from cautious.rl.kofn_ppo import KofNPPO

LARGEST_ROLLOUT = 2**30
"""Bytes that a rollout of a loaded agent may take, unless the caller gives `n_steps`."""
LARGEST_SEED = 2**32 - 1
"""Of Stable-Baselines3, which seeds numpy's global generator."""

Rule = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words and as a test."""


def whole(least: int, most: int = LARGEST_COUNT) -> Rule:
    """A whole number from `least` to `most`."""
    return (
        f"a whole number from {least} to {most}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
    )


def number(least: float = -math.inf, most: float = math.inf, *, beyond: bool = False) -> Rule:
    """A finite number from `least` to `most`; `beyond`: larger than `least`."""
    return (
        f"a number {'above' if beyond else 'from'} {least:g}{'' if most == math.inf else f' to {most:g}'}",
        lambda value: math.isfinite(as_number(value)) and least <= value <= most and not (beyond and value == least),
    )


def maybe(rule: Rule) -> Rule:
    """None, or what `rule` says."""
    return f"{rule[0]}, or null", lambda value: value is None or rule[1](value)


TRUTH: Rule = "true or false", lambda value: isinstance(value, bool)
NAMES: Rule = "a list of texts", lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value)
ENTRIES: Rule = "an object", lambda value: isinstance(value, dict)
WIDTHS: Rule = (
    "a list of widths, or one for pi and one for vf",
    lambda value: (
        _are_widths(value)
        or (isinstance(value, dict) and set(value) <= {"pi", "vf"} and all(map(_are_widths, value.values())))
    ),
)

SETTINGS: dict[str, Rule] = {
    "smoothing": number(0, 1, beyond=True),
    "num_starts": whole(1),
    "random_stops": TRUTH,
    "reward_scale": maybe(number(0, beyond=True)),
    "even_share": number(0, 1, beyond=True),
    "n_steps": whole(1),
    "batch_size": whole(1),
    "n_epochs": whole(1),
    "gamma": ("a number from 0 to below 1", lambda value: 0 <= as_number(value) < 1),
    "gae_lambda": number(0, 1),
    "ent_coef": number(),
    "vf_coef": number(),
    "max_grad_norm": number(0),
    "use_sde": TRUTH,
    "sde_sample_freq": whole(-1),
    "target_kl": maybe(number(0, beyond=True)),
    "normalize_advantage": TRUTH,
    "seed": maybe(whole(0, LARGEST_SEED)),
    "learning_rate": number(0),
    "clip_range": number(0),
    "clip_range_vf": maybe(number(0, beyond=True)),
}
"""Settings that a file may have: those of `KofNPPO`, and those of PPO that are plain values (of schedules, the first value)."""

POLICY_SETTINGS: dict[str, Rule] = {
    "net_arch": maybe(WIDTHS),
    "ortho_init": TRUTH,
    "log_std_init": number(-100, 100),
    "full_std": TRUTH,
    "use_expln": TRUTH,
    "squash_output": TRUTH,
    "features_extractor_kwargs": maybe(ENTRIES),
    "share_features_extractor": TRUTH,
    "normalize_images": TRUTH,
    "optimizer_kwargs": maybe(ENTRIES),
}
"""The same of the policies of Stable-Baselines3; the arguments of a user's own class are for that class to check."""

ENTRIES_OF_FILE: dict[str, Rule] = {
    "level": ("a text", lambda value: isinstance(value, str)),
    "policy": ("a text, or null", lambda value: value is None or isinstance(value, str)),
    "policy_kwargs": ENTRIES,
    "not_stored": NAMES,
    "settings": ENTRIES,
    "num_timesteps": whole(0, 2**62),
    "num_models": whole(1),
    "num_updates": whole(0, 2**62),
    "spaces": ("two texts", lambda value: NAMES[1](value) and len(value) == 2),
}
LATER_ENTRIES: dict[str, Rule] = {
    "class": ("a text", lambda value: isinstance(value, str)),
    "mixture": ("a text", lambda value: isinstance(value, str)),
}
"""Entries that older files lack."""


def check_description(described: Mapping[str, Any]) -> None:
    """Raise `InvalidInputError`, naming the first wrong entry, unless agent.json says what `save` could have written."""
    _check(described, ENTRIES_OF_FILE | LATER_ENTRIES, "")
    missing = [name for name in ENTRIES_OF_FILE if name not in described]
    if missing:
        raise InvalidInputError(f"{missing[0]} is missing.")
    settings = described["settings"]
    _refuse_unknown(settings, SETTINGS, "settings")
    _check(settings, SETTINGS, "settings: ")
    if described["policy"] is not None:
        _refuse_unknown(described["policy_kwargs"], POLICY_SETTINGS, "policy_kwargs")
        _check(described["policy_kwargs"], POLICY_SETTINGS, "policy_kwargs: ")


def check_rollout(agent: KofNPPO) -> None:
    """Raise unless a rollout of the agent, which is not set up yet, fits into `LARGEST_ROLLOUT`."""
    space = agent.observation_space
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else (space,)
    shapes = [(part.shape or (), np.dtype(part.dtype or np.int64).itemsize) for part in parts]
    per_step = sum(math.prod(shape) * size for shape, size in shapes) + 4 * (
        math.prod(agent.action_space.shape or ()) + 6
    )
    total = agent.n_steps * agent.n_envs * per_step
    if total > LARGEST_ROLLOUT:
        raise InvalidInputError(
            f"n_steps={agent.n_steps} makes rollouts of {total / 2**30:,.1f} GiB; to have that, pass load(..., n_steps=...)."
        )


def laid_out(agent: KofNPPO) -> torch.nn.Module:
    """The network of an agent that is not set up yet, on torch's "meta" device: sizes that only a file claims cost nothing."""
    device = torch.device("meta")
    kind = type(agent.policy_class.__name__, (agent.policy_class,), {"device": device})
    with device:
        network = kind(agent.observation_space, agent.action_space, lambda _: 1.0, **agent.policy_kwargs)
        if agent.use_sde:  # its noise cannot be drawn on this device; only the size of its scale depends on it
            noises = network.action_net.out_features if agent.policy_kwargs.get("full_std", True) else 1
            network.log_std = torch.nn.Parameter(torch.empty(network.action_net.in_features, noises))
    return network


def check_tensors(
    network: torch.nn.Module, tensors: Mapping[str, Tensor], num_models: int, state: Mapping[str, Tensor]
) -> None:
    """Raise unless the tensors are those of a policy's network, its optimiser and the standings of `num_models` models.

    Args:
        network: Of the policy.
        tensors: By name, as in the file.
        num_models: M, as the file says.
        state: What a mixture of the kind that reads the file would write now: the file's has the same names, and the same
            shapes or [M].
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    parameters = [tuple(parameter.shape) for parameter in network.parameters()]
    standings: dict[str, set[tuple[int, ...]]] = {name: {(num_models,)} for name in ("weights", "average", "sums")}
    standings |= {
        "visits": {(1,), (num_models,)},
        "paid": {(3,)},
    }  # one number of visits where all models judge the same steps
    expected: dict[str, set[tuple[int, ...]]] = {f"policy.{name}": {shape} for name, shape in shapes.items()}
    expected |= {f"mixture.{name}": sizes for name, sizes in standings.items()}
    expected |= {name: {tuple(tensor.shape), (num_models,)} for name, tensor in state.items()}
    for name in expected:
        if name not in tensors:
            raise InvalidInputError(f"there is no tensor {name}.")
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        place = rest.partition(".")[0]
        if part == "optimizer" and place.isdecimal() and int(place) < len(parameters):
            expected[name] = {(), parameters[int(place)]}  # moments, and the number of steps
        if tuple(tensor.shape) not in expected.get(name, ()):
            raise InvalidInputError(f"tensor {name} of shape {list(tensor.shape)} does not belong to this agent.")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"tensor {name} has entries that are not finite numbers.")
        if part != "policy" and tensor.dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(f"tensor {name} is of type {tensor.dtype}.")
        if (rest.endswith(("_sq", ".step")) or name == "mixture.visits") and bool((tensor < 0).any()):
            raise InvalidInputError(f"tensor {name} has negative entries.")
    for name in ("weights", "average"):
        weights = tensors[f"mixture.{name}"].double()
        if bool((weights < 0).any()) or abs(float(weights.sum()) - 1) > 1e-6:
            raise InvalidInputError(f"mixture.{name} are not weights: they must be zero or more, and sum to one.")


def _check(values: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> None:
    for name, (words, test) in rules.items():
        if name in values and not test(values[name]):
            raise InvalidInputError(f"{where}{name} is {str(values[name])[:40]!r}; it must be {words}.")


def _refuse_unknown(values: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> None:
    unknown = [name for name in values if name not in rules]
    if unknown:
        raise InvalidInputError(f"{where}: {unknown[0][:40]!r} is no setting that a file may have.")


def _are_widths(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 1000 and all(whole(1)[1](width) for width in value)
