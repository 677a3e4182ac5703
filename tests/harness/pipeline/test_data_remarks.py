"""Remarks on data before training: events seen in training, repeated values, dependent channels; where they stand."""

import json

import numpy as np
import pytest

from harness.cli.parser import main
from harness.core.settings import DataRef
from harness.datasets import Splits, Store
from harness.execution.data import examine_data
from harness.pipeline.data_remarks import examine, notes_of, remarks_on, repetition

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(500, 3))

SUITE = """
suite: mine
kind: density
layers: {conv1x1: {}}
profiles:
  smoke:
    seeds: 1
    flow: {levels: 1, steps: 1, width: 8}
    training: {steps: 2, batch_size: 16, evaluate_every: 1}
    datasets:
"""


def splits(values: np.ndarray, lattice: bool = False) -> Splits:
    events = values if values.ndim > 2 else values[:, :, None]
    return Splits(events[:-40], events[-40:-20], events[-20:], None, "made up", lattice=lattice)


def texts(values: np.ndarray, lattice: bool = False) -> list[str]:
    return [remark.text for remark in examine(splits(values, lattice), [f"c{n}" for n in range(values.shape[1])])]


def test_shares_of_seen_events_and_the_least_that_is_a_warning():
    images = RNG.integers(0, 256, (1000, 1, 8, 8), dtype=np.uint8)

    def remarks(test):
        return examine(Splits(images[:600], images[600:700], test, 256, "made up"))

    assert remarks(images[700:]) == []
    [few] = remarks(np.concatenate([images[700:], images[:2]]))
    assert few.text == "2 of 302 test events (0.7%) equal training events" and not few.warning
    half = remarks(np.concatenate([images[800:], images[100:200], images[600:700]]))
    assert [remark.text for remark in half] == [
        "100 of 400 test events (25.0%) equal training events",
        "100 of 400 test events (25.0%) equal validation events",
    ]
    assert all(remark.warning for remark in half)
    assert notes_of([few, *half]).keys() == {"data warning", "data remark"}


def pictures(count: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, 1, 8, 8), dtype=np.uint8)


def of_test(train: np.ndarray, test: np.ndarray) -> list[tuple[str, bool]]:
    remarks = examine(Splits(train, pictures(40), test, 256, "made up"))
    return [(remark.text, remark.warning) for remark in remarks]


def test_repeated_events_are_counted_in_each_split_and_a_warning_where_they_are_evaluated():
    images = pictures(100)
    assert of_test(np.concatenate([images, images[:50]]), pictures(60)) == [
        ("50 of 150 train events (33.3%) repeat others of their split", False)
    ]
    few = ("55 of 60 test events (91.7%) repeat others of their split", True)
    assert of_test(images, np.repeat(pictures(5), 12, axis=0)) == [few]


def test_near_and_overlapping_events_are_a_warning():
    images = pictures(100)
    near = images[:60].copy()
    near[:, 0, 0, 0] ^= 1
    text = "60 of 60 examined test events (100.0%) nearly equal training events, perhaps mirrored or turned"
    assert of_test(images, near) == of_test(images, near[..., ::-1]) == [(text, True)]
    large = pictures(600).reshape(-1, 1, 8, 8)
    large[:100] = images
    [(text, warning)] = of_test(large, np.concatenate([near, pictures(540)]))
    assert text.endswith("of 200 examined test events (10.0%) nearly equal training events, perhaps mirrored or turned")
    assert warning
    shifted = np.concatenate([images[:30, :, 2:], pictures(30)[:, :, :2]], axis=2)
    assert of_test(images, np.concatenate([shifted, pictures(30)])) == [
        ("30 of 60 examined test events (50.0%) overlap training events", True)
    ]


def test_values_that_are_said_to_be_continuous_and_repeat_are_refused_and_named():
    values = VALUES.round(2)
    [remark] = [each for each in examine(splits(values), ["a", "b", "c"]) if each.unbounded]
    assert remark.warning and remark.text == (
        "a lies on a lattice of step 0.01, b lies on a lattice of step 0.01, c lies on a lattice of step 0.01, "
        "although said to be continuous: a density can grow without bound"
    )
    [many] = examine(splits(np.c_[values, VALUES.round(1), VALUES.round(3)]))
    assert "channel 4 lies on a lattice of step 0.1" in many.text and "and 1 more, although" in many.text
    assert not any(each.unbounded for each in examine(splits(np.rint(values * 100).astype(int), lattice=True)))


