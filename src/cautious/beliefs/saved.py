"""Trained models on disk: ensemble.json says what they are, models-STAMP.safetensors holds their weights (`beliefs.named`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cautious.beliefs.files import (
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
from cautious.beliefs.named import name_in, replacing, with_stamp
from cautious.beliefs.shards import fingerprint_of
from cautious.errors import BadFileError

DESCRIPTION, WEIGHTS = "ensemble.json", "models.safetensors"


def save_models(
    folder: Path,
    network: Mapping[str, Any],
    settings: Any,
    parameters: Tensor,
    losses: Tensor,
    findings: Mapping[str, Any] | None = None,
) -> None:
    """Write weights [M, P] and losses [M] of models, then what they are: network, how they were trained, what was found."""
    name = with_stamp(WEIGHTS, fingerprint_of(parameters, losses))
    with replacing(folder / DESCRIPTION, WEIGHTS):
        checksum = save_tensors(folder / name, {"parameters": parameters, "losses": losses})
        described = {"format": FORMAT, **network, "settings": settings, **(findings or {})}
        save_json(folder / DESCRIPTION, described, files={name: checksum})


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
