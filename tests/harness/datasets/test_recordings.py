"""WFDB records that a suite names, and those of MIMIC-III, from a data root or fetched file by file from a server."""

import numpy as np
import pytest
import torch

from harness.core.errors import DataError, DataMissing
from harness.core.settings import DataRef, NewSplit
from harness.datasets import Store, find_dataset
from harness.datasets.recordings import Mimic
from harness.evaluation.evaluation import resolution_floor
from harness.pipeline.data_remarks import examine
from harness.pipeline.pipeline import Pipeline
from harness.planning.settle import load_suite, settle

WFDB = find_dataset("wfdb")
SMALL = {"records": ["r"], "length": 16, "gap_seconds": 0.4, "validation": 0.2, "test": 0.2}


@pytest.fixture
def made(store, write_segment):
    """Write a record of 1,000 different samples to the root of the store."""
    rng = np.random.default_rng(0)
    signals = {"PLETH": rng.permutation(1000), "ABP": rng.permutation(1000)}
    write_segment(store.root, "r", signals, gains={"PLETH": 2000, "ABP": 20})
    return np.stack([signals["PLETH"], signals["ABP"]])


def cached(store):
    return sorted(path.name for path in (store.cache / "prepared").glob("[!.]*-*") if path.is_dir())


def joined(windows):
    """Concatenate windows that do not overlap: (C, N * length)."""
    return windows.swapaxes(0, 1).reshape(windows.shape[1], -1)


def test_windows_hold_the_samples_and_normalisation_is_left_to_the_trial(store, made):
    splits = WFDB.load(store, SMALL)
    assert {name: len(part) for name, part in splits.parts().items()} == {"train": 31, "validation": 12, "test": 12}
    np.testing.assert_array_equal(joined(splits.train), made[:, : 31 * 16])
    np.testing.assert_array_equal(joined(splits.validation), made[:, 550 : 550 + 192])
    np.testing.assert_array_equal(joined(splits.test), made[:, 800:992])
    assert splits.train.dtype == np.int16 and splits.levels is None and splits.lattice and splits.no_floor is None
    assert splits.steps == ((1 / 2000, "NU"), (1 / 20, "mmHg"))
    for words in ("PLETH and ABP at 125 Hz, 8.0 s", "with 0.4 s between the splits", "do not overlap"):
        assert words in splits.description
    strided = WFDB.load(store, SMALL | {"stride": 4})
    np.testing.assert_array_equal(strided.train[7], made[:, 28:44])
    assert "training windows begin every 4 samples and overlap, held-out windows do not" in strided.description


def test_flat_windows_are_dropped_and_the_lattice_is_kept(store, write_segment):
    rng = np.random.default_rng(0)
    signals = {name: rng.integers(0, 1000, 1000) for name in ("PLETH", "ABP")}
    signals["ABP"][100:120] = signals["PLETH"][830:845] = 7
    write_segment(store.root, "r", signals)
    plain = WFDB.load(store, SMALL)
    clean = WFDB.load(store, SMALL | {"flat_lines": 0.3})
    # 100..119 lies in the windows from 96 (12 of 16) and 112 (8); 830..844 in those from 816 (2) and 832 (13).
    np.testing.assert_array_equal(clean.train, np.delete(plain.train, [6, 7], axis=0))
    np.testing.assert_array_equal(clean.test, np.delete(plain.test, 2, axis=0))
    np.testing.assert_array_equal(clean.validation, plain.validation)
    assert clean.lattice and clean.no_floor is None and clean.train.dtype == np.int16
    assert "dropped: 3 windows with more than 0.3 of a channel in flat lines of 15 samples or more" in clean.description
    assert len(WFDB.load(store, SMALL | {"flat_lines": 0.75}).train) == 31, "a larger share is dropped"
    assert len(WFDB.load(store, SMALL | {"flat_lines": 0.74}).train) == 30
    signals["ABP"][:] = 7
    write_segment(store.root, "r", signals)
    with pytest.raises(DataError, match=r"0 test windows from 1\.6 s; dropped: 55 windows with more than 0.3"):
        WFDB.load(store, SMALL | {"flat_lines": 0.3})


