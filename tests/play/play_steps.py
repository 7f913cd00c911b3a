"""What the tests of the page do again and again."""

from __future__ import annotations


def answered(page, tab, level):
    """Wait until a tab shows what a level says."""
    page.wait_for_selector(f"#room-{tab}[data-answered='{level}']", state="attached")


def text(page, selector):
    return page.text_content(selector)


def wait_for_text(page, element, words):
    page.wait_for_function(
        "([id, words]) => document.getElementById(id).textContent.includes(words)", arg=[element, words]
    )


def draw_line(page, *points):
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + points[0][0] * box["width"], box["y"] + points[0][1] * box["height"])
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=6)
    page.mouse.up()


def open_csv(page, content, name="points.csv"):
    page.set_input_files("#csv", {"name": name, "mimeType": "text/csv", "buffer": content.encode()})
