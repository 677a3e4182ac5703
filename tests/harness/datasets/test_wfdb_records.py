"""WFDB records of one or several segments, read in whole and in parts, and damaged ones."""

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets._signals.recordings import in_folder
from harness.datasets._signals.wfdb_records import read_recording, record_files

BOTH = ("PLETH", "ABP")
RNG = np.random.default_rng(0)


def noise(count):
    return RNG.integers(1, 100, count)


def files_of(folder, record="r", channels=BOTH):
    return record_files("set", record, in_folder("set", folder), channels)


def read(folder, *records, channels=BOTH):
    return read_recording("set", [files_of(folder, record, channels) for record in records or ("r",)], channels)


def placed(recording):
    """Return the recording as (C, length), with zeros in its holes."""
    values = np.zeros((len(recording.steps), recording.length), dtype=int)
    for stretch in recording.stretches:
        values[:, stretch.start : stretch.stop] = stretch.values
    return values


# Reading


@pytest.mark.parametrize(
    ("fmt", "bits"), [("16", 16), ("80", 8), ("24", 24), ("32", 32), ("516", 16), ("508", 8), ("524", 24)]
)
def test_values_are_converter_counts_without_invalid_samples_of_any_channel(fmt, bits, tmp_path, write_segment):
    import wfdb

    signals = {"II": noise(400), "ABP": noise(400), "PLETH": noise(400)}
    signals["PLETH"][100:110] = signals["ABP"][105:120] = signals["ABP"][399] = -(2 ** (bits - 1))
    signals["II"][300] = -(2 ** (bits - 1))  # not asked for
    header = write_segment(tmp_path, "r", signals, fmt, gains={"ABP": 20, "PLETH": 2000}, baselines={"ABP": -700})
    recording = read(tmp_path)
    assert [(stretch.start, stretch.stop) for stretch in recording.stretches] == [(0, 100), (120, 399)]
    for stretch in recording.stretches:
        assert stretch.values.dtype == (np.int16 if bits <= 16 else np.int32)
        span = slice(stretch.start, stretch.stop)
        np.testing.assert_array_equal(stretch.values, [signals["PLETH"][span], signals["ABP"][span]])
    assert recording.invalid == 21 and recording.length == 400 and recording.rate == 125
    assert recording.steps == ((1 / 2000, "NU"), (1 / 20, "mmHg"))
    physical = wfdb.rdrecord(str(header.with_suffix("")), channel_names=BOTH[::-1]).p_signal
    np.testing.assert_array_equal(np.isnan(physical).any(1), ~(placed(recording) != 0).any(0))
    for lattice, channel in zip(recording.lattices, ("PLETH", "ABP"), strict=True):
        by_wfdb = wfdb.rdrecord(str(header.with_suffix("")), channel_names=[channel]).p_signal[:100, 0]
        np.testing.assert_allclose(lattice.offset + lattice.step * signals[channel][:100], by_wfdb)


def test_channels_come_in_the_order_asked_for(tmp_path, write_segment):
    signals = {"PLETH": noise(100), "II": noise(100), "ABP": noise(100)}
    write_segment(tmp_path, "r", signals)
    np.testing.assert_array_equal(placed(read(tmp_path, channels=("ABP", "II"))), [signals["ABP"], signals["II"]])
    np.testing.assert_array_equal(placed(read(tmp_path, channels=("PLETH",))), [signals["PLETH"]])


def test_segments_with_both_channels_are_read_at_their_times(tmp_path, write_segment, write_record_of_segments):
    first, second = ({"PLETH": noise(200), "ABP": noise(200)} for _ in range(2))
    write_segment(tmp_path, "r_0001", {"II": noise(200), **first})
    write_segment(tmp_path, "r_0002", {"II": noise(50), "PLETH": noise(50)})
    write_segment(tmp_path, "r_0003", {"ABP": second["ABP"], "PLETH": second["PLETH"], "II": noise(200)})
    segments = [("~", 30), ("r_0001", 200), ("r_0002", 50), ("~", 1000), ("r_0003", 200)]
    write_record_of_segments(tmp_path, "r", segments, ["II", "PLETH", "ABP"])
    (tmp_path / "r_0002.dat").unlink()  # not needed, so not reported as missing
    files = files_of(tmp_path)
    names = [path.name for path in files.files]
    assert names == ["r.hea", "r_0001.hea", "r_0002.hea", "r_0003.hea", "r_0001.dat", "r_0003.dat"]
    recording = read(tmp_path)
    assert [(stretch.start, stretch.stop) for stretch in recording.stretches] == [(30, 230), (1280, 1480)]
    np.testing.assert_array_equal(recording.stretches[0].values, [first["PLETH"], first["ABP"]])
    np.testing.assert_array_equal(recording.stretches[1].values, [second["PLETH"], second["ABP"]])
    assert recording.length == 1480 and recording.invalid == recording.rescaled == 0


