"""The packaged suites tune all layers of a data set alike, and leave the published protocol untuned."""

import hashlib
import json
from collections import defaultdict

import pytest

from harness.kinds.density.repetitions import drawn
from harness.kinds.density.tuning.planned import tuning_of
from harness.kinds.density.tuning.strategy import MOST_SETTINGS, strategy
from harness.planning.settle import load_suite, scope_of

TUNED = (
    "quickstart", "density", "permuted", "mimic", "galaxy", "layers", "mixed_radix", "capacity", "recordings",
    "reach", "tables", "depth", "order", "claims/what_holds", "claims/cdflow_periodic",
)  # fmt: skip
UNTUNED = {("layers", "patches")}


def candidates(name, profile):
    """Return (data set, layer) -> the candidates of its first tuning, without baselines."""
    scope = scope_of(load_suite(name), profile)
    cells = [cell for cell in scope.every_cell if not cell.layer.baseline]
    tunings = {(cell.column, cell.row): tuning_of(cell, drawn(scope, cell.column)[0]) for cell in cells}
    return {place: () if tuning is None else tuning.candidates for place, tuning in tunings.items()}


@pytest.mark.parametrize("name", TUNED)
def test_all_layers_of_a_data_set_are_tuned_alike(name):
    for profile in {"quick", "local"} & set(load_suite(name).profile_names):
        numbers = defaultdict(set)
        for (column, row), found in candidates(name, profile).items():
            numbers[column].add(len(found))
            tried = defaultdict(set)
            for path, value in (change for changes in found for change in changes):
                tried[path].add(value)
            assert all(len(values) > 1 for values in tried.values()), (
                f"{profile}, {column}, {row} tries one value: {tried}"
            )
        for column, found in numbers.items():
            assert len(found) == 1 and (found == {0}) == ((name, column) in UNTUNED), (profile, column, found)


@pytest.mark.parametrize("name", ["density", "permuted", "mimic", "galaxy"])
def test_the_published_protocol_is_not_tuned(name):
    assert not any(candidates(name, "paper").values())


def test_committed_suites_keep_their_candidates():
    """The points are those of every version of scipy so far: another sequence would give all tuned trials new ids."""
    points = strategy("sobol").points(32, 106)
    assert len(points) == 32 and {len(point) for point in points} == {MOST_SETTINGS}
    assert points[:5] == strategy("sobol").points(5, 106), "more candidates begin with the fewer"
    assert hashlib.sha256(json.dumps(points).encode()).hexdigest()[:16] == "2aeea8e80ffe73d8"
    with pytest.raises(ValueError, match=r"no strategy 'sobel'; .*sobol"):
        strategy("sobel")
