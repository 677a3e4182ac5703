"""Wrong options of every data set: each fault is at its option, with the value, the rule and the meaning."""

import re
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.datasets import Store, find_dataset

STORE = Store(root=None, cache=Path("no-cache"), offline=True)
RIGHT = {
    "csv": {"file": "mine.csv", "columns": ["b", "a"]},
    "npz": {"file": "mine.npz", "shape": [3, 8, 8]},
    "images": {"folder": "mine", "shape": [3, 6, 8]},
    "wfdb": {"records": ["r"], "length": 16, "gap_seconds": 0.4, "validation": 0.2, "test": 0.2},
}
SEQUENCE = {"shape": [2, 16], "kind": "sequence"}
NOISE = "should be one width above 0, or a list with a width or null for each channel"

FAULTS = [  # data set, options, the faulty one, its message
    ("waveforms", {"length": 0}, "length", r"waveforms: length = 0 should be greater than or equal to 16; it is"),
    ("waveforms", {"lenght": 256}, "lenght", r"no option 'lenght'; did you mean length\?"),
    ("waveforms", {"seed": True}, "seed", r"seed = True should be a valid integer"),
    ("patches", {"test": 105}, "test", r"test = 105 should be less than or equal to 104; it is .*tile"),
    ("digits", {"size": 8}, "size", r"digits: no option 'size'; "),
    ("mnist", {"root": "x"}, "root", r"mnist: no option 'root'"),
    ("mnist", {"validation": 60_000}, "validation", r"at most 59999"),
    ("mnist", {"train": 50_001}, "train", r"should be at most 50000"),
    ("cifar10", {"test": 10_001}, "test", r"should be at most 10000; it is the number of test images"),
    ("cifar10", {"validation": 0}, "validation", r"should be greater .*set apart for validation"),
    ("images", {"shape": [2, 6, 8]}, "shape", r"should be \[1, H, W\] or \[3, H, W\]"),
    ("images", {"resize": "yes"}, "resize", "should be a valid boolean"),
    ("npz", {"shape": [3, 8]}, "shape", r"should have 3 entries for kind: image"),
    ("npz", {"kind": "sequence"}, "shape", r"should have 2 entries for kind: sequence"),
    ("npz", SEQUENCE | {"pool": 2}, "pool", "should be left out: it is for kind: image"),
    (
        "npz",
        {"step": 0},
        "step",
        r"npz: step = 0 should be one number above 0, a list .*, or detect; it is the lattice",
    ),
    ("npz", {"groups": "s", "shuffle": True}, "shuffle", "should be left out with groups"),
    ("npz", {"noise": "last_digit"}, "noise", "last_digit is for csv"),
    *(
        ("npz", {"arrays": names}, "arrays", "it is the names of the arrays")
        for names in (["a"], ["a", "a"], [], [*"abcd"])
    ),
    ("npz", {"stratify": "y", "groups": "s"}, "stratify", "should be left out with groups"),
    ("npz", {"test_file": "t.npz", "shares": [0.8, 0.1, 0.1]}, "shares", "should be left out with test_file"),
    ("npz", {"validation_file": "v.npz"}, "validation_file", "should come with test_file"),
    ("csv", {"columns": ["a", "a"]}, "columns", "name nothing twice"),
    ("csv", {"columns": [1, 2], "header": True}, "header", "should be true for columns with names"),
    ("csv", {"columns": ["a", 2], "header": True}, "header", "should be true for columns with names"),
    ("csv", {"header": False}, "header", "false for numbers of columns"),
    ("csv", {"length": 4, "shuffle": True}, "length", "should be 1 with shuffle"),
    ("csv", {"shares": [0.8, 0.1, 0.2]}, "shares", "should sum to at most 1"),
    ("csv", {"shares": [0.8, 0.2]}, "shares", "it is the shares"),
    ("csv", {"step": 1, "noise": 1}, "noise", "should be left out with step"),
    *(("csv", {"noise": noise}, "noise", NOISE) for noise in (0, -1, "wide", [], [None], float("inf"), True)),
    ("csv", {"columns": None, "groups": "s", "header": False}, "header", "should be true for columns with names"),
    ("csv", {"groups": "s", "shuffle": True}, "shuffle", "should be left out with groups"),
    ("csv", {"split": "c", "groups": "d"}, "split", "should be left out with groups"),
    ("csv", {"split": "c", "shuffle": True}, "split", "should be left out with shuffle"),
    ("csv", {"test_file": "x.csv", "split": "c"}, "split", "should be left out with test_file"),
    ("csv", {"stratify": "c", "groups": "d"}, "stratify", "should be left out with groups"),
    ("csv", {"stratify": "c", "length": 8}, "length", "should be 1 with stratify, for vectors"),
    ("csv", {"validation_file": "x.csv"}, "validation_file", "should come with test_file"),
    ("csv", {"time": 3, "header": True}, "header", "true for columns with names"),
    ("wfdb", {"records": []}, "records", r"wfdb: records = \[\] "),
    ("wfdb", {"records": "r"}, "records", "records = 'r' should be a valid tuple; it is a list of WFDB records"),
    ("wfdb", {"channels": ["ABP", "ABP"]}, "channels", "name nothing twice"),
    ("wfdb", {"validation": 0.6, "test": 0.4}, "test", "test = 0.4 leaves nothing to train on beside validation"),
    ("wfdb", {"values": "physical"}, "values", "or come with split: record or folder"),
    ("mimic", {"patient": 1}, "patient", "patient = 1 should be 3000063, 3000393 or 3000397"),
]


@pytest.mark.parametrize(("name", "options", "at", "message"), FAULTS)
def test_wrong_options_are_reported_with_their_rule(name, options, at, message):
    dataset, options = find_dataset(name), RIGHT.get(name, {}) | options
    faults = dataset.option_errors(options)
    assert {option for option, _ in faults} == {at} and any(re.search(message, text) for _, text in faults)
    with pytest.raises(UserError) as caught:
        dataset.check(STORE, options)
    assert str(caught.value) == "\n".join(text for _, text in faults)


@pytest.mark.parametrize("name", RIGHT)
def test_user_datasets_name_their_required_options(name):
    needed = [option for option, field in find_dataset(name).options_model.model_fields.items() if field.is_required()]
    faults = dict(find_dataset(name).option_errors({}))
    assert needed and list(faults) == needed
    for option in needed:
        assert faults[option].startswith(f"{name}: the option {option!r} is missing; it is ")
