"""Judges of claims about layers alone: parameters, the entries that they mix, determinants, what libraries report."""

from __future__ import annotations

from harness.kinds.claims.verdicts import FAILS, HOLDS, IN_PART, SUBJECT, Verdict, of_outcomes
from harness.kinds.conformance.report import faults_of
from harness.kinds.examination.examinations import power
from harness.reporting.frame import Results, groups_of, rows_of
from harness.reporting.tables.cells import shape_text

FACTOR = 2  # "less than half"
ROUNDING = 1e-6  # nats; a larger error of a log-determinant in float64 is not rounding


def parameters(results: Results) -> Verdict | None:
    """Judge "less than half of the parameters": at the published widths, and at equal ones."""
    counted = results.frame.dropna(subset="parameters")
    published = counted.dropna(subset="published").sort_values("parameters", kind="stable")
    subject, others = published[published["layer"] == SUBJECT], published[published["layer"] != SUBJECT]
    equal = []
    for width, same in groups_of(counted.sort_values(["width", "parameters"], kind="stable"), "width"):
        counts = {line.layer: line.parameters for line in rows_of(same)}
        rest = {row: count for row, count in counts.items() if row != SUBJECT}
        if SUBJECT in counts and rest:
            equal.append((width, counts[SUBJECT], *next(iter(rest.items()))))
    if subject.empty or others.empty or not equal:
        return None
    fewest, next_fewest = subject.iloc[0], others.iloc[0]
    ratio = next_fewest["parameters"] / fewest["parameters"]
    text = (
        f"As published, {SUBJECT} of coupling width {fewest['width']} has {fewest['parameters']:,} parameters, the "
        f"smallest other model ({next_fewest['layer']}, width {next_fewest['width']}) {next_fewest['parameters']:,}, "
        f"{ratio:.2f} times as many."
    )
    for width, count, row, other in equal:
        text += f" At width {width} for all it has {count:,}, {row} {other:,}."
    at_equal = all(FACTOR * count < other for _, count, _, other in equal)
    wins = sum(count < other for _, count, _, other in equal)
    short = (
        f"{ratio:.2f} times fewer than the next at its published width ({fewest['width']}, others "
        f"{next_fewest['width']}); at equal width it has the fewest at {wins} of {len(equal)}"
    )
    return Verdict(of_outcomes("for" if reached else "against" for reached in (ratio > FACTOR, at_equal)), short, text)


def mixing(results: Results) -> Verdict | None:
    """Judge "any permutation": it holds exactly where D is a power of two, and not where entries never meet."""
    mixed = results.frame.dropna(subset="classes")
    exact = results.frame.dropna(subset="realised")
    alone = mixed[mixed["mixer"] == "none"]
    if alone.empty or exact.empty:
        return None
    sizes = [
        f"{line.realised} of {line.draws} random permutations of {shape_text(line.dataset)} entries by "
        f"{line.factors} factors (within reach of one pass: a share of at most {power(line.log10_one_pass)})"
        for line in rows_of(exact)
    ]
    split = alone[alone["classes"] > 1]
    text = f"Reproduced exactly: {'; '.join(sizes)}."
    every = bool((exact["realised"] == exact["draws"]).all())
    short = f"{'all' if every else 'not all'} random permutations of 2^k entries are reproduced by 2k - 1 factors"
    if len(split):
        apart = [f"{shape_text(line.dataset)}: {line.sizes}" for line in rows_of(split)]
        text += f" Alone, it never mixes classes of entries at {'; '.join(apart)}."
        beside = mixed[(mixed["mixer"] != "none") & mixed["dataset"].isin(split["dataset"])]
        for verb, lines in (("joins", beside[beside["classes"] == 1]), ("leaves", beside[beside["classes"] != 1])):
            named = [f"{line.layer} at {shape_text(line.dataset)}" for line in rows_of(lines)]
            text += f" A 1x1 before it {verb} them: {'; '.join(named)}." if named else ""
        short += f"; alone, it keeps classes apart at {', '.join(map(shape_text, split['dataset']))}"
    return Verdict(FAILS if not every else IN_PART if len(split) else HOLDS, short, text)


def block_determinant(results: Results) -> Verdict | None:
    """Judge whether the LU factors of the blocks give the determinant: only where a block is one number."""
    good = results.frame.dropna(subset="blocks_error").sort_values("block_size", kind="stable")
    errors_of_blocks = good.loc[good["block_size"] > 1, "blocks_error"]
    if errors_of_blocks.empty:
        return None
    errors = ", ".join(f"{line.blocks_error:.1g} at C = {line.block_size}" for line in rows_of(good))
    text = (
        f"Error of the log-determinant of one pair that the LU factors of its blocks give, in nats: {errors}. The "
        f"layer's own, by the PLU factors of the whole 2C x 2C matrix, is wrong by at most "
        f"{good['layer_error'].max():.0e}."
    )
    holds = of_outcomes("for" if error <= ROUNDING else "against" for error in errors_of_blocks)
    if holds == HOLDS:
        return Verdict(HOLDS, "the LU factors of the blocks give the determinant", text)
    text += " The determinant of four blocks is no function of the four determinants."
    wrong = errors_of_blocks[errors_of_blocks > ROUNDING]
    short = (
        f"where C > 1 the LU factors of the blocks do not give it: wrong by {wrong.min():.2g} to {wrong.max():.2g} "
        "nats for one pair"
    )
    return Verdict(holds, short, text)


def conformance(results: Results) -> Verdict | None:
    """Judge whether every layer is what it reports; name those that are and those that are not."""
    frame = results.frame.dropna(subset="conforms")
    if frame.empty:
        return None
    faulty = dict.fromkeys(fault[0] for fault in faults_of(results))
    layers = list(dict.fromkeys(frame["layer"]))
    sound = [row for row in layers if row not in faulty]
    refused = [row for row in results.plan.rows if row not in layers]
    text = f"Without a fault: {', '.join(sound) or 'none'}. With a fault: {', '.join(faulty) or 'none'}."
    if refused:
        text += f" Not built: {', '.join(refused)}."
    short = f"{len(faulty)} of {len(layers)} layers have a fault" + (f": {', '.join(faulty)}" if faulty else "")
    return Verdict(of_outcomes("against" if row in faulty else "for" for row in layers), short, text)


JUDGES = (parameters, mixing, block_determinant, conformance)
