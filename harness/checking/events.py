"""Events of a running check of a layer, and the report that follows from them.

The same events give the same report whether the check runs in this process or, streamed as messages, in another. This
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.checking.report import CONSTRUCTION, CheckReport, RuleFinding, Severity
from harness.core.isolation.messages import BadMessage, visible

MOST_FINDINGS = 20_000  # limit for one layer; a check that reports more is ended


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Rules(_Event):
    """The first event: all rules in the order of the report, and the options of the check."""

    event: Literal["rules"] = "rules"
    rules: list[str]
    dtypes: list[str]
    versions: dict[str, str | None]


class Begins(_Event):
    """The check of a rule on one case begins."""

    event: Literal["begins"] = "begins"
    rule: str
    place: str


class Found(_Event):
    """A finding of the current check."""

    event: Literal["found"] = "found"
    message: str
    severity: Severity = "fault"


class Answered(_Event):
    """The current check has ended, with a number of findings."""

    event: Literal["answered"] = "answered"
    findings: int


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


Event = Rules | Begins | Found | Answered | Served | Wrong | Done
Tell = Callable[[Event], None]

_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def event_of(message: Mapping[str, Any]) -> Event:
    """Parse an event that another process sent as `event.model_dump()`; raise BadMessage if it is not one."""
    try:
        return _EVENT.validate_python(message)
    except ValidationError as error:
        raise BadMessage(f"{visible(repr(message)[:60])}, which is not an event of a check") from error


class Collector:
    """Receive the events of a check, in order, and make its report."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.over = False
        self.wrong: str | None = None
        self._about = Rules(rules=[CONSTRUCTION], dtypes=[], versions={})
        self._served: dict[tuple[int, ...], str | None] = {}
        self._findings: list[RuleFinding] = []
        self._open: Begins | None = None
        self._found = 0
        self._answers: list[Begins] = []

    def take(self, event: Event) -> None:
        """Receive one event.

        Raises:
            BadMessage: it cannot follow the earlier events, for example if two processes write to one pipe.
        """
        if not self._follows(event):
            raise BadMessage(f"{visible(repr(event)[:80])}, which does not follow what it wrote before")
        match event:
            case Rules():
                self._about = event
            case Begins():
                self._open, self._found = event, 0
            case Found() if self._open is not None:
                self._found += 1
                self._findings.append(RuleFinding(self._open.rule, self._open.place, event.message, event.severity))
            case Answered() if self._open is not None:
                self._answers.append(self._open)
                self._open = None
            case Served():
                self._served[tuple(event.shape)] = event.refusal
            case Wrong():
                self.wrong = event.message
            case Done():
                self.over = True

    def _follows(self, event: Event) -> bool:
        if self.over or self.wrong is not None:
            return False
        match event:
            case Rules():
                return not self._about.dtypes and bool(event.dtypes)
            case Begins():
                rules = self._about.rules
                last = rules.index(self._answers[-1].rule) if self._answers else 0
                return self._open is None and event.rule in rules[last:] and event not in self._answers
            case Found():
                return self._open is not None and len(self._findings) < MOST_FINDINGS
            case Answered():
                return self._open is not None and event.findings == self._found
            case Served():
                return self._open is None and tuple(event.shape) not in self._served
            case Wrong():
                return True
            case Done():
                return self._open is None and bool(self._about.dtypes)

    @property
    def at(self) -> str:
        """The rule and the case that are being checked, or were last."""
        if self._open is not None:
            return f"{self._open.rule}, {self._open.place}"
        return f"after {self._answers[-1].rule}, {self._answers[-1].place}" if self._answers else "before its import"

    def report(self, ended: str = "", log: str = "", seconds: float = 0.0) -> CheckReport:
        """Return the report of the events so far.

        Args:
            ended: why the check ended early; "": it did not.
            log: the last output of its process.
            seconds: duration of the check.
        """
        answered = {one.rule for one in self._answers}
        if not self.over and self._answers:
            answered.discard((self._open or self._answers[-1]).rule)
        return CheckReport(
            spec=self.spec,
            rules=tuple(self._about.rules),
            answered=frozenset(answered),
            served=tuple(shape for shape, refusal in self._served.items() if refusal is None),
            dtypes=tuple(self._about.dtypes),
            refused={shape: refusal for shape, refusal in self._served.items() if refusal is not None},
            findings=tuple(self._findings),
            ended=ended,
            log=log,
            seconds=seconds,
            versions=self._about.versions,
        )
