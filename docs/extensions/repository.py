"""Files of the repository outside docs/ in the site: evidence in reports/, CONTRIBUTING.md and CHANGELOG.md.

Markdown is copied to docs/generated/ at its own path and becomes pages. All other files of reports/, the pages of HTML
among them, are copied beside these when the site is built. Links between files are relative paths in the repository,
which work without the site; here they become links of the site.
"""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
PROJECT = DOCS.parent
GENERATED = DOCS / "generated"
# As in .gitignore, reports/<suite>/ is what was run in this clone, and no evidence.
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "reports/README.md", "reports/*-*/*.md")
PICTURES = ("reports/*-*/figures/*.png",)  # which pages show
FILES = ("reports/index.html", "reports/*-*/**/*")
RAW = ("index.html", "results.csv", "comparisons.csv", "table.tex", "records.zip")

CONTENTS = """
```{toctree}
:hidden:
:glob:

*/*
```
"""

LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
HREF = re.compile(r'(?<= href=")(?!\w+:|#|/)([^"#]+)(?=[#"])')


def write_if_changed(path: Path, text: str) -> None:
    """Write a generated page, unless it has this text: Sphinx reads files again that are newer."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copy_pages(app: Sphinx) -> None:
    """Copy the files to docs/generated/, and add to each report links to its other files."""
    shutil.rmtree(GENERATED / "reports", ignore_errors=True)
    for pattern in PAGES:
        for source in sorted(PROJECT.glob(pattern)):
            text = source.read_text()
            if not text.startswith("#"):
                text = f"# {source.parent.name}: {source.stem}\n\n{text}"
            raw = [name for name in RAW if source.name == "table.md" and (source.parent / name).is_file()]
            if raw:
                text += f"\nFiles: {', '.join(f'[{name}]({name})' for name in raw)}\n"
            if source.name == "README.md":
                text += CONTENTS
            write_if_changed(GENERATED / source.relative_to(PROJECT), text)
    for pattern in PICTURES:
        for source in sorted(PROJECT.glob(pattern)):
            target = GENERATED / source.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def copy_files(app: Sphinx, exception: Exception | None) -> None:
    """Copy the other files of reports/ into the built site."""
    if exception or app.builder.format != "html":
        return
    for path in evidence():
        source, target = PROJECT / path, app.outdir / "generated" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".html":
            target.write_text(with_page_links(path, source.read_text()))
        else:
            shutil.copyfile(source, target)


@cache
def evidence() -> set[PurePosixPath]:
    """Return the files of reports/ that are copied, as paths in the repository."""
    files = {path for pattern in FILES for path in PROJECT.glob(pattern) if path.is_file() and path.suffix != ".md"}
    return {PurePosixPath(path.relative_to(PROJECT).as_posix()) for path in files}


def repository_path(docname: str) -> PurePosixPath:
    """Return the path in the repository of a page of the site."""
    generated = PurePosixPath("generated")
    path = PurePosixPath(f"{docname}.md")
    return path.relative_to(generated) if path.is_relative_to(generated) else PurePosixPath("docs") / path


def with_page_links(source: PurePosixPath, html: str) -> str:
    """Return a copied page of HTML, whose relative paths in the repository become links of the site."""
    return HREF.sub(lambda match: page_link(source, match[1]), html)


def page_link(source: PurePosixPath, target: str) -> str:
    """Return the link, in a copied page of HTML, for a relative path in the repository."""
    path = os.path.normpath(source.parent / unquote(target))
    site = path.removeprefix("docs/") if path.startswith("docs/") else f"generated/{path}"
    link = os.path.relpath(site, PurePosixPath("generated") / source.parent)
    return quote(link.removesuffix(".md") + ".html" if link.endswith(".md") else link)


def site_link(docname: str, target: str, anchor: str = "") -> str:
    """Return the link of the site, in a page, for a relative path in the repository, and the parenthesis behind it."""
    path = os.path.normpath(repository_path(docname).parent / target)
    if path.startswith("docs/"):
        return f"/{path.removeprefix('docs/')}{anchor})"
    if (GENERATED / path).is_file():
        return f"/generated/{path}{anchor})"
    if PurePosixPath(path) in evidence():  # MyST would copy the file alone, away from those that it links
        return f"{os.path.relpath(f'generated/{path}', PurePosixPath(docname).parent)}{anchor}){{.external}}"
    return f"{os.path.relpath(PROJECT / path, (DOCS / docname).parent)}{anchor})"


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn relative links and pictures of a page into those of the site."""
    source[0] = LINK.sub(lambda match: site_link(docname, match[1], match[2] or ""), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the steps."""
    app.connect("builder-inited", copy_pages)
    app.connect("source-read", rewrite_links)
    app.connect("build-finished", copy_files)
    return {"parallel_read_safe": True}
