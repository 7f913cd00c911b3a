"""An agent on disk: agent.json has its settings, weights-STAMP.safetensors those of the policy and its optimiser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cautious.errors import BadFileError, CautiousError, InvalidInputError
from cautious.io.arrays import FORMAT, load_json, load_tensors
from cautious.io.content_names import Part, part_of, reading, save_parts
from cautious.risk import level_text, parse_level
from cautious.rl.file_rules import check_description, check_rollout, check_tensors, laid_out
from cautious.rl.mixture import RankedMixture, can_be_saved
from cautious.validation import as_float_tensor, as_number

if TYPE_CHECKING:
    from cautious.rl.kofn_ppo import KofNPPO

DESCRIPTION, WEIGHTS = "agent.json", "weights.safetensors"
PPO_SETTINGS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "use_sde",
    "sde_sample_freq", "target_kl", "normalize_advantage", "seed",
)  # fmt: skip
"""Settings of PPO that are plain values."""
SCHEDULES = ("learning_rate", "clip_range", "clip_range_vf")
"""Settings of PPO that may be functions of the progress: a file has the value that they begin with."""

UNFIT = (RuntimeError, KeyError, ValueError, TypeError, AttributeError, AssertionError, OverflowError, MemoryError)
"""What networks and optimisers raise on arguments that are not theirs; `InvalidInputError` is a ValueError."""


def save_agent(folder: Path, agent: KofNPPO, more: dict[str, Any] | None = None) -> None:
    """Write weights first, then the settings that name them, and `more` entries beside those."""
    check_savable(agent)
    # a loaded agent's tensors stand in another order, and the file's name is of both
    tensors = dict(sorted(tensors_of(agent).items()))
    save_parts(folder / DESCRIPTION, described_agent(agent) | (more or {}), {WEIGHTS: Part.of(tensors)})


def check_savable(agent: KofNPPO) -> None:
    """Raise unless a file can hold all that the agent goes on from."""
    if not can_be_saved(agent.mixture):
        raise InvalidInputError(
            f"mixture: a file cannot hold where a {type(agent.mixture).__name__} stands; give it the methods arrays() and "
            "restore(arrays) (cautious.Mixture)."
        )


def described_agent(agent: KofNPPO) -> dict[str, Any]:
    """What a file says of an agent, beside its tensors."""
    plain = {name: value for name, value in agent.policy_kwargs.items() if _is_plain(value)}
    alias = next((name for name, kind in agent.policy_aliases.items() if kind is agent.policy_class), None)
    settings = {name: getattr(agent, name) for name in (*agent.own_settings, *PPO_SETTINGS)}
    settings |= {name: _at_first(getattr(agent, name)) for name in SCHEDULES}
    settings["ent_coef"] = _at_first(agent.entropy_schedule or agent.ent_coef)
    return {
        "format": FORMAT,
        "kind": "KofNPPO",
        "level": level_text(agent.level),
        "policy": alias,
        "policy_kwargs": plain,
        "not_stored": sorted(set(agent.policy_kwargs) - set(plain)),
        "settings": settings,
        "num_timesteps": agent.num_timesteps,
        "num_models": agent.num_models,
        "num_updates": agent.standings.num_rollouts,
        "class": type(agent).__name__,
        "mixture": type(agent.mixture).__name__,
        "spaces": [str(agent.observation_space), str(agent.action_space)],
    }


def load_agent(kind: type[KofNPPO], folder: Path, env: Any, belief: Any, given: dict[str, Any]) -> KofNPPO:
    """An agent with the settings and weights of a folder; `given` are settings that replace those of the file."""
    path = folder / DESCRIPTION
    described, tensors = reading(folder, lambda: read_agent(folder))
    given = dict(given)
    extra = given.pop("policy_kwargs", None) or {}
    missing = [name for name in described["not_stored"] if name not in extra]
    if missing:
        raise InvalidInputError(
            f"{path}: its policy was made with {', '.join(map(repr, missing))}, which a file cannot hold; pass it again: "
            f"load(..., policy_kwargs={{{missing[0]!r}: ...}})."
        )
    if described["class"] not in ("KofNPPO", kind.__name__):
        raise InvalidInputError(
            f"{path}: holds a {described['class']}, whose code a file cannot hold; load it by {described['class']}.load(...)."
        )
    mixture = described["mixture"]
    if mixture != type(given.get("mixture") or RankedMixture()).__name__:
        raise InvalidInputError(
            f"{path}: its models are weighted by a {mixture}, which a file cannot hold; pass it again: "
            f"load(..., mixture={mixture}(...))."
        )
    policy = given.pop("policy", described["policy"])
    if policy is None:
        raise InvalidInputError(f"{path}: its policy is a class of your own; pass it again: load(..., policy=...).")
    if policy is described["policy"] and policy not in kind.policy_aliases:
        raise BadFileError(f"{path}: {policy[:40]!r} is no policy of Stable-Baselines3; a damaged file?")
    foreign = set(described["settings"]) - {*kind.own_settings, *PPO_SETTINGS, *SCHEDULES}
    if foreign:
        raise BadFileError(f"{path}: {kind.__name__} has no setting {min(foreign)!r}; a damaged file?")
    settings = described["settings"] | {"policy_kwargs": described["policy_kwargs"] | extra} | given
    level = settings.pop("level", None) or described["level"]
    vec_env = kind.as_vec_env(
        env, belief, as_number(settings.get("gamma", 0.99)), settings.get("random_stops", True) is True
    )
    try:
        agent = kind(policy, vec_env, belief, level, **settings, _init_setup_model=False)
    except (AssertionError, ValueError) as error:  # of PPO: settings that do not go together
        if isinstance(error, CautiousError):
            raise
        raise BadFileError(f"{path}: no agent can be made with these settings ({error})") from None
    if described["spaces"] != [str(agent.observation_space), str(agent.action_space)]:
        raise InvalidInputError(
            f"{path}: learned with observations and actions {described['spaces']}; this environment has "
            f"{[str(agent.observation_space), str(agent.action_space)]}."
        )
    network = None
    try:
        if "n_steps" not in given:
            check_rollout(agent)
        try:
            network = laid_out(agent)
        except UNFIT:
            if described["policy"] is not None and not extra and "policy" not in given:
                raise  # a class of the caller's need not work without memory
        if network is not None:
            check_tensors(network, tensors, described["num_models"], mixture_tensors(agent))
        agent._setup_model()
        if network is None:
            check_tensors(agent.policy, tensors, described["num_models"], mixture_tensors(agent))
    except UNFIT as error:
        path, _ = part_of(folder, described, WEIGHTS)
        raise BadFileError(f"{path}: does not fit the agent that {DESCRIPTION} describes ({error})") from None
    restore(agent, tensors, described)
    return agent


def read_agent(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Content of agent.json, checked, and the tensors that it names."""
    path = folder / DESCRIPTION
    described = load_json(path)
    if not isinstance(described, dict) or described.get("format") != FORMAT or described.get("kind") != "KofNPPO":
        raise BadFileError(f"{path}: not an agent that this version reads (format {FORMAT}).")
    try:
        check_description(described)
        parse_level(described["level"])
    except InvalidInputError as error:
        raise BadFileError(f"{path}: {error}") from None
    described = {"class": "KofNPPO", "mixture": "RankedMixture"} | described  # older files do not say
    return described, load_tensors(*part_of(folder, described, WEIGHTS))


