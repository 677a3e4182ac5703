"""MIMIC-III records from a data root or fetched file by file from a local server."""

import numpy as np
import pytest

from harness.datasets import Store, find_dataset
from harness.datasets.recordings import Mimic
from harness.planning.settle import load_suite, settle

MIMIC = find_dataset("mimic")
OPTIONS = {"patient": 3000393, "length": 16, "gap_seconds": 0.4, "validation": 0.2, "test": 0.2}
PLACE = "30/3000393"


@pytest.fixture
def make_record(write_segment, write_record_of_segments):
    """Return a function that writes a record as in the database: layout, gaps, segments of different channels."""

    def make(folder):
        rng = np.random.default_rng(0)
        values = rng.integers(-100, 100, (2, 1000))
        extra = {"II": rng.integers(-100, 100, 300)}
        first, second = ({"PLETH": part[0], "ABP": part[1]} for part in (values[:, :700], values[:, 700:]))
        write_segment(folder, "3000393_0001", extra, fmt="80")
        write_segment(folder, "3000393_0002", {"II": first["ABP"], **first}, fmt="80", gains={"ABP": 1.25})
        write_segment(folder, "3000393_0003", second, fmt="80", gains={"ABP": 1.25})
        segments = [("3000393_0001", 300), ("3000393_0002", 700), ("~", 500), ("3000393_0003", 300)]
        write_record_of_segments(folder, "3000393", segments, ["II", "PLETH", "ABP"])
        return values

    return make


def check_windows(splits, values):
    """Segment 2 lies at 300..999 of the recording, segment 3, of 300 valid samples, at 1500..1799.

    Test: the last 200. Validation: 200 samples, up to 50 before test. Train: up to 50 before validation.
    """
    windows = {name: part.swapaxes(0, 1).reshape(2, -1) for name, part in splits.parts().items()}
    np.testing.assert_array_equal(windows["test"], values[:, 800 : 800 + 12 * 16])
    # 50 of the 100 samples of segment 3 before test, of which 48 make 3 windows; the other 150 of segment 2: 9.
    np.testing.assert_array_equal(windows["validation"][:, : 9 * 16], values[:, 550 : 550 + 9 * 16])
    np.testing.assert_array_equal(windows["validation"][:, 9 * 16 :], values[:, 700 : 700 + 48])
    np.testing.assert_array_equal(windows["train"], values[:, : 31 * 16])
    assert splits.steps == ((1 / 200, "NU"), (0.8, "mmHg"))
    assert [lattice.step for lattice in splits.lattices] == [1 / 200, 0.8]
    assert splits.description.startswith("MIMIC-III waveforms, record 3000393: PLETH and ABP at 125 Hz, 8.0 s")


@pytest.mark.parametrize("folder", [f"mimic3wdb/1.0/{PLACE}", "3000393", "."])
def test_a_record_is_read_from_the_data_root(folder, tmp_path, make_record):
    values = make_record(tmp_path / "root" / folder)
    store = Store(tmp_path / "root", tmp_path / "cache", offline=True)
    MIMIC.check(store, OPTIONS)
    check_windows(MIMIC.load(store, OPTIONS), values)


def test_a_record_is_fetched_headers_first_and_then_the_samples_that_are_needed(tmp_path, served, make_record):
    folder, address, asked = served
    values = make_record(folder / PLACE)
    store = Store(None, tmp_path / "cache")
    mimic = Mimic(address)
    mimic.check(store, OPTIONS)
    files = [*(f"{header}.hea" for header in ("", "_layout", "_0001", "_0002", "_0003")), "_0002.dat", "_0003.dat"]
    assert asked == [f"/{PLACE}/3000393{file}" for file in files]
    # A trial is offline and finds everything there.
    asked.clear()
    check_windows(mimic.load(Store(None, store.cache, offline=True), OPTIONS), values)
    strided = mimic.load(Store(None, store.cache, offline=True), OPTIONS | {"stride": 4})
    assert len(strided.train) == (500 - 16) // 4 + 1 and asked == []


def test_patients_match_the_paper():
    assert MIMIC.shape({}) == (2, 1024)
    plan = settle(load_suite("mimic"), "paper", "cpu", seeds=1).plan()[0]
    patients = {trial.data.label: dict(trial.data.options) for trial in plan.trials}
    numbers = {"patient 1": 3000063, "patient 2": 3000393, "patient 3": 3000397}
    assert patients == {label: {"patient": number} for label, number in numbers.items()}
    assert plan.averages == {"average": plan.columns} == {"average": tuple(patients)}
    assert all(set(values) == {*patients, "average"} for values in plan.published.values.values())
