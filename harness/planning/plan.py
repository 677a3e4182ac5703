"""From a suite to its trials: everything that a run will do, settled before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from harness.core.errors import UserError
from harness.core.machine import usable_cores
from harness.core.records import write_atomically
from harness.core.settings import DataRef, LayerRef, Settings, TimingSettings
from harness.core.trial import AnyTrial, Trial
from harness.kinds.density.trial import DensityTrial
from harness.kinds.examination.trial import ExaminationTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.overrides import Selection, parse_only, parse_overrides
from harness.planning.resolve import Cell, Scope, cells, column_of, overlay, row_name, rows_in, rows_of
from harness.planning.suite_errors import raise_faults
from harness.planning.suite_model import Kind, Published, Suite, Timing

FILE = "plan.json"

Device = Literal["cpu", "cuda"]


class Section(Settings):
    """A claim and what tests it, of a plan of kind claims.

    Attributes:
        name: of the section.
        claim, where, test: the sentence, its place in the publication, what is done about it.
        judge: of `harness.kinds.claims.judges`.
        head: the plan of its suite, without the trials, which are those of that suite's name.
    """

    name: str
    claim: str
    where: str
    test: str
    judge: str
    head: Plan


class Plan(Settings):
    """What one run of a suite does, and what its report needs beside the records.

    Attributes:
        rows, columns: labels in the order of the suite; columns are data sets, of a runtime suite its sweeps.
        averages: of a density suite, columns of means over other columns.
        seeds: of a density suite; else empty.
        unsupported: whether a trial of this status is what the suite expects.
        timeout, memory: limits of each trial, in seconds and bytes; None: none.
        published: quoted numbers.
        remark: of the profile, below its table of likelihoods.
        command: what was typed to make it, as far as it decides what the trials are; empty where nobody knows.
        trials: in the order in which they start: seeds outermost, so that an unfinished run compares all
            layers on the first seed; runtime trials last.
        sections: of a plan of kind claims; else empty.
    """

    suite: str
    kind: Kind | Literal["claims"]
    title: str
    question: str
    profile: str
    device: Device
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    averages: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    unsupported: bool = False
    timeout: float | None = None
    memory: int | None = None
    published: Published | None = None
    remark: str = ""
    command: str = ""
    trials: tuple[AnyTrial, ...]
    sections: tuple[Section, ...] = ()

    def part(self, section: Section) -> Plan:
        """The plan of a section, by itself."""
        own = tuple(trial for trial in self.trials if trial.suite == section.head.suite)
        return section.head.model_copy(update={"trials": own})

    def cell(self, trial: Trial) -> tuple[str, ...]:
        """Return the one place in the plan's tables that the trial fills; each part of a plan has tables of its own."""
        return (trial.suite if self.sections else "", *trial.cell)

    def save(self, folder: Path) -> Path:
        """Write `folder/plan.json`, whole or not at all."""
        path = folder / FILE
        write_atomically(path, self.model_dump_json(indent=1).encode() + b"\n")
        return path

    def with_checksums(self, checksums: Mapping[DataRef, str | None]) -> Plan:
        """The same trials on data of these checksums; data sets that are not named stay as they are."""
        return self.model_copy(update={"trials": tuple(trial.with_checksums(checksums) for trial in self.trials)})

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Read `folder/plan.json`; a UserError names what is wrong with it."""
        path = folder / FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise UserError(
                f"{folder}: no {FILE}, so no suite was run here; give the folder of a run, OUT/<suite>"
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the file"
            raise UserError(f"{path}: not a readable plan ({place}: {first['msg']}); run the suite again") from error
        except OSError as error:
            raise UserError(f"{path}: not a readable plan ({error.strerror}); run the suite again") from error


def make_plan(
    suite: Suite,
    profile: str = "quick",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    *,
    seeds: int | None = None,
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
    jobs: int | None = None,
) -> Plan:
    """Settle every trial of one profile; see `plan_run`."""
    return plan_run(suite, profile, device, seeds=seeds, settings=settings, layers=layers, jobs=jobs)[0]


def plan_run(
    suite: Suite,
    profile: str = "quick",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
    jobs: int | None = None,
    elsewhere: int | None = None,
) -> tuple[Plan, tuple[AnyTrial, ...]]:
    """Settle every trial of one profile, and pick those to run.

    Args:
        suite: from `harness.planning.suite.load_suite`.
        profile: one of the suite's.
        device: "auto" takes a CUDA device where there is one.
        seeds: the number of seeds, in place of the profile's.
        only: `--only` texts, "layer=butterfly".
        settings: `--set` texts, "training.steps=100".
        layers: third-party layers that become rows of their own, "FILE.py:CLASS".
        jobs: trials at once, among which `threads: auto` divides the cores.
        elsewhere: cores of each trial, where they run on other machines, of which nobody asks here whether they
            have the device; None: they run here.

    Returns:
        The plan, which is the same whatever `only` picks, and the trials that it picks. A runtime trial times its
        layers together, and is picked with any of them.

    Raises:
        SuiteError: what is picked of the suite, with these changes, cannot run; every reason with its place.
        UserError: no such profile, no such device, or `only` picks nothing.
    """
    scope = make_scope(suite, profile, seeds=seeds, settings=settings, layers=layers)
    picked_rows, picked_columns, picked_seeds = _pick(scope, parse_only(only))
    check_scope(scope, {(column, row) for column in picked_columns for row in picked_rows})
    rows, columns, every_seed = _pick(scope, Selection())
    used = resolve_device(device) if elsewhere is None or device == "auto" else device
    plan = Plan(
        suite=suite.suite,
        kind=suite.kind,
        title=suite.title,
        question=" ".join(suite.question.split()),
        profile=profile,
        device=used,
        rows=tuple(rows),
        columns=tuple(columns),
        averages={label: members for label, members in scope.averages.items() if set(members) <= set(columns)},
        seeds=tuple(every_seed),
        unsupported=suite.unsupported,
        timeout=scope.limit("timeout"),
        memory=scope.limit("memory"),
        published=suite.published,
        remark=scope.setting("remark"),
        trials=tuple(_trials(scope, used, rows, columns, every_seed, jobs, elsewhere)),
    )
    wanted = [trial for trial in plan.trials if trial.selected(picked_rows, picked_columns, picked_seeds)]
    return plan, tuple(wanted)


def count_trials(suite: Suite, profile: str) -> int:
    """The number of trials of a profile, of a suite that `harness.planning.suite.validate_suite` has passed."""
    scope = make_scope(suite, profile)
    return len(list(_trials(scope, "cpu", *_pick(scope, Selection()))))


def make_scope(
    suite: Suite,
    profile: str,
    *,
    seeds: int | None = None,
    settings: Sequence[str] = (),
    layers: Sequence[str] = (),
) -> Scope:
    """One profile under the command line's changes; a UserError names what is wrong with them."""
    if profile not in suite.profiles:
        raise UserError(
            f"suite {suite.suite} has no profile {profile!r}; it has {', '.join(suite.profiles)} (--profile NAME)"
        )
    bare = Scope(suite, profile, extra=tuple(layers))
    overrides = parse_overrides(settings, seeds, rows_of(suite, layers), bare.columns)
    return Scope(suite, profile, overrides, bare.extra)


