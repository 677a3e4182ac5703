"""index.html in a real browser: no errors, no requests, and a layout that fits the window."""

import re
import shutil

import pytest

from harness.reporting.frame import Results
from harness.reporting.page.answer import Answer, Finding
from harness.reporting.page.gallery import write_gallery
from harness.reporting.page.page import PageSection, page
from harness.reporting.report import write_report
from harness.reporting.tables.rendering import Table

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def browser():
    """Start a headless Chromium for all tests of this file."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium; on Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[test]'")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """An open page, with its errors and requests."""

    def __init__(self, browser, file, width=1280, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        self.page = self.context.new_page()
        self.faults, self.requests, self.refused = [], [], []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.refused.append((request.url, request.failure)))
        self.page.goto(file.as_uri())
        self.page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        self.url = file.as_uri()

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.context.close()
        if kind is None:
            assert self.faults == []
            left = [url for url in self.requests if url != self.url and not url.startswith("data:")]
            assert left == [], "a request leaves the page"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the folder of the page that the tests of this file share."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture
def density_page(made, hostile_run, write_run):
    if not (made / "index.html").exists():
        folder = write_run(*hostile_run)
        write_report(folder)
        for name in ("results.csv", "index.html"):
            shutil.copy(folder / name, made / name)
    return made / "index.html"


def test_scripts_in_texts_are_shown_and_do_not_run_and_every_figure_loads(browser, density_page):
    with Visit(browser, density_page) as visit:
        assert visit.page.locator("h1").inner_text() == "</title><script>alert(3)</script>"
        names = visit.page.locator("#tables table").first.locator("tbody th").all_inner_texts()
        assert names == ["conv1x1", "my_layer & co", "<script>alert(1)</script>"]
        assert visit.page.locator("img[src^='http']").count() == 0
    with Visit(browser, density_page) as visit:
        visit.page.wait_for_function("Array.from(document.images).every((one) => one.src && one.complete)")
        widths = visit.page.eval_on_selector_all("img", "all => all.map(one => one.complete && one.naturalWidth)")
        assert len(widths) == 6, "one image per file of the report"
        assert min(widths) > 100


def test_the_content_security_policy_blocks_injected_scripts_and_requests(browser, density_page):
    injected = density_page.with_name("injected.html")
    text = density_page.read_text().replace("<main>", "<main><script>alert(4)</script><img src='http://127.0.0.1:9/a'>")
    injected.write_text(text)
    visit = Visit(browser, injected)
    visit.context.close()
    assert len(visit.faults) == 2 and all("Content Security Policy" in fault for fault in visit.faults)
    assert visit.refused == [("http://127.0.0.1:9/a", "csp")], "blocked by the policy, not by the missing network"


def test_a_table_is_sorted_by_click_and_by_key(browser, density_page):
    with Visit(browser, density_page) as visit:
        table = visit.page.locator("#tables table").first
        cells = "all => all.map(row => row.cells[2].textContent)"
        before = table.locator("tbody tr").evaluate_all(cells)
        assert [text.split()[0] for text in before] == ["-2.010", "-3.010", "-4.010"]
        head = table.locator("thead th").nth(2)
        head.locator("button").click()
        after = [float(text.split()[0]) for text in table.locator("tbody tr").evaluate_all(cells)]
        assert head.get_attribute("aria-sort") == "ascending" and after == sorted(after)
        head.locator("button").focus()
        visit.page.keyboard.press("Enter")
        turned = [float(text.split()[0]) for text in table.locator("tbody tr").evaluate_all(cells)]
        assert head.get_attribute("aria-sort") == "descending" and turned == after[::-1] != after
        table.locator("thead button").first.click()
        assert table.locator("[aria-sort]").count() == 1
        names = table.locator("tbody th").all_inner_texts()
        assert names == sorted(names)


ORDERED = [
    ["-4.01 [-4.1, -3.9]", "-3", "0.2 %", "1e3"],
    ["≈ 9.5 [9, 10]", "≈ 10.25", "11 †"],
    ["9,000", "16,384", "44,175,264 [1]", "oom [2]", "–"],
    ["10^-12", "10^-3", "0.5", "1"],
    ["3×8×8, batch 4", "3×16×16, batch 4", "3×128×128, batch 4"],
    ["1.4 / error [1]", "12 of 14", "153.0 / 2.0"],
]


@pytest.mark.parametrize("expected", ORDERED, ids=lambda cells: cells[0])
def test_numbers_are_sorted_by_value_and_empty_cells_come_last(browser, expected, parameters_run, tmp_path):
    plan, _ = parameters_run
    rows = [(f"row {number}", cell) for number, cell in enumerate([*expected[1::2], *expected[::2]])]
    table = Table("t", "shuffled", ("layer", "value"), tuple(rows))
    text = page(Results.of(plan, []), [PageSection("Tables", tables=(table,))], {})
    (tmp_path / "index.html").write_bytes(text)
    last = [cell for cell in expected if cell == "–"]
    numbers = [cell for cell in expected if cell[0] in "-≈0123456789"]
    words = [cell for cell in expected if cell not in numbers and cell not in last]
    with Visit(browser, tmp_path / "index.html") as visit:
        shown = visit.page.locator("#tables table").first
        for order in (expected, [*numbers[::-1], *words, *last]):
            shown.locator("thead button").nth(1).click()
            assert shown.locator("tbody td").all_inner_texts() == order


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_a_phone_and_a_screen(browser, density_page, width, scheme):
    with Visit(browser, density_page, width, scheme) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        wide = visit.page.evaluate(
            """width => Array.from(document.querySelectorAll("main *"))
                .filter(one => !one.closest(".scroll") && !one.closest(".wide")
                               && one.getBoundingClientRect().right > width + 1)
                .map(one => one.outerHTML.slice(0, 80))""",
            width,
        )
        assert wide == []


def test_on_a_phone_the_sections_are_a_menu_and_a_link_opens_its_section(browser, density_page):
    with Visit(browser, density_page, 390) as visit:
        visit.page.reload()
        link, section = visit.page.locator("nav a[href='#origin']"), visit.page.locator("#origin > details")
        assert not link.is_visible() and section.get_attribute("open") is None
        visit.page.get_by_text("Sections").click()
        link.click()
        section.locator("pre").wait_for(state="visible")
        assert not link.is_visible(), "the menu closes"
        visit.page.set_viewport_size({"width": 1280, "height": 900})
        link.wait_for(state="visible")


def test_what_is_cut_says_so_and_nothing_else_does(browser, density_page):
    for width in (390, 1280):
        with Visit(browser, density_page, width) as visit:
            visit.page.wait_for_function("document.querySelectorAll('.cut').length > 0 || innerWidth > 400")
            states = visit.page.evaluate(
                """Array.from(document.querySelectorAll(".scroll, .wide"), one => [
                    one.scrollWidth > one.clientWidth + 1, one.classList.contains("cut"),
                    getComputedStyle(one, "::before").content.includes("scroll sideways")])"""
            )
            assert all(cut == marked == told for cut, marked, told in states)
            assert any(cut for cut, _, _ in states) or width > 390


def test_the_page_of_a_runtime_suite_begins_with_a_picture(browser, runtime_run, write_run):
    folder = write_run(*runtime_run)
    write_report(folder)
    with Visit(browser, folder / "index.html") as visit:
        visit.page.wait_for_function("Array.from(document.images).every((one) => one.src && one.complete)")
        figures = visit.page.locator("figure")
        assert figures.count() == 2, "the first one is not shown twice"
        assert figures.first.bounding_box()["y"] < 500 and figures.first.evaluate("one => !!one.closest('#answer')")
        for number in range(figures.count()):
            image = figures.nth(number).locator(".wide img")
            box = image.bounding_box()
            assert box["x"] + box["width"] <= 1280 and box["width"] > 0.8 * float(image.get_attribute("width"))


TONES = {"good": "✓", "part": "◐", "bad": "✕", "open": "○"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_differ_in_colour_and_in_their_marks(browser, parameters_run, tmp_path, scheme):
    findings = tuple(Finding(f"claim {tone}", f"is {tone}", tone, "so") for tone in TONES)
    text = page(Results.of(*parameters_run, tmp_path), [], {}, Answer(findings))
    (tmp_path / "index.html").write_bytes(text)
    with Visit(browser, tmp_path / "index.html", scheme=scheme) as visit:
        looks = visit.page.locator(".findings .chip").evaluate_all(
            """all => all.map(one => { const style = getComputedStyle(one);
                return [style.color, style.backgroundColor, style.borderTopWidth,
                        getComputedStyle(one, "::before").content]; })"""
        )
        assert [mark.split('"')[1] for *_, mark in looks] == list(TONES.values())
        assert len({ink for ink, *_ in looks}) == len({paper for _, paper, *_ in looks}) == len(TONES)
        body = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        for ink, paper, border, _ in looks:
            assert border == "1px" and contrast(ink, paper) >= 4.5 and contrast(ink, body) >= 4.5
            red, green, blue = map(int, re.findall(r"\d+", paper)[:3])
            assert max(red, green, blue) - min(red, green, blue) >= 20, "a colour, and no grey"


def test_long_verdicts_fit_a_phone(browser, parameters_run, tmp_path):
    verdict = "29 of 29 are left, none is shown to be behind"
    answer = Answer(tuple(Finding(f"data set {number}", verdict, "open", "so") for number in range(5)))
    (tmp_path / "index.html").write_bytes(page(Results.of(*parameters_run, tmp_path), [], {}, answer))
    with Visit(browser, tmp_path / "index.html", 390) as visit:
        assert visit.page.locator(".chip").count() == 6
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390


def contrast(one, other):
    """Return the ratio of contrast of two colours as defined by the Web Content Accessibility Guidelines 2.2."""
    high, low = sorted([luminance(one), luminance(other)], reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    """Return the luminance of "rgb(r, g, b)" as defined by the Web Content Accessibility Guidelines 2.2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser, density_page, scheme):
    with Visit(browser, density_page, scheme=scheme) as visit:
        texts = visit.page.evaluate(
            """() => Array.from(document.querySelectorAll("body *"))
                .filter(one => Array.from(one.childNodes).some(node => node.nodeType === 3 && node.data.trim()))
                .filter(one => !one.closest("script"))
                .map(one => {
                    let under = one;
                    while (under && getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)")
                        under = under.parentElement;
                    const style = getComputedStyle(one);
                    return [style.color,
                            getComputedStyle(under ?? document.body).backgroundColor, one.textContent.trim()];
                })"""
        )
        assert len(texts) > 200
        for ink, paper, text in texts:
            assert contrast(ink, paper) >= 4.5, (ink, paper, text)


