"""A policy on disk: policy.json says how it decides; its belief and its world lie beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cautious.beliefs.ensemble import RewardEnsemble
from cautious.beliefs.files import (
    FORMAT,
    FORMATS,
    checksum_of,
    is_early,
    listed,
    load_json,
    load_tensors,
    pick,
    save_json,
    save_tensors,
)
from cautious.beliefs.table import TableBelief
from cautious.errors import BadFileError, InvalidInputError
from cautious.solvers.mdp_files import load_mdp, save_mdp
from cautious.worlds.mdp import TabularMDP

DESCRIPTION = "policy.json"
ENSEMBLE, TABLE, WORLD = "belief/ensemble.json", "belief.safetensors", "mdp.safetensors"


def save_policy(folder: Path, settings: Mapping[str, Any], belief: Any, mdp: TabularMDP | None) -> None:
    """Write a belief and a world, if there is one, then how to decide with them."""
    files = {}
    if isinstance(belief, RewardEnsemble):
        belief.save(folder / "belief")
        files[ENSEMBLE] = checksum_of(load_json(folder / ENSEMBLE))
    elif isinstance(belief, TableBelief):
        files[TABLE] = save_tensors(folder / TABLE, {"rewards": belief.table})
    else:
        raise InvalidInputError(
            f"save: a belief of type {type(belief).__name__} cannot be written; a RewardEnsemble or an array can."
        )
    if mdp is not None:
        files[WORLD] = save_mdp(folder / WORLD, mdp)
    kind = "ensemble" if ENSEMBLE in files else "table"
    save_json(folder / DESCRIPTION, {"format": FORMAT, "belief": kind, **settings, "mdp": mdp is not None}, files)


def load_policy(folder: Path, network: Any) -> tuple[dict[str, Any], RewardEnsemble | Tensor, TabularMDP | None]:
    """How to decide, with which belief, in which world; `network` as in `RewardEnsemble.load`."""
    path = folder / DESCRIPTION
    found = load_json(path)
    if (
        not isinstance(found, dict)
        or found.get("format") not in FORMATS
        or found.get("belief") not in ("ensemble", "table")
    ):
        raise BadFileError(f"{path}: not a policy that this version reads (format {FORMAT}).")
    checked = False if is_early(found) else None
    belief: RewardEnsemble | Tensor
    if found["belief"] == "ensemble":
        load_json(folder / ENSEMBLE, listed(found, ENSEMBLE), checked=checked)
        belief = RewardEnsemble.load(folder / "belief", network)
    else:
        tensors = load_tensors(folder / TABLE, listed(found, TABLE), checked=checked)
        belief = pick(tensors, "rewards", folder / TABLE)
    mdp = load_mdp(folder / WORLD, listed(found, WORLD), checked=checked) if found.get("mdp") else None
    return found, belief, mdp
