"""What the page says when something is missing, broken, too old or too large: a sentence, where it belongs."""

from __future__ import annotations

import pytest
from play_steps import answered, draw_line, open_csv, text, wait_for_text

BAD_TABLES = {
    "a,b\n1,2\n\nx,3\n": "line 4: “x” in “a” is not a number",
    "red,green\nblue,yellow\n": "is not a number",
    "1\n2\n": "two columns of numbers",
    "": "is empty",
    "\n".join(f"1,2,{kind}" for kind in "abcdefg"): "three classes at most",
    "x,y,c\n" + "\n".join(f"{i},2,k{i}" for i in range(9)): "9 different values in “c”",
    "1,2\n3,4\n": "at least two classes",
    "1,2,a\n1,inf,b\n": "“inf” is not a number",
    "x,y,c\n": "no number in it",
    "x\ty\n\t5\n": "line 2: a number is missing in “x”",
    "x;y\n1,5;2,5\n": "decimal comma. Write 1.5",
    "1,2,a\n-1.5e308,1,b\n": "“-1.5e308” is too large",
    "1,2,a\n1,1e200,b\n": "“1e200” is too large",
}


def test_files_that_are_no_tables_get_a_sentence(visit):
    page = visit.open("table")
    for content, words in BAD_TABLES.items():
        open_csv(page, content)
        wait_for_text(page, "table-status", words)


def test_ten_thousand_points_are_thinned_out(visit):
    page = visit.open("table")
    open_csv(page, "\n".join(f"{i % 97},{i % 89},{'ab'[i % 97 > 48]}" for i in range(10_000)))
    wait_for_text(page, "table-status", "10,000 rows")
    wait_for_text(page, "table-status", "uses 400 of them")
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


OLD = {
    "pointer": "delete window.PointerEvent",
    "worker": "delete window.Worker",
    "at": "delete Array.prototype.at",
    "replaceChildren": "delete Element.prototype.replaceChildren",
    "roundRect": "delete CanvasRenderingContext2D.prototype.roundRect",
}


@pytest.mark.parametrize("lacking", OLD)
def test_an_old_browser_is_told(visit, lacking):
    page = visit.open("drive", before=lambda page: page.add_init_script(OLD[lacking]))
    wait_for_text(page, "notice", "too old")
    page.wait_for_timeout(200)  # whatever fails then does not take its place
    assert "too old" in text(page, "#notice")
    assert page.is_visible("#notice")
    visit.complaints.clear()


def without(file, **answer):
    return lambda page: page.route(
        f"**/{file}", lambda route: route.fulfill(**{"status": 404, "body": "gone", **answer})
    )


def test_without_one_of_its_files_the_page_says_so_at_once(visit):
    page = visit.open("draw", before=without("parts/look.js"))
    page.wait_for_function(
        "() => document.getElementById('notice').textContent.includes('did not start')", timeout=5000
    )
    visit.complaints.clear()


def test_without_a_worker_every_tab_says_so(visit):
    page = visit.open("draw", before=without("worker.js"))
    for tab in ("draw", "drive", "table"):
        page.click(f"#tab-{tab}")
        wait_for_text(page, "notice", "could not start")
        assert page.is_visible("#notice")
    assert text(page, "#table-status") == ""
    late = page.evaluate("""async () => {
      const { Client } = await import("./parts/client.js");
      const client = new Client();
      await new Promise((resolve) => client.worker.addEventListener("error", resolve));
      const silence = new Promise((resolve) => setTimeout(resolve, 2000, "nothing"));
      return Promise.race([client.ask("images:load").catch((error) => error.message), silence]);
    }""")
    assert "could not start" in late  # who asks after the failure is answered, too
    visit.complaints.clear()


def test_a_sentence_stays_with_its_tab(visit):
    page = visit.open("draw", before=without("images.bin"))
    wait_for_text(page, "notice", "cannot be loaded")
    page.click("#tab-about")
    assert not page.is_visible("#notice")
    page.click("#tab-draw")
    assert page.is_visible("#notice")
    visit.complaints.clear()


@pytest.mark.parametrize("how", ["gone", "aborted"])
def test_without_sample_pictures_one_can_draw(visit, how):
    abort = lambda page: page.route("**/samples.bin", lambda route: route.abort())  # noqa: E731
    page = visit.open("draw", before=without("samples.bin") if how == "gone" else abort)
    answered(page, "draw", "1-of-20")
    wait_for_text(page, "notice", "The sample pictures cannot be loaded")
    page.click("#clear")
    draw_line(page, (0.5, 0.15), (0.5, 0.85))
    page.wait_for_function("() => document.getElementById('ordinary-answer').textContent === 'a 1'")
    visit.complaints.clear()


def test_nothing_is_decided_from_what_is_no_number(visit):
    page = visit.open("about")
    said = page.evaluate("""async () => {
      const { Client } = await import("./parts/client.js");
      const client = new Client();
      const rows = Array.from({ length: 8 }, (_, i) => [i, -i]);
      const rewards = rows.map((_, i) => [i % 2, 1 - (i % 2)]);
      await client.ask("table:train", { rows, rewards });
      return client.ask("table:point", { k: 1, n: 20, row: [1e308, -1e308] }).then(() => "decided", (error) => error.message);
    }""")
    assert "too far apart" in said
