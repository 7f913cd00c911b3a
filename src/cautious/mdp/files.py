"""A world on disk: tensors "transitions" [S, A, S] or [S*A, S], "initial_state_dist" [S] and "discount" (one number).

Estimated dynamics have three more, "visits" [S, A], "entered" [S] and "prior" (one number), as in `Coverage`; worlds from
Gymnasium whose episodes end have "endings" [E, 2] and "endings_chance" [E], as in `Endings`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from cautious.errors import BadFileError
from cautious.io.arrays import load_tensors, pick, save_tensors
from cautious.mdp.coverage import Coverage
from cautious.mdp.from_gymnasium import Endings
from cautious.mdp.tabular import TabularMDP


def save_mdp(path: Path, mdp: TabularMDP) -> str:
    """Write a world; returns the file's checksum."""
    return save_tensors(path, tensors_of(mdp))


def tensors_of(mdp: TabularMDP) -> dict[str, Tensor]:
    """What a file holds of a world."""
    parts = {"transitions": mdp.transitions.to_dense(), "initial_state_dist": mdp.initial_state_dist}
    parts["discount"] = torch.tensor(mdp.discount, dtype=torch.float64)
    if mdp.coverage is not None:
        prior = torch.tensor(mdp.coverage.prior, dtype=torch.float64)
        parts |= {"visits": mdp.coverage.visits, "entered": mdp.coverage.entered, "prior": prior}
    if mdp.endings is not None:
        parts["endings"] = torch.stack([mdp.endings.pair, mdp.endings.entered], dim=1)
        parts["endings_chance"] = mdp.endings.chance
    return parts


def load_mdp(path: Path, expected: str | None = None) -> TabularMDP:
    """Read a world; a two-dimensional table of transitions is taken as sparse. The rest is as in `load_tensors`."""
    tensors = load_tensors(path, expected)
    transitions, start, discount = (
        pick(tensors, name, path) for name in ("transitions", "initial_state_dist", "discount")
    )
    if discount.numel() != 1:
        raise BadFileError(f"{path}: 'discount' must be one number, got shape {list(discount.shape)}.")
    if transitions.dim() == 2:
        transitions = transitions.to_sparse()
    coverage, endings = None, None
    if "visits" in tensors:
        visits, entered, prior = (pick(tensors, name, path) for name in ("visits", "entered", "prior"))
        if prior.numel() != 1:
            raise BadFileError(f"{path}: 'prior' must be one number, got shape {list(prior.shape)}.")
        coverage = Coverage(visits.long(), entered.bool(), float(prior))
    if "endings" in tensors:
        ends, chance = pick(tensors, "endings", path), pick(tensors, "endings_chance", path)
        if ends.dim() != 2 or ends.shape[1] != 2 or chance.dim() != 1:
            raise BadFileError(f"{path}: 'endings' must be [E, 2] and 'endings_chance' [E].")
        endings = Endings(ends[:, 0].long().contiguous(), ends[:, 1].long().contiguous(), chance.double())
    return TabularMDP(transitions, start, float(discount), coverage=coverage, endings=endings)