DEPENDENT = {
    "a copy": (VALUES[:, [0, 1, 0]], "c2"),
    "a copy of nine decimals": (np.c_[VALUES, VALUES[:, 1].round(9)], "c3"),
    "a copy in float32": (np.c_[VALUES, VALUES[:, 1]].astype(np.float32) + 100, "c3"),
    "another unit": (np.c_[VALUES, 1.8 * VALUES[:, 0] + 32], "c3"),
    "a mixture": (np.c_[VALUES, VALUES @ [0.3, 0, 0.7]], "c3"),
    "windows": (np.repeat(VALUES[:, :1, None], 2, 1) * np.arange(1, 9), "c1"),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_dependent_channels_are_named_and_unbounded_off_a_lattice(name):
    values, channel = DEPENDENT[name]
    text = f"{channel}: constant or a linear function of those before: a density can grow without bound"
    assert texts(values) == [text]
    [remark] = examine(splits(values))
    assert remark.warning and remark.unbounded


def test_dependent_channels_of_a_lattice_are_bounded_by_their_noise():
    counts = RNG.integers(-400, 400, (500, 2))
    every = np.c_[counts, counts.sum(1), np.zeros(500, int)]
    [remark] = examine(splits(every, lattice=True), ["a", "b", "c", "d"])
    assert remark.text.startswith("c, d: constant or a linear function of those before: the noise")
    assert not remark.warning and not remark.unbounded


def test_independent_channels_have_no_remark():
    almost = np.c_[VALUES, VALUES[:, 0] + 1e-4 * RNG.normal(size=500)]
    assert texts(VALUES) == texts(almost) == [] == texts(VALUES[:45])


def test_channels_whose_extremes_squeeze_the_others_are_named_where_their_range_scales_them(tmp_path):
    tails = np.stack([RNG.standard_t(1, 4000), RNG.normal(size=4000)], axis=1)
    made, store = splits(tails), Store(tmp_path, tmp_path)
    ranged, bent = (
        [remark.text for remark in remarks_on(store, DataRef(label="t", name="digits", preprocessing=scaling), made)]
        for scaling in ("scale", "asinh")
    )
    assert [text for text in ranged if "in channel 0 (" in text and "channel 1" not in text and "asinh" in text]
    assert not any("interquartile" in text for text in bent)


def test_remarks_are_kept_in_the_cache_and_made_again_if_it_is_damaged(tmp_path, monkeypatch):
    store = Store(None, tmp_path, offline=True)
    data = DataRef(label="d", name="npz", options={"file": "mine.npz", "shape": (1, 4, 4)})
    zeros = np.zeros((4, 1, 4, 4), np.uint8)
    read = Splits(zeros, zeros, zeros, 256, "made up", checksum="0" * 64)
    first = remarks_on(store, data, read)
    [kept] = (tmp_path / "remarks").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr("harness.pipeline.data_remarks.examine", lambda *_: pytest.fail("examined again"))
        assert remarks_on(store, data, read) == first
    kept.write_text("[{}")
    assert remarks_on(store, data, read) == first and json.loads(kept.read_text())


def test_validate_reports_all_bad_data_sets_and_remarks_on_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images = RNG.integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
    np.savez("leak.npz", x_train=images[:40], x_val=images[40:50], x_test=images[:10])
    np.savez("real.npz", x=np.full((40, 1, 8, 8), np.nan))
    (tmp_path / "bad.csv").write_text("a,b\n1,2,3\n")
    entries = {
        "good": "npz, options: {file: leak.npz, shape: [1, 8, 8]}",
        "real": "npz, options: {file: real.npz, shape: [1, 8, 8]}",
        "table": "csv, options: {file: bad.csv, columns: [a, b]}",
        "absent": "csv, options: {file: absent.csv, columns: [a, b]}",
    }

    def validate(*labels, options=()):
        (tmp_path / "mine.yaml").write_text(
            SUITE + "".join(f"      {each}: {{data: {entries[each]}}}\n" for each in labels)
        )
        code = main(["validate", "mine.yaml", *options])
        return code, *capsys.readouterr()

    code, out, err = validate(*entries)
    assert code == 3 and "warning: good: 10 of 10 test events" in out and "absent.csv" in out
    assert "real.npz: x: nan at [0, 0, 0, 0] is not finite" in err and "bad.csv: line 2 has 3 cells" in err
    assert "absent.csv" not in err
    code, out, err = validate("good", "absent")
    assert code == 0 and "note: not here, so not checked: csv: absent.csv" in out and "ok: mine.yaml" in out
    code, out, err = validate("good", "absent", options=["--data", str(tmp_path)])
    assert code == 3 and "absent.csv: no such file" in err


def test_a_column_that_equals_another_is_refused_unless_the_suite_allows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{a!r},{a!r},{b!r}" for a, b in VALUES[:, :2].tolist()]
    (tmp_path / "twin.csv").write_text("\n".join(["a,b,c", *rows]))
    entry = "{data: csv, options: {file: twin.csv, columns: [a, b, c]}}"
    (tmp_path / "mine.yaml").write_text(f"{SUITE}      d: {entry}\n")
    assert main(["run", "mine.yaml", "--profile", "smoke"]) == 3
    fault = "d: b: constant or a linear function of those before: a density can grow without bound"
    assert fault in capsys.readouterr().err
    (tmp_path / "mine.yaml").write_text(f"{SUITE}      d: {entry.replace('csv,', 'csv, allow_unbounded: true,', 1)}\n")
    assert main(["plan", "mine.yaml", "--profile", "smoke"]) == 0
    assert f"warning: {fault}\n" in capsys.readouterr().out


def test_columns_that_read_the_same_data_are_remarked_on_once_and_share_their_faults(tmp_path):
    np.savez(tmp_path / "twice.npz", x=np.repeat(RNG.normal(size=(100, 3, 1)), 2, axis=0))
    options = {"file": "twice.npz", "kind": "sequence", "shape": (3, 1), "noise": 0.01}
    lines = []
    same = [DataRef(label=label, name="npz", options=tuple(options.items())) for label in ("one", "two")]
    checksums, faults = examine_data(same, tmp_path, True, lines.append)
    assert not faults and len(checksums) == 1 and lines and all(": one: " in line for line in lines)
    missing = [DataRef(label=label, name="npz", options=(("file", "no.npz"),)) for label in ("one", "two")]
    assert [fault for _, fault in examine_data(missing, tmp_path, True, lines.append)[1].items()][1:]


# Values that are said to be continuous: of all, of a channel, an entry or an event

DRAWS = np.random.default_rng(0)
SIGNALS = DRAWS.normal(size=(400, 2, 48)).astype(np.float32)
COUNTS = DRAWS.integers(0, 200, (400, 1, 48))


def changed(change) -> np.ndarray:
    values = SIGNALS.copy()
    change(values)
    return values


def where(part) -> np.ndarray:
    """Return values of which those of a part of the second channel are 0."""
    return changed(lambda values: values[:, 1].__setitem__(part, 0))


REPEATING = {
    "all on a lattice": ((np.rint(SIGNALS * 4) / 4)[:, :1], "lies on a lattice of step 0.25"),
    "float64 with an offset": (COUNTS * 0.1 + 7.3, "lies on a lattice of step 0.1"),
    "one channel on a lattice": (
        np.concatenate([SIGNALS[:, :1], np.rint(SIGNALS[:, 1:] * 1000) / 1000], 1),
        "lies on a lattice of step 0.001",
    ),
    "padded": (
        where(np.s_[:, 30:]),
        "repeats 100% of its values in several events, at 18 of 48 entries, the first at 30",
    ),
    "one constant entry": (where(np.s_[:, 5]), "at 1 of 48 entries, the first at 5"),
    "a constant column": (where(np.s_[:])[:, :, :1], "repeats 100% of its values"),
    "padded in some events": (
        where(np.s_[::5, 40:]),
        "repeats 20% of its values in several events, at 8 of 48 entries",
    ),
    "clipped": (np.minimum(SIGNALS, 1), "at 48 of 48 entries"),
    "nearly padded": (where(np.s_[:, 40:]) + np.float64(1e-11) * SIGNALS, "at 8 of 48 entries, the first at 40"),
    "the last value repeated": (
        changed(lambda values: values[:, 1].__setitem__(np.s_[:, 40:], values[:, 1, 39:40])),
        "repeats 19% of its values in the same event",
    ),
    "standardised by entry": ((COUNTS - COUNTS.mean(0)) / COUNTS.std(0), "at entry 0"),
    "fine steps of each entry": (DRAWS.integers(0, 60_000, (300, 1, 48)) * DRAWS.uniform(1, 2, 48) / 7, "at entry 0"),
    "not finite": (changed(lambda values: values[:, 1].__setitem__(3, np.nan)), "has values that are not finite"),
    "half precision": (SIGNALS.astype(np.float16).astype(np.float32), "of its values in several events"),
    "a column of a table": (np.round(DRAWS.gamma(2, size=(3000, 1, 1)), 2), "lies on a lattice of step 0.01"),
    "zeros in a column": (np.maximum(DRAWS.normal(size=(3000, 1, 1)), 0), "repeats 5"),
}


@pytest.mark.parametrize("name", REPEATING)
def test_values_that_repeat_are_found(name):
    values, text = REPEATING[name]
    assert text in repetition(values[:, -1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_values_do_not_repeat(dtype):
    windows = np.lib.stride_tricks.sliding_window_view(DRAWS.normal(size=4000).cumsum(), 64)[::8, None].astype(dtype)
    for values in (SIGNALS, windows, DRAWS.random((5000, 6, 1)), DRAWS.standard_cauchy((3000, 3, 1)), SIGNALS[:10]):
        assert not any(map(repetition, np.moveaxis(values.astype(dtype), 1, 0)))
