"""Cut the package's embedded default out of the complete image sets.

python tools/cut_embedded_data.py FOLDER [OUT]

FOLDER holds complete MNIST and Fashion-MNIST as `load_images` understands it; OUT is the package's own folder if not
given. The same number of every class, chosen by a hash of (seed, set, split, index): the same images on every machine
and version, in the order of the complete set.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from cautious.seeding import derive_seed
from cautious_paper.worlds.data.find import EMBEDDED
from cautious_paper.worlds.data.idx import write_idx
from cautious_paper.worlds.data.image_sets import ImageSet, load_images
from cautious_paper.worlds.data.sources import known_split

SEED = 0
CUTS = {("digits", "train"): 6_000, ("digits", "test"): 1_000, ("fashion", "test"): 1_000}


def chosen(images: ImageSet, count: int) -> Tensor:
    """Indices [count] into `images`, rising, equally many of each class."""
    classes = images.labels.unique().tolist()
    kept: list[int] = []
    for label in classes:
        own = (images.labels == label).nonzero().flatten().tolist()
        own.sort(key=lambda index: derive_seed(SEED, "embedded", images.name, images.split, index))
        kept += own[: count // len(classes)]
    return torch.tensor(sorted(kept))


def cut(folder: Path, out: Path) -> None:
    """Write the cuts of all sets in `folder` to `out`."""
    for (name, split), count in CUTS.items():
        published = known_split(name, split)
        images = load_images(name, split, folder)
        if len(images) != published.num_images:
            raise SystemExit(f"{name} {split}: {images.origin}; a cut is made of the complete set only.")
        indices = chosen(images, count)
        layout = published.layouts[0]
        write_idx(out / f"{layout.images}.gz", images.images[indices])
        write_idx(out / f"{layout.labels}.gz", images.labels[indices].to(torch.uint8))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    cut(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else EMBEDDED)