def test_a_segment_of_two_records_is_refused(store, made, write_record_of_segments):
    write_record_of_segments(store.root, "m", [("r", 1000)], ["PLETH", "ABP"])
    with pytest.raises(DataError, match=r"is read 2 times, by records that share it"):
        WFDB.load(store, SMALL | {"records": ["m", "r"]})


def test_a_record_named_twice_is_refused(store, made):
    for again in ("r", "./r"):
        with pytest.raises(DataError, match=r"r\.hea: is read 2 times, .*; name each record once"):
            WFDB.check(store, SMALL | {"records": ["r", again]})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"length": 256}, r"1 train windows from 4\.0 s, 0 validation windows from 1\.6 s, 0 test windows from 1\.6 s"),
        ({"gap_seconds": 3.0}, r"0 train windows from 0\.0 s, 12 validation windows from 1\.6 s, 12 test wind"),
    ],
)
def test_too_short_a_recording_is_refused_with_its_length(store, made, options, says):
    with pytest.raises(DataError, match=rf"^wfdb: .*/r\.hea: too little for windows of \d+ samples .*{says}"):
        WFDB.check(store, SMALL | options)
    assert cached(store) == []
    WFDB.check(store, SMALL)


def of_gains(store, write_segment, gains):
    """Return options of records of 600 samples with these gains."""
    rng = np.random.default_rng(0)
    for number, gain in enumerate(gains):
        write_segment(store.root, f"r{number}", {"II": rng.permutation(600)}, gains={"II": gain})
    return SMALL | {"records": [f"r{number}" for number in range(len(gains))], "channels": ["II"]}


def test_records_that_other_gains_leave_out_are_refused_or_named(store, write_segment):
    """Of 160 people with a gain each one would be trained on, and nothing but the length would say so."""
    options = of_gains(store, write_segment, [200, 100, 200, 50])
    with pytest.raises(DataError, match=r"2 of 4 records \(r1, r3\) are not used.*leave_out_records: true"):
        WFDB.loaded(store, options)
    splits = WFDB.loaded(store, options | {"leave_out_records": True})
    assert splits.left_out == (
        "2 of 4 records (r1, r3) are not used: their gains or baselines are others than those of most",
    )
    few = of_gains(store, write_segment, [200] * 20 + [100])
    assert WFDB.loaded(store, few).left_out[0].startswith("1 of 21 records (r20) are not used")
    assert WFDB.loaded(store, of_gains(store, write_segment, [200, 200])).left_out == ()


# Whole records, each with its own gain

SUBJECTS = 12
WHOLE = {"records": "all/*", "channels": ["ii"], "length": 16, "split": "record", "values": "physical"}


@pytest.fixture
def archive(store, write_segment):
    """Write 12 records of 160 samples, each with a gain and a range of counts of its own, one a subject."""
    draws = np.random.default_rng(0)
    for number in range(SUBJECTS):
        counts = 1000 * number + draws.permutation(160)
        write_segment(store.root / "all", f"r{number}", {"II": counts}, gains={"II": 100 + number})
    return lambda new=None, **options: WFDB.loaded(store, WHOLE | options, new)


def owners(splits):
    """Return the records of the windows of each split, by the range of their values."""
    firsts = {number: 1000 * number / (100 + number) for number in range(SUBJECTS)}
    lowest = [part.min((1, 2)) for part in splits.parts().values()]
    return [{number for number, first in firsts.items() if (abs(part - first) < 1.7).any()} for part in lowest]


