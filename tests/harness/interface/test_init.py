"""`init` writes a suite that a run accepts, for each form of data, and says why it chose what it chose."""

import os

import numpy as np
import pytest
import yaml
from PIL import Image

from harness.core.errors import UserError
from harness.datasets._values.tables import proposed_options
from harness.interface import init as module
from harness.interface.init import init
from harness.planning.settle import load_suite

DRAW = np.random.default_rng(0)


def table(path, **columns):
    path.write_text(
        "\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))])
    )
    return path


def four_digits(folder):
    return table(folder / "few.csv", a=np.char.mod("%.4g", DRAW.lognormal(3, 3, 400)), b=DRAW.normal(size=400))


def numbered(folder):
    return table(folder / "numbered.csv", row=range(7, 307), a=DRAW.normal(size=300), b=DRAW.normal(size=300))


def people(folder):
    rate, level = DRAW.normal(size=(2, 400))
    return table(folder / "Long Table.csv", patient_id=np.repeat(range(20), 20), rate=rate, level=level)


def split_by_names(folder):
    a, b = DRAW.normal(size=(2, 200))
    return table(folder / "stated.csv", set=["Train", "train", "val", "TEST"] * 50, a=a, b=b)


def without_header(folder):
    path = folder / "uci.data"
    path.write_text("\n".join(f"{a};{b};yes" for a, b in DRAW.normal(size=(200, 2))))
    return path


def texts_without_header(folder):
    words = DRAW.choice(["low", "high"], (200, 2)).tolist()
    (folder / "car.data").write_text("\n".join(f"{a},{b},{DRAW.normal()},{DRAW.normal()}" for a, b in words))
    return folder / "car.data"


def with_another_ending(folder):
    path = folder / "keel.dat"
    path.write_text("\n".join(f"{a}, {b}, yes" for a, b in DRAW.normal(size=(200, 2))))
    return path


def aligned_columns(folder):
    (folder / "aligned.txt").write_text("".join(f"{a:12.6f}  {b:.6f}\n" for a, b in DRAW.normal(size=(200, 2)) + 9))
    return folder / "aligned.txt"


def with_holes(folder):
    return table(folder / "holes.csv", time=range(300), a=["", *DRAW.normal(size=299)], b=DRAW.normal(size=300))


def series(folder):
    return table(folder / "river.csv", year=range(1800, 2400), flow=DRAW.normal(size=600))


def r_names(folder):
    lines = [f'"person, {row}" {a} {b}' for row, (a, b) in enumerate(DRAW.normal(size=(200, 2)))]
    (folder / "r.txt").write_text("\n".join(['"height" "weight"', *lines]))
    return folder / "r.txt"


def name_of_two_lines(folder):
    lines = [f"{a},{b}" for a, b in DRAW.normal(size=(200, 2))]
    (folder / "two.csv").write_text("\n".join(['"height\nin cm",weight', *lines]))
    return folder / "two.csv"


def arrays(folder):
    np.savez(folder / "x.npz", X=DRAW.normal(size=(200, 5)), y=np.zeros(200))
    return folder / "x.npz"


