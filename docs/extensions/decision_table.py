"""Print the two tables of decision.md: which layer to try for which data, how sure that is, and what it brings.

`python docs/extensions/decision_table.py` makes them of the committed reports alone, so that nothing in them is written
by hand. For each kind of data, a layer is compared with the usual ones, which are a 1x1 convolution and two of them;
beside couplings that see far, two of them alone; on tables, a random permutation and the 1x1 convolution that permutes
and mixes all columns. It is compared on every data set of the kind on which it and they are ranked:

- *strong*: shown to be ahead of them on at least three data sets, and on three quarters of those that were measured;
- *weak*: shown to be ahead of them on at least one;
- *none shown*: measured, and no layer is shown to be ahead on more data sets than it is shown to be behind; the second
  table has the layer of the largest lead over the first usual one, averaged over these data sets;
- *not measured*: no data set of this kind.

Of several layers that are ahead equally often, the first has the largest mean lead, and the others are those that are
not shown to be behind it. A scale for each entry is among the layers: it mixes nothing, and costs next to nothing.

A layer is shown to be ahead by a paired test over eight repetitions, or by an interval of five, corrected for
overlapping splits and, by Holm, for all pairs of layers of the data set. A layer is weak at most if draws of the quick
suite turned its verdict against one of the usual ones on its data set of the same family: sequences, images, or images
without order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

REPORTS = Path(__file__).parents[2] / "reports"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Study:
    """A report in which layers were compared at equal tuning.

    Attributes:
        report: its folder in reports/.
        usual: row -> name of the layers over which leads are counted; the first is what to take where none leads.
        layers: row -> name of the layers that may be named.
        draws: the folder of its replication, if it has one.
        listed: whether the second table has its leads, or a page of its own.
    """

    report: str
    usual: Mapping[str, str]
    layers: Mapping[str, str]
    draws: str | None = None
    listed: bool = True


LAYERS = Study(
    "which_layer-local-2core-epyc",
    {"conv1x1": "1x1 convolution", "conv1x1-twice": "two 1x1 convolutions"},
    {
        "emerging": "Emerging convolution",
        "periodic": "periodic convolution",
        "woodbury": "Woodbury",
        "butterfly": "butterfly",
        "cdflow": "CDFlow",
        "entry-scale": "a scale for each entry",
    },
    "which_layer-draws-2core-epyc",
)
TABLES = Study(
    "tables-local-2core-epyc",
    {"permutation": "random permutation", "plu": "1x1 convolution (LU)"},
    {
        "qr": "QR",
        "svd": "SVD",
        "orthogonal": "orthogonal matrix",
        "plu-from-permutation": "LU from a permutation",
        "orthogonal-from-permutation": "orthogonal from a permutation",
        "woodbury": "Woodbury",
        "butterfly": "butterfly",
        "monarch": "Monarch",
        "reverse": "reversed order",
        "rotation": "random rotation",
        "whitening": "whitening",
        "scale": "a scale for each column",
    },
)
REACH = Study(
    "reach-local-2core-epyc",
    {"conv1x1-twice": "two 1x1 convolutions"},
    {"emerging": "Emerging convolution", "periodic": "periodic convolution", "recurrence": "recurrence"},
    listed=False,
)
RECORDED = Study(
    "recordings-local-2core-epyc",
    LAYERS.usual,
    {
        "emerging": "Emerging convolution",
        "periodic": "periodic convolution",
        "recurrence": "recurrence",
        "woodbury": "Woodbury",
        "butterfly": "butterfly",
        "entry-scale": "a scale for each entry",
    },
    listed=False,
)


@dataclass(frozen=True)
class Kind:
    """A kind of data, beside couplings of a reach.

    Attributes:
        name: in a reader's words.
        reach: what a coupling sees, beside the entry that it maps.
        datasets: of the report.
        replicated: the data set of the draws that is of the same family.
        study: the report.
    """

    name: str
    reach: str
    datasets: Sequence[str] = ()
    replicated: str = ""
    study: Study = LAYERS


SEQUENCES, IMAGES, PERMUTED = "waveforms", "digits", "permuted-digits"
POSITION, PIXELS, COLUMNS = "2 to 8 samples", "neighbouring pixels", "half of the columns"
RECORDINGS = "recordings of two to eight channels, 128 or 256 samples"
SHORT = ("ecg", "mimic-s00001", "mimic-s25047", "icu", "ludb", "wrist-motion")
KINDS = (
    Kind(
        "short waveforms, two channels of 256 or 512 samples",
        POSITION,
        ("ecg", "mimic-s00001", "mimic-s25047", "icu"),
        SEQUENCES,
    ),
    Kind("audio, 1,024 samples", POSITION, ("spoken-digits",), SEQUENCES),
    Kind("recordings of several channels, 7 of 96 values", POSITION, ("load",), SEQUENCES),
    Kind(RECORDINGS, "2 samples", SHORT, study=REACH),
    *(
        Kind(RECORDINGS, f"{2 * reach} samples", [f"{label} reach {reach}" for label in SHORT], study=REACH)
        for reach in (3, 9, 27, 81)
    ),
    Kind(RECORDINGS, "all, by attention", [f"{label} reach all" for label in SHORT], study=REACH),
    Kind("recordings of two to eight channels, 256 or 512 samples", "2 to 4 samples", SHORT, study=RECORDED),
    Kind("long recordings, eight channels of 5,000 samples", POSITION, ("ludb-5000",), study=RECORDED),
    Kind("small grey images, 14x14", PIXELS, ("mnist-14",), IMAGES),
    Kind("colour images, 16x16", PIXELS, ("galaxies", "cifar10-16", "tiny-imagenet-16"), IMAGES),
    Kind("larger images, from 32x32", "any"),
    Kind(
        "images without order, 14x14 grey or 16x16 in colour",
        PIXELS,
        ("permuted-mnist-14", "permuted-cifar10-16"),
        PERMUTED,
    ),
    Kind(
        "tables of numbers, 10 to 26 columns",
        COLUMNS,
        ("magic", "cytometry", "posterior-gaussian", "posterior-diamonds"),
        study=TABLES,
    ),
    Kind(
        "small tables, 178 to 569 rows of 10 to 30 columns",
        COLUMNS,
        ("breast-cancer", "diabetes", "wine"),
        study=TABLES,
    ),
    Kind("tables of 128 columns", COLUMNS, ("gas",), study=TABLES),
    Kind("tables of more columns", "any"),
)


@dataclass(frozen=True)
class Lead:
    """A layer against the usual ones on one data set.

    Attributes:
        sign: 1 if it is shown to be ahead of all, -1 if shown to be behind one of them, else 0.
        text: its distance from the first one, with the interval.
    """

    dataset: str
    sign: int
    mean: float
    text: str


@dataclass(frozen=True)
class Answer:
    """What to try for one kind of data.

    Attributes:
        layers: to try.
        sure: how sure that is.
        leading: the layer whose leads are `leads`.
    """

    layers: str
    sure: str
    leading: str = ""
    leads: Sequence[Lead] = ()


def leads(pairs: pd.DataFrame, layer: str, datasets: Sequence[str], usual: Iterable[str]) -> Iterator[Lead]:
    """Yield the leads of a layer, positive where it is better, on the data sets on which it and they are ranked."""
    others = tuple(usual)
    for dataset in datasets:
        found = [pair for other in others if (pair := _pair(pairs, dataset, layer, other)) is not None]
        if len(found) < len(others):
            continue
        signs = [int(shown) * (1 if mean > 0 else -1) for mean, _, _, shown, _ in found]
        mean, low, high, _, unit = found[0]
        text = f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] {unit}"
        yield Lead(dataset, 1 if min(signs) == 1 else min(0, *signs), mean, text)


def _pair(pairs: pd.DataFrame, dataset: str, layer: str, other: str) -> tuple[float, float, float, bool, str] | None:
    """Return lead, low, high, whether it is shown, and its unit; None where the pair is not ranked."""
    for first, second, sign in ((layer, other, -1), (other, layer, 1)):
        found = pairs[(pairs["dataset"] == dataset) & (pairs["first"] == first) & (pairs["second"] == second)]
        if len(found):
            row = found.iloc[0]
            low, high = sorted((sign * row["low"], sign * row["high"]))
            return sign * row["difference"], low, high, bool(row["separated"]), row["unit"]
    return None


def answer(
    pairs: pd.DataFrame, datasets: Sequence[str], turned: frozenset[str] = frozenset(), study: Study = LAYERS
) -> Answer:
    """Return the layers to try and how sure that is, with the leads of the first of them."""
    names = study.layers
    measured = {layer: list(leads(pairs, layer, datasets, study.usual)) for layer in names}
    scores = {layer: sum(lead.sign for lead in found) for layer, found in measured.items()}
    most = max(scores.values(), default=0)
    if not any(measured.values()):
        return Answer("not known", NOT_MEASURED)
    if most <= 0:
        largest = max((layer for layer in names if measured[layer]), key=lambda layer: _mean(measured[layer]))
        return Answer(next(iter(study.usual.values())), "none shown", names[largest], measured[largest])
    first, *others = sorted(
        (layer for layer in names if scores[layer] == most), key=lambda layer: -_mean(measured[layer])
    )
    shown = measured[first]
    ahead = sum(lead.sign == 1 for lead in shown)
    strong = ahead >= 3 and ahead >= 0.75 * len(shown) and first not in turned
    sure = f"{'strong' if strong else 'weak'}: {ahead} of {len(shown)} data set{'s' * (len(shown) > 1)}"
    best = [first, *(layer for layer in others if not _is_behind(pairs, datasets, layer, first))]
    return Answer(" or ".join(names[layer] for layer in best), sure, names[first], shown)


def _mean(found: Sequence[Lead]) -> float:
    """Return the mean of the leads, which orders layers that are ahead on equally many data sets."""
    return sum(lead.mean for lead in found) / len(found)


def _is_behind(pairs: pd.DataFrame, datasets: Sequence[str], layer: str, other: str) -> bool:
    """Return whether a layer is shown to be behind another one on one of the data sets."""
    found = [_pair(pairs, dataset, layer, other) for dataset in datasets]
    return any(pair is not None and pair[3] and pair[0] < 0 for pair in found)


def turned_layers(outcomes: pd.DataFrame, dataset: str, study: Study = LAYERS) -> frozenset[str]:
    """Return the layers whose verdict against a usual one turned between draws, by `replication.csv`."""
    turned = outcomes[(outcomes["outcome"] == "turned") & (outcomes["dataset"] == dataset)]
    pairs = [{first, second} for first, second in zip(turned["first"], turned["second"], strict=True)]
    return frozenset(layer for layer in study.layers if any({layer, other} in pairs for other in study.usual))


def tables(reports: Path = REPORTS) -> tuple[str, str]:
    """Return what to try, a row per kind of data, and the leads, a row per data set, as Markdown."""
    tried, brought = [], []
    for kind in KINDS:
        study, turned = kind.study, frozenset[str]()
        if study.draws is not None:
            turned = turned_layers(pd.read_csv(reports / study.draws / "replication.csv"), kind.replicated, study)
        pairs = pd.read_csv(reports / study.report / "comparisons.csv")
        found = answer(pairs, kind.datasets, turned, study)
        evidence = f"../../reports/{study.report}/table.md" if found.leads else "#if-your-data-are-not-in-the-table"
        tried.append((kind.name, kind.reach, found.layers, f"[{found.sure}]({evidence})"))
        for lead in found.leads if study.listed else ():
            shown = f"[{'yes' if lead.sign == 1 else 'no'}]({evidence})"
            brought.append((lead.dataset, found.leading, lead.text, shown))
    return (
        tabulate(tried, ["your data", "your couplings see", "try", "how sure"], "pipe"),
        tabulate(brought, ["data set", "layer", "lead over the first usual one", "shown to be ahead of both"], "pipe"),
    )


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
