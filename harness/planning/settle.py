"""Settle a suite for one run: check it, select trials, and expand it into a plan, each once.

Example:
    settled = settle(suite, "quick", only=["layer=butterfly"])  # a SuiteError names every problem with its place
    settled.data                                                # the data sets that the selected trials read
    plan, selected = settled.plan(checksums)
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.core.errors import SuiteError, UserError, nearest, suggestion
from harness.core.provenance.environment import usable_cores
from harness.core.settings import DataRef
from harness.core.texts import one_line
from harness.core.trial import AnyTrial
from harness.planning.cells import Scope, assigned, merged, raise_faults
from harness.planning.plan import Device, GivenDevice, Plan, Section
from harness.planning.strict_yaml import parse_pairs
from harness.planning.suite import Source, Suite, SuiteFile, read_suite, validated
from harness.planning.suite_model import EVERY_LAYER

_BETWEEN_OPTIONS = re.compile(r",(?![^\[{]*[\]}])")  # a comma that is in no list or mapping

Checksums = Mapping[DataRef, str | None]

CHANGES = {"settings": "--set", "layers": "--layer", "datasets": "--dataset", "seeds": "--seeds"}
"""Arguments of `settle` that change a suite -> the option of the command line."""


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
    common: Mapping[str, Any]  # settings of all trials
    rows: Sequence[str]
    columns: Sequence[str]
    repeats: Mapping[str, Sequence[int]]  # the selected seeds and repetitions
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
        scope, suite, profile = self.scope, self.scope.suite, self.scope.profile
        data = {
            label: [data.model_copy(update={"checksum": checksums.get(data.arrays)}) for data in references]
            for label, references in self.references.items()
        }
        plan = Plan(
            **_heading(suite, scope.name, self.common["device"]),
            rows=tuple(scope.rows),
            columns=tuple(scope.columns),
            seeds=suite.repeats(scope).get("seed", ()),
            unsupported=suite.unsupported or EVERY_LAYER in suite.layers,
            timeout=suite.timeout if profile.timeout is None else profile.timeout,
            memory=suite.memory if profile.memory is None else profile.memory,
            published=suite.published,
            trials=tuple(suite.expand(scope, self.common, data)),
            averages=getattr(profile, "averages", {}),
            remark=getattr(profile, "remark", ""),
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
        parts = [part for part in self.parts.values() if getattr(part.scope.profile, "leave_out_missing", False)]
        return frozenset(data for part in parts if part.selected and not part.named for data in part.data)

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
    from harness.planning.suite_checks import suite_problems  # imports torch

    used = resolve_device(device) if here or device == "auto" else device
    selected = list(suite.parts)
    if profile not in (names := suite.profile_names):
        hint = f"{suggestion(profile, names)}; it has {', '.join(names)} (--profile NAME)"
        raise UserError(f"suite {suite.suite} has no profile {profile!r}{hint}")
    if (key := suite.part_key) is not None:
        selected, only = _pick(_parse_only(only, (key,)), key, dict.fromkeys(suite.parts, "")), ()
        options = [option for name, option in CHANGES.items() if changes.get(name)]
        if len(selected) != 1 and options:
            raise UserError(f"{options[0]}: changes the suite of one {key}; say which: --only {key}=NAME")
    parts = {}
    for label, part in suite.parts.items():
        scope, selection = scope_of(part, profile, **(changes if selected == [label] else {})), _parse_only(only)
        rows = _pick(selection, "layer", {row: spec.named(row) for row, (spec, _) in scope.rows.items()})
        columns = _pick(selection, "dataset", {column.label: column.name for column in scope.columns.values()})
        repeats = {
            key: list(map(int, _pick(selection, key, {str(value): "" for value in values})))
            for key, values in ({"seed": (), "repetition": ()} | part.repeats(scope)).items()
        }
        cells = {(column, row) for column in columns for row in rows}
        raise_faults(part.origin.document, suite_problems([scope], True, cells))
        threads = (cores or usable_cores()) if scope.profile.threads == "auto" else scope.profile.threads
        common = {"suite": part.suite, "profile": profile, "device": used, "threads": threads}
        parts[label] = _Part(scope, common, rows, columns, repeats, bool(selection["dataset"]), label in selected)
    return Settled(suite, profile, used, parts)


def scope_of(
    suite: Suite,
    name: str,
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: int | None = None,
) -> Scope:
    """Return a profile under changes of the command line, as `settle` takes them; `settings` have precedence."""
    key, here, rows, changes = suite.columns_key, ("profiles", name), list(suite.rows()), list[tuple[str, Any]]()
    columns = list(getattr(suite.profiles[name], key))
    for spec in layers:
        if (label := spec.rpartition(":")[2]) in rows:
            raise SuiteError(f"--layer {spec}: the suite has a row {label!r} already; give the class another name")
        rows.append(label)
        changes.append((f"--layer {spec}", assigned(("layers", label, "layer"), spec)))
    if seeds is not None:
        changes.append((f"--seeds {seeds}", assigned((*here, "seeds"), seeds)))
    for text in datasets:
        try:
            label, column = _added_column(suite, text, columns)
        except UserError as error:
            raise SuiteError(f"--dataset {text}: {error}") from error
        columns.append(label)
        changes.append((f"--dataset {text}", assigned((*here, key, label), column)))
    form = f"path=value, such as flow.width=32; paths begin with {', '.join(type(suite.profiles[name]).model_fields)}"
    for option, path, value in parse_pairs("--set", settings, form):
        first, *inner = path.split(".")
        for label in (inner[:1] or (value if isinstance(value, dict) else ())) if first == key else ():
            if label not in columns:
                noun = "data set" if key == "datasets" else key.removesuffix("s")
                raise SuiteError(f"{option}: profiles.{name} has no {noun} {label!r}; {nearest(label, columns)}")
        changes.append((option, assigned((*here, first, *inner), value)))
    if not changes:
        return Scope(suite, name)
    content: Any = reduce(lambda whole, change: merged(whole, change[1], 99), changes, {})  # at all depths; null stays
    origin = suite.origin._replace(content=content, changes=changes)
    labelled = {"profiles", *suite.sections, key}  # two keys below each label, settings are replaced
    changed: Any = validated(origin, merged(origin.document.value, content, 2, labelled))
    return Scope(changed, name)


def _added_column(suite: Suite, text: str, taken: Container[str]) -> tuple[str, dict[str, Any]]:
    """Return label and content of a column from "LABEL=FILE:option=value,...", with options that the file suggests."""
    from harness.datasets import proposed

    if suite.columns_key != "datasets":
        raise UserError(f"a suite of the kind {suite.kind} has no data sets")
    label, _, place = (part.strip() for part in text.partition("="))
    file, _, rest = (place, "", "") if Path(place).exists() else place.partition(":")
    if not label or not file:
        raise UserError("not of the form LABEL=FILE or LABEL=FILE:option=value,option=value")
    if label in taken:
        raise UserError(f"there is a data set {label!r}; give this one another label")
    path = Path(file).expanduser().resolve()
    name, options = proposed(path)
    beside = os.path.relpath(path, suite.origin.folder or Path())  # as the suite would name it
    if suite.origin.folder is None:
        beside = f"./{beside}" if path.is_relative_to(Path.cwd()) else str(path)
    options = {option: beside if value == str(path) else value for option, value in options.items()}
    pairs = parse_pairs("an option", _BETWEEN_OPTIONS.split(rest) if rest else [], "option=value")
    return label, {"data": name, "options": options | {option: value for _, option, value in pairs}}


def _pick(selection: Mapping[str, Sequence[str]], key: str, candidates: Mapping[str, str]) -> list[str]:
    """Return the labels that the values of a key select, each a label or else a name, of candidates: label -> name."""
    picked: set[str] = set()
    for value in selection[key]:
        named = {value} & set(candidates) or {label for label, name in candidates.items() if name == value}
        if not named:
            names = list(dict.fromkeys(filter(None, [*candidates, *candidates.values()])))
            raise UserError(f"--only {key}={value}: nothing in this profile has it; {nearest(value, names)}")
        picked |= named
    return [label for label in candidates if not selection[key] or label in picked]


def _parse_only(
    texts: Sequence[str], keys: Sequence[str] = ("layer", "dataset", "seed", "repetition")
) -> dict[str, list[str]]:
    """Read `--only key=value[,value...]` options: the values of each key; one without values selects everything."""
    picked: dict[str, list[str]] = {key: [] for key in keys}
    for text in texts:
        key = ""
        for part in text.split(","):
            name, equals, value = part.partition("=")
            key, value = (name.strip(), value.strip()) if equals else (key, part.strip())
            if not key or not value:
                raise UserError(f"--only {text}: not of the form key=value, such as layer=butterfly")
            if key not in keys:
                raise UserError(f"--only {text}: unknown key {key!r}; {nearest(key, keys)}")
            picked[key].append(value)
    return picked


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
    if device != "cpu":
        import torch

        if torch.cuda.is_available():
            return "cuda"
        if device == "cuda":
            raise UserError("--device cuda: torch finds no CUDA device here; use --device cpu or auto")
    return "cpu"
