"""The tuning of each row on each data set, merged from all parts of a density suite, and its problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from harness.core.settings import TrainingSettings
from harness.kinds.density.space import PARTS, TuningSettings
from harness.kinds.density.trial import Tuning
from harness.planning.problems import Problem
from harness.planning.resolve import Cell, Scope


def tuning_of(cell: Cell) -> Tuning | None:
    """Return the candidates of a row on a data set; None for a baseline, an exempt row, and where nothing is tuned."""
    settings, tune = cell.merged("tuning", TuningSettings), _tune(cell)
    if tune is None or cell.layer.baseline:
        return None
    candidates = settings.draw(tune)
    if not candidates:
        return None
    return Tuning(
        seed=settings.seed,
        steps=settings.steps,
        budget=None if settings.candidates is not None else settings.budget,
        candidates=candidates,
    )


def _tune(cell: Cell) -> dict[str, Any] | None:
    """Return the options to tune, merged from all parts of the suite; None for an exempt row."""
    found: dict[str, Any] | None = {}
    for _, source in cell.sources:
        if "tune" in source.model_fields_set:
            found = None if source.tune is False else (found or {}) | source.tune
    return found


def tuning_problems(scope: Scope, seeds: Sequence[int]) -> Iterator[Problem]:
    """Yield problems with the numbers, the seed, the values and the options of a tuning."""
    for cell in scope.every_cell:
        settings = cell.merged("tuning", TuningSettings)
        if not settings.number or cell.layer.baseline or _tune(cell) is None:
            continue

        def says(name: str, message: str, cell: Cell = cell) -> Problem:
            return (cell.place("tuning", name) or scope.where).says(f"tuning.{name}: {message}", at_key=True)

        if settings.candidates and settings.budget is not None:
            yield says("budget", "a budget of time stands in place of a number of candidates; remove one of the two")
        if not settings.space and not _tune(cell):
            yield says(
                "candidates",
                f"nothing is to be tuned for {cell.row}; add a space, such as training.learning_rate: {{low: 5.0e-4, "
                "high: 5.0e-2, scale: log}, or exempt the row: tune: false",
            )
        if settings.seed in seeds:
            yield says(
                "seed", f"{settings.seed} is a seed of the final training, too; the seed of the candidates is another"
            )
        yield from _value_problems(scope, cell, settings)


def _value_problems(scope: Scope, cell: Cell, settings: TuningSettings) -> Iterator[Problem]:
    """Yield values that a setting does not take, and settings that the command line fixes although they are tuned."""
    where = cell.place("tuning", "space") or scope.where
    for path in settings.space:
        part, _, name = path.partition(".")
        fixed = cell.place(part, name)
        if fixed is not None and fixed.origin is not None:
            yield fixed.says(f"{path} is tuned, so that this has no effect; --set tuning.candidates=0 tunes nothing")
    tuning = tuning_of(cell)
    for changes in () if tuning is None else tuning.candidates:
        for path, value in changes:
            part, _, name = path.partition(".")
            if part not in PARTS:
                continue
            try:
                PARTS[part].model_validate({name: value})
            except ValidationError as error:
                rule = error.errors(include_url=False)[0]["msg"]
                yield where.at((path,)).says(f"tuning.space: {path} = {value!r} is wrong: {rule}")
    final = cell.merged("training", TrainingSettings).steps
    if settings.steps is not None and settings.steps > final:
        place = cell.place("tuning", "steps") or scope.where
        yield place.says(f"tuning.steps: {settings.steps} is more than the {final} steps of the final training")
