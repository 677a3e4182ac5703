"""Repetitions of the trials of a data set: what each draws anew, for all layers alike.

    seeds: 8                  # eight seeds of the training; tuning, split and permutation are drawn once
    repetitions:              # eight repetitions, each with a training seed, a tuning, a split and a permutation
      number: 8
      vary: [training, tuning, split, permutation]
    draw: 1                   # all of it drawn once more, to see whether a verdict replicates

Layers are compared by their differences repetition by repetition, so whatever a repetition draws is the same for all of
them. Bouthillier et al., "Accounting for Variance in Machine Learning Benchmarks" (MLSys 2021), measure how much of the
variance each source has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from harness.core.explain import Problem
from harness.core.settings import PER_SEED, Count, Flag, Settings
from harness.planning.cells import Scope

STRIDE = 1000  # between the seeds of two draws
MOST = 100  # repetitions

Source = Literal["training", "tuning", "split", "permutation"]
SOURCES: tuple[Source, ...] = ("training", "tuning", "split", "permutation")


def _once(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    if len(set(sources)) < len(sources):
        raise ValueError("a source of variation stands twice in the list; name each once")
    return tuple(source for source in SOURCES if source in sources)


class Repetitions(Settings):
    """The number of repetitions of a data set's trials, and what each draws anew.

    Attributes:
        number: of repetitions.
        vary: training (initial weights, order of the data, noise), tuning (the candidates and the seed of their
            training), split (of the pooled events into train, validation and test), permutation (of `permute:
            per-seed`); the rest is drawn once.
        keep_test: keep the data set's test split, and draw the others alone.
    """

    number: Annotated[int, Field(ge=1, le=MOST, strict=True)]
    vary: Annotated[tuple[Source, ...], Field(min_length=1), AfterValidator(_once)] = SOURCES
    keep_test: Flag = False


def _seeds(value: Any) -> Any:
    """Read a number N as the seeds 0..N-1; a list names them."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 10_000:
            raise ValueError("a number of seeds is between 1 and 10000, or a list names the seeds")
        return tuple(range(value))
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected a whole number of seeds or a list of seeds, got {value!r}")
    if len(set(map(repr, value))) < len(value):
        raise ValueError("a seed stands twice in the list; name each once")
    return value


Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Seeds = Annotated[
    tuple[Seed, ...],
    Field(min_length=1),
    BeforeValidator(_seeds, json_schema_input_type=Count | Annotated[list[Seed], Field(min_length=1)]),
]


@dataclass(frozen=True)
class Drawn:
    """The settings that all trials of one repetition, or of one seed, have in common.

    Attributes:
        repetition: its number; None with seeds alone.
        seed: of the training.
        tuning: added to the seed of the tuning, from which its points are drawn.
        data: changes of the data set's reference: its split and its permutation.
        tuned: the number of the repetition if its candidates differ from those of others; None if they are shared.
    """

    repetition: int | None
    seed: int
    tuning: int
    data: Mapping[str, Any]
    tuned: int | None = None


def _repeated(scope: Scope, column: str) -> Any:
    """Return the repetitions of a data set, or its seeds; options that change the profile's keep its other settings."""
    repeated, stated = scope.of_column(column, "seeds", "repetitions"), scope.data[column].entry.repetitions
    if stated is None or repeated is stated or not isinstance(repeated, Repetitions):
        return repeated
    names = [name for name in Repetitions.model_fields if scope.at("repetitions", name).origin is not None]
    return stated.model_copy(update={name: getattr(repeated, name) for name in names})


def drawn(scope: Scope, column: str) -> list[Drawn]:
    """Return the repetitions of a data set, or its seeds, in order."""
    repeated, shift = _repeated(scope, column), STRIDE * scope.profile.draw
    if not isinstance(repeated, Repetitions):
        return [Drawn(None, seed + shift, shift, {}) for seed in repeated]
    permuted, split = scope.profile.datasets[column].permute == PER_SEED, "split" in repeated.vary
    apart = split or "tuning" in repeated.vary or (permuted and "permutation" in repeated.vary)
    each = []
    for number in range(repeated.number):
        seeds = {source: shift + number * (source in repeated.vary) for source in SOURCES}
        changes: dict[str, Any] = {"permute": seeds["permutation"]} if permuted else {}
        changes |= {"split": seeds["split"], "keep_test": repeated.keep_test} if split else {}
        each.append(Drawn(number, seeds["training"], seeds["tuning"], changes, number if apart else None))
    return each


def repetition_problems(scope: Scope) -> Iterator[Problem]:
    """Yield seeds beside repetitions, settings of splits without effect, and data sets that have one split alone."""
    datasets = scope.profile.datasets
    parts = [(scope.profile, ()), *((entry, ("datasets", label)) for label, entry in datasets.items())]
    for part, place in parts:
        where = scope.at(*place, "repetitions")
        both = part.repetitions is not None and {"seeds", "repetitions"} <= part.model_fields_set
        if both and where.origin is None and scope.at(*place, "seeds").origin is None:
            yield where.says("repetitions and seeds exclude each other; keep one of the two", at_key=True)
        if part.repetitions is not None and part.repetitions.keep_test and "split" not in part.repetitions.vary:
            yield where.says("repetitions.keep_test: has no effect where the split does not vary; remove it")
    for column in scope.data.values():
        repeated = _repeated(scope, column.label)
        if not isinstance(repeated, Repetitions) or "split" not in repeated.vary:
            continue
        fault = column.dataset.split_fault(column.entry.options, repeated.keep_test)
        if fault is not None:
            yield (column.where if column.entry.repetitions is None else column.place("repetitions")).says(fault)
