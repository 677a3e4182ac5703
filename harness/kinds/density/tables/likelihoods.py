"""The tables of publications: likelihoods of models by data sets, measured and published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.core.settings import PER_SEED
from harness.kinds.density.intervals import CORRECTED, mean_and_interval, pair_words
from harness.kinds.density.likelihoods import (
    ESTIMATE,
    UNITS,
    Ranking,
    by_pair,
    data_warning,
    density,
    exempt_mark,
    explained,
    improving_mark,
    improving_remark,
    members_of,
    of_column,
    repeated,
    share_of,
    standard_error,
    units,
)
from harness.kinds.density.sources import PERMUTATIONS, sources, sources_text
from harness.kinds.density.tables.choices import chosen_rates
from harness.kinds.density.tables.events import worst_events
from harness.kinds.density.tables.fidelity import missing_fidelity
from harness.kinds.density.trial import DensityTrial
from harness.kinds.density.tuning.searches import tuning_text
from harness.pipeline.models import backbone_of
from harness.reporting.frame import MISSING, Results
from harness.reporting.statistics.statistics import (
    LEAST_FOR_STUDENT,
    LEAST_SEEDS,
    SIGNIFICANCE,
    sample_text,
    spread_text,
)
from harness.reporting.tables.cells import EMPTY, Notes, device_text, layer_cell
from harness.reporting.tables.rendering import Table

if TYPE_CHECKING:
    from harness.planning.plan import Plan
    from harness.planning.suite_model import Published

MEASURED, PUBLISHED, QUOTED = "measured", "published", "quoted"
DIGITS_OF_CHECKSUM = 12


def likelihoods_table(results: Results, rankings: Mapping[str, Ranking], beside: Published | None) -> Table:
    """Return a row per model and a column per data set, with published numbers beside those measured."""
    plan, frame, notes = results.plan, density(results), Notes()
    header, groups = ["layer"], [("", 1)]
    columns: list[dict[str, str]] = []
    bold: set[tuple[int, int]] = set()
    for label, competition in rankings.items():
        unit = UNITS[units(results)[members_of(plan, label)[0]]]
        heading = f"{label}, {unit} ↓"
        if label in plan.averages:
            cells = {
                row: _average(group, f"{row}, {label}", notes) for row, group in of_column(frame, plan, label).items()
            }
        else:
            cells = {
                row: _likelihood(group, f"{row} on {label}", unit, notes)
                for row, group in of_column(frame, plan, label).items()
            }
        bold |= {(plan.rows.index(row), len(header)) for row in competition.bold}
        header.append(heading)
        columns.append(cells)
        published = beside is not None and any(label in values for values in beside.values.values())
        if beside is not None and published:
            header[-1:] = [f"{heading}, {MEASURED}", f"{heading}, {PUBLISHED}"]
            columns.append({row: _quoted(values, label) for row, values in beside.values.items()})
        groups.append((heading if published else "", 1 + published))
    extra = [] if beside is None else [row for row in beside.values if row not in plan.rows]
    rows = [(layer_cell(row, frame, notes), *(cells.get(row, EMPTY) for cells in columns)) for row in plan.rows]
    rows += [(f"{row} ({QUOTED})", *(cells.get(row, EMPTY) for cells in columns)) for row in extra]
    remarks = [*notes.numbered(), *explained(rows), *improving_remark(frame)]
    independent = ", ± as of independent data sets" if frame["pair"].nunique() == 1 else ""
    remarks += [f"{label}: the mean over {', '.join(members)}{independent}" for label, members in plan.means.items()]
    remarks += data_remarks(results, frame)
    remarks += [plan.remark] if plan.remark else []
    if beside is not None:
        remarks.append(f"{PUBLISHED}: {beside.source}")
    if extra:
        remarks.append(f"{QUOTED}: published there, and not trained by this suite")
    remarks += [*chosen_rates(results), *worst_events(results), *missing_fidelity(results)]
    return Table(
        f"{plan.suite}-likelihood",
        density_caption(results, bool(bold)),
        tuple(header),
        tuple(rows),
        tuple(remarks),
        tuple(groups) if beside is not None else (),
        frozenset(bold),
    )


def density_caption(results: Results, bold: bool) -> str:
    """Return the measure, the protocol and the machine."""
    plan = results.plan
    trials = [trial for trial in plan.trials if isinstance(trial, DensityTrial)]
    pairs: dict[str, set[tuple[bool, int]]] = {}
    for trial in trials:
        pairs.setdefault(trial.data.label, set()).add((trial.repetition is not None, trial.repeat_index))
    sample = _joined(
        {column: pairs_text(len(chosen), any(each for each, _ in chosen)) for column, chosen in pairs.items()}
    )
    budget = _per_column(trials, _budget)
    layered = [trial for trial in trials if not trial.layer.baseline]
    titles = {backbone_of(trial.flow).title for trial in layered}
    size = "".join(titles) + _per_column(layered, _described) if len(titles) == 1 else _per_column(layered, _backbone)
    device = device_text(plan.device, results.frame)
    parts = [
        f"Negative log-likelihood on the test split, {sample}; lower is better.",
        f"Measured: profile {plan.profile}, {budget}; {size}; {device}, float32.",
    ]
    baselines = [trial for trial in trials if trial.layer.baseline]
    if baselines:
        rows = ", ".join(dict.fromkeys(trial.layer.row for trial in baselines))
        sizes = _per_column(baselines, _size)
        parts.append(f"No Glow but flows of their own, under the same budget: {rows}; {sizes}.")
    if plan.published is not None and plan.profile != "paper":
        parts.append("Not the published protocol: to be compared with no published number.")
    parts.append(tuning_text(results))
    covered = sources_text(results)
    parts += [covered] if covered else []
    if any(trial.repetition is not None for trial in trials):
        parts.append(CORRECTED)
    if bold:
        parts.append(
            "Bold: the lowest mean, and every row that does not differ from it by a paired t test, "
            f"p < {SIGNIFICANCE:g} after Holm's correction for all pairs of rows."
        )
    return " ".join(parts)


def pairs_text(number: int, by_repetition: bool) -> str:
    """Return the sample of a mean: "mean [95 % bootstrap interval] of 8 seeds"."""
    if number < 2:
        return f"one {'repetition' if by_repetition else 'seed'}, so no interval over {pair_words([by_repetition])}"
    least = LEAST_FOR_STUDENT if by_repetition else LEAST_SEEDS
    few = ", too few for an interval or a test" if number < least else ""
    few = few or ", too few for a test" * (number < LEAST_SEEDS)
    return f"mean [{spread_text([number], by_repetition)}] of {sample_text(number, by_repetition)}{few}"


def _backbone(trial: DensityTrial) -> str:
    return backbone_of(trial.flow).title + _described(trial)


def _described(trial: DensityTrial) -> str:
    return backbone_of(trial.flow).described(trial.flow)


def _size(trial: DensityTrial) -> str:
    levels, steps = trial.flow.levels, trial.flow.steps
    return f"{levels} level{'s' * (levels != 1)} of {steps} step{'s' * (steps != 1)}, width {trial.flow.width}"


def _budget(trial: DensityTrial) -> str:
    passes = ", two passes each (separate averages)" if trial.training.ema == "separate" else ""
    steps = f"{trial.training.steps} training steps of batch {trial.training.batch_size}{passes}"
    return steps if trial.training.patience is None else f"up to {steps}, patience {trial.training.patience}"


def _per_column(trials: Sequence[DensityTrial], describe: Callable[[DensityTrial], str]) -> str:
    """Return the description that all trials share, or one for each data set (and, if need be, row)."""
    by_column: dict[str, dict[str, str]] = {}
    for trial in trials:
        by_column.setdefault(trial.data.label, {})[trial.layer.row] = describe(trial)
    texts = {}
    for column, rows in by_column.items():
        usual = Counter(rows.values()).most_common(1)[0][0]
        others: dict[str, list[str]] = {}
        for row, text in rows.items():
            if text != usual:
                others.setdefault(_beside(text, usual), []).append(row)
        unusual = "; ".join(f"{', '.join(names)}: {text}" for text, names in others.items())
        texts[column] = usual + f" ({unusual})" * bool(unusual)
    return _joined(texts)


def _beside(text: str, usual: str) -> str:
    """Return the parts of a description that differ from the usual one; all, if it has more or fewer parts."""
    parts, known = text.split(", "), usual.split(", ")
    return ", ".join(part for part in parts if part not in known) if len(parts) == len(known) else text


def _joined(texts: Mapping[str, str]) -> str:
    """Return the text that all columns share, or one for each."""
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{column} {text}" for column, text in texts.items())


def _likelihood(planned: pd.DataFrame, where: str, unit: str, notes: Notes) -> str:
    if planned.empty:
        return EMPTY
    good, failed = planned[planned["value"].notna()], planned[planned["value"].isna()]
    text = mean_and_interval(good["value"], standard_error(good), share_of(good))
    text += improving_mark(good) + exempt_mark(good)
    doubts = sorted(good["doubt"].dropna().unique())
    if doubts:
        text += " †" + notes.mark(f"{where}: {'; '.join(doubts)}")
    if (warning := data_warning(planned)) is not None:
        text += notes.mark(warning)
    if good["estimated"].any():
        text = f"{ESTIMATE} {text}" + notes.mark(f"{where}: {_estimate_text(good, unit)}")
    if (good["audit"] == "incomplete").any():
        text += notes.mark(f"{where}: audit incomplete, some layers are too large for their matrix to be checked")
    if len(failed):
        statuses = "/".join(sorted(failed["failure"].unique()))
        sample = sample_text(len(planned), repeated(planned))
        text = f"{text} ({len(good)} of {sample}, {statuses})" if len(good) else statuses
        ended = failed[failed["status"] != MISSING]
        if len(ended):
            text += notes.mark(f"{where}: {'; '.join(sorted((ended['failure'] + ': ' + ended['cause']).unique()))}")
    by_repetition = repeated(planned)
    if 1 < len(good) < (LEAST_FOR_STUDENT if by_repetition else LEAST_SEEDS) <= len(planned):
        spread, sample = spread_text([len(good)], by_repetition), sample_text(len(good), by_repetition)
        text += notes.mark(f"{where}: [{spread}] of {sample}, too few for an interval")
    return text


def _estimate_text(good: pd.DataFrame, unit: str) -> str:
    """Return the standard error of an estimated likelihood, and the audit's remark on the estimates."""
    error = good["estimate_error"].max()
    text = f"the log-determinant is estimated, which alone makes a standard error of {error:.1g} {unit}"
    audited = dict.fromkeys(remarks.get("estimates", "") for remarks in good["notes"])
    return "; ".join([text, *filter(None, audited)])


