"""User tables in .csv files: vectors, windows, lattices, and one message for each fault."""

import gzip

import numpy as np
import pytest

from harness.core.errors import DataError, UserError
from harness.datasets import Splits, find_dataset
from harness.pipeline.data_remarks import examine

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
    placed = CSV.located(OPTIONS | options, None, store.root)
    CSV.check(store, placed)
    return CSV.load(store, placed)


def test_rows_are_vectors_in_the_order_of_the_options(store):
    splits = load(store, text(VALUES))
    assert splits.shape == (2, 1) and [len(part) for part in splits.parts().values()] == [80, 10, 10]
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])
    assert not splits.lattice and splits.unit == "nats_per_dim"
    assert "vectors of 2 columns, 100 rows" in splits.description and "0.1, in order" in splits.description
    shuffled = load(store, text(VALUES), shuffle=True)
    assert not np.array_equal(shuffled.train, splits.train)
    every = np.concatenate(list(shuffled.parts().values()))[..., 0]
    np.testing.assert_array_equal(np.sort(every, axis=0), np.sort(VALUES[:, ::-1], axis=0))


def test_windows_stay_within_their_part(store):
    splits = load(store, text(COUNTS), length=8, stride=2, shares=[0.6, 0.2, 0.2])
    assert splits.shape == (2, 8) and splits.lattice and [step for step, _ in splits.steps] == [1.0, 1.0]
    spans = ((0, 60, 2), (60, 80, 8), (80, 100, 8))
    for part, (first, last, stride) in zip(splits.parts().values(), spans, strict=True):
        expected = [COUNTS[begin : begin + 8, ::-1].T for begin in range(first, last - 7, stride)]
        np.testing.assert_array_equal(part, np.array(expected))


def test_a_file_without_a_header_and_values_of_three_decimals(store):
    lines = "\n".join(f"{a / 1000:.3f}, {b}" for a, b in COUNTS)
    splits = load(store, f"{lines}\n\n", columns=2, header=False)
    assert [step for step, _ in splits.steps] == pytest.approx([0.001, 1])
    np.testing.assert_array_equal(splits.test[..., 0], COUNTS[90:])


@pytest.mark.parametrize("separator", [",", " "])
def test_row_names_as_r_writes_them_are_not_used(store, separator):
    rows = [f'"car, {row} x"{separator}{a!r}{separator}{b!r}' for row, (a, b) in enumerate(VALUES.tolist())]
    splits = load(store, "\n".join([f'"a"{separator}"b"', *rows]), separator=separator)
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])


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


def written(row, column, cell):
    """Return the good table with another cell."""
    return GOOD.replace(repr(float(VALUES[row, column])), cell)


