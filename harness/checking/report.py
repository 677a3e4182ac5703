"""The report of check-layer, made from the events of the check: as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.checking.events import Begins, Done, Event, Found, Rules, Served, Severity, Tell, Wrong
from harness.core.texts import bounded, visible

CONSTRUCTION = "construction"
"""The first rule: the layer is imported and built on every shape."""

Verdict = Literal["ok", "refused", "undecided"]

SHOWN = 3
"""Number of distinct findings that a report shows for each rule."""


class Remark(str):
    """A finding for which the layer is not refused; a check yields it in place of a str."""


class Unanswered(str):
    """The reason why a rule has no answer on a case, such as its duration; a check yields it in place of a str."""


@dataclass
class CheckReport:
    """The outcome of the checks of one layer, as far as its events have arrived (see `harness.checking.events`).

    Attributes:
        spec: the layer as the user named it.
        rules: every rule, in the order in which they are reported.
        dtypes: the precisions in which each shape is checked.
        versions: of torch and invertbench.
        shapes: shape -> the layer's reason for not serving it; None if the layer was checked on it.
        findings: every fault and remark, and every reason for a missing answer, in the order of the rules.
        begun: the rules of which a check has begun, the last of them `current`.
        over: whether the last event has arrived.
        wrong: the message if the layer or an option does not exist.
        ended: why the check ended early; "": it did not.
        overtime: whether it ended early because its time was over, which is no fault of the layer.
        log: the last output of the check's process, if it ended early.
        seconds: duration of the checks.
        tell: callback for each event.
    """

    spec: str
    rules: tuple[str, ...] = (CONSTRUCTION,)
    dtypes: tuple[str, ...] = ()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    shapes: dict[tuple[int, ...], str | None] = field(default_factory=dict)
    findings: list[Found] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    current: Begins | None = None
    over: bool = False
    wrong: str | None = None
    ended: str = ""
    overtime: bool = False
    log: str = ""
    seconds: float = 0.0
    tell: Tell | None = field(default=None, repr=False, compare=False)
    _shown: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def take(self, event: Event) -> None:
        """Receive the next event."""
        match event:
            case Rules():
                self.rules, self.dtypes, self.versions = tuple(event.rules), tuple(event.dtypes), event.versions
            case Begins():
                self.current = event
                self.begun.add(event.rule)
            case Found():
                self.findings.append(event)
            case Served():
                self.shapes[tuple(event.shape)] = event.refusal
            case Wrong():
                self.wrong = event.message
            case Done():
                self.over = True
        if self.tell is not None:
            self.tell(event)

    def begin(self, rule: str, place: object) -> None:
        """Begin the check of a rule on one case."""
        self.take(Begins(rule=rule, place=str(place)))

    def answer(self, messages: Iterable[str]) -> bool:
        """Receive the findings of the check that has begun; return whether a fault is among them."""
        before = len(self.faults)
        for message in messages:
            severity: Severity = "fault"
            if isinstance(message, (Remark, Unanswered)):
                severity = "remark" if isinstance(message, Remark) else "unanswered"
            place = self.current or Begins(rule=CONSTRUCTION, place="")
            self.take(Found(check=place.rule, place=place.place, message=bounded(message), severity=severity))
        return len(self.faults) > before

    @property
    def answered(self) -> frozenset[str]:
        """The rules that were checked on every case that they apply to."""
        running = set() if self.over or self.current is None else {self.current.rule}
        return frozenset(self.begun - running)

    @property
    def at(self) -> str:
        """The rule and the case of the last check that began."""
        return "before its import" if self.current is None else f"{self.current.rule}, {self.current.place}"

    @property
    def served(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that the layer was checked on, each in every one of `dtypes`."""
        return tuple(shape for shape, refusal in self.shapes.items() if refusal is None)

    @property
    def refused(self) -> dict[tuple[int, ...], str]:
        """Shape -> the layer's reason for not serving it."""
        return {shape: refusal for shape, refusal in self.shapes.items() if refusal is not None}

    @property
    def faults(self) -> list[Found]:
        """The findings for which the layer is refused."""
        return [finding for finding in self.findings if finding.severity == "fault"]

    @property
    def remarks(self) -> list[Found]:
        """The findings that do not refuse the layer."""
        return [finding for finding in self.findings if finding.severity == "remark"]

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The rules without an answer on at least one case, and without a fault."""
        return tuple(rule for rule in self.rules if self.verdict(rule) == "not answered")

    @property
    def ok(self) -> bool:
        """True if every rule was answered without a fault."""
        return self.outcome == "ok"

    @property
    def outcome(self) -> Verdict:
        """The verdict on the layer.

        ok: every rule was answered without a fault. refused: there is a fault, or the process of the check ended by
        itself. undecided: rules were not answered because time ran out, or a batch of a suite is too large.
        """
        if self.faults or (self.ended and not self.overtime):
            return "refused"
        return "undecided" if self.ended or self.unanswered else "ok"

    def verdict(self, rule: str) -> str:
        """Return "failed", "passed" or "not answered"."""
        severities = {finding.severity for finding in self.findings if finding.check == rule}
        if "fault" in severities:
            return "failed"
        return "passed" if rule in self.answered and "unanswered" not in severities else "not answered"

    def news(self) -> list[str]:
        """Return the lines of the report on the rules that were answered since the last call."""
        new = self.answered - self._shown
        lines = [] if self._shown or not new else self._heading()
        self._shown |= new
        return [*lines, *self._verdicts(new)]

    def lines(self) -> list[str]:
        """Return the report as text: one line per rule, and below a failed one its distinct faults."""
        return [*self._heading(), *self._verdicts(self.rules), *self.closing()]

    def _heading(self) -> list[str]:
        """Return the shapes, known once the rule `CONSTRUCTION` is answered."""
        lines = [f"{self.spec}: {len(self.served)} shapes, {' and '.join(self.dtypes)}"]
        lines += [f"  not served  {shape}: {reason}" for shape, reason in self.refused.items()]
        return [visible(line) for line in lines]

    def _verdicts(self, rules: Collection[str]) -> list[str]:
        """Return the verdict on each of these rules that is answered, and below a failed one its distinct faults."""
        lines = []
        for rule in self.rules:
            if rule in rules and (verdict := self.verdict(rule)) != "not answered":
                lines.append(f"  {'FAIL' if verdict == 'failed' else 'pass'}  {rule}")
                lines += _distinct(finding for finding in self.faults if finding.check == rule)
        return [visible(line) for line in lines]

    def closing(self) -> list[str]:
        """Return the lines below those of the rules: remarks, the rules that are not answered, and the verdict."""
        lines = ["  remarks"] if self.remarks else []
        lines += self._reasons("remark")
        unanswered = self.unanswered
        if unanswered:
            lines.append(f"  not answered  {', '.join(unanswered)}")
        lines += self._reasons("unanswered")
        if self.ended:
            lines.append(f"  {self.ended}")
        if self.log:
            lines += ["  printed last:", *(f"    {line}" for line in self.log.split("\n"))]
        failed = [rule for rule in self.rules if self.verdict(rule) == "failed"]
        parts = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        if unanswered and (self.ended or not failed):
            count = f"{len(unanswered)} rule{'s were' if len(unanswered) > 1 else ' was'} not answered"
            parts.append(count if failed else f"{self.outcome}, as {count}")
        lines.append(f"{self.spec}: " + ("ok" if self.ok else "; ".join(parts)))
        return [visible(line) for line in lines]

    def _reasons(self, severity: Severity) -> list[str]:
        findings = [finding for finding in self.findings if finding.severity == severity]
        return [
            line
            for rule in dict.fromkeys(finding.check for finding in findings)
            for line in _distinct((finding for finding in findings if finding.check == rule), f"{rule}, ")
        ]

    def document(self) -> dict[str, Any]:
        """Return the report as the JSON document of `--json`."""
        answers = [finding for finding in self.findings if finding.severity != "remark"]
        named = {"place", "message"}
        rules = [
            {
                "rule": rule,
                "verdict": self.verdict(rule),
                "findings": [finding.model_dump(include=named) for finding in answers if finding.check == rule],
            }
            for rule in self.rules
        ]
        refused = [{"shape": list(shape), "reason": reason} for shape, reason in self.refused.items()]
        return {
            "layer": self.spec,
            "verdict": self.outcome,
            "error": None,  # the key of the message if the command is wrong
            "rules": rules,
            "not_answered": list(self.unanswered),
            "shapes": {"served": [list(shape) for shape in self.served], "refused": refused},
            "remarks": [{"rule": remark.check} | remark.model_dump(include=named) for remark in self.remarks],
            "ended": self.ended or None,
            "log": self.log or None,
            "seconds": round(self.seconds, 2),
            "versions": dict(self.versions),
        }

    def reason(self) -> str:
        """Return how the process ended, if by itself, and the first fault of each of the first failed rules."""
        first = {finding.check: finding for finding in reversed(self.faults)}
        failed = [rule for rule in self.rules if rule in first]
        parts = [self.ended] if self.ended and not self.overtime else []
        parts += [f"{rule}, {first[rule].place}: {first[rule].message}" for rule in failed[:2]]
        if len(failed) > 2:
            parts.append(f"and {', '.join(failed[2:])}")
        return visible("; ".join(parts))


def _distinct(findings: Iterable[Found], before: str = "") -> list[str]:
    """Return a line for each of the first distinct messages, with the places of each."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.message, []).append(finding.place)
    lines = []
    for message, (first, *others) in list(places.items())[:SHOWN]:
        lines.append(f"          {before}{first}{f', and {len(others)} more' if others else ''}: {message}")
    if len(places) > SHOWN:
        lines.append(f"          and {len(places) - SHOWN} more like these")
    return lines
