"""Events of a running check of a layer, and the report that follows from them.

The same events give the same report whether the check runs in this process or, streamed as messages, in another. This
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.checking.report import CONSTRUCTION, CheckReport, Remark, RuleFinding, Severity, Unanswered
from harness.core.isolation.messages import BadMessage, shortened, visible

LONGEST_TEXT = 2000  # characters of a finding or a reason, so that an event fits into a message


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rules(_Event):
    """The first event: all rules in the order of the report, and the options of the check."""

    event: Literal["rules"] = "rules"
    rules: list[str]
    dtypes: list[str]
    versions: dict[str, str | None]


class Begins(_Event):
    """The check of a rule on one case begins, and the one before it has been answered."""

    event: Literal["begins"] = "begins"
    rule: str
    place: str


class Found(_Event):
    """A finding of the current check, or the reason why it has no answer."""

    event: Literal["found"] = "found"
    message: str
    severity: Severity = "fault"


class Served(_Event):
    """The layer serves this shape, or refuses it for a reason."""

    event: Literal["served"] = "served"
    shape: list[int]
    refusal: str | None = None


class Wrong(_Event):
    """The layer or an option does not exist: an error of the user, and nothing was checked."""

    event: Literal["wrong"] = "wrong"
    message: str


class Done(_Event):
    """The last event: every rule was checked."""

    event: Literal["done"] = "done"


Event = Rules | Begins | Found | Served | Wrong | Done
Tell = Callable[[Event], None]

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def bounded(text: str) -> str:
    """Return a text of a layer as events hold it: without control characters, and shortened."""
    return shortened(visible(text), LONGEST_TEXT)


def event_of(message: Mapping[str, Any], number: int) -> Event:
    """Return event `number` (0, 1, ...) of another process from its message {"number": ..., "event": ...}.

    Raises:
        BadMessage: it is not that event, for example if two processes write to one pipe.
    """
    if message.get("number") != number:
        raise BadMessage(f"{visible(repr(message)[:80])}, which does not follow what it wrote before")
    try:
        return _EVENT.validate_python(message.get("event"))
    except ValidationError as error:
        raise BadMessage(f"{visible(repr(message)[:60])}, which is not an event of a check") from error


class Collector:
    """Receive the events of a check, in order, and make its report.

    Args:
        spec: the layer as the user named it.
        tell: callback for each event.
    """

    def __init__(self, spec: str, tell: Tell | None = None) -> None:
        self.spec = spec
        self.over = False
        self.wrong: str | None = None
        self._tell = tell
        self._about = Rules(rules=[CONSTRUCTION], dtypes=[], versions={})
        self._served: dict[tuple[int, ...], str | None] = {}
        self._findings: list[RuleFinding] = []
        self._current: Begins | None = None
        self._begun: set[str] = set()
        self._told: frozenset[str] = frozenset()

    def take(self, event: Event) -> None:
        """Receive one event."""
        match event:
            case Rules():
                self._about = event
            case Begins():
                self._current = event
                self._begun.add(event.rule)
            case Found() if self._current is not None:
                current = self._current
                self._findings.append(RuleFinding(current.rule, current.place, event.message, event.severity))
            case Served():
                self._served[tuple(event.shape)] = event.refusal
            case Wrong():
                self.wrong = event.message
            case Done():
                self.over = True
        if self._tell is not None:
            self._tell(event)

    def answer(self, found: Iterable[str]) -> bool:
        """Receive the findings of the current check; return whether a fault is among them."""
        faulty = False
        for message in found:
            severity: Severity = "fault"
            if isinstance(message, (Remark, Unanswered)):
                severity = "remark" if isinstance(message, Remark) else "unanswered"
            faulty |= severity == "fault"
            self.take(Found(message=bounded(message), severity=severity))
        return faulty

    def news(self) -> list[str]:
        """Return the lines of the report on the rules that were answered since the last call."""
        new = self._answered - self._told
        if not new:
            return []
        report = self.report()
        lines = [] if self._told else report.heading()
        self._told |= new
        return [*lines, *(line for rule in report.rules if rule in new for line in report.rule_lines(rule))]

    @property
    def at(self) -> str:
        """The rule and the case of the last check that began."""
        return "before its import" if self._current is None else f"{self._current.rule}, {self._current.place}"

    @property
    def _answered(self) -> frozenset[str]:
        """The rules whose checks have ended on every case."""
        running = set() if self.over or self._current is None else {self._current.rule}
        return frozenset(self._begun - running)

    def report(self, ended: str = "", log: str = "", seconds: float = 0.0, *, overtime: bool = False) -> CheckReport:
        """Return the report of the events so far.

        Args:
            ended: why the check ended early; "": it did not.
            log: the last output of its process.
            seconds: duration of the check.
            overtime: whether it ended early because its time was over.
        """
        return CheckReport(
            spec=self.spec,
            rules=tuple(self._about.rules),
            answered=self._answered,
            served=tuple(shape for shape, refusal in self._served.items() if refusal is None),
            dtypes=tuple(self._about.dtypes),
            refused={shape: refusal for shape, refusal in self._served.items() if refusal is not None},
            findings=tuple(self._findings),
            ended=ended,
            overtime=overtime,
            log=log,
            seconds=seconds,
            versions=self._about.versions,
        )