DROP, EVERY = {"missing": "drop"}, {"columns": None}
FAULTS = {
    "text": (written(3, 1, "high"), {}, "row 4, column 'b': 'high' is not a finite number; .* name the `columns` to"),
    "empty": (written(3, 0, ""), {}, "row 4, column 'a': '' is a missing cell; .*missing: drop"),
    "infinite": (written(0, 0, "inf"), {}, "row 1, column 'a': 'inf' is not"),
    "an underscore": (written(0, 0, "1_0"), {}, "row 1, column 'a': '1_0' is not"),
    "long line": (GOOD + "2026-02-01,1.0,2.0,3.0\n", {}, "line 102 has 4 cells, and the first has 3"),
    "short line": (GOOD + "2026-02-01,1.0\n", {}, "line 102 has 2 cells, and the first has 3; correct it"),
    "a short header": (GOOD.replace("time,a,b", "a,b"), DROP, "line 2 has 3 cells, and the first has 2; correct it"),
    "a short header of classes": ("kind,a\nhi,1.0,2.0\nhi,2.5,3.0\n", DROP, "texts without a name repeat"),
    "a last empty cell": ("time,a\n2026-01-01,1.0,\n", DROP, "line 2 has 3 cells, and the first has 2"),
    "a longer header": (GOOD.replace("time,a,b", "a,b,time,note"), DROP, "has 3 cells, and the first has 4"),
    "no header": (GOOD, {"columns": 3, "header": False}, "row 1, column column 1: 'time' is not"),
    "numbers for names": (GOOD.partition("\n")[2], EVERY, "has values in place of names"),
    "texts for names": ("lo,in,1.5\n" + "hi,in,2.5\nlo,out,3.5\n" * 20, EVERY, "values in place of names, such as lo"),
    "no numbers": ("a,b\nx,y\n", EVERY, "no column of numbers that vary; .*'a' .has texts such as 'x'"),
    "no rows": ("time,a,b\n", {}, "has 0 of 0 rows that can be read"),
    "nothing": ("", {}, "is empty"),
    "unknown": (GOOD, {"columns": ["A"]}, "has no column 'A'; did you mean a"),
    "twice": (text(VALUES, "a,a,b"), {}, "has 2 columns 'a'; rename them, or say header: false"),
    "another number": (GOOD, {"columns": 2}, "has 3 columns, and columns = 2 takes all; name some"),
    "few rows": (GOOD, {"length": 11}, "validation has 10 of 100 rows, and not 11 in a row"),
    "wrong step": (GOOD, {"step": 0.5}, "is not a multiple of the step 0.5"),
    "an open quote": (f'{GOOD}"{50_000 * "long, "}', {}, "line 102: cannot be split .* quote that is not closed"),
    "an open quote in the last row": ('a,b\n1,"2\n3,4\n', {}, "cannot be split .* quote that is not closed"),
    "a decimal comma": (GOOD.replace(",", ";").replace(".", ","), {"separator": ";"}, "has a decimal comma, or one"),
    "numbers with commas": ('a,b\n"1,234",1\n"2,345",2\n', EVERY, "'1,234' has a decimal comma, or one between tho"),
    "twice among all": (text(VALUES, "a,a,b"), EVERY, "has 2 columns 'a'; rename them"),
    "a comment": ("# mine\n" + GOOD, {}, "and the first has 1; correct it, or remove what is no row$"),
    "semicolons": (GOOD.replace(",", ";"), {}, r"no column 'b'; .* say separator: \";\"$"),
    "tabs": (GOOD.replace(",", "\t"), {"columns": [2]}, r"names number 2; .* say separator: \"\\t\"$"),
    "bars": (GOOD.replace(",", "|"), EVERY, r"no column of numbers that vary; .* say separator: \"\|\"; col"),
    "commas": (GOOD, {"separator": ";"}, r"no column 'b'; .* say separator: \",\"$"),
    "decimal commas": (GOOD.replace(",", ";").replace(".", ","), {}, r"the first has 1; .* say separator: \";\"$"),
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
    "a byte order mark": ("mine.csv", {}, GOOD.encode("utf-8-sig")),
    "semicolons": ("mine.csv", {"separator": ";"}, GOOD.replace(",", ";").encode()),
    "blank lines and spaces": ("mine.csv", {}, f"\n\n{GOOD}\n".replace(",", ", ").encode()),
    "gzip": ("mine.csv.gz", {}, gzip.compress(GOOD.encode())),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_other_ways_to_write_the_same_table_give_the_same_numbers(store, name):
    file, options, content = WRITTEN[name]
    (store.root / file).write_bytes(content)
    splits = CSV.load(store, OPTIONS | options | {"file": file})
    np.testing.assert_array_equal(np.concatenate(list(splits.parts().values()))[..., 0], VALUES[:, ::-1])


UNREAD = {
    "UTF-16": ("mine.csv", GOOD.encode("utf-16"), "is not text in UTF-8"),
    "Latin-1": ("mine.csv", GOOD.replace("time", "jährlich").encode("latin-1"), "is not text in UTF-8"),
    "UTF-16 without a mark": ("mine.csv", GOOD.encode("utf-16-le"), "line 102 has 1 cells"),
    "binary": ("mine.csv", bytes(range(256)) * 20, "is not text in UTF-8"),
    "half a gzip": ("mine.csv.gz", gzip.compress(GOOD.encode())[:200], "cannot be decompressed"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_not_read_is_named(store, name):
    file, content, message = UNREAD[name]
    (store.root / file).write_bytes(content)
    with pytest.raises(DataError, match=message):
        CSV.load(store, OPTIONS | {"file": file})


def located(store, content, **options):
    """Return the options of a file in the data root, and their columns."""
    (store.root / "mine.csv").write_text(content)
    placed = CSV.located({"file": "mine.csv", **options}, None, store.root)
    return placed, placed["columns"]


def test_all_columns_of_numbers_are_taken_unless_some_are_named(store):
    lines = [f"{row},{a!r},x,,5,{b!r},{row % 3}" for row, (a, b) in enumerate(VALUES.tolist())]
    lines[7] = lines[7].replace(",x,", ",7,")
    content = "\n".join([",a b,kind,note,unit,c d,class", *lines])
    placed, columns = located(store, content, groups="class")
    assert columns == ["a b", "c d"] and CSV.shape(placed) == (2, 1) and CSV.channels(placed) == ("a b", "c d")
    splits = CSV.loaded(store, placed)
    assert splits.left_out == (
        "columns that are not used: column 1 (has no name), 'kind' (has texts such as 'x'), 'note' (has mostly empty "
        "cells), 'unit' (has one value), "
        "'class' (the option groups)",
    )
    named = CSV.loaded(store, {"file": "mine.csv", "columns": ["a b"]})
    assert "'c d' (not named), 'class' (not named)" in named.left_out[0]


def test_whole_numbers_and_categories_are_noted_and_a_number_of_the_row_is_a_warning(store):
    rows = [f"{row + 7},{row % 3},{a!r},{0.5 * (b > 0.9)}" for row, (a, b) in enumerate(VALUES.tolist())]
    splits = CSV.loaded(store, located(store, "\n".join(["id,class,a,gate", *rows]), noise=[1, 1, None, 1])[0])
    share = (VALUES[:, 1] <= 0.9).mean()
    noted = f"'class' (3 values, 34% are 0), 'gate' (2 values, {share:.0%} are 0)"
    assert splits.left_out == (f"columns of whole numbers or few values: {noted}",)
    [warning] = splits.warnings
    assert warning.startswith("'id': another whole number in each row")
    assert [remark.warning for remark in examine(splits) if remark.text == warning] == [True]


def test_numbers_are_rounded_as_python_rounds_them_or_refused(store):
    digits = [f"{value:.17g}" for value in np.random.default_rng(3).normal(size=400) * 1e-7]
    splits = load(
        store, "\n".join(["b,a", *(f"{first},{second}" for first, second in zip(digits, digits[::-1], strict=True))])
    )
    read = np.concatenate(list(splits.parts().values()))[:, 0, 0]
    assert read.tolist() == [float(text) for text in digits]
    with pytest.raises(DataError, match="column 'a' has whole numbers beyond 2\\^53"):
        load(store, "b,a\n" + "\n".join(f"{row},{2**53 + row}" for row in range(40)))


def test_windows_across_people_are_a_warning(store):
    table = text(VALUES, header="visit,a,b").splitlines()
    rows = [f"{row // 20},{line}" for row, line in enumerate(table[1:])]
    for name, warned in (("patient_id", True), ("temperature", False)):
        splits = load(store, "\n".join([f"{name},{table[0]}", *rows]), length=4)
        joined = [text for text in splits.warnings if text.startswith("windows join rows")]
        assert len(joined) == warned and all("different 'patient_id'; say groups:" in text for text in joined)
    grouped = load(store, "\n".join([f"patient_id,{table[0]}", *rows]), length=4, groups="patient_id")
    assert not any("windows join" in text for text in grouped.warnings)


def test_a_value_that_stands_for_a_missing_one_is_named_beside_a_lattice(store):
    values = [f"{-9999 if row % 4 == 0 else round(value, 3)},{row % 2}" for row, value in enumerate(VALUES[:, 0])]
    with pytest.raises(
        DataError, match=r"'b' lies on .* once in 'a' \(.*; 25% are -9999\).*missing: \[-9999.0\]"
    ) as caught:
        load(store, "\n".join(["a,b", *values]), shuffle=True)
    assert caught.value.hint == {"missing": [-9999.0]}
    noisy = load(store, "\n".join(["a,b", *values]), shuffle=True, noise="last_digit")
    assert "'a': 25% are -9999, which may stand for a missing value: missing: [-9999]" in noisy.warnings


@pytest.mark.parametrize(
    ("missing", "cells"), [([-9999], ["-9999", "-9999.0", "-9999"]), ([-9999, "."], [".", "-9.999e3", "."])]
)
def test_stated_values_stand_for_missing_ones_and_are_counted(store, missing, cells):
    lines = text(VALUES).splitlines()
    for place, cell in zip((5, 50, 60), cells, strict=True):
        lines[place] = f"2026-01-01,{cell},0.5"
    splits = load(store, "\n".join(lines), missing=missing)
    assert sum(map(len, splits.parts().values())) == 97 and "3 of 100 rows" in splits.left_out[0]
    assert min(part.min() for part in splits.parts().values()) > -10
    with pytest.raises(DataError, match="row 5, column 'a'" if "." in cells else "are -9999"):
        load(store, "\n".join(lines))


def test_columns_by_number_where_there_is_no_header(store):
    lines = "\n".join(f"{a!r},g,{b!r}" for a, b in VALUES.tolist())
    splits = load(store, lines, columns=[3, 1], header=False)
    np.testing.assert_array_equal(splits.train[:, :, 0], VALUES[:80, [1, 0]])
    with pytest.raises(DataError, match="number 4"):
        load(store, lines, columns=[4], header=False)
    assert CSV.channels({"file": "mine.csv", "columns": [3, 1], "header": False}) == ("column 3", "column 1")


def test_all_columns_without_a_header_are_numbers(store):
    assert located(store, "\n".join(f"{a!r},g,{b!r}" for a, b in VALUES.tolist()), header=False)[1] == [1, 3]
    years = "1990,1991,1992\n" + "\n".join(f"{a!r},{b!r},{a + b!r}" for a, b in VALUES.tolist())
    assert located(store, years)[1] == ["1990", "1991", "1992"]


def test_columns_of_a_file_that_is_not_there_are_asked_for():
    with pytest.raises(UserError, match="neither beside the suite nor in the data root"):
        CSV.event_shape(CSV.located({"file": "mine.csv"}, None, None))


def test_thousands_of_columns_are_read(store):
    names = [f"sensor {number}" for number in range(3000)]
    rows = np.random.default_rng(0).normal(size=(30, 3000)).tolist()
    content = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in rows)])
    placed, columns = located(store, content)
    assert columns == names
    np.testing.assert_array_equal(CSV.loaded(store, placed).train[..., 0], rows[:24])


