"""The site is built with warnings as errors, offline, holds the reports, and takes in a layer file that was added."""

import io
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import minimum_filter

ROOT = Path(__file__).resolve().parents[2]
ADDED = ROOT / "tests" / "added"
PARTS = ("csrc", "docs", "examples", "flows", "harness", "layers", "reports", "suites")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
NOT_LOADED = {"next", "prev", "index", "search", "author", "canonical"}  # relations of links that load nothing
LOOKED_AT = (
    "index.html", "layers.html", "genindex.html", "generated/layers/butterfly.html", "tutorials/notebook.html",
    "generated/reference/suites.html", "generated/reports/claims-2core-epyc/table.html", "generated/reports/index.html",
)  # fmt: skip
BRIGHT, SLAB = 200, 24  # of 255; pixels of the side of a square that is no letter, line or entry of a matrix


class Page(HTMLParser):
    """Collect the ids of a page, its links, and the addresses of what it loads."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag in LOADED and values.get(LOADED[tag]) and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site of a copy of the project to which a layer was added."""
    pytest.importorskip("furo", reason="the site needs pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("project")
    ignored = shutil.ignore_patterns("__pycache__", "_build", "generated")
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for path in ROOT.glob("*.*"):
        if path.suffix in (".md", ".toml"):
            shutil.copy(path, folder)
    shutil.copytree(ADDED / "layers", folder / "layers", dirs_exist_ok=True)
    built = folder / "docs" / "_build" / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", str(built)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def pages(site):
    return read_pages(site)


def read_pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def dead_links(site, pages):
    """Return page -> its links to no file of the site, or to no anchor of a page of it."""
    dead = defaultdict(set)
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            lost = target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].ids
            if lost or not target.is_file() or not target.is_relative_to(site):
                dead[str(path.relative_to(site))].add(link)
    return dead


@pytest.mark.parametrize("link", ["gone.html", "gone/b.html", "#gone", "b.html#gone", "../outside.html"])
def test_a_dead_link_or_anchor_is_named(tmp_path, link):
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").touch()
    (site / "a.html").write_text('<a href="b.html#there"></a><a href="#here" id="here"></a><a href="https://a.b"></a>')
    (site / "b.html").write_text('<h1 id="there"></h1>')
    assert not dead_links(site, read_pages(site))
    with (site / "a.html").open("a") as page:
        page.write(f'<a href="{link}"></a>')
    assert dead_links(site, read_pages(site)) == {"a.html": {link}}


@pytest.mark.system
def test_every_link_inside_leads_somewhere_and_nothing_is_fetched(site, pages):
    assert len(pages) > 50 and not dead_links(site, pages)
    assert not [(path, link) for path, page in pages.items() for link in page.loaded if urlsplit(link).netloc]
    for path in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text()), path


@pytest.mark.system
def test_the_gallery_and_the_pages_of_reports_are_in_the_site(site, pages):
    gallery = pages[site / "generated" / "reports" / "index.html"]
    reports = sorted((ROOT / "reports").glob("*-*/index.html"))
    assert reports
    for report in reports:
        assert site / "generated" / "reports" / report.parent.name / "index.html" in pages
        assert f"{report.parent.name}/table.html" in gallery.links, "Markdown, where the site has a page"


@pytest.mark.system
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_window_and_the_dark_has_no_bright_slab(site, width):
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright; pip install -e '.[test]'")
    program = shutil.which("chromium") or pytest.skip("no chromium; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
        for name in LOOKED_AT:
            page.goto((site / name).as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            with Image.open(io.BytesIO(page.screenshot(full_page=True))) as shot:
                bright = np.asarray(shot.convert("L")) > BRIGHT
            assert not minimum_filter(bright, SLAB).any(), name
        browser.close()


@pytest.mark.system
def test_an_added_layer_has_a_page_with_its_picture(site, pages):
    page = pages[site / "generated" / "layers" / "timewise.html"]
    assert "timewise" in (site / "layers.html").read_text()
    (picture,) = (link for link in page.loaded if link.endswith("timewise.png"))
    assert (site / "generated" / "layers" / picture).resolve().stat().st_size > 1000
