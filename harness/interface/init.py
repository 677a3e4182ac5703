"""`harness.init`: write a suite for a file or folder of data, with budgets by the measured time of a step."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml

from harness.core.arguments import Place, checked, optional, path
from harness.core.errors import DataError, UserError
from harness.core.files import write_atomically
from harness.core.texts import bounded, visible
from harness.datasets import Store, find_dataset, proposed
from harness.interface.runs import run
from harness.kinds.density.first_suite import flow_style, preprocessing, sizes, suite_text

HINTS = 6  # of refusals, which are followed


@checked
def init(source: Place, out: Annotated[Path | None, optional(path, str | Path)] = None) -> Path:
    """Write a suite that compares layers on a file or a folder of data, and return its path.

    The data set, its options and the budgets are chosen and said: the first data set that takes the file, options that
    its refusals propose until it loads, and as many steps as the measured time of one allows.

    Args:
        source: a table (.csv, .tsv, .txt, .data, .dat), arrays (.npz, .npy), a folder of images or of WFDB records.
        out: the suite file; by default <name>.yaml in the working directory.

    Raises:
        UserError: no data set takes the source, none of the proposed options loads it, or the suite file exists.
    """
    name = re.sub(r"[^a-z0-9]+", "-", source.name.split(".")[0].lower()).strip("-")
    if not name or yaml.safe_load(name) != name:  # such as a number
        name = f"data-{name}".rstrip("-")
    target = out or Path(f"{name}.yaml")
    if target.exists():
        raise UserError(f"{target}: exists; name another file with --out, or remove it")
    folder, root = target.resolve().parent, source.resolve().parent
    content = {"source": visible(str(source)), "name": name, **_chosen(source, folder, root)}
    print("\n".join(content["reasons"]))
    with contextlib.chdir(folder):
        seconds = _seconds_of_a_step(yaml.safe_load(suite_text(content)), root)
    write_atomically(target, suite_text(content, seconds).encode())
    print(f"a training step of the slowest layer takes {1000 * seconds:.3g} ms here, from which the steps follow")
    data = f" --data {root}" if "records" in content["data"]["options"] else ""
    print(f"wrote {target}; next: python -m harness run {target}{data}")
    return target


def _chosen(source: Path, folder: Path, root: Path) -> dict[str, Any]:
    """Return what the suite says of the data, and a line for each choice."""
    name, options = proposed(source)
    reasons = [f"data: {name}, {flow_style(options)}, by the form of the file"]
    if "time" in options:
        reasons.append(f"time: {options['time']} is left out of the values, as it rises from row to row")
    dataset, hints = find_dataset(name), 0
    while True:
        try:
            placed = dataset.located(options, None, root)
            splits = dataset.loaded(Store.at(root, offline=True), placed)
            break
        except DataError as error:
            if not error.hint or error.hint.items() <= options.items() or (hints := hints + 1) > HINTS:
                raise
            options |= error.hint
            reasons.append(f"{flow_style(error.hint)}, as without it: {bounded(str(error), 200)}")
    reasons += [splits.description, *splits.left_out, *splits.warnings]
    if scale := preprocessing(splits, dataset.channels(placed)):
        reasons.append(f"{flow_style(scale)}, as single values are far from all others")
    if stated := dataset.split_fault(options):
        reasons.append(f"keep_test: true, as without it: {stated}")
    for option in {*dataset.paths} & {*options}:
        place = Path(options[option]).resolve()
        options[option] = str(place.relative_to(folder) if place.is_relative_to(folder) else place)
    data = {"data": name, **scale, "options": options}
    return {"reasons": [" ".join(line.split()) for line in reasons], "stated": stated, "data": data, **sizes(splits)}


def _seconds_of_a_step(suite: Mapping[str, Any], root: Path) -> float:
    """Run the profile smoke, and return the seconds of a step of the slowest layer, with its evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        results = run(suite, profile="smoke", out=folder, quiet=True, data=root)
    trained = results.table.dropna(subset=["train_seconds"])
    if not len(trained):
        raise UserError(f"no layer was trained: {results.status_line}; {'; '.join(results.warnings)}")
    return float((trained["train_seconds"] / trained["steps"]).max())
