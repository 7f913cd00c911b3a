"""A policy on disk: policy.json has its settings; the belief and the MDP are in files beside it (`io.content_names`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cautious.beliefs.belief import TableBelief
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import (
    FORMAT,
    check_json,
    checksum_of,
    fingerprint_of,
    load_json,
    load_tensors,
    pick,
    recorded_checksum,
    save_json,
    save_tensors,
)
from cautious.io.content_names import name_in, reading, replacing, with_stamp
from cautious.mdp.files import load_mdp, save_mdp, tensors_of
from cautious.mdp.tabular import TabularMDP

DESCRIPTION = "policy.json"
ENSEMBLE, TABLE, WORLD = "belief/ensemble.json", "belief.safetensors", "mdp.safetensors"
"""Plain names; files have them with a stamp of their content (`io.content_names`)."""


def save_policy(folder: Path, settings: Mapping[str, Any], belief: Any, mdp: TabularMDP | None) -> None:
    """Write a belief, an MDP if there is one, and last the settings, which name the files that belong to them."""
    if not isinstance(belief, (RewardEnsemble, TableBelief)):
        raise InvalidInputError(
            f"save: a belief of type {type(belief).__name__} cannot be written; a RewardEnsemble or an array can."
        )
    kind = "ensemble" if isinstance(belief, RewardEnsemble) else "table"
    # Names carry a stamp of the content, and the settings are written last: an interrupted save leaves the old policy whole.
    with replacing(folder / DESCRIPTION, ENSEMBLE, TABLE, WORLD):
        files = {}
        if isinstance(belief, RewardEnsemble):
            name = with_stamp(ENSEMBLE, _stamp(belief))
            belief.save((folder / name).parent)
            files[name] = checksum_of(load_json(folder / name))
        else:
            name = with_stamp(TABLE, fingerprint_of(belief.table))
            files[name] = save_tensors(folder / name, {"rewards": belief.table})
        if mdp is not None:
            name = with_stamp(WORLD, fingerprint_of(*tensors_of(mdp).values()))
            files[name] = save_mdp(folder / name, mdp)
        save_json(folder / DESCRIPTION, {"format": FORMAT, "belief": kind, **settings, "mdp": mdp is not None}, files)


def _stamp(belief: RewardEnsemble) -> str:
    """A digest of everything that is written of an ensemble."""
    prior = () if belief.prior is None else belief.prior.tensors().values()
    weights = fingerprint_of(belief.parameters, belief.losses, *prior)
    return checksum_of(
        [belief.network.name, belief.network.describe(), belief.settings, weights, belief.held_out_results()]
    )


def load_policy(folder: Path, network: Any) -> tuple[dict[str, Any], RewardEnsemble | Tensor, TabularMDP | None]:
    """Settings, belief and MDP; `network` as in `RewardEnsemble.load`."""
    return reading(folder, lambda: _read_policy(folder, network))


def _read_policy(folder: Path, network: Any) -> tuple[dict[str, Any], RewardEnsemble | Tensor, TabularMDP | None]:
    path = folder / DESCRIPTION
    description = load_json(path)
    kind = description.get("belief") if isinstance(description, dict) else None
    if kind not in ("ensemble", "table") or description.get("format") != FORMAT:
        raise BadFileError(f"{path}: not a policy that this version reads (format {FORMAT}).")
    belief: RewardEnsemble | Tensor
    if kind == "ensemble":
        name = name_in(description, ENSEMBLE)
        check_json(folder / name, recorded_checksum(description, name))
        belief = RewardEnsemble.load((folder / name).parent, network)
    else:
        name = name_in(description, TABLE)
        tensors = load_tensors(folder / name, recorded_checksum(description, name))
        belief = pick(tensors, "rewards", folder / name)
    world = name_in(description, WORLD)
    mdp = load_mdp(folder / world, recorded_checksum(description, world)) if description.get("mdp") else None
    return description, belief, mdp
