"""Judges on artificial records: every verdict, and no verdict from noise."""

import pytest
from toys import density_trial

from harness.core.records import blank_record
from harness.core.settings import DataRef, FlowSettings, LayerRef
from harness.kinds.claims.judges import JUDGES
from harness.kinds.claims.verdicts import nothing_to_judge, of_outcomes, outcome_of
from harness.kinds.density.trial import Tuning
from harness.kinds.examination.trial import ExaminationTrial
from harness.kinds.parameters.trial import ParametersTrial
from harness.kinds.runtime.trial import RuntimeTrial
from harness.planning.plan import Plan
from harness.planning.suite_model import Published
from harness.reporting.frame import Results
from harness.reporting.statistics.statistics import Difference, Estimate, judged

HEAD = {"suite": "tiny", "profile": "quick"}


def ref(row, layer=None):
    return LayerRef(row=row, layer=layer or row)


def made(kind, trials, columns, **fields):
    rows = [layer.row for trial in trials for layer in (trial.layers if kind == "runtime" else [trial.layer])]
    about = {"title": "Tiny", "question": "", "device": "cpu", "rows": tuple(dict.fromkeys(rows))}
    return Plan(**HEAD, **about, kind=kind, columns=tuple(columns), trials=tuple(trials), **fields)


def judge(name, plan, records):
    results = Results.of(plan, records)
    verdict = JUDGES[name](results) or nothing_to_judge(results)
    assert verdict.short and verdict.text and "\n" not in verdict.short
    return verdict


TUNING = Tuning(seed=100, candidates=((("training.learning_rate", 0.001),), (("training.learning_rate", 0.01),)))


def density(row, column, seed=0, layer=None, tuning=None, **training):
    data = DataRef(label=column, name="waveforms")
    return density_trial(ref(row, layer), data, training=training, seed=seed, tuning=tuning, **HEAD)


def trained(trial, value, status="ok", **more):
    record = blank_record(trial, status, None if status == "ok" else "why")
    if status == "ok":
        record.rows = [{"unit": "nats_per_dim", "nats_per_dim": value, "audit": "passed", "below_floor": False} | more]
    return record


def claiming(claimed, true, floor):
    """Return a run of two trainings of the butterfly: with released and with true accounting."""
    released = density("butterfly", "released", accounting="once_per_sequence")
    fair = density("butterfly", "true")
    record = trained(released, true, claimed=claimed, floor=floor, standard_error=0.01)
    return made("density", [released, fair], ("released", "true")), [record, trained(fair, true - 0.1, floor=floor)]


def test_a_claim_below_the_floor_does_not_hold_and_none_is_undecided():
    verdict = judge("accounting", *claiming(-16.0, -1.75, -5.4))
    assert verdict.holds == "does not hold" and "claims -16.00, has -1.75 nats/dim; the floor is -5.40" in verdict.short
    assert "1 of 1 claimed values and 0 true ones lie below the resolution floor" in verdict.text
    assert verdict.tables[0].rows == (("butterfly", "-16.00", "-1.75 ± 0.01", "-5.40", "-1.85"),)
    plan, records = claiming(-16.0, -1.75, -5.4)
    failed = trained(plan.trials[0], None, "diverged")
    verdict = judge("accounting", plan, [failed, records[1]])
    assert verdict.holds == "undecided" and "diverged: why" in verdict.text


@pytest.mark.parametrize(
    ("claimed", "true", "holds"),
    [
        (-4.0, -1.75, "does not hold"),  # above the floor, and no likelihood of these weights
        (-1.79, -1.75, "undecided"),
        (-5.41, -5.40, "undecided"),  # one standard error below the floor
    ],
)
def test_a_gap_with_nothing_below_the_floor(claimed, true, holds):
    assert judge("accounting", *claiming(claimed, true, -5.4)).holds == holds


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ({("butterfly", 16): 100, ("butterfly", 64): 400, ("conv1x1", 16): 90, ("conv1x1", 64): 300}, "holds in part"),
        ({("butterfly", 16): 100, ("butterfly", 64): 400, ("conv1x1", 16): 250, ("conv1x1", 64): 900}, "holds"),
        ({("butterfly", 16): 100, ("butterfly", 64): 400, ("conv1x1", 16): 90, ("conv1x1", 64): 190}, "does not hold"),
        ({("butterfly", 16): 100, ("butterfly", 64): 400, ("conv1x1", 16): 250, ("conv1x1", 64): 300}, "holds in part"),
        ({("butterfly", 16): 100, ("conv1x1", 64): 300}, "undecided"),
    ],
)
def test_half_of_the_parameters(counts, holds):
    trials = [
        ParametersTrial(**HEAD, label="mimic", shape=(2, 64), layer=ref(row), flow=FlowSettings(width=width))
        for row, width in counts
    ]
    values = {"butterfly": {"width": 16, "mimic": 100}, "conv1x1": {"width": 64, "mimic": 300}}
    published = Published(source="A Paper", measure="parameters", values=values)
    records = []
    for trial in trials:
        records.append(blank_record(trial, "ok", None))
        records[-1].rows = [{"parameters": counts[trial.layer.row, trial.flow.width]}]
    assert judge("parameters", made("parameters", trials, ["mimic"], published=published), records).holds == holds