def test_light_and_dark_follow_the_system_until_the_button_is_pressed(browser, density_page):
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('img.drawn')).filter"
    with Visit(browser, density_page, scheme="dark") as visit:
        dark = visit.page.evaluate(f"[{paper}, {ink}]")
        visit.page.emulate_media(color_scheme="light")
        light = visit.page.evaluate(f"[{paper}, {ink}]")
        assert dark != light and light[0] == "rgb(255, 255, 255)" and dark[1] != light[1]
        visit.page.get_by_role("button", name="Dark").click()
        assert visit.page.evaluate(f"[{paper}, {ink}]") == dark
        visit.page.get_by_role("button", name="Light").click()
        assert visit.page.evaluate(f"[{paper}, {ink}]") == light


def test_all_controls_are_reachable_by_keyboard_with_visible_focus(browser, density_page):
    with Visit(browser, density_page) as visit:
        reached = set()
        for _ in range(120):
            visit.page.keyboard.press("Tab")
            focused = visit.page.evaluate(
                """() => { const one = document.activeElement; const style = getComputedStyle(one);
                   return [one.tagName, one.className, one.textContent.trim().slice(0, 40), style.outlineStyle]; }"""
            )
            if focused[0] == "BODY":
                break
            assert focused[3] == "solid", f"no visible focus on {focused}"
            reached.add((focused[0], focused[2]))
        assert {tag for tag, _ in reached} == {"A", "BUTTON", "DIV", "SUMMARY"}
        assert {("A", "results.csv"), ("BUTTON", "layer")} <= reached


