"""check-layer of layers that exit, hang, print too much or send false messages: they never pass."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

from harness.checking.check_layer import CHECKS, check_layer
from harness.checking.events import Begins, Done, Found, event_of
from harness.checking.isolated import check_in_process, try_imports
from harness.checking.report import CONSTRUCTION, CheckReport, Remark
from harness.cli.parser import main
from harness.core.errors import Undecided
from harness.core.isolation.messages import BadMessage

PROJECT = Path(__file__).resolve().parents[3]

# A class -> the body of its inverse; of forward and of the constructor where its name says so.
BODIES = {
    "ExitsInForward": "os._exit(0)",
    "ExitsInInit": "os._exit(0)",
    "ExitsInAThread": "threading.Thread(target=os._exit, args=(0,), daemon=True).start()\ntime.sleep(5)",
    "ExitsAtTheEnd": "atexit.register(os._exit, 0)\nraise KeyboardInterrupt",
    "Hangs": """
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
open("hangs", "w").write(str(os.getpid()))
ctypes.PyDLL(None).sleep(600)
""",
    "Segfaults": "ctypes.string_at(0)",
    "PrintsAndIsKilled": r"""
print("all is well\n" * 1_000_000 + "\x1b[2Jwell", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
    "WritesEverywhere": r"""
for number in range(3, 256):
    with contextlib.suppress(OSError):
        os.write(number, b'{"event": "done"}\n')
""",
    "Forks": "os.fork()",
    "RaisesOddText": r"""raise ValueError("\x1b[2J \ud800 " + "\U0001f600" * 100_000)""",
    "Prints": 'print("x" * 100_000)',
}
CLASS = """

class {}(Conv1x1):
    def {}(self, x):
{}
        return super().{}(x)
"""
HOSTILE = "import atexit, contextlib, ctypes, os, signal, threading, time\n\nfrom layers.conv1x1 import Conv1x1\n"
for name, body in BODIES.items():
    method = {"ExitsInForward": "forward", "ExitsInInit": "__init__"}.get(name, "inverse")
    HOSTILE += CLASS.format(name, method, textwrap.indent(body.strip(), " " * 8), method)
HOSTILE += """

class WrongAndHangs(Hangs):
    def forward(self, x):
        return super().forward(x)[0], 7 * x.new_ones(())
"""

