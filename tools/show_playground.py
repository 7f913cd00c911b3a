"""Measure the playground in a real Chromium, and film it: `python tools/show_playground.py [FOLDER]`.

Prints the times that docs/playground.md quotes. With a folder, also writes screenshots of every tab (desktop, phone, phone on
its side; light and dark), the README's animation and the picture of shared links there. Needs playwright and chromium.
"""

from __future__ import annotations

import io
import itertools
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from cautious_paper.play.server import STATIC, files_of

DESKTOP: dict[str, Any] = {"viewport": {"width": 1360, "height": 860}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "has_touch": True,
    "is_mobile": True,
}
SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": PHONE,
    "landscape": {**PHONE, "viewport": {"width": 844, "height": 390}},
}
TABS = ("draw", "drive", "table", "about")
COLOURS = ("#f4f3ef", "#ffffff", "#2b6cd4", "#d47400", "#a65400", "#fff1dc", "#ec7a2c", "#20262e", "#efede6")
TURN = """async (k) => {
  const { setLevel, level } = await import("./parts/dial.js");
  const tab = document.getElementById("room-draw");
  const begun = performance.now();
  setLevel(k, 20);
  while (tab.dataset.answered !== `${k}-of-20`) await new Promise((resolve) => setTimeout(resolve, 1));
  return performance.now() - begun;
}"""


def main(folder: Path | None = None) -> None:
    """Measure; with a folder, take pictures too."""
    begun = time.perf_counter()
    call = [sys.executable, "-m", "cautious", "play", "--no-browser", "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process, sync_playwright() as playwright:
        assert process.stdout is not None
        address = "http://127.0.0.1:" + process.stdout.readline().split("127.0.0.1:")[1].split("/")[0] + "/"
        print(f"command to server: {time.perf_counter() - begun:.2f} s")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            _measure(browser, address)
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                _pictures(browser, address, folder)
                _film(browser, address, folder / "playground.gif")
                _card(browser, address, folder / "playground-card.png")
        finally:
            browser.close()
            process.terminate()


def _measure(browser: Browser, address: str) -> None:
    files = set(files_of(STATIC).values())
    print(f"size of the page: {sum(path.stat().st_size for path in files) / 1e6:.2f} MB in {len(files)} files")
    page = browser.new_page(**DESKTOP)
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("#room-draw[data-answered]", state="attached")
    print(f"address to first answer: {time.perf_counter() - begun:.2f} s")
    print(f"stroke to answer: {_median(_strokes(page)):.0f} ms")
    print(f"dial to answer: {_median([page.evaluate(TURN, k) for k in (2, 3, 5, 8, 12, 16, 19, 7, 4, 1)]):.0f} ms")
    for tab in ("drive", "table"):
        begun = time.perf_counter()
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#room-{tab}[data-answered]", state="attached")
        print(f"{tab}: opened to first answer in {time.perf_counter() - begun:.2f} s")
        print("  ", page.text_content(f"#{tab}-status"))
    page.close()


def _strokes(page: Page) -> list[float]:
    box = page.locator("#pad").bounding_box()
    assert box is not None
    times = []
    for number in range(9):
        page.click("#clear")
        page.mouse.move(box["x"] + 90, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 100 + 12 * number, box["y"] + 220, steps=5)
        page.mouse.up()
        page.wait_for_timeout(700)
        times.append(float(page.get_attribute("#room-draw", "data-milliseconds") or "nan"))
    return times


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _pictures(browser: Browser, address: str, folder: Path) -> None:
    for screen, scheme, tab in itertools.product(SCREENS, ("light", "dark"), TABS):
        page = browser.new_page(**SCREENS[screen], color_scheme=scheme)
        page.goto(f"{address}#{tab}")
        if tab != "about":
            page.wait_for_selector(f"#room-{tab}[data-answered]", state="attached")
            page.wait_for_timeout(2500)
        page.screenshot(path=folder / f"{tab}-{screen}-{scheme}.png")
        page.close()


def _card(browser: Browser, address: str, path: Path) -> None:
    """The picture that a shared link shows."""
    page = browser.new_page(viewport={"width": 1200, "height": 630}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector("#dial .answer-at", state="attached")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(128).save(path)
    page.close()


def _film(browser: Browser, address: str, path: Path) -> None:
    """A digit, then a shirt, then the dial from ordinary to cautious and back."""
    page = browser.new_page(viewport={"width": 1240, "height": 850}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector("#room-draw[data-answered]", state="attached")
    frames: list[tuple[Image.Image, int]] = []

    def shoot(milliseconds: int) -> None:
        page.wait_for_timeout(120)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").crop((0, 66, 1240, 850))
        frames.append((picture.resize((930, 588), Image.Resampling.LANCZOS), milliseconds))

    def show(sample: str) -> None:
        page.evaluate("name => document.querySelector(`[aria-label='${name}']`).click()", sample)
        page.wait_for_timeout(500)

    page.evaluate(TURN, 20)
    show("digit 3")
    for k in (20, 10, 4, 1):
        page.evaluate(TURN, k)
        shoot(900 if k in (20, 1) else 350)
    page.evaluate(TURN, 20)
    show("T-shirt")
    shoot(1400)
    for k in (16, 13, 11, 9, 8, 7, 6, 5, 4, 3, 2, 1):
        page.evaluate(TURN, k)
        shoot(2200 if k == 1 else 220)
    palette = _palette(frames[0][0], frames[-1][0])
    pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture, _ in frames]
    durations = [milliseconds for _, milliseconds in frames]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True)
    print(f"wrote {path} ({path.stat().st_size / 1e3:.0f} kB)")
    page.close()


def _palette(*pictures: Image.Image) -> Image.Image:
    """One palette for all frames, in which the page's own colours are exact."""
    width, height = pictures[0].size
    sheet = Image.new("RGB", (width, height * len(pictures) + 60 * len(COLOURS)))
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (0, number * height))
    for number, colour in enumerate(COLOURS):
        sheet.paste(
            colour, (0, height * len(pictures) + 60 * number, width, height * len(pictures) + 60 * (number + 1))
        )
    return sheet.quantize(160, method=Image.Quantize.MEDIANCUT, kmeans=3)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
