"""Events of a running check of a layer, from which its report follows.

The same events give the same report whether the check runs in this process or, streamed as messages, in another. This
module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.core.isolation.messages import BadMessage
from harness.core.texts import visible

Severity = Literal["fault", "remark", "unanswered"]


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
    """A finding of a rule on one case: a fault, a remark, or the reason why there is no answer."""

    event: Literal["found"] = "found"
    check: str  # the rule
    place: str
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
