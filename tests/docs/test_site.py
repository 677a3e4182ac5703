"""The site is built with warnings as errors, offline, and takes in a layer file that was added."""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDED = ROOT / "tests" / "added"
PARTS = ("csrc", "docs", "examples", "flows", "harness", "layers", "reports", "suites")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
NOT_LOADED = {"next", "prev", "index", "search", "author", "canonical"}  # relations of links that load nothing

pytestmark = pytest.mark.system


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
    return {path: Page(path) for path in site.rglob("*.html") if "_downloads" not in path.parts}


def test_every_link_inside_leads_somewhere(site, pages):
    broken = defaultdict(set)
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchored = target in pages and parts.fragment and unquote(parts.fragment) not in pages[target].ids
            if not target.is_file() or anchored:
                broken[str(path.relative_to(site))].add(link)
    assert len(pages) > 50 and not broken


def test_nothing_is_fetched_when_it_is_read(site, pages):
    assert not [(path, link) for path, page in pages.items() for link in page.loaded if urlsplit(link).netloc]
    for path in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", path.read_text()), path


def test_an_added_layer_has_a_page_with_its_picture(site, pages):
    page = pages[site / "generated" / "layers" / "timewise.html"]
    assert "timewise" in (site / "layers.html").read_text()
    (picture,) = (link for link in page.loaded if link.endswith("timewise.png"))
    assert (site / "generated" / "layers" / picture).resolve().stat().st_size > 1000
