"""Somebody clicks through the rooms, on a desktop and on a phone, by mouse and by keyboard, and does what one should not."""

from __future__ import annotations

import pytest

VIEWPORTS = ("desktop", "phone")


def answered(page, room, level):
    page.wait_for_selector(f"#room-{room}[data-answered='{level}']", state="attached")


def text(page, selector):
    return page.text_content(selector)


def draw_line(page, *points):
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + points[0][0] * box["width"], box["y"] + points[0][1] * box["height"])
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=6)
    page.mouse.up()


@pytest.mark.parametrize("viewport", VIEWPORTS)
def test_draw(visit, viewport):
    page = visit.open("draw", viewport=viewport)
    answered(page, "draw", "1-of-20")
    assert text(page, "#cautious-answer") == "asks for help"  # a shirt is shown first
    assert text(page, "#ordinary-answer") != "asks for help"
    assert float(text(page, "#caution-number")) > 0.9
    page.click("[aria-label='digit 3']")
    page.wait_for_function("() => document.getElementById('caution-number').textContent === '0.00'")
    assert text(page, "#cautious-answer") == text(page, "#ordinary-answer") == "a 3"
    page.click("#room-draw [data-try=dial]")
    answered(page, "draw", "20-of-20")
    assert text(page, "#caution-number") == "0.00"
    page.click("#clear")
    draw_line(page, (0.5, 0.15), (0.5, 0.85))
    page.wait_for_function("() => document.getElementById('ordinary-answer').textContent === 'a 1'")
    page.click("#dial-more")
    answered(page, "draw", "19-of-20")


def test_drawn_digits_are_read(visit):
    """Strokes are prepared as the digits of the training were: fitted into the middle, with a pen of one width."""
    page = visit.open("about")
    said = page.evaluate("""async () => {
      const { rasterised } = await import("./rooms/glyphs.js");
      const { Client, manifestOf } = await import("./parts/client.js");
      const client = new Client();
      await client.ask("images:load", { manifest: (await manifestOf()).images });
      const digits = {
        1: [[[0.5, 0.15], [0.5, 0.85]]],
        4: [[[0.6, 0.85], [0.6, 0.15], [0.25, 0.6], [0.8, 0.6]]],
        5: [[[0.7, 0.15], [0.35, 0.15], [0.33, 0.45], [0.55, 0.42], [0.68, 0.6], [0.55, 0.8], [0.3, 0.76]]],
        7: [[[0.25, 0.18], [0.75, 0.18], [0.42, 0.85]]],
      };
      const read = {};
      for (const [digit, strokes] of Object.entries(digits)) {
        await client.ask("images:look", { image: rasterised(strokes) });
        const { policy } = await client.ask("images:decide", { k: 1, n: 20, help: 0 });
        read[digit] = policy.indexOf(Math.max(...policy));
      }
      return read;
    }""")
    assert said == {"1": 1, "4": 4, "5": 5, "7": 7}


def test_help_that_pays_more_is_asked_for_more(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    page.click("[aria-label='digit 3']")
    page.wait_for_function("() => document.getElementById('caution-number').textContent === '0.00'")
    page.fill("#help-reward", "1")
    page.wait_for_function("() => document.getElementById('cautious-answer').textContent === 'asks for help'")


@pytest.mark.parametrize("viewport", VIEWPORTS)
def test_drive(visit, viewport):
    page = visit.open("drive", viewport=viewport)
    answered(page, "drive", "1-of-20")
    page.wait_for_function("() => Number(document.querySelector('#stats-left dd').textContent) > 0")
    page.click("#drive-play")
    assert text(page, "#drive-play") == "Play"
    before = text(page, "#stats-right")
    page.click("#drive-step")
    page.wait_for_function("before => document.getElementById('stats-right').textContent !== before", arg=before)
    page.click("#room-drive [data-try=middle]")
    answered(page, "drive", "10-of-20")
    page.fill("#probability", "0.8")
    page.wait_for_function("() => document.getElementById('probability-value').textContent === '0.8'")
    page.click("#drive-wheel")
    page.wait_for_function("() => document.querySelector('#stats-left dd').textContent === '–'")  # a new start
    if viewport == "desktop":
        page.locator("#room-drive").focus()
        for _ in range(3):
            page.keyboard.press("ArrowUp")
    else:
        for _ in range(3):
            page.tap("#drive-keys [data-action='0']")
    page.wait_for_function("() => Number(document.querySelector('#stats-left dd').textContent) > 0.5")
    assert "You" in text(page, "#left-title")


@pytest.mark.parametrize("viewport", VIEWPORTS)
def test_table(visit, viewport):
    page = visit.open("table", viewport=viewport)
    answered(page, "table", "1-of-20")
    assert "asks" in text(page, "#plane-legend")
    page.wait_for_function(
        "() => document.getElementById('point-words').textContent.includes('Cautious (1 of 20): ask')"
    )
    page.click("[data-preset=moons]")
    page.wait_for_selector("#room-table[data-trained='100']", state="attached")
    page.click("[role=radio][data-class='2']")
    page.click("#plane-action", position={"x": 30, "y": 40})
    page.wait_for_selector("#room-table[data-trained='101']", state="attached")
    page.click("[data-view=ordinary]")
    assert page.get_attribute("#plane-action", "aria-label").endswith("ordinary action")
    page.click("#table-clear")
    page.wait_for_function("() => document.getElementById('table-status').textContent.includes('at least two classes')")


def csv(page, content, name="points.csv"):
    page.set_input_files("#csv", {"name": name, "mimeType": "text/csv", "buffer": content.encode()})


def status_says(page, words):
    page.wait_for_function("words => document.getElementById('table-status').textContent.includes(words)", arg=words)


def test_a_table_from_a_file(visit):
    page = visit.open("table")
    rows = "\n".join(f"{100 + i % 7},{5 * (i % 3) + i % 5 / 10},{'abc'[i % 3]}" for i in range(60))
    csv(page, f"height,width,kind\n{rows}")
    page.wait_for_selector("#room-table[data-trained='60']", state="attached")
    status_says(page, "A is “a”")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\nx,3\n", "row 2: “x” is not a number"),
        ("red,green\nblue,yellow\n", "is not a number"),
        ("1\n2\n", "two columns of numbers"),
        ("", "is empty"),
        ("\n".join(f"1,2,{kind}" for kind in "abcdefg"), "room for three classes"),
        ("1,2\n3,4\n", "at least two classes"),
        ("1,2,a\n1,inf,b\n", "“inf” is not a number"),
    ],
)
def test_files_that_are_no_tables_get_a_sentence(visit, content, words):
    page = visit.open("table")
    csv(page, content)
    status_says(page, words)


