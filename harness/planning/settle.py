"""Settle a suite for one run: check it, select trials, and expand it into a plan, each once.

Example:
    settled = settle(suite, "quick", only=["layer=butterfly"])  # a SuiteError names every problem with its place
    settled.data                                                # the data sets that the selected trials read
    plan, selected = settled.plan(checksums)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.core.errors import UserError, suggestion
from harness.core.provenance.environment import usable_cores
from harness.core.settings import DataRef
from harness.core.texts import one_line
from harness.core.trial import AnyTrial
from harness.planning.cells import Scope, raise_faults
from harness.planning.overrides import parse_only, pick, scope_of
from harness.planning.plan import Device, GivenDevice, Plan, Section
from harness.planning.suite import Source, read_suite
from harness.planning.suite_base import Suite, SuiteFile
from harness.planning.suite_model import EVERY_LAYER

Checksums = Mapping[DataRef, str | None]

CHANGES = {"settings": "--set", "layers": "--layer", "datasets": "--dataset", "seeds": "--seeds"}
"""Arguments of `settle` that change a suite -> the option of the command line."""

IN_PLANS = ("averages", "remark")
"""Keys of profiles of some kinds that their reports need."""


class Planned(NamedTuple):
    """The plan of a profile, which is the same whatever `--only` selects, and the trials that it selects.

    Layers that `--only` excludes are removed from the selected runtime trials.
    """

    plan: Plan
    selected: tuple[AnyTrial, ...]


@dataclass(frozen=True)
class _Part:
    """One suite of rows and columns, with the selected ones."""

    scope: Scope
    rows: Sequence[str]
    columns: Sequence[str]
    repeats: Mapping[str, Sequence[int]]  # the selected seeds and repetitions
    common: Mapping[str, Any]  # settings of all trials
    named: bool  # whether `--only` names the data sets
    selected: bool  # whether its trials run

    @cached_property
    def references(self) -> dict[str, tuple[DataRef, ...]]:
        """Column -> its data set in each repetition, without checksums; a third-party one is digested for it."""
        return self.scope.suite.references(self.scope)

    @property
    def data(self) -> list[DataRef]:
        """The data sets of the selected columns."""
        return [data for label, references in self.references.items() if label in self.columns for data in references]

    def plan(self, checksums: Checksums) -> Planned:
        scope, suite = self.scope, self.scope.suite
        data = {
            label: [data.model_copy(update={"checksum": checksums.get(data.arrays)}) for data in references]
            for label, references in self.references.items()
        }
        plan = Plan.model_validate(
            {
                **_heading(suite, scope.name, self.common["device"]),
                "rows": tuple(scope.rows),
                "columns": tuple(scope.columns),
                "seeds": suite.repeats(scope).get("seed", ()),
                "unsupported": suite.unsupported or EVERY_LAYER in suite.layers,
                "timeout": scope.limit("timeout"),
                "memory": scope.limit("memory"),
                "published": suite.published,
                "trials": tuple(suite.expand(scope, self.common, data)),
                **{key: getattr(scope.profile, key) for key in IN_PLANS if hasattr(scope.profile, key)},
            }
        )
        others = {row for row in scope.rows if row not in self.rows}
        selected = (trial for trial in plan.trials if trial.selected(self.rows, self.columns, self.repeats))
        return Planned(plan, tuple(trial.without_rows(others) for trial in selected))


@dataclass(frozen=True)
class Settled:
    """A suite whose trials are determined, but for the checksums of their data."""

    suite: SuiteFile
    profile: str
    device: Device
    parts: Mapping[str, _Part]

    @property
    def data(self) -> list[DataRef]:
        """The data sets that the selected trials read, each once."""
        return list(dict.fromkeys(data for part in self.parts.values() if part.selected for data in part.data))

    @property
    def optional(self) -> frozenset[DataRef]:
        """The data sets that a run leaves out where their files are missing."""
        parts = (part for part in self.parts.values() if part.selected and not part.named)
        leaving = (part for part in parts if getattr(part.scope.profile, "leave_out_missing", False))
        return frozenset(data for part in leaving for data in part.data)

    def plan(self, checksums: Checksums = MappingProxyType({})) -> Planned:
        """Return the plan and the selected trials, on data of these checksums, by `DataRef.arrays`."""
        plans = {label: part.plan(checksums) for label, part in self.parts.items()}
        if self.suite.part_key is None:
            return plans[""]
        heads = {label: plan.model_copy(update={"trials": ()}) for label, (plan, _) in plans.items()}
        whole = Plan(
            **_heading(self.suite, self.profile, self.device),
            rows=tuple(dict.fromkeys(row for head in heads.values() for row in head.rows)),
            columns=tuple(dict.fromkeys(column for head in heads.values() for column in head.columns)),
            unsupported=any(head.unsupported for head in heads.values()),
            trials=_in_order(trial for plan, _ in plans.values() for trial in plan.trials),
            sections=tuple(Section(name=label, head=head, **self.suite.about(label)) for label, head in heads.items()),
        )
        chosen = (planned.selected for label, planned in plans.items() if self.parts[label].selected)
        return Planned(whole, _in_order(trial for trials in chosen for trial in trials))


def load_suite(source: Source, *, shapes: bool = False) -> SuiteFile:
    """Read a suite and check it (see `read_suite` and `check_suite`)."""
    return check_suite(read_suite(source), shapes=shapes)


def check_suite(suite: SuiteFile, *, shapes: bool = False) -> SuiteFile:
    """Return the suite after checking all its profiles; `read_suite` checked its structure.

    Args:
        shapes: whether to build every layer on every shape of every profile.

    Raises:
        SuiteError: with every problem of the first part that has any, each as ``file:line:column: message``.
    """
    from harness.planning.suite_checks import suite_problems  # imports torch

    for part in suite.parts.values():
        raise_faults(part.origin.document, suite_problems([scope_of(part, name) for name in part.profiles], shapes))
    return suite


def settle(
    suite: SuiteFile,
    profile: str = "quick",
    device: GivenDevice = "auto",
    *,
    only: Sequence[str] = (),
    here: bool = True,
    cores: int | None = None,
    **changes: Any,
) -> Settled:
    """Check one profile under the changes of a command line, and select what is to run.

    Args:
        suite: as `read_suite` returns it.
        profile: one of the suite's.
        device: "auto" takes a CUDA device where there is one.
        only: `--only` texts, "layer=butterfly".
        here: whether trials run on this machine, and not on others, whose devices are unknown here.
        cores: of each trial, for `threads: auto`; None: all of this machine.
        **changes: any of
            settings: `--set` texts, "training.steps=100".
            layers: third-party layers that become rows of their own, "FILE.py:CLASS".
            datasets: files that become columns, "LABEL=FILE".
            seeds: the number of seeds, in place of the profile's.

    Raises:
        SuiteError: the selected part of the suite, with these changes, cannot run; every reason with its place.
        UserError: no such profile, no such device, changes for more than one part, or `only` selects nothing.
    """
    used = resolve_device(device) if here or device == "auto" else device
    common = {"device": used, "cores": cores}
    selected = list(suite.parts)
    if (key := suite.part_key) is not None:
        if profile not in suite.profile_names:
            raise UserError(
                f"suite {suite.suite} has no profile {profile!r} in all of its {key}s"
                f"{suggestion(profile, suite.profile_names)}; it has {', '.join(suite.profile_names)} (--profile NAME)"
            )
        selected, only = pick(parse_only(only, (key,)), key, dict.fromkeys(suite.parts, "")), ()
        options = [option for name, option in CHANGES.items() if changes.get(name)]
        if len(selected) != 1 and options:
            raise UserError(f"{options[0]}: changes the suite of one {key}; say which: --only {key}=NAME")
    parts = {
        label: _part(part, profile, only, common, changes if selected == [label] else {}, label in selected)
        for label, part in suite.parts.items()
    }
    return Settled(suite, profile, used, parts)


def _part(
    suite: Suite,
    profile: str,
    only: Sequence[str],
    common: Mapping[str, Any],
    changes: Mapping[str, Any],
    selected: bool,
) -> _Part:
    from harness.planning.suite_checks import suite_problems  # imports torch

    scope = scope_of(suite, profile, **changes)
    selection = parse_only(only)
    rows = pick(selection, "layer", {label: row.named(label) for label, (row, _) in scope.rows.items()})
    columns = pick(selection, "dataset", scope.columns)
    repeats = {
        key: list(map(int, pick(selection, key, {str(value): "" for value in values})))
        for key, values in ({"seed": (), "repetition": ()} | suite.repeats(scope)).items()
    }
    cells = {(column, row) for column in columns for row in rows}
    raise_faults(suite.origin.document, suite_problems([scope], True, cells))
    threads = scope.profile.threads
    if threads == "auto":
        threads = common["cores"] or usable_cores()
    settings = {"suite": suite.suite, "profile": profile, "device": common["device"], "threads": threads}
    return _Part(scope, rows, columns, repeats, settings, bool(selection["dataset"]), selected)


def _heading(suite: SuiteFile, profile: str, device: Device) -> dict[str, Any]:
    return {
        "suite": suite.suite,
        "kind": suite.kind,
        "title": suite.title or suite.suite,
        "question": one_line(suite.question),
        "profile": profile,
        "device": device,
    }


def _in_order(trials: Iterable[AnyTrial]) -> tuple[AnyTrial, ...]:
    """Return the trials with those that run alone last, as a run does them."""
    return tuple(sorted(trials, key=lambda trial: trial.alone))


def resolve_device(device: GivenDevice) -> Device:
    """Return the device that a run uses."""
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise UserError("--device cuda: torch finds no CUDA device here; use --device cpu or auto")
    return "cpu"