def test_headers_are_read_before_samples(tmp_path, write_segment, write_record_of_segments):
    asked = []

    def locate(file):
        asked.append(file)
        return in_folder("set", tmp_path)(file)

    write_segment(tmp_path, "r_0001", {"II": noise(200), "PLETH": noise(200)})
    write_record_of_segments(tmp_path, "r", [("r_0001", 200)], ["II", "PLETH"])
    with pytest.raises(DataError, match=r"r\.hea: no segment .* has PLETH and ABP together; .* II, PLETH"):
        record_files("set", "r", locate, BOTH)
    assert asked == ["r.hea", "r_0001.hea"]
    asked.clear()
    record_files("set", "r", locate, ("PLETH",))
    assert asked == ["r.hea", "r_0001.hea", "r_0001.dat"]


def test_segments_of_one_layout_need_no_layout(tmp_path, write_segment):
    for number in (1, 2):
        write_segment(tmp_path, f"r{number}", {"PLETH": noise(60), "ABP": noise(60)})
    (tmp_path / "r.hea").write_text("r/2 2 125 120 8:26:04 26/10/1994\nr1 60\nr2 60\n# a comment\n")
    assert [(stretch.start, stretch.stop) for stretch in read(tmp_path).stretches] == [(0, 60), (60, 120)]


def test_a_signal_without_a_file_is_ignored(tmp_path, write_segment):
    header = write_segment(tmp_path, "r", {"PLETH": noise(60), "ABP": noise(60)})
    header.write_text(header.read_text().replace("r.dat 16", "~ 0", 1))
    with pytest.raises(DataError, match=r"r\.hea: no segment of the record has PLETH and ABP together; its .* are ABP"):
        read(tmp_path)


def test_the_units_with_the_most_valid_samples_are_kept(tmp_path, write_segment, write_record_of_segments):
    """Valid samples decide: two of three segments have another gain, but the longest is mostly invalid."""
    long = {"PLETH": noise(900), "ABP": noise(900)}
    long["ABP"][100:] = -32768
    write_segment(tmp_path, "r_0001", long, gains={"ABP": 20})
    write_segment(tmp_path, "r_0002", {"PLETH": noise(90), "ABP": noise(90)}, gains={"ABP": 20}, baselines={"ABP": 1})
    write_segment(tmp_path, "r_0003", {"PLETH": noise(300), "ABP": noise(300)}, gains={"ABP": 1.25})
    write_record_of_segments(tmp_path, "r", [("r_0001", 900), ("r_0002", 90), ("r_0003", 300)], list(BOTH))
    recording = read(tmp_path)
    assert [(stretch.start, stretch.stop) for stretch in recording.stretches] == [(990, 1290)]
    assert recording.steps[1] == (0.8, "mmHg")
    assert (recording.rescaled, recording.invalid) == (190, 800)


def test_records_are_concatenated(tmp_path, write_segment):
    signals = {name: {"PLETH": noise(count), "ABP": noise(count)} for name, count in (("a", 70), ("b", 50))}
    signals["a"]["ABP"][60:] = -32768
    for name, values in signals.items():
        write_segment(tmp_path, name, values)
    recording = read(tmp_path, "a", "b", "a")
    spans = [(stretch.start, stretch.stop) for stretch in recording.stretches]
    assert spans == [(0, 60), (70, 120), (120, 180)] and recording.length == 190