def test_rows_and_windows_with_a_missing_cell_are_dropped_on_request_and_counted(store):
    holes = [3, 40, 41]
    lines = text(COUNTS).splitlines()
    for row, cell in zip(holes, ("", "NA", "nan"), strict=True):
        lines[row + 1] = f"2026-01-01,{cell},7"
    content = "\n".join(lines)
    vectors = load(store, content, missing="drop")
    kept = np.delete(COUNTS[:, ::-1], holes, axis=0)
    np.testing.assert_array_equal(np.concatenate(list(vectors.parts().values()))[..., 0], kept)
    assert vectors.left_out[0] == "dropped: 3 of 100 rows with a missing cell"
    windows = load(store, content, missing="drop", length=8, stride=2, shares=[0.6, 0.2, 0.2])
    begins = [begin for first, last in ((4, 40), (42, 60)) for begin in range(first, last - 7, 2)]
    np.testing.assert_array_equal(windows.train, np.array([COUNTS[begin : begin + 8, ::-1].T for begin in begins]))
    with pytest.raises(DataError, match="each of its 40 rows has a missing cell"):
        load(store, "time,a,b\n" + "1,,2\n" * 40, missing="drop")


def test_a_lattice_beside_a_too_fine_one_is_named(store):
    fine = np.round(np.linspace(-40, 40, 100) + RNG.normal(size=100) / 100, 3)
    with pytest.raises(DataError, match=r"'b' lies on a lattice of step 0.1 and others on none, .* at most 65,536 poi"):
        load(store, text(np.stack([fine, COUNTS[:, 0] / 10], axis=1)))


def test_a_column_with_few_texts_is_one_of_numbers_with_mistakes(store):
    assert located(store, written(3, 1, "high"))[1] == ["a", "b"]
