"""User tables in .csv files: vectors, windows, lattices, and one message for each fault."""

import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest

from harness.core.errors import DataError
from harness.datasets import Splits, find_dataset

CSV = find_dataset("csv")
RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(100, 2))
COUNTS = RNG.integers(-400, 400, (100, 2))
OPTIONS = {"file": "mine.csv", "columns": ["b", "a"]}


def text(values, header="time,a,b"):
    lines = [f"2026-01-{row % 30 + 1:02},{a!r},{b!r}" for row, (a, b) in enumerate(values.tolist())]
    return "\n".join([header, *lines]) + "\n"


def load(store, content, **options) -> Splits:
    (store.root / "mine.csv").write_text(content)
    CSV.check(store, OPTIONS | options)
    return CSV.load(store, OPTIONS | options)


def test_rows_are_vectors_in_the_order_of_the_options(store):
    splits = load(store, text(VALUES))
    assert splits.shape == (2, 1) and [len(part) for part in splits.parts().values()] == [80, 10, 10]
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])
    assert not splits.lattice and splits.unit == "nats_per_dim"
    assert "vectors of 2 columns" in splits.description and "of 100 rows, in order" in splits.description
    shuffled = load(store, text(VALUES), shuffle=True)
    assert not np.array_equal(shuffled.train, splits.train)
    every = np.concatenate(list(shuffled.parts().values()))[..., 0]
    np.testing.assert_array_equal(np.sort(every, axis=0), np.sort(VALUES[:, ::-1], axis=0))


def test_windows_stay_within_their_part(store):
    splits = load(store, text(COUNTS), length=8, stride=2, shares=[0.6, 0.2, 0.2])
    assert splits.shape == (2, 8) and splits.lattice and [step for step, _ in splits.steps] == [1.0, 1.0]
    for part, first, last, stride in (
        (splits.train, 0, 60, 2),
        (splits.validation, 60, 80, 8),
        (splits.test, 80, 100, 8),
    ):
        expected = [COUNTS[begin : begin + 8, ::-1].T for begin in range(first, last - 7, stride)]
        np.testing.assert_array_equal(part, np.array(expected))


def test_a_file_without_a_header_and_values_of_three_decimals(store):
    lines = "\n".join(f"{a / 1000:.3f}, {b}" for a, b in COUNTS)
    splits = load(store, f"{lines}\n\n", columns=2, header=False)
    assert [step for step, _ in splits.steps] == pytest.approx([0.001, 1])
    np.testing.assert_array_equal(splits.test[..., 0], COUNTS[90:])


def test_counts_of_a_stated_step_may_have_been_rounded_to_three_decimals(store):
    """The cells are those of the counts: over cells of the decimals the noise would leave gaps."""
    steps = np.array([0.030459, 0.06698])
    values = np.round(COUNTS * steps, 3).astype("f4").astype(float)  # float32 numbers with the digits of float64
    stated = load(store, text(values), step=steps[::-1].tolist())
    assert [step for step, _ in stated.steps] == steps[::-1].tolist()
    np.testing.assert_array_equal(np.concatenate(list(stated.parts().values()))[..., 0], COUNTS[:, ::-1])
    with pytest.raises(DataError, match=r"is not a multiple of the step 0\.0303 from"):
        load(store, text(values), step=[0.06698, 0.0303])


