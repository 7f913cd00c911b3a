"""Image sets: digits, fashion, letters; read from a folder, from the cache or from the package, fetched when asked.

The one home of pooch, which only fetching needs.
"""

from __future__ import annotations

from cautious_paper.worlds.data.editions import Edition
from cautious_paper.worlds.data.fetch import fetch_images
from cautious_paper.worlds.data.image_sets import FoundImages, ImageSet, find_images, has_images, load_images

__all__ = ["ImageSet", "Edition", "load_images", "has_images", "find_images", "FoundImages", "fetch_images"]
