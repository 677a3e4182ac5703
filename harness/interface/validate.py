"""`harness.validate`: check a suite in one or all of its profiles, and the data that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import SkipValidation

from harness.core.arguments import checked, optional, path
from harness.core.errors import DataMissing
from harness.execution.data import examine_data, raise_faults
from harness.execution.executor import check_section
from harness.interface.request import data_root
from harness.planning.plan import Plan
from harness.planning.settle import check_suite, settle
from harness.planning.suite import Source, read_suite


@checked
def validate(
    suite: SkipValidation[Source],
    *,
    profile: str | None = None,
    data: Annotated[Path | None, optional(path, str | Path)] = None,
) -> dict[str, Plan]:
    """Check a suite and the data that are there, and return the plan of each profile; nothing runs.

    Missing data are a fault if `data` names their folder and a run would not leave them out, else a printed remark: a
    suite is right on any machine.

    Args:
        suite: as of `harness.run`.
        profile: only this one; by default all.
        data: the folder of the data sets; by default $INVERTBENCH_DATA.

    Raises:
        SuiteError: the suite is wrong, with every fault and its place.
        UserError: data are missing (DataMissing) or wrong.
    """
    from harness.checking.isolated import try_imports

    root = data_root(data)
    read = read_suite(suite, data=root)
    check_section(read)
    try_imports(read.third_party)
    check_suite(read, shapes=profile is None)
    settled = {name: settle(read, name, "cpu") for name in (read.profile_names if profile is None else [profile])}
    needed = [reference for of_profile in settled.values() for reference in of_profile.data]
    optional = {reference for of_profile in settled.values() for reference in of_profile.optional}
    _, faults = examine_data(needed, root, offline=True, tell=print)
    may_miss = optional if data else set(needed)
    absent = [key for key, fault in faults.items() if isinstance(fault, DataMissing) and key in may_miss]
    for line in dict.fromkeys(f"note: not here, so not checked: {faults.pop(key)}" for key in absent):
        print(line)
    raise_faults(faults.values())
    return {name: of_profile.plan().plan for name, of_profile in settled.items()}
