"""An agent on disk: agent.json has its settings, weights-STAMP.safetensors those of the policy and its optimiser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import (
    FORMAT,
    fingerprint_of,
    load_json,
    load_tensors,
    recorded_checksum,
    save_json,
    save_tensors,
)
from cautious.io.content_names import name_in, reading, replacing, with_stamp
from cautious.risk import level_text

if TYPE_CHECKING:
    from cautious.rl.kofn_ppo import KofNPPO

DESCRIPTION, WEIGHTS = "agent.json", "weights.safetensors"
OWN = ("smoothing", "num_starts", "random_stops", "reward_scale")
"""Settings of KofNPPO."""
PPO_SETTINGS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "use_sde",
    "sde_sample_freq", "target_kl", "normalize_advantage", "seed",
)  # fmt: skip
"""Settings of PPO that are plain values."""
SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
"""Settings of PPO that may be functions of the progress: a file has the value that they begin with."""


def save_agent(folder: Path, agent: KofNPPO) -> None:
    """Write weights first, then the settings that name them."""
    plain = {name: value for name, value in agent.policy_kwargs.items() if _is_plain(value)}
    alias = next((name for name, kind in agent.policy_aliases.items() if kind is agent.policy_class), None)
    settings = {name: getattr(agent, name) for name in (*OWN, *PPO_SETTINGS)}
    settings |= {name: _at_first(getattr(agent, name)) for name in SCHEDULES}
    settings["ent_coef"] = _at_first(agent.entropy_schedule or agent.ent_coef)
    described = {
        "format": FORMAT,
        "kind": "KofNPPO",
        "level": level_text(agent.level),
        "policy": alias,
        "policy_kwargs": plain,
        "not_stored": sorted(set(agent.policy_kwargs) - set(plain)),
        "settings": settings,
        "num_timesteps": agent.num_timesteps,
        "num_models": agent.num_models,
        "num_updates": agent.mixture.num_updates,
        "spaces": [str(agent.observation_space), str(agent.action_space)],
    }
    tensors = _tensors_of(agent)
    with replacing(folder / DESCRIPTION, WEIGHTS):
        name = with_stamp(WEIGHTS, fingerprint_of(*tensors.values()))
        files = {name: save_tensors(folder / name, tensors)}
        save_json(folder / DESCRIPTION, described, files)


def load_agent(kind: type[KofNPPO], folder: Path, env: Any, belief: Any, given: dict[str, Any]) -> KofNPPO:
    """An agent with the settings and weights of a folder; `given` are settings that replace those of the file."""
    path = folder / DESCRIPTION
    described, tensors = reading(folder, lambda: _read(folder))
    parts = ("settings", "policy_kwargs")
    if (
        not isinstance(described, dict)
        or described.get("format") != FORMAT
        or described.get("kind") != "KofNPPO"
        or not all(isinstance(described.get(part), dict) for part in parts)
    ):
        raise BadFileError(f"{path}: not an agent that this version reads (format {FORMAT}).")
    given = dict(given)
    extra = given.pop("policy_kwargs", None) or {}
    missing = [name for name in described.get("not_stored") or () if name not in extra]
    if missing:
        raise InvalidInputError(
            f"{path}: its policy was made with {', '.join(map(repr, missing))}, which a file cannot hold; pass it again: "
            f"load(..., policy_kwargs={{{missing[0]!r}: ...}})."
        )
    policy = given.pop("policy", described.get("policy"))
    if policy is None:
        raise InvalidInputError(f"{path}: its policy is a class of your own; pass it again: load(..., policy=...).")
    settings = described["settings"] | {"policy_kwargs": described["policy_kwargs"] | extra} | given
    level = settings.pop("level", described.get("level"))
    agent = kind(policy, env, belief, level, **settings)
    if described.get("spaces") != [str(agent.observation_space), str(agent.action_space)]:
        raise InvalidInputError(
            f"{path}: learned with observations and actions {described.get('spaces')}; this environment has "
            f"{[str(agent.observation_space), str(agent.action_space)]}."
        )
    _restore(agent, tensors, described, folder / name_in(described, WEIGHTS))
    return agent


def _read(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    described = load_json(folder / DESCRIPTION)
    name = name_in(described, WEIGHTS)
    return described, load_tensors(folder / name, recorded_checksum(described, name))


def _tensors_of(agent: KofNPPO) -> dict[str, Tensor]:
    tensors = {f"policy.{name}": tensor for name, tensor in agent.policy.state_dict().items()}
    for number, entry in agent.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in entry.items() if isinstance(value, Tensor)}
    mixture = agent.mixture
    tensors |= {f"mixture.{name}": torch.from_numpy(part) for name, part in mixture.arrays().items()}
    return tensors


def _restore(agent: KofNPPO, tensors: dict[str, Tensor], described: dict[str, Any], path: Path) -> None:
    parts: dict[str, dict[str, Tensor]] = {"policy": {}, "optimizer": {}, "mixture": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    try:
        agent.policy.load_state_dict(parts["policy"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            number, _, entry = name.partition(".")
            state.setdefault(int(number), {})[entry] = tensor
        if state:
            optimizer = agent.policy.optimizer
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        if len(parts["mixture"]["weights"]) == agent.num_models:  # another belief begins with the mean of its models
            agent.mixture.restore(
                {k: v.numpy().copy() for k, v in parts["mixture"].items()}, int(described["num_updates"])
            )
        agent.num_timesteps = int(described["num_timesteps"])
    except (RuntimeError, KeyError, ValueError, TypeError) as error:
        raise BadFileError(f"{path}: does not fit the agent that {DESCRIPTION} describes ({error}).") from None


def _is_plain(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError):
        return False


def _at_first(schedule: Any) -> float | None:
    """The value at the beginning of learning."""
    return None if schedule is None else float(schedule(1.0)) if callable(schedule) else float(schedule)
