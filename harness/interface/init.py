"""`harness.init`: write a suite for a file or folder of data, with budgets by the measured time of a step."""

from __future__ import annotations

import os
import re
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from harness.core.arguments import Place, checked, optional, path
from harness.core.errors import DataError, UserError
from harness.core.files import write_atomically
from harness.core.texts import bounded, visible
from harness.interface.runs import run

if TYPE_CHECKING:
    from harness.datasets import Dataset, Splits

TRIES = 6  # of loading the data, each with what the refusal before proposes
PROFILES = {"quick": (600, 5, 100, 2000, 4), "local": (7200, 8, 400, 20000, 8)}
"""Profile -> seconds that it is to take on all cores, repetitions, least and most steps, patience."""
TRAININGS = 5 * (1 + 5 / 4)  # of 5 rows in a repetition; the halving of 8 candidates takes 5 times a quarter of each
LONGEST_REASON = 200  # characters of a refusal

EMERGING, PERIODIC = "emerging: {options: {kernel_size: 3}}", "periodic: {options: {kernel_size: 3}}"
BUTTERFLY = "butterfly: {options: {levels: 10, capped: true}}"
LAYERS = {"vector": ("orthogonal: {}", BUTTERFLY), "sequence": (EMERGING, PERIODIC), "image": (EMERGING, BUTTERFLY)}
"""Form of an event -> the layers to compare with a 1x1 convolution and the controls, by docs/findings/decision.md."""

NEAR = 10.0  # interquartile ranges from the median to the farthest value, up to which extremes may scale the others

_ENVIRONMENT = Environment(
    loader=PackageLoader(__package__),
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)


@checked
def init(source: Place, out: Annotated[Path | None, optional(path, str | Path)] = None) -> Path:
    """Write a suite that compares layers on a file or a folder of data, and return its path.

    The data set, its options and the budgets are chosen and said: the first data set that takes the file, options that
    its refusals propose until it loads, and as many steps as the measured time of one allows.

    Args:
        source: a table (.csv, .tsv), arrays (.npz, .npy), a folder of images, or a folder of WFDB records.
        out: the suite file; by default <name>.yaml in the working directory.

    Raises:
        UserError: no data set takes the source, none of the proposed options loads it, or the suite file exists.
    """
    name = re.sub(r"[^a-z0-9]+", "-", source.name.split(".")[0].lower()).strip("-")
    if not name or yaml.safe_load(name) != name:  # such as a number
        name = f"data-{name}".rstrip("-")
    target = Path(f"{name}.yaml") if out is None else out
    if target.exists():
        raise UserError(f"{target}: exists; name another file with --out, or remove it")
    dataset, options, splits, names, reasons = _chosen(source, target.resolve().parent)
    scale = _scale(splits, names)
    reasons += [f"preprocessing: {scale}, as single values are far from all others"] if scale else []
    stated = dataset.split_fault(options)
    reasons += [f"keep_test: true, as without it: {stated}"] if stated else []
    for line in reasons:
        print(line)
    chosen = {
        "source": visible(str(source)),
        "name": name,
        "reasons": [textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="#   ") for line in reasons],
        "scale": scale,
        "stated": stated,
        "dataset": dataset.name,
        "options": _flow_style(options),
        **_form(splits),
    }
    root = source.resolve().parent if "records" in options else None
    _write(target, chosen, [])
    try:
        seconds = _seconds_of_a_step(target, root)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    _write(target, chosen, [_profile(profile, seconds) for profile in PROFILES])
    print(f"a training step of the slowest layer takes {1000 * seconds:.3g} ms here: steps of {' and '.join(PROFILES)}")
    rest = f" --data {root}" if root else ""
    print(f"wrote {target}; next: python -m harness run {target}{rest}")
    return target


