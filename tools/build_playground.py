"""Write the playground's weights and sample pictures: `python tools/build_playground.py`.

The first models of the beliefs that come with the package, in half precision as plain bytes (little endian, [M, P]), and a few
pictures of the package's own image sets, as bytes. `manifest.json` says how many there are of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from cautious import RewardEnsemble
from cautious_paper.worlds.data import load_images

FOLDER = Path(__file__).parents[1] / "src" / "cautious_paper" / "play" / "static" / "weights"
NUM_IMAGE_MODELS, NUM_DRIVING_MODELS = 60, 60
"""Enough for 1-of-20 to mean something, few enough for an answer within a tenth of a second of a stroke."""


CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
HELP_REWARD = 0.25
"""What asking for help always paid in the training of `ask-for-help`."""


def main(folder: Path = FOLDER) -> None:
    """Write all files to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    images = RewardEnsemble.load("ask-for-help").parameters[:NUM_IMAGE_MODELS]
    driving = RewardEnsemble.load("driving").parameters[:NUM_DRIVING_MODELS]
    _write_half(folder / "images.bin", images)
    _write_half(folder / "driving.bin", driving)
    digits, clothes = _one_of_each("digits"), _one_of_each("fashion")
    (folder / "samples.bin").write_bytes(np.concatenate([digits, clothes]).tobytes())
    manifest = {
        "images": {"models": len(images), "parameters": images.shape[1], "help_reward": HELP_REWARD},
        "driving": {"models": len(driving), "parameters": driving.shape[1]},
        "samples": [{"kind": "digit", "name": f"digit {digit}"} for digit in range(10)]
        + [{"kind": "clothes", "name": name} for name in CLOTHES],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _one_of_each(name: str) -> np.ndarray:
    """The third test image of each class of the package's own cut, [10, 28, 28]: bytes."""
    found = load_images(name, data=None)
    images, labels = np.asarray(found.images), np.asarray(found.labels)
    return np.stack([images[labels == label][2] for label in range(10)]).astype(np.uint8)


def _write_half(path: Path, parameters: torch.Tensor) -> None:
    path.write_bytes(parameters.numpy().astype("<f2").tobytes())


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