def test_ten_thousand_points_are_thinned_out(visit):
    page = visit.open("table")
    csv(page, "\n".join(f"{i % 97},{i % 89},{'ab'[i % 97 > 48]}" for i in range(10_000)))
    status_says(page, "10,000 rows")
    status_says(page, "uses 400 of them")
    page.wait_for_selector("#room-table[data-trained='400']", state="attached")


@pytest.mark.parametrize(
    ("room", "file"), [("draw", "images.bin"), ("drive", "driving.bin"), ("draw", "manifest.json")]
)
def test_without_weights_the_page_says_so(visit, room, file):
    page = visit.open(
        room, before=lambda page: page.route(f"**/{file}", lambda route: route.fulfill(status=404, body="gone"))
    )
    page.wait_for_function("() => document.getElementById('notice').textContent.includes('cannot be loaded')")
    assert page.is_visible("#notice")
    assert all("404" in complaint for complaint in visit.complaints)
    visit.complaints.clear()


def test_half_a_file_of_weights_is_noticed(visit):
    page = visit.open(
        "draw", before=lambda page: page.route("**/images.bin", lambda route: route.fulfill(status=200, body="half"))
    )
    page.wait_for_function("() => document.getElementById('notice').textContent.includes('has 4 bytes instead of')")


def test_an_old_browser_is_told(visit):
    page = visit.open("draw", before=lambda page: page.add_init_script("delete window.PointerEvent"))
    page.wait_for_function("() => document.getElementById('notice').textContent.includes('too old')")
    visit.complaints.clear()


def test_the_dial_by_keyboard(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    dial = page.locator("#dial")
    assert dial.get_attribute("role") == "slider"
    dial.focus()
    for key, level in [("ArrowLeft", "2-of-20"), ("PageDown", "7-of-20"), ("Home", "20-of-20"), ("End", "1-of-20")]:
        page.keyboard.press(key)
        answered(page, "draw", level)
    assert dial.get_attribute("aria-valuetext").startswith("1 of 20.")
    page.select_option("#draws", "10")
    answered(page, "draw", "1-of-10")


def test_the_dial_by_hand(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    box = page.locator("#dial").bounding_box()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.8 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.05 * box["height"], steps=4)
    page.mouse.up()
    page.wait_for_function(
        "() => Math.abs(Number(document.getElementById('dial').getAttribute('aria-valuenow')) - 9.5) < 1.1"
    )


def test_rooms_and_drawing_by_keyboard(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    page.focus("#pad")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.getElementById('pad').getAttribute('aria-label').includes('1 strokes')")
    page.focus("#tab-draw")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#room-drive")
    page.keyboard.press("ArrowRight")
    answered(page, "table", "1-of-20")
    page.focus("#plane-action")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("2")
    page.wait_for_selector("#room-table[data-trained='73']", state="attached")


def test_everything_that_can_be_used_has_a_name(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    nameless = page.evaluate("""() => [...document.querySelectorAll("button, input, select, canvas, [role=slider], a[href]")]
      .filter((e) => !e.getAttribute("aria-label") && !e.labels?.length && !e.textContent.trim())
      .filter((e) => !e.closest("button[aria-label]"))
      .map((e) => e.outerHTML)""")
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_light_and_dark(visit):
    page = visit.open("draw", color_scheme="dark")
    answered(page, "draw", "1-of-20")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    page.reload()
    assert page.get_attribute("html", "data-theme") == "light"


@pytest.mark.parametrize("room", ["draw", "drive", "table", "about"])
def test_nothing_sticks_out_on_a_phone(visit, room):
    page = visit.open(room, viewport="phone")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