def examined(rows):
    """Return a run from rows (examine, label, mixer, result)."""
    trials, records = [], []
    for examine, label, mixer, result in rows:
        trials.append(
            ExaminationTrial(**HEAD, label=label, shape=(1, 4), layer=ref("butterfly"), mixer=mixer, examine=examine)
        )
        records.append(blank_record(trials[-1], "ok", None))
        records[-1].rows = [{"layer": "butterfly", "dataset": label} | result]
    return made("examination", trials, dict.fromkeys(label for _, label, _, _ in rows)), records


def classes(number):
    return {"classes": number, "sizes": " + ".join(["4"] * number), "density": 1.0, "log10_permutations": -1.0}


def exact(realised):
    return {"factors": 3, "realised": realised, "draws": 100, "log10_one_pass": -2.0}


@pytest.mark.parametrize(
    ("alone", "realised", "holds"),
    [(1, 100, "holds"), (3, 100, "holds in part"), (1, 99, "does not hold"), (3, 0, "does not hold")],
)
def test_any_permutation(alone, realised, holds):
    rows = [
        ("mixing", "3x4", "none", classes(alone)),
        ("mixing", "3x4", "dense", classes(1)),
        ("permutations", "1x4", "none", exact(realised)),
    ]
    verdict = judge("mixing", *examined(rows))
    assert verdict.holds == holds and f"{realised} of 100" in verdict.text


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        ({1: 0.0, 2: 1.5, 3: 2.0}, "does not hold"),
        ({1: 0.0, 2: 1e-14, 3: 2.0}, "holds in part"),
        ({1: 0.0, 2: 1e-14}, "holds"),
        ({1: 0.0}, "undecided"),
    ],
)
def test_determinants_of_blocks(errors, holds):
    rows = [
        ("block_determinant", f"blocks of {c}", "none", {"block_size": c, "layer_error": 1e-15, "blocks_error": error})
        for c, error in errors.items()
    ]
    assert judge("block_determinant", *examined(rows)).holds == holds


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [(0, 0, "holds"), (0, 5, "holds in part"), (1, 5, "does not hold"), (1, 0, "does not hold")],
)
def test_crossings(low, high, holds):
    trials = [density("butterfly", "1e-3"), density("butterfly", "1e-1")]
    records = [trained(trials[0], 1.0), trained(trials[1], None, "diverged")]
    for record, count in zip(records, (low, high), strict=True):
        record.curves = {"step": [1, 2], "crossings": [0, count]}
    verdict = judge("singularity", made("density", trials, ("1e-3", "1e-1")), records)
    assert verdict.holds == holds and f"{int(high > 0)} of 1 at 1e-1" in verdict.short


STEADY = {"drift": 0.0, "cpu_share": 1.0}


