"""Times and amounts as users write them."""

import pytest

from harness.core.run_options import parse_bytes, parse_seconds, parse_timeout, shown_bytes, shown_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (90, 90), (1.5, 1.5), ("90s", 90), ("30 min", 1800), ("2h", 7200), (" 1.5 h ", 5400), ("1d", 86400)],
)
def test_times(text, seconds):
    assert parse_seconds(text) == parse_timeout(text) == seconds


@pytest.mark.parametrize(
    ("text", "amount"),
    [("4GiB", 4 << 30), ("1.5 GiB", 3 << 29), ("500MB", 500_000_000), (1 << 30, 1 << 30), ("16 GB", 16_000_000_000)],
)
def test_amounts(text, amount):
    assert parse_bytes(text) == amount


WRONG = {
    parse_seconds: ["", "soon", "-1", "1e3", "5 weeks", "nan", True, None, [], float("inf"), "9" * 400, 10**400],
    parse_bytes: ["4", "4 GIB", "4GiB please", None, [], 1e999, float("nan"), "9" * 400, True, "0.1 kB", -5],
}


@pytest.mark.parametrize(("parse", "value"), [(parse, value) for parse, values in WRONG.items() for value in values])
def test_what_is_none_is_refused(parse, value):
    with pytest.raises(ValueError, match=r"such as '(30 min|4GiB)'|at least 0"):
        parse(value)


def test_bounds_of_times():
    assert parse_seconds("9000 d") == 9000 * 86_400 and parse_seconds("0") == 0
    with pytest.raises(ValueError, match="more than 30 years"):
        parse_seconds("12000 d")
    with pytest.raises(ValueError, match="leaves a trial no time"):
        parse_timeout("0")


def test_shown():
    texts = {0.04: "0.04 s", 1.5: "1.5 s", 45: "45 s", 600: "10 min", 12_000: "3 h 20 min", 7200: "2 h"}
    texts[200_000] = "2 d 7 h"
    assert {value: shown_seconds(value) for value in texts} == texts
    assert [shown_bytes(value) for value in (1 << 32, 3 << 19, 2000)] == ["4.0 GiB", "1.5 MiB", "2 KiB"]