def _average(planned: pd.DataFrame, where: str, notes: Notes) -> str:
    """Return the mean over columns with its interval; none if one of their trials has no value."""
    if planned.empty:
        return EMPTY
    without = planned[planned["value"].isna()]
    if len(without):
        if (without["status"] == MISSING).all():
            return MISSING
        lacking = ", ".join(without["dataset"].unique())
        return EMPTY + notes.mark(f"{where}: none, for a trial of {lacking} has no value")
    text = mean_and_interval(by_pair(planned).values(), standard_error(planned), share_of(planned))
    text += improving_mark(planned) + exempt_mark(planned)
    if (warning := data_warning(planned)) is not None:
        text += notes.mark(warning)
    doubtful = ", ".join(planned.loc[planned["doubt"].notna(), "dataset"].unique())
    return text + (" †" + notes.mark(f"{where}: that of {doubtful} is not to be compared") if doubtful else "")


def _quoted(values: Mapping[str, Any], column: str) -> str:
    """Return a published number with the two decimals of publications, more where it has more."""
    if column not in values:
        return EMPTY
    text = f"{values[column]:.2f}"
    return text if float(text) == values[column] else str(values[column])


def published_table(plan: Plan, quoted: Published) -> Table:
    """Return published numbers alone, each row with its source."""
    columns = list(dict.fromkeys(name for values in quoted.values.values() for name in values if name != "width"))
    rows = [
        (row, *(_quoted(values, name) for name in columns), PUBLISHED if row in plan.rows else QUOTED)
        for row, values in quoted.values.items()
    ]
    return Table(
        f"{plan.suite}-published",
        f"Published (protocol of the paper; not comparable with anything measured in profile {plan.profile}): "
        f"{UNITS[quoted.measure]} ↓. {quoted.source}.",
        ("model", *columns, "source"),
        tuple(rows),
        (f"{QUOTED}: published there, and not trained by this suite",) if any(QUOTED in row for row in rows) else (),
        detail=True,
    )