def check_scope(scope: Scope, only: set[tuple[str, str]] | None = None) -> None:
    """Raise a SuiteError unless every row can serve every column (or those of the pairs in `only`)."""
    # Here, not above: a report needs `Plan` and no torch.
    from harness.planning.suite_checks import scope_findings
    from harness.planning.suite_shapes import shape_findings

    document = scope.suite.document
    found = scope_findings(scope) + shape_findings([scope], only)
    raise_faults(document.name, [finding.fault(document) for finding in found])


def resolve_device(device: Literal["auto", "cpu", "cuda"]) -> Device:
    """The device that a run uses."""
    if device == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise UserError("--device cuda: torch finds no CUDA device here; use --device cpu or auto")
    return "cpu"


def _pick(scope: Scope, selection: Selection) -> tuple[list[str], list[str], list[int]]:
    """Rows, columns and seeds that `--only` leaves."""
    rows = {label: row_name(label, row) for label, (row, _) in rows_in(scope).items()}
    columns = {label: label for label in scope.columns}
    if scope.suite.kind != "runtime":
        columns = {label: entry.data or label for label, entry in scope.profile.datasets.items()}
    seeds = scope.setting("seeds") if scope.suite.kind == "density" else ()
    picked = selection.pick("seed", {str(seed): str(seed) for seed in seeds})
    return selection.pick("layer", rows), selection.pick("dataset", columns), [int(seed) for seed in picked]


