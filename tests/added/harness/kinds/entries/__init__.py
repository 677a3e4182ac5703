# ruff: noqa: I001  (ruff takes this folder for the root of the package)
from harness.core.kinds import IDENTITY, Dependencies, Kind
from harness.kinds.entries.suite import EntriesSuite
from harness.kinds.entries.trial import EntriesTrial


class EntriesKind(Kind, name="entries"):
    """Count the entries of an event."""

    suite = EntriesSuite
    trial = EntriesTrial
    computes = False
    columns = IDENTITY | {"status": "string", "reason": "string", "check": "string", "entries": "Int64"}
    columns |= {"device": "string", "id": "string"}

    def depends_on(self, trial):
        return Dependencies(("harness.kinds.entries.run",), operators=False)
