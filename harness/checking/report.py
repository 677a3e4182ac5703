"""The report of check-layer, as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.core.isolation.messages import visible

CONSTRUCTION = "construction"
"""The first rule: the layer is imported and built on every shape."""

Severity = Literal["fault", "remark"]

SHOWN = 3
"""Number of distinct findings that a report shows for each rule."""


class Remark(str):
    """A finding for which the layer is not refused; a check yields it in place of a str."""


@dataclass(frozen=True)
class RuleFinding:
    """One finding: the rule, the shape and precision of the case, and the fault or remark."""

    check: str
    place: str
    message: str
    severity: Severity = "fault"


@dataclass(frozen=True)
class CheckReport:
    """The outcome of all checks of one layer.

    Attributes:
        spec: the layer as the user named it.
        rules: every rule, in the order in which they are reported.
        answered: the rules that were checked on every case that they apply to.
        served: the shapes that the layer was checked on, each in every one of `dtypes`.
        refused: shape -> the layer's reason for not serving it.
        findings: every fault and remark, in the order of the rules.
        ended: why the check ended early; "": it did not.
        log: the last output of the check's process, if it ended early.
        seconds: duration of the checks.
        versions: of torch and invertbench.
    """

    spec: str
    rules: tuple[str, ...]
    answered: frozenset[str]
    served: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    refused: Mapping[tuple[int, ...], str]
    findings: tuple[RuleFinding, ...]
    ended: str = ""
    log: str = ""
    seconds: float = 0.0
    versions: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[RuleFinding, ...]:
        """The findings for which the layer is refused."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    @property
    def remarks(self) -> tuple[RuleFinding, ...]:
        """The findings that do not refuse the layer."""
        return tuple(finding for finding in self.findings if finding.severity == "remark")

    @property
    def ok(self) -> bool:
        """True if every rule was answered without a fault."""
        return not self.faults and not self.ended and self.answered == set(self.rules)

    def verdict(self, rule: str) -> str:
        """Return "failed", "passed" or "not answered"."""
        if any(finding.check == rule for finding in self.faults):
            return "failed"
        return "passed" if rule in self.answered else "not answered"

    def lines(self) -> list[str]:
        """Return the report as text: one line per rule, and below a failed one its distinct faults."""
        lines = [f"{self.spec}: {len(self.served)} shapes, {' and '.join(self.dtypes)}"]
        lines += [f"  not served  {shape}: {reason}" for shape, reason in self.refused.items()]
        by_verdict: dict[str, list[str]] = {"failed": [], "passed": [], "not answered": []}
        for rule in self.rules:
            verdict = self.verdict(rule)
            by_verdict[verdict].append(rule)
            if verdict == "failed":
                lines.append(f"  FAIL  {rule}")
                lines += _distinct(finding for finding in self.faults if finding.check == rule)
            elif verdict == "passed":
                lines.append(f"  pass  {rule}")
        failed, unanswered = by_verdict["failed"], by_verdict["not answered"]
        if self.remarks:
            lines.append("  remarks")
            for rule in dict.fromkeys(finding.check for finding in self.remarks):
                lines += _distinct((finding for finding in self.remarks if finding.check == rule), f"{rule}, ")
        if unanswered:
            lines.append(f"  not answered  {', '.join(unanswered)}")
        if self.ended:
            lines.append(f"  {self.ended}")
        if self.log:
            lines += ["  printed last:", *(f"    {line}" for line in self.log.split("\n"))]
        parts = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        if self.ended or (unanswered and not failed):
            parts.append(f"refused, as {len(unanswered)} rules were not answered")
        lines.append(f"{self.spec}: " + ("ok" if self.ok else "; ".join(parts)))
        return [visible(line) for line in lines]

    def document(self) -> dict[str, Any]:
        """Return the report as the JSON document of `--json`."""
        rules = [
            {
                "rule": rule,
                "verdict": self.verdict(rule),
                "findings": [_place_and_message(finding) for finding in self.faults if finding.check == rule],
            }
            for rule in self.rules
        ]
        refused = [{"shape": list(shape), "reason": reason} for shape, reason in self.refused.items()]
        return {
            "layer": self.spec,
            "verdict": "ok" if self.ok else "refused",
            "rules": rules,
            "shapes": {"served": [list(shape) for shape in self.served], "refused": refused},
            "remarks": [{"rule": finding.check} | _place_and_message(finding) for finding in self.remarks],
            "ended": self.ended or None,
            "log": self.log or None,
            "seconds": round(self.seconds, 2),
            "versions": dict(self.versions),
        }

    def reason(self, most: int = 2) -> str:
        """Return how the check ended early, if it did, and the first fault of each of the first failed rules."""
        first = {finding.check: finding for finding in reversed(self.faults)}
        failed = [rule for rule in self.rules if rule in first]
        parts = [self.ended] if self.ended else []
        parts += [f"{rule}, {first[rule].place}: {first[rule].message}" for rule in failed[:most]]
        if len(failed) > most:
            parts.append(f"and {', '.join(failed[most:])}")
        return visible("; ".join(parts))


def _distinct(findings: Iterable[RuleFinding], before: str = "") -> list[str]:
    """Return a line for each of the first distinct messages, with the places of each."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.message, []).append(finding.place)
    lines = [f"          {before}{_listed(where)}: {what}" for what, where in list(places.items())[:SHOWN]]
    if len(places) > SHOWN:
        lines.append(f"          and {len(places) - SHOWN} more like these")
    return lines


def _listed(places: list[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]}, and {len(places) - 1} more"


def _place_and_message(finding: RuleFinding) -> dict[str, str]:
    return {"place": finding.place, "message": finding.message}