def tensors_of(agent: KofNPPO) -> dict[str, Tensor]:
    """Weights, the state of the optimiser, and the mixture, by name."""
    tensors = {f"policy.{name}": tensor for name, tensor in agent.policy.state_dict().items()}
    for number, entry in agent.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in entry.items() if isinstance(value, Tensor)}
    tensors |= {f"mixture.{name}": torch.from_numpy(part) for name, part in agent.standings.arrays().items()}
    return tensors | mixture_tensors(agent)


def mixture_tensors(agent: KofNPPO) -> dict[str, Tensor]:
    """Where a mixture stands, as it says itself."""
    state = agent.mixture.arrays() if can_be_saved(agent.mixture) else {}  # type: ignore[attr-defined]
    return {f"state.{name}": as_float_tensor(part, f"mixture: {name}", "cpu").double() for name, part in state.items()}


def restore(agent: KofNPPO, tensors: dict[str, Tensor], described: dict[str, Any]) -> None:
    """Put tensors, which were checked to fit, into an agent."""
    parts: dict[str, dict[str, Tensor]] = {"policy": {}, "optimizer": {}, "mixture": {}, "state": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    agent.policy.load_state_dict(parts["policy"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        number, _, entry = name.partition(".")
        state.setdefault(int(number), {})[entry] = tensor
    if state:
        optimizer = agent.policy.optimizer
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if described["num_models"] == agent.num_models:  # another belief begins with the mean of its models
        arrays = {
            kind: {name: part.double().numpy().copy() for name, part in parts[kind].items()}
            for kind in ("mixture", "state")
        }
        agent.standings.restore(arrays["mixture"], described["num_updates"])
        agent.mixture.restore(arrays["state"])  # type: ignore[attr-defined]
    agent.num_timesteps = described["num_timesteps"]


def _is_plain(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError):
        return False


def _at_first(schedule: Any) -> float | None:
    """The value at the beginning of learning."""
    return None if schedule is None else float(schedule(1.0)) if callable(schedule) else float(schedule)