@pytest.mark.parametrize("new", [None, NewSplit(3, keep_test=False), NewSplit(4, keep_test=True)])
def test_records_of_all_gains_are_used_whole_in_physical_units(archive, new):
    splits = archive(new)
    parts = owners(splits)
    assert [len(part) for part in parts] == [10, 1, 1] and len(set().union(*parts)) == SUBJECTS
    assert [len(part) for part in splits.parts().values()] == [100, 10, 10]
    [number] = parts[2]
    counts = splits.test * (100 + number) - 1000 * number
    assert sorted(np.floor(counts.ravel() + 1e-3)) == list(range(160)), "noise of one step of the record"
    assert splits.log_widths[2] == pytest.approx(-np.log(100 + number))
    assert not splits.lattice and splits.left_out == () and "10, 1, 1 whole groups" in splits.description


def test_standardised_records_have_mean_0_and_deviation_1_and_the_unit_is_said(archive):
    splits = archive(values="standardised")
    for part in splits.parts().values():
        for record in joined(part).reshape(-1, 160):
            counts = np.sort(np.floor(record * np.std(range(160)) + 79.5 + 1e-9))
            assert counts.tolist() == list(range(160)), "noise of one step of the record above its mean"
    assert splits.log_widths == pytest.approx([-np.log(np.std(range(160)))] * 3)
    assert "no log-determinant of this scaling is counted" in splits.description and splits.steps is None


@pytest.mark.parametrize("values", ["physical", "standardised"])
def test_the_floor_of_records_of_own_steps_is_the_mean_log_step(archive, values):
    splits = archive(values=values)
    pipeline = Pipeline(splits, DataRef(label="r", name="wfdb"), torch.float64)
    width = float(np.ptp(splits.train))
    assert resolution_floor(pipeline) == pytest.approx(splits.log_widths[2] + np.log(2 / width))
    assert not pipeline.dequantises
    assert not [remark for remark in examine(splits) if remark.unbounded]


def test_volts_of_several_units_are_converted_and_others_refused(archive, store):
    path = store.root / "all" / "r3.hea"
    text = path.read_text()
    for number in range(SUBJECTS):
        header = store.root / "all" / f"r{number}.hea"
        header.write_text(header.read_text().replace("/NU", "/mV"))
    path.write_text(text.replace("/NU", "/uV").replace("103.0", "0.103"))
    assert np.ptp(archive().train) == pytest.approx(11_160 / 111, rel=0.1)
    path.write_text(text.replace("/NU", "/mmHg"))
    with pytest.raises(DataError, match="ii is in mmHg in one record and in mV"):
        archive()


def test_short_records_and_further_signals_are_named(store, write_segment):
    for number in range(12):
        signals = {"II": np.arange(160), "V1": np.arange(160)}
        write_segment(
            store.root / "all", f"r{number}", {key: row[: 20 if number < 2 else None] for key, row in signals.items()}
        )
    options = WHOLE | {"values": "counts", "length": 32}
    with pytest.raises(DataError, match=r"2 of 12 records \(r0, r1\) are not used: they have no window's length"):
        WFDB.loaded(store, options)
    left_out = WFDB.loaded(store, options | {"leave_out_records": True}).left_out
    assert left_out[0] == "signals that are not used: V1" and left_out[1].startswith("2 of 12 records (r0, r1)")


