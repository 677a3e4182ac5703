"""The tuning of each row on each data set, merged from all parts of a density suite, and its problems."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from harness.core.explain import Problem, explain
from harness.core.settings import FlowSettings, Settings, TrainingSettings
from harness.kinds.density.repetitions import Drawn, drawn
from harness.kinds.density.trial import Tuning
from harness.kinds.density.tuning.space import TuningSettings
from harness.kinds.density.tuning.strategy import MOST_SETTINGS
from harness.planning.cells import Cell, Scope


def tuning_of(cell: Cell, repetition: Drawn) -> Tuning | None:
    """Return the candidates of a row in a repetition; None for a baseline, an exempt row, or without a tuning."""
    settings, tune = cell.settings.tuning, cell.settings.tune
    if tune is None or cell.layer.baseline:
        return None
    seed = settings.seed + repetition.tuning
    candidates = settings.draw(tune, seed)
    if not candidates:
        return None
    return Tuning(
        seed=seed,
        steps=settings.steps,
        candidates=candidates,
        strategy=settings.strategy,
        repetition=repetition.tuned,
    )


def tuning_problems(scope: Scope) -> Iterator[Problem]:
    """Yield problems with the numbers, the seed, the values and the options of a tuning."""
    repeated = {column: drawn(scope, column) for column in scope.columns}
    for cell in scope.every_cell:
        settings, tune = cell.settings.tuning, cell.settings.tune
        if not settings.candidates or cell.layer.baseline or tune is None:
            continue

        def says(name: str, message: str, cell: Cell = cell) -> Problem:
            return (cell.place("tuning", name) or scope.where).says(f"tuning.{name}: {message}", at_key=True)

        if not settings.space and not tune:
            yield says(
                "candidates",
                f"nothing is to be tuned for {cell.row}; add a space, such as training.learning_rate: {{low: 5.0e-4, "
                "high: 5.0e-2, scale: log}, or exempt the row: tune: false",
            )
        number = len(settings.space) + len(tune)
        if number > MOST_SETTINGS:
            yield says("space", f"{number} settings of {cell.row} are tuned, and at most {MOST_SETTINGS} can be")
        trained = {each.seed for each in repeated[cell.column]}
        if trained & {settings.seed + each.tuning for each in repeated[cell.column]}:
            yield says("seed", f"{settings.seed} is also a seed of the final training; give the candidates another one")
        yield from _value_problems(scope, cell, settings)


def _value_problems(scope: Scope, cell: Cell, settings: TuningSettings) -> Iterator[Problem]:
    """Yield values that a setting does not take, and settings that the command line fixes although they are tuned."""
    fixed = {path: cell.place(*path.split(".")) for path in settings.space}
    fixed |= {option: cell.place("options", option) for option in cell.settings.tune}
    for name, place in fixed.items():
        if place is not None and place.origin is not None:
            yield place.says(f"{name} is tuned, so that this has no effect; --set tuning.candidates=0 tunes nothing")
    where = cell.place("tuning", "space") or scope.where
    for path, dimension in settings.space.items():
        section, _, name = path.partition(".")
        model: type[Settings] = FlowSettings if section == "flow" else TrainingSettings
        for value in dimension.ends:
            try:
                model.model_validate({name: value})
            except ValidationError as error:
                message = explain(error, model)[0].message
                yield where.at((path,)).says(f"tuning.space: {section}.{message}")
                break
    final = cell.settings.training.steps
    if settings.steps is not None and settings.steps > final:
        place = cell.place("tuning", "steps") or scope.where
        yield place.says(
            f"tuning.steps: {settings.steps} is more than the {final} steps of the final training; give at most as many"
        )
