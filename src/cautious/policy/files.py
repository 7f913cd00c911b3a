"""A policy on disk: policy.json has its settings; the belief and the MDP are in files beside it (`io.content_names`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from cautious.beliefs.belief import TableBelief
from cautious.beliefs.ensemble import RewardEnsemble
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import FORMAT, check_json, checksum_of, fingerprint_of, load_json, load_tensors, pick
from cautious.io.content_names import Part, part_of, reading, save_parts
from cautious.mdp.files import load_mdp, tensors_of
from cautious.mdp.tabular import TabularMDP
from cautious.mdp.uncertain import UncertainMDP

DESCRIPTION = "policy.json"
ENSEMBLE, TABLE, WORLD = "belief/ensemble.json", "belief.safetensors", "mdp.safetensors"
"""Plain names; files have them with a stamp of their content (`io.content_names`)."""


def save_policy(folder: Path, settings: Mapping[str, Any], belief: Any, mdp: TabularMDP | UncertainMDP | None) -> None:
    """Write a belief, an MDP if there is one, and last the settings, which name the files that belong to them."""
    if not isinstance(belief, (RewardEnsemble, TableBelief)):
        raise InvalidInputError(
            f"save: a belief of type {type(belief).__name__} cannot be written; a RewardEnsemble or an array can."
        )
    kind = "ensemble" if isinstance(belief, RewardEnsemble) else "table"
    parts: dict[str, Part | None] = {ENSEMBLE: None, TABLE: None, WORLD: None}
    if isinstance(belief, RewardEnsemble):
        parts[ENSEMBLE] = Part(_stamp(belief), partial(_save_ensemble, belief))
    else:
        parts[TABLE] = Part.of({"rewards": belief.table})
    if mdp is not None:
        parts[WORLD] = Part.of(mdp.tensors() if isinstance(mdp, UncertainMDP) else tensors_of(mdp))
    content = {"format": FORMAT, "belief": kind, **settings, "mdp": mdp is not None}
    save_parts(folder / DESCRIPTION, content, parts)


def _save_ensemble(belief: RewardEnsemble, description: Path) -> str:
    """Save a belief in a folder of its own; returns the checksum of the folder's description."""
    belief.save(description.parent)
    return checksum_of(load_json(description))


def _stamp(belief: RewardEnsemble) -> str:
    """A digest of everything that is written of an ensemble."""
    prior = () if belief.prior is None else belief.prior.tensors().values()
    weights = fingerprint_of(belief.parameters, belief.losses, *prior)
    return checksum_of(
        [belief.network.name, belief.network.describe(), belief.settings, weights, belief.held_out_results()]
    )


def load_policy(
    folder: Path, network: Any
) -> tuple[dict[str, Any], RewardEnsemble | Tensor, TabularMDP | UncertainMDP | None]:
    """Settings, belief and MDP; `network` as in `RewardEnsemble.load`."""
    return reading(folder, lambda: _read_policy(folder, network))


def _read_policy(
    folder: Path, network: Any
) -> tuple[dict[str, Any], RewardEnsemble | Tensor, TabularMDP | UncertainMDP | None]:
    path = folder / DESCRIPTION
    description = load_json(path)
    kind = description.get("belief") if isinstance(description, dict) else None
    if kind not in ("ensemble", "table") or description.get("format") != FORMAT:
        raise BadFileError(f"{path}: not a policy that this version reads (format {FORMAT}).")
    belief: RewardEnsemble | Tensor
    if kind == "ensemble":
        file, expected = part_of(folder, description, ENSEMBLE)
        check_json(file, expected)
        belief = RewardEnsemble.load(file.parent, network)
    else:
        file, expected = part_of(folder, description, TABLE)
        belief = pick(load_tensors(file, expected), "rewards", file)
    mdp = _load_world(*part_of(folder, description, WORLD)) if description.get("mdp") else None
    return description, belief, mdp


def _load_world(path: Path, expected: str | None) -> TabularMDP | UncertainMDP:
    """The world of either kind that a file holds."""
    tensors = load_tensors(path, expected)
    return UncertainMDP.from_tensors(tensors, path) if "chance" in tensors else load_mdp(path, expected)