# The place of the check, and how its process ended.
ENDS = {
    "exits.py:Any": ("construction, import", "exit code 0 before every rule"),
    "hostile.py:ExitsInForward": ("forward, shape (2, 3), float64", "exit code 0 before every rule"),
    "hostile.py:ExitsInInit": ("construction, shape (2, 3)", "exit code 0 before every rule"),
    "hostile.py:ExitsInAThread": ("inverse, shape (2, 3), float64", "exit code 0 before every rule"),
    "hostile.py:ExitsAtTheEnd": ("inverse, shape (2, 3), float64", "the process ended with exit code"),
    "hostile.py:Segfaults": ("inverse, shape (2, 3), float64", "SIGSEGV (Segmentation fault)"),
    "hostile.py:PrintsAndIsKilled": ("inverse, shape (2, 3), float64", "SIGKILL (Killed)"),
    "hostile.py:WritesEverywhere": ("inverse, shape (2, 3), float64", "which does not follow what it wrote before"),
    "hostile.py:Forks": ("inverse, shape (2, 3), float64", "which does not follow what it wrote before"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "exits.py").write_text("import os\n\nos._exit(0)\n")
    (folder / "hangs.py").write_text("import time\n\ntime.sleep(600)\n")
    return folder


def hostile(folder, spec, **limits):
    return check_in_process(spec, {}, folder, shapes=[(2, 3)], **limits)


@pytest.mark.parametrize("spec", ENDS)
def test_a_process_that_ends_early_does_not_pass(folder, spec):
    report = hostile(folder, spec)
    place, how = ENDS[spec]
    assert not report.ok
    assert f"check-layer {spec} ended early (" in report.ended and how in report.ended
    rule = place.partition(",")[0]
    if rule != "inverse" or "follow" not in how:  # a forked process may have answered instead
        assert place in report.ended
        assert report.verdict(rule) == "not answered"
    assert report.verdict("wrong-input") == "not answered"
    lines = report.lines()
    assert lines[-1].startswith(f"{spec}: refused, as ") and f"  {report.ended}" in lines
    if rule == "inverse":
        assert report.verdict("dense") == "passed" and "  pass  dense" in lines


def test_printed_output_is_shown_truncated_and_without_control_characters(folder):
    report = hostile(folder, "hostile.py:PrintsAndIsKilled")
    text = "\n".join(report.lines())
    assert "printed last:" in text and r"\x1b[2Jwell" in text and "\x1b" not in text
    assert len(text) < 5000
    printed = hostile(folder, "hostile.py:Prints", large=False)
    assert printed.ok and printed.log == "" and "xxx" not in "\n".join(printed.lines())


def test_unusual_text_of_a_layer_is_reported_as_any_finding(folder):
    report = hostile(folder, "hostile.py:RaisesOddText", large=False)
    assert report.ended == "" and report.verdict("inverse") == "failed"
    assert report.verdict("wrong-input") != "not answered"
    text = "\n".join(report.lines())
    assert r"\x1b[2J \ud800" in text and "\x1b" not in text and len(text) < 50_000


@pytest.mark.system
def test_a_check_that_hangs_is_killed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    begin = time.monotonic()
    report = hostile(folder, "hostile.py:Hangs", timeout=4)
    assert time.monotonic() - begin < 30
    assert "it took longer than 4 s, the time limit (--timeout), and was ended" in report.ended
    assert report.outcome == "undecided" and report.unanswered[0] == "inverse"
    assert not alive(int(Path("hangs").read_text()))
    assert hostile(folder, "hostile.py:WrongAndHangs", timeout=4).outcome == "refused"


class Seen(Exception):
    """Raised when a line of the report arrives."""


def test_a_line_arrives_when_its_rule_is_answered(folder, monkeypatch):
    monkeypatch.chdir(folder)
    shown = []

    def show(lines):
        shown.extend(lines)
        if "  pass  log-det-form" in lines:  # the next rule never ends
            raise Seen

    with pytest.raises(Seen):
        hostile(folder, "hostile.py:Hangs", show=show, timeout=60)
    assert shown[:3] == ["hostile.py:Hangs: 1 shapes, float64 and float32", "  pass  construction", "  pass  forward"]
    shown.clear()
    report = hostile(folder, "hostile.py:RaisesOddText", show=shown.extend, large=False)
    assert shown + report.closing() == report.lines(), "in the order of the report, each once"


def checked(*events, **end):
    """Return the report of a check of three rules that ended so."""
    report = CheckReport("a", (CONSTRUCTION, "dense", "inverse"), ("float64",), **end)
    for event in events:
        report.take(event)
    return report


DENSE, INVERSE = (Begins(rule=rule, place="here") for rule in ("dense", "inverse"))
SLOW, NO = (
    Found(check="dense", place="here", message=text, severity=kind)
    for text, kind in (("slow", "unanswered"), ("no", "fault"))
)
TOO_LATE = {"ended": "it took too long", "overtime": True}


@pytest.mark.parametrize(
    ("events", "end", "outcome", "unanswered"),
    [
        ([DENSE, INVERSE], TOO_LATE, "undecided", ("construction", "inverse")),
        ([DENSE, NO, INVERSE], TOO_LATE, "refused", ("construction", "inverse")),
        ([DENSE, INVERSE, NO.model_copy(update={"check": "inverse"})], TOO_LATE, "refused", ("construction",)),
        ([], TOO_LATE, "undecided", ("construction", "dense", "inverse")),
        ([DENSE, INVERSE], {"ended": "it was killed"}, "refused", ("construction", "inverse")),
        ([DENSE, SLOW, INVERSE, Done()], {}, "undecided", ("construction", "dense")),
    ],
)
def test_only_time_leaves_a_layer_undecided(events, end, outcome, unanswered):
    report = checked(*events, **end)
    assert report.outcome == report.document()["verdict"] == outcome
    assert report.unanswered == unanswered == tuple(report.document()["not_answered"])
    last = report.lines()[-1]
    assert ("undecided" in last) == (outcome == "undecided") and ("refused" in last) == (
        "killed" in end.get("ended", "")
    ), "an undecided layer never reads as a refusal"
    assert (SLOW in report.findings) == ("          dense, here: slow" in report.lines())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def start(folder):
    """Start `check-layer` with these arguments."""
    (folder / "hangs").unlink(missing_ok=True)

    def start(*arguments):
        command = [sys.executable, "-m", "harness", "check-layer", *arguments]
        environment = os.environ | {"PYTHONPATH": str(PROJECT)}
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def test_the_command_exits_with_4_if_time_runs_out(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["check-layer", "hangs.py:Any", "--json", "--timeout", "1"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "undecided" and document["error"] is None
    assert document["not_answered"] == [CONSTRUCTION, *CHECKS]
    monkeypatch.setattr("harness.checking.isolated.check_in_process", partial(check_in_process, timeout=1))
    with pytest.raises(Undecided, match="construction, import"):
        try_imports([("hangs.py:Any", None)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "layer 'absent' is not registered"),
        (["conv1x1", "--set", "size=3"], "option 'size' is unknown"),
        (["conv1x1", "--absent"], "unrecognized arguments: --absent"),
        (["conv1x1", "--timeout", "soon"], "argument --timeout"),
        (["conv1x1", "--shape", "3x64x64"], "'3x64x64' is no event shape; write C,L or C,H,W"),
        (["conv1x1", "--shape", "3,0"], "'3,0' is no event shape"),
        ([], "required: LAYER"),
    ],
)
def test_a_wrong_command_exits_with_2_and_one_json_document(arguments, message, capsys):
    assert main(["check-layer", "--json", *arguments]) == 2
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert document["verdict"] is None and message in document["error"] and message in output.err
    assert main(["check-layer", *arguments]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "extent"),
    [
        ([], {"extra": [], "large": True}),
        (["--no-large"], {"extra": [], "large": False}),
        (["--shape", "3,20", "--shape", "3,24,24"], {"extra": [(3, 20), (3, 24, 24)], "large": False}),
    ],
)
def test_the_command_takes_shapes(arguments, extent, monkeypatch):
    taken = {}
    report = CheckReport("scale")
    monkeypatch.setattr(
        "harness.checking.isolated.check_in_process", lambda *given, **more: taken.update(more) or report
    )
    main(["check-layer", "scale", *arguments])
    assert taken == extent
    served = check_layer("scale", shapes=[(2, 3)], **extent | {"large": False}).served
    assert served == ((2, 3), *extent["extra"])


def test_an_interrupted_check_leaves_one_json_document(monkeypatch, capsys):
    def interrupted(*_, **extent):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.checking.isolated.check_in_process", interrupted)
    assert main(["check-layer", "conv1x1", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == {"verdict": None, "error": "interrupted"}


def test_the_command_exits_with_1_and_one_json_document(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["check-layer", "exits.py:Any", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "refused" and "exit code 0" in document["ended"]
    assert {rule["verdict"] for rule in document["rules"]} == {"not answered"} and len(document["rules"]) > 20


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_behind(start, folder, number):
    process = start("hostile.py:Hangs")
    while not (folder / "hangs").exists() or not (folder / "hangs").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate()
    if number == signal.SIGINT:
        assert (process.returncode, error) == (130, "interrupted\n")
    end = time.monotonic() + 3
    while alive(pid := int((folder / "hangs").read_text())) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


@pytest.mark.system
def test_the_command_imports_no_torch(folder):
    code = (
        "import sys; from harness.cli.parser import main\n"
        "if __name__ == '__main__':\n"
        "    code = main(['check-layer', 'absent']); print('torch' in sys.modules); sys.exit(code)\n"
    )
    (folder / "command.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "command.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "False\n") and "'absent' is not registered" in done.stderr


def test_events_name_every_rule_and_case_and_give_the_same_report(monkeypatch):
    monkeypatch.setattr("harness.checking.check_layer.LARGE_SHAPES", ((2, 40),))
    events = []
    report = check_layer("conv1x1", shapes=[(2, 3)], tell=events.append)
    streamed = CheckReport("conv1x1")
    for number, event in enumerate(events):
        streamed.take(event_of(json.loads(json.dumps({"number": number, "event": event.model_dump()})), number))
    assert streamed == report and report.ok
    begun = [event.rule for event in events if isinstance(event, Begins)]
    assert list(dict.fromkeys(begun)) == [CONSTRUCTION, *CHECKS] == list(report.rules)


def test_a_remark_does_not_refuse(monkeypatch):
    def remarks(case):
        yield Remark("slow")

    monkeypatch.setitem(CHECKS, "dense", remarks)
    report = check_layer("conv1x1", shapes=[(2, 3)], large=False)
    assert report.ok and report.verdict("dense") == "passed"
    assert {finding.message for finding in report.remarks} == {"slow"}
    lines = report.lines()
    assert lines[lines.index("  remarks") + 1] == "          dense, shape (2, 3), float64, and 3 more: slow"
    assert report.document()["remarks"][0] == {"rule": "dense", "place": "shape (2, 3), float64", "message": "slow"}


def test_a_rule_that_no_case_reached_does_not_pass(monkeypatch):
    def fails(case):
        yield "never"

    monkeypatch.setitem(CHECKS, "forward", fails)
    report = check_layer("conv1x1", shapes=[(2, 3)], large=False)
    assert report.verdict("forward") == "failed" and report.verdict("dense") == "not answered"


@pytest.mark.parametrize(
    "message",
    [
        {"event": {"event": "done"}},
        {"number": 2, "event": {"event": "done"}},
        {"number": 4, "event": {"event": "done"}},
        {"number": 3},
        {"number": 3, "event": {"event": "ends"}},
        {"number": 3, "event": {"event": "found", "check": "a", "place": "b", "message": "no", "severity": "none"}},
    ],
)
def test_a_message_that_is_not_the_next_event_is_refused(message):
    assert event_of({"number": 3, "event": {"event": "done"}}, 3) == Done()
    with pytest.raises(BadMessage, match=r"does not follow|not an event"):
        event_of(message, 3)