def timed(butterfly, other, butterfly_bytes=100, row="emerging", **more):
    """Return a run of one point in two processes from (median, iqr) of the butterfly and of another row."""
    layers = (ref(row), ref("butterfly"))
    trials, records = [], []
    for process in (0, 1):
        trial = RuntimeTrial(
            **HEAD, sweep="spatial", shape=(3, 4, 4), batch=2, layers=layers, operations=("forward",), process=process
        )
        trials.append(trial)
        records.append(blank_record(trial, "ok", None))
        about = {"operation": "forward", "sweep": "spatial", "shape": "3x4x4", "batch": 2} | STEADY
        for name, (median, iqr), size in (("butterfly", butterfly, butterfly_bytes), (row, other, 200)):
            line = {"layer": name, "status": "ok", "median_ms": median, "iqr_ms": iqr, "peak_bytes": size}
            records[-1].rows.append(line | about | (more if name == "butterfly" else {}))
    return made("runtime", trials, ["spatial"]), records


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (timed((1.0, 0.1), (2.0, 0.1)), "holds"),
        (timed((1.0, 0.1), (2.0, 0.1), butterfly_bytes=300), "holds in part"),
        (timed((2.0, 0.1), (1.0, 0.1), butterfly_bytes=300), "does not hold"),
        (timed((1.0, 0.2), (1.1, 0.2)), "undecided"),  # the intervals overlap
        (timed((1.0, 0.1), (2.0, 0.1), drift=0.5), "undecided"),  # unstable, and not twice as long
        (timed((1.0, 0.1), (2.5, 0.1), drift=0.5), "holds"),
        (timed((2.5, 0.1), (1.0, 0.1), drift=0.5, butterfly_bytes=300), "does not hold"),
        (timed((1.0, 0.1), (2.0, 0.1), row="conv1x1"), "undecided"),  # the claim does not name this layer
    ],
)
def test_runtime_and_memory(run, holds):
    assert judge("runtime", *run).holds == holds


def test_the_gap_between_processes_widens_the_interval_of_a_time():
    """Medians of 1.0 and 1.1 ms: 1.05 +- 0.05, which overlaps 1.12 +- 0.03 but not 1.2 +- 0.03."""
    for other, holds in ((1.12, "undecided"), (1.2, "holds")):
        plan, records = timed((1.0, 0.01), (other, 0.06))
        records[1].rows[0]["median_ms"] = 1.1
        assert judge("runtime", plan, records).holds == holds


def sped_up(dense, cdflow, shape=(96, 1), iqr=0.01, **more):
    """Return a run of one point from {operation: median} of a dense matrix and of CDFlow."""
    layers = (ref("dense", "conv1x1"), ref("cdflow"))
    trial = RuntimeTrial(**HEAD, sweep="vector", shape=shape, batch=1, layers=layers, operations=tuple(dense))
    record = blank_record(trial, "ok", None)
    about = {"status": "ok", "sweep": "vector", "shape": "x".join(map(str, shape)), "batch": 1, "iqr_ms": iqr}
    about |= STEADY | {"peak_bytes": 1} | more
    for name, times in (("dense", dense), ("cdflow", cdflow)):
        record.rows += [{"layer": name, "operation": key, "median_ms": time} | about for key, time in times.items()]
    return made("runtime", [trial], ["vector"]), [record]


DENSE = {"inverse": 2.0, "log_det": 5.0}


@pytest.mark.parametrize(
    ("run", "holds"),
    [
        (sped_up(DENSE, {"inverse": 1.5, "log_det": 1.0}), "holds"),  # 1.33 and 5 times
        (sped_up(DENSE, {"inverse": 1.5, "log_det": 2.0}), "holds in part"),
        (sped_up(DENSE, {"inverse": 1.9, "log_det": 2.0}), "does not hold"),  # faster, but not by as much
        (sped_up(DENSE, {"inverse": 2.0 / 1.17, "log_det": 1.0}), "undecided"),
        (sped_up(DENSE, {"inverse": 1.5, "log_det": 1.0}, drift=0.5), "undecided"),  # unstable
        (sped_up(DENSE, {"inverse": 1.9, "log_det": 2.0}, iqr=5.0), "undecided"),
        (sped_up(DENSE, {"inverse": 1.5, "log_det": 1.0}, shape=(48, 1)), "undecided"),  # no point of 96 channels
    ],
)
def test_factors_by_which_cdflow_is_faster(run, holds):
    assert judge("speedups", *run).holds == holds


def ranked(values, seeds, wobble=0.0, tuning=TUNING, layer=None):
    """Return a run from {column: {row: mean}}: a seed shifts all rows equally, `wobble` each row differently."""
    trials, records = [], []
    for column, rows in values.items():
        for number, (row, mean) in enumerate(rows.items()):
            for seed in range(seeds):
                trials.append(density(row, column, seed, layer, tuning))
                noise = wobble * ((seed * (number + 1)) % 3 - 1)
                records.append(trained(trials[-1], mean + 0.3 * seed + noise))
    return made("density", trials, values), records


FIRST, LAST = {"conv1x1": 2.0, "butterfly": 1.0}, {"conv1x1": 1.0, "butterfly": 2.0}


