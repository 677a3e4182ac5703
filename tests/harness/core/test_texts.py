"""Texts of third-party code are bounded and printable wherever they go."""

import io

import pandas as pd
import pytest

from harness.core.records import blank_record, read_record, write_record
from harness.core.run_options import RunOptions
from harness.core.settings import FlowSettings, LayerRef
from harness.core.texts import LONGEST, LONGEST_LOGGED, LONGEST_NOTE, bounded
from harness.execution.trial import execute
from harness.kinds.parameters.trial import ParametersTrial
from harness.reporting.frame import csv_bytes

TRIAL = ParametersTrial(
    suite="s", profile="quick", label="d", shape=(2, 4), layer=LayerRef(row="one", layer="conv1x1"), flow=FlowSettings()
)
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \r\x00 \u202e a\ud800b"
SHOWN = "\\x1b[31mred\\x1b]0;title\\x07 \\r\\x00 \\u202e a\\ud800b"


class Odd(Exception):
    def __str__(self):
        raise SystemExit(3)


def raised(error):
    def run(trial, root, out, progress, checkpoints):
        raise error

    return run


def test_a_text_is_cut_and_its_control_characters_are_shown():
    assert bounded("as it is: ± é\n\ttab") == "as it is: ± é\n\ttab"
    assert bounded(HOSTILE) == SHOWN
    assert bounded("x" * 10_000_000) == "x" * LONGEST + "… (10,000,000 characters in all)"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BaseException(), "BaseException"),
        (BaseException("bare"), "BaseException: bare"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Odd(), "Odd: a message that raises SystemExit"),
        (ValueError(HOSTILE), f"ValueError: {SHOWN}"),
        (type("=HYPERLINK(", (Exception,), {})("x"), "=HYPERLINK(: x"),
    ],
)
def test_whatever_a_layer_raises_is_explained_in_its_record(tmp_path, capsys, error, reason):
    record = execute(TRIAL, RunOptions(tmp_path), {}, lambda *_: None, raised(error))
    assert read_record(tmp_path / "records" / f"{TRIAL.id}.json") == record
    assert record.status == "error" and record.reason.removesuffix(")").partition(" (test_texts.py:")[0] == reason
    assert type(error).__name__ in record.notes["traceback"] and type(error).__name__ in capsys.readouterr().out


def test_a_long_message_is_in_the_log_and_bounded_in_the_record(tmp_path, capsys):
    record = execute(TRIAL, RunOptions(tmp_path), {}, lambda *_: None, raised(ValueError("x" * (10 << 20))))
    assert len(record.reason) <= LONGEST and len(record.notes["traceback"]) <= LONGEST_NOTE
    assert LONGEST_LOGGED - 1000 < capsys.readouterr().out.count("x") <= LONGEST_LOGGED
    assert (tmp_path / "records" / f"{TRIAL.id}.json").stat().st_size < 2 * LONGEST_NOTE


def test_every_text_of_a_record_is_bounded_when_it_is_written(tmp_path):
    record = blank_record(TRIAL, "error", HOSTILE)
    record.rows = [{"reason": HOSTILE}]
    record.notes = {"remark": "x" * 1_000_000, HOSTILE: ""}
    path = write_record(tmp_path, record)
    assert b"\x1b" not in path.read_bytes()
    record = read_record(path)
    assert record.reason == record.rows[0]["reason"] == SHOWN and SHOWN in record.notes
    assert LONGEST_NOTE < len(record.notes["remark"]) < LONGEST_NOTE + 50


def test_formulas_in_a_csv_are_texts_and_numbers_stay():
    texts = ["=1+1", "+1", "-1", "@a", "\tx", "'=1", "a\rb", "a=1", None]
    frame = pd.DataFrame(
        {
            "reason": pd.Series(texts, dtype="string"),
            "bits_per_dim": pd.Series([-1.5] * 9, dtype="Float64"),
            "layer": pd.Series([-1, *texts[1:]], dtype=object),
        }
    )
    written = pd.read_csv(io.BytesIO(csv_bytes(frame)), dtype=str, keep_default_na=False)
    assert written["reason"].tolist() == [*(f"'{text}" for text in texts[:5]), "'=1", "a\\rb", "a=1", ""]
    assert written["layer"].tolist()[:2] == ["-1", "'+1"] and set(written["bits_per_dim"]) == {"-1.5"}