def test_several_samples_per_frame_are_a_higher_rate(tmp_path, write_segment):
    signals = {"PLETH": noise(200), "ABP": noise(200), "II": noise(400)}
    write_segment(tmp_path, "r", signals, per_frame=[2, 2, 4], rate=62.5)
    recording = read(tmp_path)
    assert recording.rate == 125 and recording.length == 200
    np.testing.assert_array_equal(recording.stretches[0].values, [signals["PLETH"], signals["ABP"]])
    with pytest.raises(DataError, match=r"r\.hea: PLETH at 125 Hz, II at 250 Hz; rates must be equal"):
        read(tmp_path, channels=("PLETH", "II"))


@pytest.mark.parametrize(("rate", "expected"), [("125.", 125), (".5", 0.5), ("360/500(100)", 360), ("125/-3.5", 125)])
@pytest.mark.parametrize("length", ["300", ""])
def test_rates_and_lengths_are_read_in_every_form(rate, expected, length, tmp_path, write_segment):
    header = whole(tmp_path, write_segment)
    values = placed(read(tmp_path))
    header.write_text("# a comment\n" + header.read_text().replace("125 300", f"{rate} {length}"))
    recording = read(tmp_path)
    assert recording.rate == expected and recording.length == 300
    np.testing.assert_array_equal(placed(recording), values)


RATES = ["0", "-125", "nan", "inf", "1e400", "abc", "125Hz", "1_0", "1.25e2", "+125", "12.5E+1"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        *((f"{rate} 300", "a sampling rate of .*; it must be a number above 0 without an exponent") for rate in RATES),
        *((f"125 {length}", f"a length of {length}; it must be a whole") for length in ("-300", "3e2")),
        ("125 0", "announces no samples; leave the length out"),
        ("125/5e2(-3.5) 300", "a length of 300; it must be a whole number of samples behind a rate such as"),
        ("125/0x 300", "a length of 300"),
    ],
)
def test_rates_and_lengths_that_wfdb_would_misread_are_refused(line, rule, tmp_path, write_segment):
    header = whole(tmp_path, write_segment)
    header.write_text(header.read_text().replace("125 300", line))
    with pytest.raises(DataError, match=rf"/r\.hea: {rule}"):
        read(tmp_path)


def test_a_stated_length_is_kept_where_the_file_is_longer(tmp_path, write_segment):
    header = whole(tmp_path, write_segment)
    expected = placed(read(tmp_path))[:, :200]
    text = header.read_text().replace("125 300", "125 200")
    for before, values in zip([line.split()[6] for line in text.splitlines()[1:3]], expected, strict=True):
        text = text.replace(f" {before} ", f" {values.sum()} ")
    header.write_text(text)
    np.testing.assert_array_equal(placed(read(tmp_path)), expected)


# Damage


def whole(folder, write_segment, **options):
    return write_segment(folder, "r", {"PLETH": noise(300), "ABP": noise(300)}, **options)


def test_missing_files_are_named(tmp_path, write_segment):
    with pytest.raises(DataMissing, match=r"^set: .*/r\.hea: no such file"):
        read(tmp_path)
    whole(tmp_path, write_segment)
    (tmp_path / "r.dat").unlink()
    with pytest.raises(DataMissing, match=r"/r\.dat: no such file; a record is its \.hea files and the \.dat files"):
        read(tmp_path)


@pytest.mark.parametrize("fmt", ["16", "80", "24", "516"])
def test_truncated_samples_are_refused(fmt, tmp_path, write_segment):
    whole(tmp_path, write_segment, fmt=fmt)
    content = (tmp_path / "r.dat").read_bytes()
    (tmp_path / "r.dat").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"^set: .*/r\.dat: [\d,]+ bytes that cannot be read .*cut short$") as caught:
        read(tmp_path)
    assert caught.value.exit_code == 3


