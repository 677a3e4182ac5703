"""Files of the repository outside docs/ as pages: evidence in reports/, CONTRIBUTING.md and CHANGELOG.md.

They are copied to docs/generated/ at their own paths. Links between files are relative paths in the repository, which
work without the site; here they become links of the site.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
PROJECT = DOCS.parent
GENERATED = DOCS / "generated"
# As in .gitignore, reports/<suite>/ is what was run in this clone, and no evidence.
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "reports/README.md", "reports/*-*/table*.md")
FILES = ("reports/*-*/figures/*.png",)
RAW = ("index.html", "results.csv", "table.tex", "records.zip")

CONTENTS = """
```{toctree}
:hidden:
:glob:

*/table*
```
"""

LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")


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
    for pattern in FILES:
        for source in sorted(PROJECT.glob(pattern)):
            target = GENERATED / source.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def repository_path(docname: str) -> PurePosixPath:
    """Return the path in the repository of a page of the site."""
    generated = PurePosixPath("generated")
    path = PurePosixPath(f"{docname}.md")
    return path.relative_to(generated) if path.is_relative_to(generated) else PurePosixPath("docs") / path


def site_link(docname: str, target: str) -> str:
    """Return the link of the site, from a page, for a relative path in the repository."""
    path = os.path.normpath(repository_path(docname).parent / target)
    if path.startswith("docs/"):
        return f"/{path.removeprefix('docs/')}"
    if (GENERATED / path).is_file():
        return f"/generated/{path}"
    return os.path.relpath(PROJECT / path, (DOCS / docname).parent)


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn relative links and pictures of a page into those of the site."""
    source[0] = LINK.sub(lambda match: site_link(docname, match[1]) + (match[2] or ""), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two steps."""
    app.connect("builder-inited", copy_pages)
    app.connect("source-read", rewrite_links)
    return {"parallel_read_safe": True}