@pytest.fixture
def gallery(tmp_path, runtime_run, parameters_run, replanned, write_run):
    """Return the gallery of two reports of different kinds and profiles, one of which has figures."""
    write_report(write_run(*runtime_run))
    named = {"suite": "other", "profile": "local"}
    write_report(write_run(*replanned(parameters_run, lambda trial: named, **named)))
    return write_gallery(tmp_path)


def test_the_gallery_filters_by_kind_and_profile(browser, gallery):
    with Visit(browser, gallery) as visit:
        shown = visit.page.locator("article:visible")
        assert shown.count() == 2 and visit.page.locator("output").inner_text() == "2 of 2 reports"
        visit.page.get_by_label("profile").select_option("local")
        assert shown.count() == 1 and shown.get_attribute("data-kind") == "parameters"
        assert visit.page.locator("output").inner_text() == "1 of 2 reports"
        visit.page.get_by_label("kind").select_option("runtime")
        assert shown.count() == 0
        visit.page.get_by_label("profile").select_option("all")
        assert shown.count() == 1 and shown.get_attribute("data-kind") == "runtime"
        visit.requests = [url for url in visit.requests if not url.endswith(".png")]  # files beside the gallery


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_gallery_fits_and_its_figures_can_be_read_in_light_and_dark(browser, gallery, width, scheme):
    with Visit(browser, gallery, width, scheme) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        figure = visit.page.locator("article img")
        figure.scroll_into_view_if_needed()
        visit.page.wait_for_function("Array.from(document.images).every((one) => one.complete && one.naturalWidth)")
        assert figure.bounding_box()["width"] >= 0.79 * figure.evaluate("one => one.naturalWidth")
        assert ("invert" in figure.evaluate("one => getComputedStyle(one).filter")) == (scheme == "dark")
        visit.page.get_by_role("button", name="Light" if scheme == "dark" else "Dark").click()
        assert ("invert" in figure.evaluate("one => getComputedStyle(one).filter")) == (scheme == "light")
        visit.requests = [url for url in visit.requests if not url.endswith(".png")]