def test_a_changed_sample_fails_the_checksum(tmp_path, write_segment):
    whole(tmp_path, write_segment)
    content = bytearray((tmp_path / "r.dat").read_bytes())
    content[6] ^= 1  # of row 1, the second channel
    (tmp_path / "r.dat").write_bytes(content)
    with pytest.raises(DataError, match=r"/r\.dat: the samples of ABP do not add up to the checksum"):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, channels=("PLETH",)).length, 300)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a WFDB header"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not a WFDB header"),
        (b"<html>not found</html>\n", "not a WFDB header"),
        (b"r 2 125 -5\n", "announces 2 signals and describes 0"),
        (b"r 2 0 300\nr.dat 16\nr.dat 16\n", "a sampling rate of 0"),
        (b"r 2 125 300\nr.dat 16 200/NU 16 0 1 2 0 PLETH\n", "announces 2 signals and describes 1"),
        (b"r/3 2 125 300\nr_layout 0\n", "announces 3 segments and describes 1"),
        (b"r 2 125 300\nr.dat sixteen\nr.dat 16\n", "not a WFDB header (HeaderSyntaxError: invalid"),
        (b"r 2 125 300\n../r.dat 16\nr.dat 16\n", "invalid syntax in signal line"),
        (b"r/1 2 125 300\n../r_0001 300\n", "invalid syntax in segment line"),
        (b"r 2 125 300\nr.dat 16\nr.dat 16\n", "its signals are without names"),
    ],
)
def test_an_invalid_header_is_refused(content, says, tmp_path):
    (tmp_path / "r.hea").write_bytes(content)
    with pytest.raises(DataError, match=r"^set: .*/r\.hea: ") as caught:
        read(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("125 300", "125 30000000000000"), "cannot be read"),  # more than memory holds
        (("16 200", "99 200"), "cannot be read"),
        (("16 200", "61 200"), "in format 61, which cannot be read"),
        (("16 200", "8 200"), "in format 8, which marks no invalid samples"),
        (("125 300", "125 299"), "do not add up"),
        (("16 200", "16 0"), "PLETH has the gain 0"),
        (("16 200.0", "16 1e-320"), "PLETH has the gain 9.99989e-321"),
        (("16 200", "16 nan"), "the gain nan"),
    ],
)
def test_a_header_that_contradicts_its_samples_is_refused(change, says, tmp_path, write_segment):
    header = whole(tmp_path, write_segment)
    header.write_text(header.read_text().replace(*change))
    if "8 200" in change[1]:
        (tmp_path / "r.dat").write_bytes(bytes(600))
    with pytest.raises(DataError, match=r"^set: .*/r\.(dat|hea): ") as caught:
        read(tmp_path)
    assert says in str(caught.value)


def test_segments_that_contradict_their_record_are_refused(tmp_path, write_segment, write_record_of_segments):
    whole(tmp_path, write_segment)
    write_record_of_segments(tmp_path, "m", [("r", 200)], list(BOTH))
    with pytest.raises(DataError, match=r"/r\.hea: 300 samples at 125 Hz, but .*/m\.hea says 200 at 125 Hz"):
        read(tmp_path, "m")
    write_record_of_segments(tmp_path, "m", [("r", 300)], list(BOTH), rate=250)
    with pytest.raises(DataError, match=r"/r\.hea: 300 samples at 125 Hz, but .*/m\.hea says 300 at 250 Hz"):
        read(tmp_path, "m")
    write_record_of_segments(tmp_path, "n", [("m", 300)], list(BOTH))
    with pytest.raises(DataError, match=r"/m\.hea: a segment that consists of segments"):
        read(tmp_path, "n")


def test_records_at_different_rates_are_refused(tmp_path, write_segment):
    for name, rate in (("a", 125), ("b", 250)):
        write_segment(tmp_path, name, {"PLETH": noise(300), "ABP": noise(300)}, rate=rate)
    with pytest.raises(DataError, match=r"/b\.hea: sampled at 250 Hz, but .*/a\.hea at 125 Hz; rates must be equal"):
        read(tmp_path, "a", "b")


def test_signals_that_leave_nothing_to_read_are_refused(tmp_path, write_segment):
    signals = {"PLETH": noise(300), "ABP": noise(300), "II": noise(300)}
    header = write_segment(tmp_path, "r", signals)
    header.write_text(header.read_text().replace("II", "ABP"))
    with pytest.raises(DataError, match=r"/r\.hea: two signals are called ABP"):
        read(tmp_path)
    signals["PLETH"][:150] = signals["ABP"][150:] = -32768
    write_segment(tmp_path, "r", signals)
    with pytest.raises(DataError, match=r"/r\.hea: every sample of PLETH or ABP is invalid; nothing is left"):
        read(tmp_path)