def _trials(
    scope: Scope,
    device: Device,
    rows: Sequence[str],
    columns: Sequence[str],
    seeds: Sequence[int],
    jobs: int | None = None,
    elsewhere: int | None = None,
) -> Iterator[AnyTrial]:
    threads = scope.setting("threads")
    share = max(1, usable_cores() // (jobs or 1)) if elsewhere is None else elsewhere
    common: dict[str, Any] = {
        "suite": scope.suite.suite,
        "profile": scope.name,
        "device": device,
        "threads": share if threads == "auto" else threads,
    }
    table = {(one.column, one.row): one for one in cells(scope)}
    picked = [[table[column, row] for row in rows] for column in columns]
    if scope.suite.kind == "density":
        yield from _density(scope, common, picked, seeds)
    elif scope.suite.kind == "parameters":
        yield from _parameters(scope, common, picked)
    elif scope.suite.kind == "examination":
        yield from _examinations(scope, common, picked)
    else:
        yield from _runtime(scope, common, picked)


def _density(
    scope: Scope, common: dict[str, Any], picked: list[list[Cell]], seeds: Sequence[int]
) -> Iterator[DensityTrial | RuntimeTrial]:
    for seed in seeds:
        for row in picked:
            for one in row:
                data = column_of(scope, one.column)
                yield DensityTrial(
                    **common,
                    data=data.entry.reference(one.column, data.options, scope.suite.folder),
                    layer=one.layer,
                    flow=one.flow,
                    training=one.training,
                    seed=seed,
                )
    timing = _timing(scope)
    if timing is None:
        return
    from flows import level_shapes
    from harness.planning.suite_shapes import event_shapes

    for row in picked:
        timed = [one for one in row if not one.layer.baseline]
        for event in event_shapes(scope, row[0].column) if timed else ():
            yield RuntimeTrial(
                **common,
                sweep=row[0].column,
                shape=level_shapes(event, 1)[0],
                batch=timing.batch,
                layers=_layers(timed),
                operations=("forward", "inverse"),
                timing=_timing_settings(timing),
            )


def _parameters(scope: Scope, common: dict[str, Any], picked: list[list[Cell]]) -> Iterator[ParametersTrial]:
    from harness.planning.suite_shapes import event_shapes

    for row in picked:
        for shape in event_shapes(scope, row[0].column):
            for width in scope.widths(row[0].column):
                for one in row:
                    flow = one.flow.model_copy(update={"width": width})
                    yield ParametersTrial(**common, label=one.column, shape=shape, layer=one.layer, flow=flow)


def _examinations(scope: Scope, common: dict[str, Any], picked: list[list[Cell]]) -> Iterator[ExaminationTrial]:
    from harness.planning.suite_shapes import event_shapes

    for row in picked:
        for shape in event_shapes(scope, row[0].column):
            for one in row:
                about = {"label": one.column, "shape": shape, "layer": one.layer, "mixer": one.flow.mixer}
                for examine in scope.suite.examine:
                    yield ExaminationTrial.model_validate(common | about | {"examine": examine})


def _runtime(scope: Scope, common: dict[str, Any], picked: list[list[Cell]]) -> Iterator[RuntimeTrial]:
    """Every point in one process before any in a second: an unfinished run has all points, a finished one drift."""
    timing = _timing(scope) or Timing()
    for process in range(timing.processes):
        for row in picked:
            sweep = scope.profile.sweeps[row[0].column]
            for shape in sweep.shapes:
                for batch in sweep.batch_sizes:
                    yield RuntimeTrial(
                        **common,
                        sweep=row[0].column,
                        shape=shape,
                        batch=batch,
                        layers=_layers(row),
                        operations=scope.suite.operations,
                        timing=_timing_settings(timing),
                        process=process,
                    )


def _layers(row: list[Cell]) -> tuple[LayerRef, ...]:
    return tuple(one.layer for one in row)


def _timing(scope: Scope) -> Timing | None:
    given = [timing for timing in (scope.profile.timing, scope.overrides.profile.timing) if timing is not None]
    return overlay(Timing, given) if given else None


def _timing_settings(timing: Timing) -> TimingSettings:
    return TimingSettings(**timing.model_dump(exclude={"batch", "processes"}))
