"""Trained models on disk: ensemble.json says what they are, models-STAMP.safetensors their weights (`io.content_names`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.prior import Prior
from cautious.beliefs.training.state import fingerprint_of
from cautious.errors import BadFileError
from cautious.io.arrays import (
    FORMAT,
    FORMATS,
    is_early,
    listed,
    load_json,
    load_tensors,
    pick,
    save_json,
    save_tensors,
)
from cautious.io.content_names import name_in, replacing, with_stamp
from cautious.validation import as_number

DESCRIPTION, WEIGHTS, PRIOR = "ensemble.json", "models.safetensors", "prior.safetensors"


def save_models(
    folder: Path,
    network: Mapping[str, Any],
    settings: Any,
    parameters: Tensor,
    losses: Tensor,
    prior: Prior | None = None,
    findings: Mapping[str, Any] | None = None,
) -> None:
    """Write weights [M, P] and losses [M] of models, and their prior, then what they are and how they were trained.

    And what was found out about them (`RewardEnsemble.findings`).
    """
    parts = {WEIGHTS: {"parameters": parameters, "losses": losses}}
    described = {"format": FORMAT, **network, "settings": settings, **(findings or {})}
    if prior is not None:
        parts[PRIOR] = prior.tensors()
        described["prior"] = {"width": prior.width}
    with replacing(folder / DESCRIPTION, WEIGHTS, PRIOR):
        files = {}
        for plain, tensors in parts.items():
            name = with_stamp(plain, fingerprint_of(*tensors.values()))
            files[name] = save_tensors(folder / name, tensors)
        save_json(folder / DESCRIPTION, described, files=files)


def load_prior(folder: Path, described: Mapping[str, Any], sizes: tuple[int, int, int]) -> Prior | None:
    """The prior of the models that `described` tells of, for `sizes` (M, F, A); None where they have none."""
    found = described.get("prior")
    if found is None:
        return None
    if not isinstance(found, dict) or not 0 <= as_number(found.get("width")) < math.inf:
        raise BadFileError(f"{folder / DESCRIPTION}: prior must be a width, zero or larger.")
    name = name_in(described, PRIOR)
    return Prior.read(float(found["width"]), load_tensors(folder / name, listed(described, name)), sizes, folder / name)


def load_description(folder: Path) -> dict[str, Any]:
    """What the models in a folder are."""
    path = folder / DESCRIPTION
    found = load_json(path)
    if not isinstance(found, dict) or found.get("format") not in FORMATS or not isinstance(found.get("settings"), dict):
        raise BadFileError(f"{path}: not an ensemble that this version reads (format {FORMAT}, with settings).")
    return found


def load_models(folder: Path, described: Mapping[str, Any], num_parameters: int) -> tuple[Tensor, Tensor]:
    """Weights [M, P] and losses [M] of the models that `described` tells of, as float32."""
    name = name_in(described, WEIGHTS)
    path = folder / name
    tensors = load_tensors(path, listed(described, name), checked=False if is_early(described) else None)
    parameters, losses = (pick(tensors, name, path) for name in ("parameters", "losses"))
    if parameters.dim() != 2 or parameters.shape[1] != num_parameters or not len(parameters):
        raise BadFileError(f"{path}: parameters have shape {list(parameters.shape)}, expected [M, {num_parameters}].")
    if losses.shape != parameters.shape[:1] or not losses.is_floating_point():
        raise BadFileError(f"{path}: losses have shape {list(losses.shape)}, expected one number a model.")
    if not parameters.is_floating_point() or not bool(torch.isfinite(parameters.float()).all()):
        raise BadFileError(f"{path}: some weights are not finite numbers.")
    return parameters.float(), losses.float()