@pytest.mark.parametrize(
    ("values", "seeds", "holds"),
    [
        ({"a": FIRST, "b": FIRST}, 8, "holds"),
        ({"a": FIRST, "b": LAST}, 3, "holds in part"),
        ({"a": LAST, "b": LAST}, 8, "does not hold"),
    ],
)
def test_the_best_row(values, seeds, holds):
    assert judge("ranked", *ranked(values, seeds, 0.05)).holds == holds


def test_no_row_is_best_within_the_noise_and_close_rows_are_named():
    close = {"conv1x1": 1.01, "butterfly": 1.0}
    assert judge("ranked", *ranked({"a": close}, 8, 0.2)).holds == "undecided"
    assert judge("ranked", *ranked({"a": FIRST}, 1)).holds == "undecided", "one seed has no interval"
    assert judge("ranked", *ranked({"a": FIRST, "b": close}, 8, 0.2)).holds == "undecided", "one column is undecided"
    plan, records = ranked({"a": {"emerging": 1.5, "conv1x1": 2.0, "butterfly": 1.0}, "b": LAST}, 3, 0.01)
    for record in records:
        if record.trial["layer"]["row"] == "conv1x1" and record.trial["data"]["label"] == "a":
            record.rows[0]["nats_per_dim"] += 5 * (record.trial["seed"] - 1)
    verdict = judge("ranked", plan, records)
    assert verdict.short == "butterfly is not clearly ahead of conv1x1 on a, behind conv1x1 on b"
    verdict = judge("ranked_cdflow", *ranked({"a": {"butterfly": 2.0, "cdflow": 1.0}}, 3, 0.01))
    assert verdict.holds == "holds" and verdict.short.startswith("cdflow is ")


def test_untuned_rows_are_not_ranked():
    verdict = judge("ranked", *ranked({"a": FIRST, "b": FIRST}, 8, tuning=None))
    assert verdict.holds == "undecided" and verdict.short == "nothing was tuned"
    (tuned, records), (untuned, more) = ranked({"a": FIRST}, 8, 0.05), ranked({"b": FIRST}, 8, tuning=None)
    verdict = judge("ranked", made("density", [*tuned.trials, *untuned.trials], "ab"), [*records, *more])
    assert verdict.holds == "undecided" and verdict.short == "butterfly is first on a"
    assert verdict.text.endswith("; b: nothing was tuned.")


def tried(published, rate, kernel, both):
    """Return a run of three seeds from the means of the published kernel and rate, and of others."""
    rates = {"1e-4": {"k 51": published, "k 3": kernel}, "1e-3": {"k 51": rate, "k 3": both}}
    return ranked(rates, 3, tuning=None, layer="emerging")


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        ((1.0, 2.0, 2.0, 3.0), "holds"),
        ((2.0, 1.0, 3.0, 2.0), "holds in part"),  # the kernel is best, the rate is not
        ((3.0, 2.0, 2.0, 1.0), "does not hold"),
        ((1.0, 1.0, 1.0, 1.0), "undecided"),
    ],
)
def test_published_settings(values, holds):
    assert judge("settings", *tried(*values)).holds == holds


def test_a_diverged_setting_counts_as_worse():
    plan, records = tried(1.0, 2.0, 2.0, 3.0)
    for number, trial in enumerate(plan.trials):
        if trial.column == "1e-3":
            records[number] = trained(trial, None, "diverged")
    verdict = judge("settings", plan, records)
    assert verdict.holds == "undecided", "kernels are not compared at a rate at which both diverge"
    assert sum("diverged" in row[2] for row in verdict.tables[0].rows) == 2


def test_the_verdict_follows_from_the_outcomes_corrected_for_all_comparisons():
    assert of_outcomes([]) == "undecided"
    assert of_outcomes(["for", "open"]) == "undecided"
    assert of_outcomes(["against", "open"]) == "does not hold"
    assert of_outcomes(["against", "for", "open"]) == "holds in part"
    assert outcome_of(Difference(Estimate(1.0, 0.5, 1.5, 8), p=0.2, values=(1.0,) * 8)) == "open"
    seen = judged({"for": [1.0, 1.1, 0.9], "against": [-1.0, -1.1, -0.9], "range": [0.1, 0.5, 2.4], "two": [1.0, 1.0]})
    outcomes = {name: outcome_of(difference) for name, difference in seen.items()}
    assert outcomes == {"for": "for", "against": "against", "range": "open", "two": "open"}
    assert outcome_of(None) == outcome_of(judged({"one": [1.0]})["one"]) == "open"