def given_splits(folder):
    images = DRAW.integers(0, 255, (90, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "med.npz", train_images=images[:60], test_images=images[60:])
    return folder / "med.npz"


def windows(folder):
    np.savez(folder / "w.npz", x=DRAW.normal(size=(120, 16, 2)), subject=np.repeat(range(12), 10))
    return folder / "w.npz"


def pictures(folder):
    (folder / "pictures").mkdir()
    for number in range(40):
        pixels = DRAW.integers(0, 255, (20, 24), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{number}.png")
    return folder / "pictures"


SEQUENCE = {"kind": "sequence", "layout": "channels_last", "shape": [2, 16]}
ARRAYS = {"arrays": ["train_images", "test_images"], "layout": "channels_last", "shape": [3, 8, 8]}
CASES = [
    (four_digits, "few", "csv", {"file": "few.csv", "shuffle": True, "noise": "last_digit"}),
    (numbered, "numbered", "csv", {"file": "numbered.csv", "time": "row", "shuffle": True}),
    (people, "long-table", "csv", {"file": "Long Table.csv", "groups": "patient_id"}),
    (split_by_names, "stated", "csv", {"file": "stated.csv", "split": "set"}),
    (without_header, "uci", "csv", {"file": "uci.data", "separator": ";", "header": False, "shuffle": True}),
    (texts_without_header, "car", "csv", {"file": "car.data", "header": False, "shuffle": True}),
    (with_another_ending, "keel", "csv", {"file": "keel.dat", "header": False, "shuffle": True}),
    (aligned_columns, "aligned", "csv", {"file": "aligned.txt", "separator": " ", "header": False, "shuffle": True}),
    (with_holes, "holes", "csv", {"file": "holes.csv", "time": "time", "missing": "drop"}),
    (series, "river", "csv", {"file": "river.csv", "time": "year", "length": 8}),
    (r_names, "r", "csv", {"file": "r.txt", "separator": " ", "shuffle": True}),
    (name_of_two_lines, "two", "csv", {"file": "two.csv", "shuffle": True}),
    (arrays, "x", "npz", {"file": "x.npz", "array": "X", "shuffle": True, "kind": "sequence", "shape": [5, 1]}),
    (given_splits, "med", "npz", {"file": "med.npz", **ARRAYS}),
    (windows, "w", "npz", {"file": "w.npz", "groups": "subject", **SEQUENCE}),
    (pictures, "pictures", "images", {"folder": "pictures", "shape": [1, 16, 16], "resize": True}),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory of commands to which a step takes 0.05 s."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_seconds_of_a_step", lambda suite, root: 0.05)
    return tmp_path


@pytest.mark.parametrize(("make", "name", "dataset", "options"), CASES, ids=[name for _, name, *_ in CASES])
def test_a_suite_holds_the_options_that_load_the_data(folder, capsys, make, name, dataset, options):
    path = init(make(folder))
    assert path.name == f"{name}.yaml"
    written = yaml.safe_load(path.read_text())
    found = written["profiles"]["quick"]["datasets"][name]
    found.pop("preprocessing", None)
    assert found == {"data": dataset, "options": options}
    assert load_suite(path, shapes=True).profile_names == ["smoke", "quick", "local"]
    said = capsys.readouterr().out
    assert f"data: {dataset}, " in said and f"next: python -m harness run {name}.yaml" in said
    assert ("is left out of the values" in said) == ("time" in options)
    steps = written["profiles"]["quick"]["training"]["steps"]
    assert steps == round(min(max(600 * (os.cpu_count() or 1) / (5 * 5 * 2.25) / 0.05, 100), 2000), -2)


def test_a_line_may_be_longer_than_a_cell_of_another_separator(folder):
    rows = ["\t".join(map(str, row)) for row in DRAW.normal(size=(20, 1400)).tolist()]
    (folder / "wide.tsv").write_text("\n".join(["\t".join(f"{place:0100}x" for place in range(1400)), *rows]))
    assert proposed_options(folder / "wide.tsv") == {"separator": "\t", "shuffle": True}


def test_recordings_of_many_gains_are_taken_in_physical_units(folder, monkeypatch, write_segment):
    roots = []
    monkeypatch.setattr(module, "_seconds_of_a_step", lambda suite, root: roots.append(root) or 0.05)
    for number in range(12):
        signals = {name: DRAW.integers(-900, 900, 4000) for name in ("PLETH", "ABP")}
        write_segment(folder / "people", f"p{number}", signals, gains={"PLETH": 100 + number})
    found = yaml.safe_load(init(folder / "people").read_text())["profiles"]["smoke"]["datasets"]["people"]
    assert found["data"] == "wfdb" and roots == [folder]
    assert found["options"] == {
        "records": "people/*",
        "channels": ["PLETH", "ABP"],
        "length": 1024,
        "split": "record",
        "values": "physical",
    }


@pytest.mark.parametrize(("file", "name"), [("2024.csv", "data-2024"), ("no.csv", "data-no"), ("µV.csv", "v")])
def test_a_name_that_yaml_would_read_otherwise_gets_a_prefix(folder, file, name):
    path = init(table(folder / file, a=DRAW.normal(size=100)))
    assert path.name == f"{name}.yaml" and load_suite(path).suite == name


def test_a_scale_follows_from_the_tails(folder):
    for name, values, expected in (
        ("normal", DRAW.normal(size=1000), None),
        ("outlier", np.append(DRAW.normal(size=999), 20.0), {"a": "standard"}),
        ("cauchy", DRAW.standard_cauchy(1000), {"a": "asinh"}),
    ):
        path = init(table(folder / f"{name}.csv", a=values, b=DRAW.normal(size=1000)))
        load_suite(path)
        assert yaml.safe_load(path.read_text())["profiles"]["smoke"]["datasets"][name].get("preprocessing") == expected


def test_what_cannot_be_read_is_refused_and_nothing_is_overwritten(folder):
    (folder / "words.csv").write_text("a,b\n" + "one,two\n" * 40)
    (folder / "mine.docx").write_text("")
    for ending in ("dat", "hea"):  # of a recording, whose folder is a data set
        (folder / f"record.{ending}").write_bytes(b"\xff\x00")
    for name, reason in (
        ("words.csv", "has no column of numbers"),
        ("mine.docx", "no data set takes it; give a table"),
        ("record.dat", "or a folder of WFDB records"),
        ("gone.csv", "there is no such file or folder"),
    ):
        with pytest.raises(UserError, match=reason):
            init(folder / name)
    assert not list(folder.glob("*.yaml"))
    (folder / "few.yaml").write_text("mine")
    with pytest.raises(UserError, match=r"few.yaml: exists; name another file with --out"):
        init(four_digits(folder))
    assert (folder / "few.yaml").read_text() == "mine"


@pytest.mark.system
def test_the_suite_of_a_table_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = init(four_digits(tmp_path), tmp_path / "own.yaml")
    assert path.exists() and "a training step of the slowest layer takes" in capsys.readouterr().out