def data_remarks(results: Results, frame: pd.DataFrame) -> list[str]:
    """Return remarks on data sets, their treatment and layers, in plan order, then on controls; each text once."""
    trials = [trial for trial in results.plan.trials if isinstance(trial, DensityTrial)]
    splits = {trial.id: trial.data.split for trial in trials}
    columns: dict[str, list[str]] = {}
    for column in results.plan.columns:
        lines = frame[frame["dataset"] == column]
        of_splits: dict[int | None, list[str]] = {}
        for trial_id, notes in zip(lines["id"], lines["notes"], strict=True):
            if text := _data_text(notes):
                of_splits.setdefault(splits[trial_id], []).append(text)
        others = len(of_splits) - 1
        more = f"; and {others} other split{'s' * (others > 1)} of the same events" * (others > 0)
        texts = [text + more for text in next(iter(of_splits.values()), ())]
        planned = [trial for trial in trials if trial.data.label == column]
        varied = PERMUTATIONS in sources(planned)
        texts += [text for trial in planned for text in _treatment(trial, varied)]
        for text in filter(None, dict.fromkeys(texts)):
            columns.setdefault(text, []).append(column)
        of_layers = {
            row: notes["layer"] for row, notes in zip(lines["layer"], lines["notes"], strict=True) if "layer" in notes
        }
        for row, text in of_layers.items():
            columns.setdefault(text, []).append(f"{column}, {row}")
    remarks = [f"{', '.join(labels)}: {text}" for text, labels in columns.items()]
    for row in dict.fromkeys(trial.layer.row for trial in trials if trial.layer.oracle):
        remarks.append(f"{row}: its flow knows the permutation and starts with the inverse: a bound for the other rows")
    for row in dict.fromkeys(trial.layer.row for trial in trials if trial.layer.keep_mixer):
        remarks.append(f"{row}: a control that keeps the 1x1 mixer, so that each step has two linear layers")
    return remarks


