"""The tables of publications: likelihoods of models by data sets, measured and published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from flows import Density
from flows.baselines import BASELINES, find_baseline
from harness.core.settings import PER_SEED
from harness.kinds.density.captions import (
    CORRECTED,
    PERMUTATIONS,
    mean_and_interval,
    pair_words,
    sentences,
    sources,
    sources_text,
)
from harness.kinds.density.likelihoods import (
    UNITS,
    Ranking,
    by_pair,
    data_warning,
    density,
    explained,
    marked,
    members_of,
    of_column,
    per_column,
    repeated,
    share_of,
    standard_error,
    units,
)
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
        of_rows = of_column(frame, plan, label)
        where = ", " if label in plan.averages else " on "
        cells = {row: _likelihood(planned, f"{row}{where}{label}", unit, notes) for row, planned in of_rows.items()}
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
    remarks = [*notes.numbered(), *explained(rows, frame)]
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
    layered = [trial for trial in trials if not trial.layer.baseline]
    baselines = [trial for trial in trials if trial.layer.baseline]
    pairs: dict[str, set[tuple[bool, int]]] = {}
    for trial in trials:
        pairs.setdefault(trial.data.label, set()).add((trial.repetition is not None, trial.repeat_index))
    own = [trial for trial in baselines if trial.layer.layer in BASELINES]  # a package may be missing where it is read
    densities = [trial for trial in own if issubclass(find_baseline(trial.layer.layer), Density)]
    baselines = [trial for trial in baselines if trial not in densities]
    flows, fits = (", ".join(dict.fromkeys(trial.layer.row for trial in some)) for some in (baselines, densities))
    return sentences(
        "likelihood",
        sample=per_column(
            {column: _sample(len(some), any(again for again, _ in some)) for column, some in pairs.items()}
        ),
        profile=plan.profile,
        budget=_usual(trials, lambda trial: sentences("budget", trial.training)),
        size=_backbones(layered),
        device=device_text(plan.device, results.frame),
        baselines=flows and f"{flows}; {_usual(baselines, lambda trial: sentences('size', trial.flow))}",
        densities=fits,
        other_protocol=plan.published is not None and plan.profile != "paper",
        tuned=tuning_text(results),
        covered=sources_text(results),
        corrected=CORRECTED if any(trial.repetition is not None for trial in trials) else "",
        bold=f"{SIGNIFICANCE:g}" if bold else "",
    )


def _sample(number: int, by_repetition: bool) -> str:
    """Return the sample of a mean: "mean [95 % bootstrap interval] of 8 seeds"."""
    if number < 2:
        return f"one {'repetition' if by_repetition else 'seed'}, so no interval over {pair_words([by_repetition])}"
    few = ", too few for a test" * (number < LEAST_SEEDS)
    if number < (LEAST_FOR_STUDENT if by_repetition else LEAST_SEEDS):
        few = ", too few for an interval or a test"
    return f"mean [{spread_text([number], by_repetition)}] of {sample_text(number, by_repetition)}{few}"


def _backbones(trials: Sequence[DensityTrial]) -> str:
    """Return the backbones, whose common title stands once."""
    titles = {backbone_of(trial.flow).title for trial in trials}
    title = titles.pop() if len(titles) == 1 else ""

    def described(trial: DensityTrial) -> str:
        backbone = backbone_of(trial.flow)
        return backbone.title * (not title) + backbone.described(trial.flow)

    return title + _usual(trials, described)


def _usual(trials: Iterable[DensityTrial], describe: Callable[[DensityTrial], str]) -> str:
    """Return the description that all trials share, or one for each data set, with the rows that have another."""
    by_column: dict[str, dict[str, str]] = {}
    for trial in trials:
        by_column.setdefault(trial.data.label, {})[trial.layer.row] = describe(trial)
    texts = {}
    for column, rows in by_column.items():
        usual = Counter(rows.values()).most_common(1)[0][0]
        others: dict[str, list[str]] = {}
        for row, text in rows.items():
            if text != usual:
                parts, common = text.split(", "), usual.split(", ")
                if len(parts) == len(common):
                    text = ", ".join(part for part in parts if part not in common)
                others.setdefault(text, []).append(row)
        unusual = "; ".join(f"{', '.join(names)}: {text}" for text, names in others.items())
        texts[column] = usual + f" ({unusual})" * bool(unusual)
    return per_column(texts)


def _likelihood(planned: pd.DataFrame, where: str, unit: str, notes: Notes) -> str:
    """Return the mean of a row on a data set or an average with its interval; no average if a trial has no value."""
    good, failed = planned[planned["value"].notna()], planned[planned["value"].isna()]
    average, by_repetition = planned["dataset"].nunique() > 1, repeated(planned)
    if planned.empty:
        return EMPTY
    if average and len(failed):
        if (failed["status"] == MISSING).all():
            return MISSING
        lacking = ", ".join(failed["dataset"].unique())
        return EMPTY + notes.mark(f"{where}: none, for a trial of {lacking} has no value")
    text = marked(mean_and_interval(by_pair(good).values(), standard_error(good), share_of(good)), good)
    doubts = good.dropna(subset="doubt")
    reasons = [f"that of {', '.join(doubts['dataset'].unique())} is not to be compared"] if average else []
    if len(doubts):
        text += notes.mark(f"{where}: {'; '.join(reasons or sorted(doubts['doubt'].unique()))}")
    if (warning := data_warning(planned)) is not None:
        text += notes.mark(warning)
    if good["estimated"].any():
        error = good["estimate_error"].max()
        estimate = f"the log-determinant is estimated, which alone makes a standard error of {error:.1g} {unit}"
        audited = dict.fromkeys(remarks.get("estimates", "") for remarks in good["notes"])
        text += notes.mark(f"{where}: {'; '.join([estimate, *filter(None, audited)])}")
    if (good["audit"] == "incomplete").any():
        text += notes.mark(f"{where}: audit incomplete, some layers are too large for their matrix to be checked")
    if len(failed):
        statuses = "/".join(sorted(failed["failure"].unique()))
        sample = sample_text(len(planned), by_repetition)
        text = f"{text} ({len(good)} of {sample}, {statuses})" if len(good) else statuses
        ended = failed[failed["status"] != MISSING]
        if len(ended):
            causes = sorted((ended["failure"] + ": " + ended["cause"]).unique())
            if ended["ranked"].notna().all():
                causes.append(f"ranked with the worst of the others, {ended['ranked'].max():.3f}, in its place")
            text += notes.mark(f"{where}: {'; '.join(causes)}")
    if 1 < len(good) < (LEAST_FOR_STUDENT if by_repetition else LEAST_SEEDS) <= len(planned):
        spread, sample = spread_text([len(good)], by_repetition), sample_text(len(good), by_repetition)
        text += notes.mark(f"{where}: [{spread}] of {sample}, too few for an interval")
    return text


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
        for row, notes in zip(lines["layer"], lines["notes"], strict=True):
            label = f"{column}, {row}"
            if "layer" in notes and label not in columns.get(notes["layer"], []):
                columns.setdefault(notes["layer"], []).append(label)
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
    modelled = {
        "logit": "as logits of pixels",
        "standard": "in units of the standard deviation of training",
        "asinh": "as asinh of values about the median of training, in units of the interquartile range over 1.349",
    }
    stated = trial.data.preprocessing
    for name, text in modelled.items():
        if stated == name:
            yield f"modelled {text}; the Jacobian is counted"
        elif not isinstance(stated, str) and name in stated:
            numbers = [str(number) for number, each in enumerate(stated, 1) if each == name]
            yield f"channel{'s' * (len(numbers) > 1)} {', '.join(numbers)} modelled {text}; the Jacobian is counted"
    if (seed := trial.data.permute) is not None:
        pair = "seed" if trial.repetition is None else "repetition"
        yield sentences("permuted", pair, varied or seed == PER_SEED, seed)
    if trial.data.augmentation != "none":
        yield f"training images moved at random ({trial.data.augmentation}), held-out images unchanged"
