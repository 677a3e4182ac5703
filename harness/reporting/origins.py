"""Origins of records: versions and source files, and how they differ within a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.core.records import Record
from harness.core.texts import first_few

Origin = tuple[tuple[str, ...], Record]
"""The place in a report's tables that repetitions of a trial share, and the record of one of them."""

LISTED = 3  # differing settings or files; the others are counted
PROJECT = ("csrc/", "flows/", "harness/", "layers/")  # begin the names of the project's source, followed by a slash
UNMIXED = ("invertbench", "processor", "kernels")  # in its source; named by tables; different in trials of one run


def versions(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """Return package, "processor" or "kernels" -> version -> the number of its records."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        about = record.environment
        facts = {**about.get("versions", {}), "processor": about.get("cpu"), "kernels": about.get("backend")}
        for name, value in facts.items():
            counts.setdefault(name, Counter())[str(value)] += 1
    return counts


def mixtures(origins: Iterable[Origin]) -> list[str]:
    """Return a sentence on the source files that differ between records, and one on each package that does.

    `compare` does not compare trials of different source; a report shows them side by side, and averages repetitions.
    A file of the project is one file in all records. Third-party files of one name may be different files, and are
    compared among the repetitions of a trial.
    """
    origins = list(origins)
    first: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}
    changed: dict[str, tuple[str, str]] = {}  # file -> two trials that differ in it
    seen: set[tuple[tuple[str, ...], str]] = set()
    for place, record in origins:
        sources = (record.environment.get("sources") or {}).items()
        if (alike := (place, str(sources))) in seen:  # of thousands of records, few differ
            continue
        seen.add(alike)
        for file, digest in sources:
            before = first.setdefault((file, () if f"{file}/".startswith(PROJECT) else place), (digest, record.id))
            if before[0] != digest:
                changed.setdefault(file, (before[1], record.id))
    sentences = []
    if changed:
        files = sorted(
            changed, key=lambda file: (f"{file}/".startswith(PROJECT[:-1]), file)
        )  # those of the layers first
        one, other = changed[files[0]]
        sentences.append(
            f"Mixed: trials of different source stand in one table: {first_few(files, LISTED)} changed, as between "
            f"{one} and {other}; `compare` would not compare them"
        )
    for name, counts in versions(record for _, record in origins).items():
        if len(counts) > 1 and name not in UNMIXED:
            texts = (f"{version} in {count} trial{'s' * (count > 1)}" for version, count in counts.items())
            sentences.append(f"Mixed: trials of different versions of {name} stand in one table: {', '.join(texts)}")
    return sentences