def _write(target: Path, chosen: dict[str, Any], profiles: Sequence[dict[str, Any]]) -> None:
    """Write the suite of the template, whose profile `smoke` is followed by these."""
    text = _ENVIRONMENT.get_template("suite.yaml.jinja").render(**chosen, profiles=profiles)
    write_atomically(target, text.encode())


def _chosen(source: Path, folder: Path) -> tuple[Dataset, dict[str, Any], Splits, Sequence[str], list[str]]:
    """Return the data set, its options, its splits, the names of the channels, and a line for each choice."""
    from harness.datasets import Store, find_dataset, proposed

    name, options = proposed(source)
    reasons = [f"data: {name}, {_flow_style(options)}, by the form of the file"]
    if "time" in options:
        reasons.append(f"time: {options['time']} is left out of the values, as it rises from row to row")
    dataset, store = find_dataset(name), Store.at(source.resolve().parent, offline=True)
    for _ in range(TRIES):
        try:
            placed = dataset.located(options, None, store.root)
            splits = dataset.loaded(store, placed)
            break
        except DataError as error:
            if not error.hint or error.hint.items() <= options.items():
                raise
            options |= error.hint
            reasons.append(f"{_flow_style(error.hint)}, as without it: {bounded(str(error), LONGEST_REASON)}")
    else:
        raise UserError(f"{source}: {TRIES} proposals did not load it; the last: {reasons[-1]}")
    reasons += [splits.description, *splits.left_out, *splits.warnings]
    names = dataset.channels(placed)
    for option in dataset.paths:
        if option in options:
            place = Path(options[option]).resolve()
            options[option] = str(place.relative_to(folder) if place.is_relative_to(folder) else place)
    return dataset, options, splits, names, [" ".join(line.split()) for line in reasons]


def _form(splits: Splits) -> dict[str, Any]:
    """Return what follows from the shape and the number of the events."""
    kind = "image" if len(splits.shape) == 3 else "sequence" if splits.shape[1] > 1 else "vector"
    halved_twice = kind != "vector" and all(size % 4 == 0 and size >= 8 for size in splits.shape[1:])
    return {
        "columns": kind == "vector",
        "layers": LAYERS[kind],
        "levels": 2 if halved_twice else 1,
        "batch": 64 if len(splits.train) >= 256 else 16,
    }


def _scale(splits: Splits, names: Sequence[str]) -> str | None:
    """Return the preprocessing of channels that their extremes would squeeze together; None: the usual one of all."""
    from harness.pipeline.data_remarks import FAR, farthest

    chosen = ["scale" if far < NEAR else "standard" if far < FAR else "asinh" for far in farthest(splits)]
    if len({*chosen}) == 1:
        return None if chosen[0] == "scale" else chosen[0]
    by_name = {name: each for name, each in zip(names, chosen, strict=False) if each != "scale"}
    return _flow_style(by_name) if names else f"[{', '.join(chosen)}]"


def _seconds_of_a_step(suite: Path, root: Path | None) -> float:
    """Run the profile smoke, and return the seconds of a step of the slowest layer, with its evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        results = run(str(suite), profile="smoke", out=folder, quiet=True, **({"data": root} if root else {}))
        trained = results.table.dropna(subset=["train_seconds"])
        if not len(trained):
            raise UserError(f"{suite}: no layer was trained: {results.status_line}; {'; '.join(results.warnings)}")
        return float((trained["train_seconds"] / trained["steps"]).max())


def _profile(name: str, seconds: float) -> dict[str, Any]:
    """Return a profile with as many steps as its time allows, at so many seconds of a step on one core."""
    whole, repetitions, least, most, patience = PROFILES[name]
    steps = whole * (os.cpu_count() or 1) / (TRAININGS * repetitions) / seconds
    return {
        "name": name,
        "repetitions": repetitions,
        "steps": int(round(min(max(steps, least), most), -2)),
        "patience": patience,
    }


def _flow_style(options: dict[str, Any]) -> str:
    return yaml.safe_dump(options, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True).strip()
