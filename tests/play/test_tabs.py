"""Somebody clicks through the tabs, on a desktop and on a phone, by mouse, finger and keyboard."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from play_steps import answered, draw_line, open_csv, text, wait_for_text

VIEWPORTS = ("desktop", "phone")
TABS = ("draw", "drive", "table", "about")
PIXELS = "[...document.getElementById('seen').getContext('2d').getImageData(0, 0, 28, 28).data].join()"
REMEMBER_LEVELS = """() => import("./parts/dial.js").then(({ level }) => {
  window.levels = [];
  level.addEventListener("change", () => window.levels.push(level.k));
})"""


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
    for answer in ("#ordinary-answer", "#cautious-answer", "#caution-number"):
        assert text(page, answer) == "·"  # an empty pad is nothing to decide about
    draw_line(page, (0.5, 0.15), (0.5, 0.85))
    page.wait_for_function("() => document.getElementById('ordinary-answer').textContent === 'a 1'")
    page.keyboard.press("Tab")
    page.focus("#dial")
    page.keyboard.press("Home")
    page.click("#dial-more")
    answered(page, "draw", "19-of-20")


def test_the_sweep_comes_back_and_stops_when_asked(visit):
    page = visit.open("draw", before=lambda page: page.clock.install())
    answered(page, "draw", "1-of-20")
    page.evaluate(REMEMBER_LEVELS)
    page.click("#room-draw [data-try=dial]")
    page.clock.run_for(10_000)
    assert page.evaluate("levels") == [*range(2, 21), *range(19, 0, -1)]
    for leave in ("#tab-drive", "#tab-draw"):  # another tab; then, from Draw, the first step
        page.click("#tab-draw")
        page.click("#room-draw [data-try=dial]")
        page.clock.run_for(800)
        page.click(leave)
        stopped = page.evaluate("levels.length")
        page.clock.run_for(5_000)
        assert page.evaluate("levels.length") == stopped > 0


def test_a_tour_that_is_left_leaves_the_dial_cautious(visit):
    page = visit.open("draw", before=lambda page: page.clock.install())
    answered(page, "draw", "1-of-20")
    page.click("#room-draw [data-try=dial]")
    page.clock.run_for(1_000)
    page.click("#tab-table")
    assert page.get_attribute("#dial", "aria-valuenow") == "19"
    page.click("#tab-draw")
    page.click("#room-draw [data-try=dial]")
    page.clock.run_for(1_000)
    page.click("#dial-less")  # a hand on the dial takes it over where it is
    assert 0 < int(page.get_attribute("#dial", "aria-valuenow")) < 18


def test_a_link_opens_the_same_drawing_at_the_same_level(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    page.click("#clear")
    draw_line(page, (0.3, 0.2), (0.4, 0.8), (0.7, 0.5))
    page.fill("#called", "my cat & dog")
    page.fill("#help-reward", "0.3")
    page.focus("#dial")
    page.keyboard.press("PageDown")
    answered(page, "draw", "6-of-20")
    page.wait_for_function("() => location.hash.includes('level=6-of-20') && location.hash.includes('ink=')")
    page.wait_for_function("() => location.hash.includes('help=0.3')")
    seen, said = PIXELS, "document.querySelector('.verdicts').innerText + document.getElementById('help-reward').value"
    other = visit.open(page.url.partition("#")[2])
    answered(other, "draw", "6-of-20")
    assert other.evaluate(seen) == page.evaluate(seen)
    assert other.evaluate(said) == page.evaluate(said)
    assert other.input_value("#called") == "my cat & dog"
    nonsense = visit.open("draw&level=21-of-20&ink=%00&sample=constructor&help=x")
    answered(nonsense, "draw", "1-of-20")
    assert nonsense.get_attribute("[aria-label='T-shirt']", "aria-pressed") == "true"


def test_the_ring_shows_where_the_answer_changes(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    wait_for_text(page, "dial-words", "Here it asks for help from")
    flip = int(text(page, "#dial-words").partition("from ")[2].partition(" of 20")[0])
    strokes = page.evaluate("[...document.querySelectorAll('#dial .answer-at')].map((e) => getComputedStyle(e).stroke)")
    assert len(strokes) == 20
    assert strokes[0] != strokes[-1]
    for k, says in ((flip + 1, "an 8"), (flip, "asks for help")):
        page.evaluate("k => import('./parts/dial.js').then(({ setLevel }) => setLevel(k))", k)
        answered(page, "draw", f"{k}-of-20")
        assert text(page, "#cautious-answer") == says
    with page.expect_download() as saved:
        page.click("#save-picture")
    with Image.open(saved.value.path()) as picture:
        assert picture.size == (1200, 630)
    assert text(page, "#share-words").startswith("60 networks call this T-shirt an 8; the cautious policy")


def test_the_dial_is_blue_where_it_is_ordinary(visit):
    page = visit.open("about")
    page.focus("#dial")
    page.keyboard.press("Home")
    for key in ("PageUp", "PageUp", "End"):  # 15, 10 and 1 of 20
        page.keyboard.press(key)
        dial = page.locator("#dial")
        picture = Image.open(io.BytesIO(dial.screenshot())).convert("RGB")
        red, _, blue = picture.getpixel((round(picture.width * 51 / 220), round(picture.height * 163 / 200)))
        assert blue > 1.5 * red
    red, _, blue = picture.getpixel((round(picture.width * 169 / 220), round(picture.height * 163 / 200)))
    assert red > 1.5 * blue


def test_an_ordinary_dial_says_that_nothing_differs(visit):
    page = visit.open("drive")
    answered(page, "drive", "1-of-20")
    page.focus("#dial")
    page.keyboard.press("Home")
    wait_for_text(page, "drive-status", "both cars drive alike: turn the dial")
    assert text(page, ".car.cautious [data-level]") == "the same"
    page.click("#tab-table")
    wait_for_text(page, "point-words", "the same here: turn the dial")


def test_a_tapped_sample_shows_its_answer(visit):
    page = visit.open("draw", viewport="phone")
    answered(page, "draw", "1-of-20")
    page.tap("[aria-label='digit 3']")
    page.wait_for_function("() => document.getElementById('ordinary-answer').textContent === 'a 3'")
    box = page.locator("#ordinary-answer").bounding_box()
    assert page.evaluate("scrollY") > 200  # the pad and its answers were above
    assert 0 <= box["y"] < 200


def test_space_drives_on(visit):
    page = visit.open("drive")
    answered(page, "drive", "1-of-20")
    page.click("#drive-wheel")
    for key in ("ArrowUp", "Space", "Space"):
        page.keyboard.press(key)
    assert "You" in text(page, "#left-title")
    page.wait_for_function("() => Number(document.querySelector('#stats-left div:last-child dd').textContent) > 0.5")
    assert (
        page.evaluate("[...document.querySelectorAll('#stats-left div > *')].map((e) => e.tagName)") == ["DT", "DD"] * 3
    )


def test_no_key_lies_under_the_dial(visit):
    for viewport in ("phone", "landscape"):
        page = visit.open("drive", viewport=viewport)
        answered(page, "drive", "1-of-20")
        page.tap("#room-drive [data-try=wheel]")
        covered = page.evaluate("""() => [...document.querySelectorAll("#drive-keys button")].filter((key) => {
          const box = key.getBoundingClientRect();
          return document.elementFromPoint(box.x + box.width / 2, box.bottom - 2) !== key;
        }).length""")
        assert covered == 0


def test_addresses_and_the_skip_link_keep_to_the_tab(visit):
    page = visit.open("toString")
    assert page.is_visible("#room-draw")
    page.click("#tab-table")
    page.evaluate("location.hash = 'nothing'")
    page.focus(".skip")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement === document.querySelector('#room-table h1')")
    assert page.is_visible("#room-table")
    page.focus("#tab-table")
    page.keyboard.press("End")
    assert page.is_visible("#room-about")
    page.keyboard.press("Home")
    assert page.is_visible("#room-draw")
    page.click("#room-draw .intro a")  # without the documentation around it, this leads to the last tab
    page.wait_for_function("() => document.activeElement === document.querySelector('#room-about h1')")
    assert "docs/images.md" in text(page, ".pages")
    assert page.locator("a:not([href])").count() == 0


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
    page.wait_for_function("() => Number(document.querySelector('#stats-left div:last-child dd').textContent) > 0")
    page.click("#drive-play")
    assert text(page, "#drive-play") == "Play"
    before = text(page, "#stats-right")
    page.click("#drive-step")
    page.wait_for_function("before => document.getElementById('stats-right').textContent !== before", arg=before)
    assert "Of the last" in page.get_attribute("#drive-trail", "aria-label")
    page.click("#room-drive [data-try=middle]")
    answered(page, "drive", "10-of-20")
    page.fill("#probability", "0.8")
    page.wait_for_function("() => document.getElementById('probability-value').textContent === '0.8'")
    page.click("#drive-wheel")
    page.wait_for_function(
        "() => document.querySelector('#stats-left div:last-child dd').textContent === '–'"
    )  # a new start
    if viewport == "desktop":
        page.locator("#room-drive").focus()
        for _ in range(3):
            page.keyboard.press("ArrowUp")
    else:
        for _ in range(3):
            page.tap("#drive-keys [data-action='0']")
    page.wait_for_function("() => Number(document.querySelector('#stats-left div:last-child dd').textContent) > 0.5")
    assert "You" in text(page, "#left-title")


def pixels_differ(page):
    """Whether the two planes of the table differ: the cautious one is striped where it acts differently."""
    return page.evaluate("""() => {
      const [a, b] = ["plane-ordinary", "plane-cautious"].map((id) => document.getElementById(id));
      const data = [a, b].map((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data);
      return data[0].some((value, i) => value !== data[1][i]);
    }""")


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
    page.click("#plane-cautious", position={"x": 30, "y": 40})
    page.wait_for_selector("#room-table[data-trained='101']", state="attached")
    page.click("#plane-ordinary", position={"x": 60, "y": 40})
    page.wait_for_selector("#room-table[data-trained='102']", state="attached")
    assert page.get_attribute("#plane-ordinary", "aria-label").endswith("ordinary action")
    assert page.get_attribute("#plane-cautious", "aria-label").endswith("cautious action")
    assert pixels_differ(page)
    page.click("#table-clear")
    wait_for_text(page, "table-status", "at least two classes")
    assert text(page, "#point-words") == "Point at a plane."


def test_the_penguins_that_were_hidden(visit):
    page = visit.open("table")
    page.click("#penguins")
    page.wait_for_selector("#room-table[data-trained='219']", state="attached")
    assert "says Adelie" in text(page, "#plane-legend")
    page.click("#reveal")
    words = text(page, "#hidden-words")
    usual, careful = (int(part.split("about ")[1].rstrip(".")) for part in words.split(": ")[1].split(", the cautious"))
    assert usual < 13
    assert careful > 110
    open_csv(page, "1,2\n3,x\n")  # what was there before says nothing about this file
    wait_for_text(page, "table-status", "is not a number")
    assert "wrong" in page.get_attribute("#table-status", "class")
    assert page.is_hidden("#reveal")
    assert page.get_attribute("#plane-cautious", "aria-label").startswith("Plane with 0 points")


def test_a_table_from_a_file(visit):
    page = visit.open("table")
    rows = "\n".join(f"{100 + i % 7},{5 * (i % 3) + i % 5 / 10},{'abc'[i % 3]}" for i in range(60))
    open_csv(page, f"height,width,kind,more\n{rows}")
    page.wait_for_selector("#room-table[data-trained='60']", state="attached")
    wait_for_text(page, "table-status", "60 rows. Across: “height”, up: “width”, class: “kind”.")
    assert "says a" in text(page, "#plane-legend")


def test_the_columns_of_a_file_can_be_chosen(visit):
    """Two numbers among five columns, with a text before them; then others."""
    page = visit.open("table")
    rows = "\n".join(f"bird {i},{'xyz'[i % 3]},{i % 7},{i % 3 + i / 100},{i * i % 11}" for i in range(45))
    open_csv(page, f"name,kind,age,size,weight\n{rows}")
    wait_for_text(page, "table-status", "Across: “age”, up: “size”, class: “kind”.")
    page.wait_for_selector("#room-table[data-trained='45']", state="attached")
    page.select_option("#column-up", label="weight")
    wait_for_text(page, "table-status", "Across: “age”, up: “weight”, class: “kind”.")
    page.select_option("#column-kind", label="name")
    wait_for_text(page, "table-status", "45 different values in “name”")
    assert page.is_visible("#columns")
    page.select_option("#column-kind", label="no class")
    wait_for_text(page, "table-status", "All are class A")
    page.select_option("#column-across", label="kind")
    wait_for_text(page, "table-status", "line 2: “x” in “kind” is not a number")
    page.click("#table-clear")
    assert page.is_hidden("#columns")


def test_a_file_dropped_anywhere_is_opened(visit):
    page = visit.open("table")
    page.evaluate("""() => {
      const dropped = new DataTransfer();
      dropped.items.add(new File(["1,2,a\\n3,4,b\\n"], "dropped.csv"));
      const event = new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true });
      document.querySelector("header").dispatchEvent(event);
    }""")
    wait_for_text(page, "table-status", "2 rows.")


def test_a_column_with_one_value_is_no_answer_to_anything(visit):
    """However large the value is, the plane says the same."""
    page = visit.open("table")
    said = []
    for constant in ("0.1", "1e14"):
        open_csv(page, "\n".join(f"{constant},{i % 9 + 10 * (i % 2)},{'ab'[i % 2]}" for i in range(40 + len(said))))
        page.wait_for_selector(f"#room-table[data-trained='{40 + len(said)}']", state="attached")
        wait_for_text(page, "point-words", "Caution")
        said.append(text(page, "#point-words"))
    assert said[0] == said[1]
    assert "Cautious (1 of 20): ask" in said[0]


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


def test_tabs_and_drawing_by_keyboard(visit):
    page = visit.open("draw")
    answered(page, "draw", "1-of-20")
    page.focus("#pad")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.getElementById('pad').getAttribute('aria-label').endsWith('1 stroke')")
    page.focus("#tab-draw")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#room-drive")
    page.keyboard.press("ArrowRight")
    answered(page, "table", "1-of-20")
    page.focus("#plane-cautious")
    wait_for_text(page, "point-words", "Caution")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "() => document.getElementById('live').textContent === document.getElementById('point-words').textContent"
    )
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


@pytest.mark.parametrize("viewport", ["phone", "landscape"])
def test_everything_on_a_phone_can_be_reached_with_a_finger(visit, viewport):
    page = visit.open("draw", viewport=viewport)
    answered(page, "draw", "1-of-20")
    width = page.viewport_size["width"]
    for tab in TABS:
        page.tap(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        small = page.evaluate(
            """(width) => [...document.querySelectorAll("button, select, input[type=range], .file span")]
          .filter((element) => element.checkVisibility())
          .map((element) => [element.outerHTML.slice(0, 60), element.getBoundingClientRect()])
          .filter(([, box]) => box.height < 43.9 || box.right > width + 0.5 || box.left < 0)""",
            width,
        )
        assert small == []


def test_a_phone_on_its_side_has_room_for_the_drawing(visit):
    page = visit.open("draw", viewport="landscape")
    answered(page, "draw", "1-of-20")
    page.locator("#pad").scroll_into_view_if_needed()
    boxes = {name: page.locator(name).bounding_box() for name in ("#pad", ".console", ".verdicts")}
    assert boxes["#pad"]["x"] + boxes["#pad"]["width"] < boxes[".verdicts"]["x"]
    assert boxes[".verdicts"]["x"] + boxes[".verdicts"]["width"] < boxes[".console"]["x"]
    assert boxes[".console"]["y"] >= 0
    assert boxes[".console"]["y"] + boxes[".console"]["height"] <= 390


def test_words_and_dots_stand_out(visit):
    """Contrast as WCAG 2 counts it: 4.5 for words, 3 for what is drawn."""
    page = visit.open("about")
    for theme in ("light", "dark"):
        page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
        names = ("cautious", "ordinary", "soft", "dot", "cautious-fill", "card", "cautious-wash", "paper")
        code = "names => names.map((name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim())"
        colour = dict(zip(names, page.evaluate(code, names), strict=True))
        for word in ("cautious", "ordinary", "soft"):
            assert contrast(colour[word], colour["card"]) >= 4.5
        assert contrast(colour["cautious"], colour["cautious-wash"]) >= 4.5
        assert contrast(colour["dot"], colour["card"]) >= 3
        assert contrast(colour["cautious-fill"], colour["card"]) >= 3


def contrast(first, second):
    light = sorted(luminance(colour) for colour in (first, second))
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(colour):
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
