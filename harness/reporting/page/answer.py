"""The answer of a report to the question of its suite: findings, their evidence, and their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.texts import one_line
from harness.reporting.tables.rendering import escape_markdown

Tone = Literal["good", "part", "bad", "open"]
"""The colour of a verdict."""

COUNTED = 4  # more findings than these have their verdicts counted above them


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        subject: the data set, the claim or the point that it is about.
        verdict: the finding in a word or two.
        tone: the colour of the verdict.
        text: the finding in a sentence, with its numbers.
        section: the heading of the section with its evidence; empty without one.
    """

    subject: str
    verdict: str
    tone: Tone
    text: str
    section: str = ""


@dataclass(frozen=True)
class Answer:
    """The findings of a report.

    Attributes:
        findings: in plan order.
        remarks: (term, sentences) on their evidence and their limits.
        figures: beginnings of names; the first figure of the first that has one stands with the answer.
    """

    findings: tuple[Finding, ...]
    remarks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    figures: tuple[str, ...] = ()

    @property
    def counts(self) -> list[tuple[int, str, Tone]]:
        """The number of findings of each verdict, the most frequent first; empty where there are few findings."""
        if len(self.findings) <= COUNTED:
            return []
        tones = {finding.verdict: finding.tone for finding in self.findings}
        counts = Counter(finding.verdict for finding in self.findings)
        return [(count, verdict, tones[verdict]) for verdict, count in counts.most_common()]

    def markdown(self) -> str:
        """Return the answer as a list in Markdown."""
        texts = [map(escape_markdown, (each.subject, each.verdict, each.text)) for each in self.findings]
        lines = [f"- **{subject}** ({verdict}): {text}" for subject, verdict, text in texts]
        lines += [f"- *{escape_markdown(term)}*: {escape_markdown(' '.join(said))}" for term, said in self.remarks]
        return "\n".join(lines)

    def plain(self) -> str:
        """Return the same for a terminal."""
        lines = [f"{finding.subject} ({finding.verdict}): {finding.text}" for finding in self.findings]
        lines += [f"{term}: {' '.join(texts)}" for term, texts in self.remarks]
        return "\n".join(map(one_line, lines))


def listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def first_of(names: Sequence[str]) -> str:
    """Return "a, and 2 more"."""
    return names[0] + (f", and {len(names) - 1} more" if len(names) > 1 else "")
