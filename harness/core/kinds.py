"""The registry of kinds of trials: density, runtime, parameters, examination and those to come.

A kind is one folder below harness/kinds, which defines one subclass of `Kind`. Importing `harness` fills the registry;
execution, digests, results, tables and figures ask the registered object and name no kind themselves. The parts of the
folder that need torch, pandas or matplotlib are imported when they are asked for:

    run.py      run(trial, root, out, progress, checkpoints) -> Record
    tables      tables(results) -> list[Table]; a file or a folder
    figures/    one file per figure (see `harness.reporting.figures.figures`)
    answer.py   answer(results) -> Answer | None, to the question of the suite
    probe.py    run, as above, of a few steps; seconds(trial, record) -> float: the estimate of all
    trained.py  load(trial, folder, device) -> the trained model, for `harness.load_flow`
    compare.py  measure, the `Measure` by which `compare` judges two results
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from harness.core.errors import UserError

if TYPE_CHECKING:
    from harness.core.records import Record
    from harness.core.run_options import RunOptions
    from harness.core.settings import Progress
    from harness.core.trial import Trial
    from harness.planning.suite_base import SuiteFile
    from harness.planning.suite_model import Published
    from harness.reporting.compare.measure import Measure
    from harness.reporting.frame import Results
    from harness.reporting.report import SuiteReport
    from harness.reporting.tables.rendering import Table
    from harness.training.checkpoints import Checkpoints

IDENTITY = {"suite": "string", "profile": "string", "kind": "string", "dataset": "string", "layer": "string"}
OUTCOME = {"seed": "Int64", "status": "string", "reason": "string", "check": "string"}
ORIGIN = {"device": "string", "id": "string"}
"""Columns of every kind: the first ones, those between settings and measures, and those after the measures."""


class UnknownKind(ValueError):
    """No registered kind has this name."""


@dataclass(frozen=True)
class Dependencies:
    """The source that can change the result of a trial, beside its layers.

    Attributes:
        modules: those that the trial begins with; what they import is followed.
        classes: classes whose files the trial begins with, such as the data set's, which may be third-party.
        mixer: whether the flow has a 1x1 convolution besides the layers under test.
        operators: whether the trial runs compiled operators.
        perceptron: whether a coupling of the trial may be a perceptron at each position.
    """

    modules: tuple[str, ...]
    classes: tuple[type, ...] = ()
    mixer: bool = False
    operators: bool = True
    perceptron: bool = False


class Kind:
    """One kind of trial. Subclass with ``class Density(Kind, name="density")`` to register it.

    Attributes:
        name: that trials, suites and records call it by.
        columns: name -> pandas type of every column of results.csv, in order; a measure of a record that is not among
            them is an error.
        suite: the class of its suites: their keys, their checks, and how they expand into trials; None for a kind whose
            trials belong to suites of another kind.
        trial: the class of its trials' settings.
        alone: whether its trials run when nothing else does, as others beside them would change what they measure.
        computes: whether its trials run layers, so that the compiled kernels are loaded.
        deterministic: whether its trials use deterministic algorithms where they exist.
        losses: statuses, or "audit failed", with which a trial counts as ok, beside "ok".
    """

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, str]] = {}
    suite: ClassVar[type[SuiteFile] | None] = None
    trial: ClassVar[type[Trial]]
    alone: ClassVar[bool] = False
    computes: ClassVar[bool] = True
    deterministic: ClassVar[bool] = False
    losses: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, *, name: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name in KINDS:
            raise ValueError(f"kind {name!r} is taken by {type(KINDS[name]).__module__}; give this one another name")
        cls.name = name
        KINDS[name] = cls()

    @property
    def run_module(self) -> str:
        """The name of the module that runs its trials."""
        return f"{type(self).__module__}.run"

    def part(self, name: str) -> ModuleType | None:
        """Return a module of the kind's folder; None where it has none of this name."""
        path = f"{type(self).__module__}.{name}"
        return None if find_spec(path) is None else import_module(path)

    def run(self, trial: Any, run_options: RunOptions, progress: Progress, checkpoints: Checkpoints) -> Record:
        """Run one trial and return its record; the caller writes it."""
        module = import_module(self.run_module)
        record: Record = module.run(trial, run_options.root, run_options.out, progress, checkpoints)
        return record

    def depends_on(self, trial: Any) -> Dependencies:
        """Return the source that can change the result of a trial."""
        raise NotImplementedError

    def similar(self, trial: Mapping[str, Any]) -> list[tuple[list[Any], float]]:
        """Return what trials of similar duration share, the most similar first, each with the work that scales it.

        Args:
            trial: the settings, as `Trial.model_dump(mode="json")`.
        """
        varying = ("suite", "profile", "device", "threads", "layer")
        same = [value for name, value in trial.items() if name not in varying]
        return [([self.name, *same, trial["layer"]["row"]], 1.0), ([self.name], 1.0)]

    def fault(self, trial: Any, record: Record) -> str | None:
        """Return why a record of valid types cannot be one of this trial; None if it can.

        Each of its rows is one of the trial's cases, no two of the same; a trial that is ok has a row for each.
        """
        cases = [tuple(case.items()) for case in trial.cases]
        keys = list(trial.cases[0])
        rows = [tuple((key, row.get(key)) for key in keys) for row in record.rows]
        strange = next((row for row in rows if row not in cases), None)
        if strange is not None:
            return f"a row for {_case(strange)}, which the trial does not measure"
        if len(rows) != len(set(rows)):
            return "two rows of one case"
        missing = next((case for case in cases if case not in rows), None) if record.status == "ok" else None
        return None if missing is None else f"it is ok, and has no row{' for' * bool(keys)} {_case(missing)}".rstrip()

    def accepts(self, state: str, unsupported: bool) -> bool:
        """Return whether a trial of this status, or "audit failed", counts as ok.

        Args:
            unsupported: whether the suite accepts trials of this status.
        """
        return state == "ok" or state in self.losses or (state == "unsupported" and unsupported)

    def measure(self) -> Measure | None:
        """Return how `compare` judges two results; None for results that must agree but for rounding."""
        module = self.part("compare")
        return None if module is None else module.measure

    def quoted(self, trial: Any, published: Published | None) -> dict[str, Any]:
        """Return the published numbers for the measures of a trial, by column."""
        return {}

    def tables(self, results: Results) -> list[Table]:
        """Return the tables of a plan of this kind."""
        module = self.part("tables")
        return [] if module is None else module.tables(results)

    def report(self, results: Results) -> SuiteReport | None:
        """Return the report of a plan of this kind; None for the usual one of tables and figures."""
        return None

    def table_at(self, results: Results, terms: str) -> Table:
        """Return the table that `report --at` adds; raise UserError if results of this kind have no such table."""
        raise UserError(
            f"--at {terms}: only likelihoods are compared on equal terms, and suites of kind {self.name} have none"
        )


def _case(case: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {value!r:.60}" for name, value in case)


KINDS: dict[str, Kind] = {}
"""Name -> the registered kind."""


def kind_of(name: str) -> Kind:
    """Return the registered kind of this name.

    Raises:
        UnknownKind: there is none.
    """
    if name not in KINDS:
        raise UnknownKind(f"kind {name!r} is not registered; the kinds are {', '.join(sorted(KINDS))}")
    return KINDS[name]