def _data_text(notes: Mapping[str, str]) -> str:
    """Return the data that a trial read, from its notes; empty for a trial that has none."""
    parts = [notes[name] for name in ("data", "splits") if name in notes]
    if "steps" in notes:
        parts.append(f"lattice steps {notes['steps']}")
    if "checksum" in notes:
        parts.append(f"SHA-256 {notes['checksum'][:DIGITS_OF_CHECKSUM]}…")
    if "data remark" in notes:
        parts.append(notes["data remark"])
    if parts and "floor" in notes:
        parts.append(f"no resolution floor: {notes['floor']}")
    return "; ".join(parts)


def _treatment(trial: DensityTrial, varied: bool) -> Iterator[str]:
    """Yield texts on the treatment of the data; the permutation is `varied` or one for all trials."""
    if not trial.data.dequantise:
        yield "raw values without dequantisation; where they lie on a lattice, any density is possible"
    if trial.data.preprocessing == "logit":
        yield "modelled as logits of pixels, whose Jacobian is counted"
    if trial.data.permute is not None:
        pair = "seed" if trial.repetition is None else "repetition"
        chosen = (
            f"a permutation for each {pair}, so intervals and p-values include the variation between permutations"
            if varied or trial.data.permute == PER_SEED
            else f"one permutation for all {pair}s, that of seed {trial.data.permute}"
        )
        yield f"all entries permuted, the same in every example and split: {chosen}"
    if trial.data.augmentation != "none":
        yield f"training images moved at random ({trial.data.augmentation}), held-out images as they are"
