"""Find the files of csrc/ that define a compiled operator, by parsing their text.

A source registers operators (`m.def`, `m.impl`), for all devices or for one. The search starts at the sources that
register an operator and follows their headers (`#include "..."`, and the bodies of csrc/simd/each.h). A source that
registers nothing defines the declarations of the first header that it includes, and belongs to every file that includes
that header.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

ALL = "*"  # stands for all operators

INCLUDE = re.compile(r'^\s*#\s*(?:include|define INVERTBENCH_BODY)\s+"([^"]+)"', re.MULTILINE)
REGISTERED = re.compile(r'\bm\.(?:def|impl)\(\s*"(\w+)')
FOR_DEVICE = re.compile(r"TORCH_LIBRARY_IMPL\(\s*invertbench\s*,\s*(\w+)")
SOURCES = (".cpp", ".cu")
DEVICES = {"CPU", "CUDA"}  # with or without Autograd before them; Autograd alone, Meta and others serve every device


def kernel_files(folder: Path, operators: Collection[str], device: str) -> list[Path]:
    """Return the files below `folder` that can change what the operators compute on a type of device."""
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in SOURCES}
    waiting, defining = [], []
    for path, text in sorted(texts.items()):
        registered = set(REGISTERED.findall(text))
        if not registered:
            defining.append((path, _headers(path, text, folder)[:1]))
        elif (ALL in operators or registered & set(operators)) and _serves(text, device):
            waiting.append(path)
    found = set(waiting)
    while waiting:
        path = waiting.pop()
        headers = _headers(path, path.read_text(encoding="utf-8"), folder)
        reached = {*headers, *(source for source, own in defining if path in own)} - found
        found |= reached
        waiting += reached
    return sorted(found)


def _serves(text: str, device: str) -> bool:
    """Return whether the operators that a source registers run on a type of device."""
    keys = {key.removeprefix("Autograd") for key in FOR_DEVICE.findall(text)}
    return not keys or bool(keys - DEVICES) or device.upper() in keys


def _headers(path: Path, text: str, folder: Path) -> list[Path]:
    """Return the headers below `folder` that a file includes, in order, relative to the file or to `folder`."""
    candidates = ((path.parent / name, folder / name) for name in INCLUDE.findall(text))
    return [next(file for file in pair if file.is_file()) for pair in candidates if any(map(Path.is_file, pair))]