def test_records_of_a_folder_stay_together(store, write_segment):
    for number in range(12):
        write_segment(store.root / f"p{number // 3}", f"r{number}", {"II": 1000 * number + np.arange(160)})
    options = {"records": ["p?/*"], "channels": ["II"], "length": 16, "split": "folder"}
    splits = WFDB.loaded(store, options)
    people = [set((part[:, 0, 0] // 3000).tolist()) for part in splits.parts().values()]
    assert [len(part) for part in people] == [2, 1, 1] and len(set().union(*people)) == 4
    assert splits.lattice and "each of one folder" in splits.description


def test_records_without_a_channel_are_named(store, write_segment):
    for number in range(40):
        write_segment(store.root / "all", f"r{number}", {"V1" if number == 7 else "II": np.arange(160) + number})
    options = {"records": ["all/*"], "channels": ["ii"], "length": 16, "split": "record"}
    assert WFDB.loaded(store, options).left_out == ("1 of 40 records (r7) are not used: no part has ii together",)
    with pytest.raises(
        DataError, match=r"39 of 40 records \(r0, r1, r2, r3, r4 and 34 more\) are not used: no part has V1"
    ):
        WFDB.loaded(store, options | {"channels": ["V1"]})
    with pytest.raises(DataError, match="no segment of the record has V9"):
        WFDB.loaded(store, options | {"channels": ["V9"]})


def test_a_pattern_names_no_segments_and_must_match(store, write_segment, write_record_of_segments):
    write_segment(store.root, "m_0001", {"II": np.arange(160)})
    write_record_of_segments(store.root, "m", [("m_0001", 160)], ["II"])
    assert WFDB._matching(store, "m*") == ["m"]
    with pytest.raises(DataMissing, match=r"x\*: no such records in the data root"):
        WFDB.loaded(store, WHOLE | {"records": "x*"})


def test_nearly_dependent_leads_are_noted(store, write_segment):
    rng = np.random.default_rng(0)
    for number in range(6):
        first, second = 300 * rng.standard_normal((2, 640)).cumsum(1) / 10
        leads = {"I": first, "II": second, "AVR": 500 * number - (first + second) / 2}
        write_segment(
            store.root / "all", f"r{number}", {name: np.round(each).astype(int) for name, each in leads.items()}
        )
    splits = WFDB.loaded(store, WHOLE | {"channels": ["i", "ii", "aVR"], "length": 64})
    texts = [remark.text for remark in examine(splits, ["i", "ii", "aVR"])]
    assert any("nearly linear functions of the channels before them: aVR in an event (" in text for text in texts)


def test_a_constant_record_has_no_deviation(store, write_segment):
    for number in range(12):
        write_segment(store.root / "all", f"r{number}", {"II": np.arange(160) * (number > 0)})
    with pytest.raises(DataError, match="ii has one value in a record, which has no deviation; leave the record out"):
        WFDB.loaded(store, WHOLE | {"values": "standardised"})


# MIMIC-III

MIMIC = find_dataset("mimic")
PATIENT = {"patient": 3000393, "length": 16, "gap_seconds": 0.4, "validation": 0.2, "test": 0.2}
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


def check_segments(splits, values):
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
    MIMIC.check(store, PATIENT)
    check_segments(MIMIC.load(store, PATIENT), values)


def test_a_record_is_fetched_headers_first_and_then_the_samples_that_are_needed(tmp_path, served, make_record):
    folder, address, asked = served
    values = make_record(folder / PLACE)
    store = Store(None, tmp_path / "cache")
    mimic = Mimic(address)
    mimic.check(store, PATIENT)
    files = [*(f"{header}.hea" for header in ("", "_0001", "_0002", "_0003")), "_0002.dat", "_0003.dat"]
    assert asked == [f"/{PLACE}/3000393{file}" for file in files]
    # A trial is offline and finds everything there.
    asked.clear()
    check_segments(mimic.load(Store(None, store.cache, offline=True), PATIENT), values)
    strided = mimic.load(Store(None, store.cache, offline=True), PATIENT | {"stride": 4})
    assert len(strided.train) == (500 - 16) // 4 + 1 and asked == []


def test_patients_match_the_paper():
    assert MIMIC.shape({}) == (2, 1024)
    plan = settle(load_suite("mimic"), "paper", "cpu", seeds=1).plan()[0]
    patients = {trial.data.label: dict(trial.data.options) for trial in plan.trials}
    numbers = {"patient 1": 3000063, "patient 2": 3000393, "patient 3": 3000397}
    assert patients == {label: {"patient": number} for label, number in numbers.items()}
    assert plan.averages == {"average": plan.columns} == {"average": tuple(patients)}
    assert all(set(values) == {*patients, "average"} for values in plan.published.values.values())