GOOD = text(VALUES)
FAULTS = {
    "text": (GOOD.replace(repr(float(VALUES[3, 1])), "high"), {}, "line 5, column 'b': 'high' is not a finite number"),
    "empty": (GOOD.replace(repr(float(VALUES[3, 0])), ""), {}, "line 5, column 'a': '' is not a finite number"),
    "infinite": (GOOD.replace(repr(float(VALUES[0, 0])), "inf"), {}, "line 2, column 'a': 'inf' is not"),
    "long line": (GOOD + "2026-02-01,1.0,2.0,3.0\n", {}, "line 102 has 4 cells, and the header has 3"),
    "short line": (GOOD + "2026-02-01,1.0\n", {}, "line 102 has 2 cells, and the header has 3"),
    "no header": (GOOD, {"columns": 3, "header": False}, "line 1, column 1: 'time'.* 100 more: is not"),
    "no rows": ("time,a,b\n", {}, "has no rows below line 1"),
    "nothing": ("", {}, "has no rows"),
    "unknown": (GOOD, {"columns": ["A"]}, "has no column 'A' in line 1; did you mean a"),
    "twice": (text(VALUES, "a,a,b"), {}, "line 1 has 2 columns 'a'; rename them"),
    "another number": (GOOD, {"columns": 2}, "has 3 columns, and columns = 2 takes all; name some"),
    "few rows": (GOOD, {"length": 11}, "validation has 10 of 100 rows, too few for a window of 11"),
    "wrong step": (GOOD, {"step": 0.5}, "is not a multiple of the step 0.5"),
    "a folder": (None, {}, "it is a folder"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_that_names_the_file(store, name):
    content, options, message = FAULTS[name]
    if content is None:
        (store.root / "mine.csv").mkdir()
    with pytest.raises(DataError, match=message) as caught:
        CSV.load(store, OPTIONS | options) if content is None else load(store, content, **options)
    assert str(caught.value).startswith(f"csv: {store.root / 'mine.csv'}") and "\n" not in str(caught.value)


WRITTEN = {
    "a byte order mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "Latin-1": lambda text: text.replace("time", "jährlich").encode("latin-1"),
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "semicolons": lambda text: text.replace(",", ";").encode(),
    "bars": lambda text: text.replace(",", "|").encode(),
    "comments": lambda text: f"# made by logger 3\n# a, c\n\n{text}".encode(),
    "names behind a mark": lambda text: f"# {text}".encode(),
    "blank lines": lambda text: f"\n\n{text}".encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "bzip2": lambda text: bz2.compress(text.encode()),
    "xz": lambda text: lzma.compress(text.encode()),
    "gzip, UTF-16, semicolons and a comment": lambda text: gzip.compress(
        f"# x\n{text}".replace(",", ";").encode("utf-16")
    ),
}


def archive(*members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for number, text in enumerate(members):
            file.writestr(f"{number}.csv", text)
    return content.getvalue()


@pytest.mark.parametrize("name", [*WRITTEN, "zip"])
def test_other_ways_to_write_the_same_table_give_the_same_numbers(store, name):
    content = archive(GOOD) if name == "zip" else WRITTEN[name](GOOD)
    (store.root / "mine.csv").write_bytes(content)
    splits = CSV.load(store, OPTIONS)
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])
    said = {"tabs": "cells separated by tabs", "Latin-1": "read as latin-1"}
    assert said.get(name, "vectors") in splits.description


UNREAD = {
    "a decimal comma": (GOOD.replace(",", ";").replace(".", ",").encode(), "has a decimal comma; write a point"),
    "spaces": (b"a  b\n1 2\n" * 40, "line 1 are separated by spaces, which are not read"),
    "other names and semicolons": (b"x;y\n1;2\n" * 40, "no column 'b' in line 1; .* separated by semicolons"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), "is UTF-16 without a byte order mark"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(50), "is compressed by zstd"),
    "binary": (bytes(range(256)) * 20, "is binary data, not text"),
    "half a gzip": (gzip.compress(GOOD.encode())[:200], "cannot be decompressed"),
    "a damaged gzip": (gzip.compress(GOOD.encode())[:40] + bytes(400), "cannot be decompressed"),
    "two in a zip": (archive(GOOD, GOOD), "a zip archive of 2 files"),
    "half a UTF-16": (GOOD.encode("utf-16")[:-1], "is no utf-16 text"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_is_named(store, name):
    content, message = UNREAD[name]
    (store.root / "mine.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        CSV.load(store, OPTIONS)


def test_a_small_file_that_unpacks_to_much_is_refused(store, monkeypatch):
    (store.root / "mine.csv").write_bytes(gzip.compress(GOOD.encode() + bytes(1 << 20)))
    monkeypatch.setattr("harness.datasets._values.text_tables.available_memory", lambda: 1 << 20)
    with pytest.raises(DataError, match="has more than 256 KiB of text, 25% of the available memory"):
        CSV.load(store, OPTIONS)


def test_row_names_without_a_name_of_their_own_are_refused(store):
    rows = "".join(f'"{row}",{a!r},{b!r}\n' for row, (a, b) in enumerate(VALUES.tolist()))
    with pytest.raises(DataError, match="line 2, line 3, line 4 and 97 more: has 3 cells, and the header has 2"):
        load(store, f'"a","b"\n{rows}')
    short = GOOD.replace("time,a,b", "a,b,time,note")  # a ragged row is no missing cell, not of unused columns either
    with pytest.raises(DataError, match="has 3 cells, and the header has 4"):
        load(store, short, missing="drop")


def test_all_faults_are_in_one_message_with_their_number_and_first_places(store):
    lines = GOOD.splitlines()
    lines[3] = "2026-01-03,high,1"
    lines[5:9] = ["2026-01-05,,2"] * 4
    lines.append("2026-02-01,1")
    with pytest.raises(DataError) as caught:
        load(store, "\n".join(lines))
    first, *others = str(caught.value).split("\n  ")
    assert first == f"csv: {store.root / 'mine.csv'}: 6 faults"
    assert others[0] == "line 4, column 'a': 'high' is not a finite number; fill such cells, or leave the line out"
    places = ", ".join(f"line {line}, column 'a': ''" for line in (6, 7, 8))
    assert others[1].startswith(f"{places} and 1 more: is not") and others[1].endswith("or say missing: drop")
    assert others[2] == "line 102 has 2 cells, and the header has 3"


def test_rows_and_windows_with_a_missing_cell_are_dropped_on_request_and_counted(store):
    holes = [3, 40, 41]
    lines = text(COUNTS).splitlines()
    for row, cell in zip(holes, ("", "NA", "nan"), strict=True):
        lines[row + 1] = f"2026-01-01,{cell},7"
    content = "\n".join(lines)
    vectors = load(store, content, missing="drop")
    kept = np.delete(COUNTS[:, ::-1], holes, axis=0)
    np.testing.assert_array_equal(np.concatenate(list(vectors.parts().values()))[..., 0], kept)
    assert vectors.left_out == ("dropped: 3 of 100 rows with a missing cell",)
    windows = load(store, content, missing="drop", length=8, stride=2, shares=[0.6, 0.2, 0.2])
    begins = [begin for begin in range(0, 53, 2) if not any(begin <= hole < begin + 8 for hole in holes)]
    np.testing.assert_array_equal(windows.train, np.array([COUNTS[begin : begin + 8, ::-1].T for begin in begins]))
    assert windows.left_out[0].endswith(f"and with them {27 - len(begins)} windows")
    with pytest.raises(DataError, match="each of its 40 rows has a missing cell"):
        load(store, "time,a,b\n" + "1,,2\n" * 40, missing="drop")


def test_a_lattice_that_is_too_fine_to_be_found_is_named(store):
    fine = np.round(np.linspace(-40, 40, 100) + RNG.normal(size=100) / 100, 3)
    with pytest.raises(DataError, match=r"others on none of at most 65,536 points \(channel 1 has a step of 0.001"):
        load(store, text(np.stack([fine, COUNTS[:, 0] / 10], axis=1)))
    assert (
        "must be stated as `step`" in load(store, text(np.stack([fine, fine**3], axis=1)).replace("e-", "0")).no_floor
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["a", "a"]}, "names a column twice"),
        ({"header": False}, "should be true for columns with names"),
        ({"length": 4, "shuffle": True}, "should be false for windows"),
        ({"shares": [0.8, 0.1, 0.2]}, "should sum to at most 1"),
        ({"shares": [0.8, 0.2]}, "shares"),
        ({"step": [0.1, 0.1, 0.1]}, "for 2 channels"),
    ],
)
def test_wrong_options(options, message):
    [(name, fault)] = CSV.option_errors(OPTIONS | options)
    assert message in fault and name.partition(".")[0] in options
