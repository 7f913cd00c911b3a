"""Drives as moving pictures: for the terminal, and as a GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from cautious.io.atomic import atomic_write
from cautious_paper.experiments.demos.rollouts import Drive, Frame
from cautious_paper.worlds.driving_picture import CAR, DARK, DITCH, OBSTACLE, ROAD, SPEED, as_picture, cells

SCALE = 40
MARGIN, HEADER = 16, 44


def save_gif(drives: Sequence[Drive], path: Path, fps: float) -> None:
    """Write all drives side by side as a looping GIF."""
    images = [_image(drives, step) for step in range(len(drives[0].frames))]
    buffer = io.BytesIO()
    duration = max(20, round(1000 / fps))
    images[0].save(buffer, format="GIF", save_all=True, append_images=images[1:], duration=duration, loop=0)
    atomic_write(path, lambda target: target.write_bytes(buffer.getvalue()))


def _image(drives: Sequence[Drive], step: int) -> Image.Image:
    pictures = [as_picture(drive.frames[step].state, SCALE) for drive in drives]
    height, width = pictures[0].shape[:2]
    canvas = np.full((height + HEADER + MARGIN, len(drives) * (width + MARGIN) + MARGIN, 3), 250, dtype=np.uint8)
    for number, picture in enumerate(pictures):
        left = MARGIN + number * (width + MARGIN)
        canvas[HEADER : HEADER + height, left : left + width] = picture
    image = Image.fromarray(canvas)
    draw = ImageDraw.Draw(image)
    for number, drive in enumerate(drives):
        left = MARGIN + number * (width + MARGIN)
        draw.text((left, 6), f"{drive.title}: {drive.frames[step].action}", fill=(20, 20, 20))
        draw.text((left, 22), caption(drive.frames[step]), fill=(90, 90, 90))
    return image


def caption(frame: Frame) -> str:
    """How far, how fast, how often hit."""
    return f"speed {frame.state.speed}, {frame.distance} rows, {frame.collisions} hit"


COLOURS = {
    "road": ROAD,
    "ditch": DITCH,
    "car": CAR,
    "crash": OBSTACLE,
    "obstacle": OBSTACLE,
    "speed": SPEED,
    "dark": DARK,
}
SIGNS = {"car": "/\\", "crash": "><", "obstacle": "##"}


def terminal_lines(drive: Drive, step: int) -> list[list[tuple[str, tuple[int, int, int]]]]:
    """One moment as lines of (two characters, background colour)."""
    return [[(SIGNS.get(cell, "  "), COLOURS[cell]) for cell in row] for row in cells(drive.frames[step].state)]
