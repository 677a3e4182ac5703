"""Faults of the section `tuning:`, each one message with its place."""

import re

import pytest
from toys import write_suite

from harness.core.errors import SuiteError
from harness.planning.settle import load_suite

RATE = "training.learning_rate: {low: 1e-3, high: 1e-1, scale: log}"


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "words"),
    [
        ("  candidates: 3", "  candidates: -1", 8, 15, "the number -1 must be at least 0"),
        ("  candidates: 3", "  candidates: 1", 8, 15, "1 candidate leaves nothing to choose"),
        (RATE, "flow.width: [8, 16]", 10, 10, "'flow.width' cannot be tuned"),
        (RATE, "", 8, 3, "nothing is to be tuned for conv1x1; add a space"),
        ("  candidates: 3", "  candidates: 3\n  seed: 1", 9, 3, "1 is also a seed of the final training"),
        ("training.learning_rate:", "training.learnig_rate:", 10, 10, "did you mean training.learning_rate"),
        ("training.learning_rate:", "training.steps:", 10, 10, "'training.steps' cannot be tuned"),
        ("low: 1e-3", "lo: 1e-3", 10, 35, "unknown key 'lo' of a range; did you mean low?"),
        ("low: 1e-3", "low: 1", 10, 35, "low 1 must be less than high 0.1"),
        ("low: 1e-3", "low: 0", 10, 35, "low 0 must be greater than 0 on a logarithmic scale"),
        (RATE, "training.clip_norm: [1.0, -2.0]", 10, 31, "training.clip_norm: the number -2.0 must be greater than 0"),
        (RATE, "flow.steps: [1, 20000]", 10, 23, "tuning.space: flow.steps: the number 20000 must be at most 10000"),
        (
            RATE,
            "training.warmup: {low: 4, high: 8.5}",
            10,
            28,
            "training.warmup: expected a whole number, got the number",
        ),
        (RATE, "training.warmup: [4]", 10, 28, "a list of choices needs at least two values"),
        ("{initialisation:", "{initialisaton:", 6, 59, "did you mean initialisation?"),
        ("[identity, rotation]", "identity", 6, 60, "layers.butterfly.tune.initialisation: expected a list of values"),
        ("tune: {initialisation: [identity, rotation]}", "tune: true", 6, 43, "or false for a layer that is not tuned"),
        ("  steps: 2", "  steps: 5", 9, 10, "tuning.steps: 5 is more than the 4 steps of the final training"),
        ("{digits: {}}", "{digits: {tuning: {steps: 7}}}", 16, 41, "7 is more than the 4 steps"),
    ],
)
def test_each_fault_is_one_message_with_its_place(tuned, tmp_path, old, new, line, column, words):
    path = write_suite(tmp_path, tuned, old, new)
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    match = re.fullmatch(rf"{re.escape(str(path))}:(\d+):(\d+): (.+)", str(caught.value))
    assert match and (int(match[1]), int(match[2])) == (line, column) and words in match[3], str(caught.value)


def test_suites_of_other_kinds_do_not_tune(tmp_path):
    path = tmp_path / "counted.yaml"
    head = "suite: t\nkind: parameters\ntitle: T\nlayers: {conv1x1: {}}\ntuning: {candidates: 2}\n"
    path.write_text(head + "profiles: {quick: {widths: [8], datasets: {digits: {}}}}\n")
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    assert str(caught.value).startswith(f"{path}:5:1: unknown key 'tuning'; ")
