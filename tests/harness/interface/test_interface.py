"""The Python interface: suites as mappings, arguments as mappings, errors that are exceptions, and processes."""

import inspect
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import harness
from harness.cli.parser import make_parser
from harness.core.arguments import check
from harness.core.errors import SuiteError, UserError
from harness.interface.plan import ReplicateArguments, RunArguments

PROJECT = Path(__file__).resolve().parents[3]


def suite(**changes):
    """Return a suite, with changes by the path of a key, `__` between its parts."""
    content = {
        "suite": "tiny",
        "kind": "density",
        "layers": {"conv1x1": {}, "butterfly": {"options": {"levels": 3}}},
        "training": {"learning_rate": 1e-3, "steps": 2, "batch_size": 8, "evaluate_every": 1},
        "profiles": {"quick": {"flow": {"levels": 1, "steps": 1, "width": 4}, "datasets": {"digits": {}}}},
    }
    for path, value in changes.items():
        *outer, key = path.split("__")
        inner = content
        for part in outer:
            inner = inner[part]
        inner[key] = value
    return content


def shown(table):
    """Return the content of table.md as a notebook shows it, without a heading."""
    return re.sub(r"^# (.*)", r"**\1**", table.read_text())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training__stepz": 2}, "tiny: training.stepz: unknown key 'stepz' in training; did you mean steps"),
        (
            {"layers__butterfly": {"options": {"levels": 12}}},
            "tiny: layers.butterfly.options: .*at most 6 levels; asked for 12",
        ),
        ({"profiles__quick__datasets": {"digit": {}}}, "tiny: profiles.quick.datasets.digit: .*did you mean digits"),
        ({"title": "a\x07b"}, "tiny: title: .*control character"),
        ({"training__steps": object()}, "tiny: not a suite .*object.*; give mappings"),
        ({"training__learning_rate": float("nan")}, r"tiny: not a suite \(Out of range float values"),
    ],
)
def test_faults_of_a_mapping_name_its_keys(changes, message):
    with pytest.raises(SuiteError, match=message):
        harness.validate(suite(**changes))


def test_a_mapping_is_planned_like_the_file_of_the_same_content(tmp_path):
    import yaml

    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(suite(training__learning_rate=0.001), sort_keys=False))
    changes = {"settings": {"training.steps": 3, "layers.butterfly.options.levels": 2}, "only": {"layer": "butterfly"}}
    planned = [harness.plan(source, out=tmp_path, **changes).plan for source in (suite(), path)]
    assert planned[0].trials == planned[1].trials and len(planned[0].trials) == 1
    assert planned[0].trials[0].training.steps == 3
    assert planned[0].command == "" and "--set training.steps=3" in planned[1].command


def test_mappings_of_arguments_are_the_texts_of_the_command_line():
    values = {"training.steps": 3, "a": "auto", "b": "1e-3", "c": [1, 2], "d": None, "e": True, "f": 1e-5}
    expected = ("training.steps=3", 'a="auto"', 'b="1e-3"', "c=[1, 2]", "d=null", "e=true", "f=1e-05")
    made = check(RunArguments, {"settings": values, "only": {"layer": ["a", "b"], "seed": 0}, "layers": "a.py:A"})
    assert made.settings == expected and made.only == ("layer=a,b", "seed=0") and made.layers == ("a.py:A",)
    made = check(RunArguments, {"settings": "x=1", "only": "x=1", "cluster": ["x=1"]})
    assert made.settings == made.only == made.cluster == ("x=1",)
    with pytest.raises(UserError, match="settings: a suite cannot state a value of this mapping"):
        check(RunArguments, {"settings": {"x": float("nan")}})


def nested(depth=100_000):
    """Return a mapping that is deeper than Python recurses."""
    content = {}
    for _ in range(depth):
        content = {"a": content}
    return content


class Strange:
    """An object that cannot even be printed."""

    def __repr__(self):
        raise RuntimeError


ODD = {
    "suite": [None, 3, [1], b"x.yaml", "a\0b", nested(), {"suite": Strange()}],
    "profile": [None, 3],
    "out": [None, 3, "", "a\0b", "\ud800", "x" * 5000, b"x"],
    "device": [None, "gpu", ["cpu"], nested()],
    "data": [3, "a\0b", "x" * 5000],
    "jobs": [0, True, "2", 1.5, 10**5000, Strange()],
    "executor": [None, "locl"],
    "cluster": [None, 3, [None]],
    "retry_failed": [None, "yes", 1],
    "stale": [None, "maybe"],
    "seeds": [0, "2", 10**400],
    "only": [None, [5], {"layer": None}, {"layer": nested()}, {"layer": []}, {3: "a"}],
    "settings": [None, [1], {"training": nested()}, {"x": b"x"}, {"x": 10**5000}, {Strange(): 1}],
    "layers": [None, "", [5], {"a": 1}, "\ud800"],
    "profil": ["quick"],
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_argument_is_one_message_that_names_it(name):
    for value in ODD[name]:
        with pytest.raises(UserError) as caught:
            harness.plan(**{"suite": suite(), name: value})
        message = str(caught.value)
        assert name in message and len(message) < 400, message


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: harness.run(suite(), timeout=10**400), "timeout"),
        (lambda: harness.run(suite(), timeout=1e300), "timeout"),
        (lambda: harness.run(suite(), timeout="1000000 d"), "timeout"),
        (lambda: harness.run(suite(), memory=1e30), "memory"),
        (lambda: harness.run(suite(), checkpoint=None), "checkpoint"),
        (lambda: harness.run(suite(), offline="no"), "offline"),
        (lambda: harness.validate(suite(), data=3), "data"),
        (lambda: harness.report(None), "folder"),
        (lambda: harness.report("x", at=["step"]), "at"),
        (lambda: harness.merge("runs"), "folders"),
        (lambda: harness.merge([]), "folders"),
        (lambda: harness.merge(["runs", None]), "folders"),
        (lambda: harness.compare("x", "y", threshold="much"), "threshold"),
        (lambda: harness.compare("x", None), "second"),
        (lambda: harness.replicate(suite(), draws="2"), "draws"),
        (lambda: harness.replicate(["x", 3]), "suite"),
        (lambda: harness.load_results("x" * 5000), "folder"),
        (lambda: harness.comparisons("x", margin="0.1"), "margin"),
        (lambda: harness.load_flow("x", None), "trial"),
    ],
)
def test_every_function_names_its_odd_argument(call, name):
    with pytest.raises(UserError, match=rf"^{name}\b"):
        call()


def test_options_stand_once():
    """Signature, docstring and help of a function and of its command have every argument of the model."""
    for model, function, command in (
        (RunArguments, harness.plan, "plan"),
        (RunArguments, harness.run, "run"),
        (ReplicateArguments, harness.replicate, "replicate"),
    ):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ["suite", *model.model_fields]
        assert {name: part.default for name, part in parameters.items() if name != "suite"} == dict(model())
        args = vars(make_parser().parse_args([command, "x"]))
        assert args.keys() - {"command", "execute"} == parameters.keys()
        assert check(model, {name: args[name] for name in model.model_fields}) == model()
        assert all(f"    {name}: " in function.__doc__ for name in parameters)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profile": "huge"}, "suite tiny has no profile 'huge'; it has"),
        ({"only": {"layer": "absent"}}, "--only layer=absent: nothing in this profile has it"),
    ],
)
def test_a_wrong_argument_is_an_exception_before_anything_runs(stand_in, arguments, message):
    with pytest.raises(UserError, match=message):
        harness.run(suite(), **arguments)
    assert stand_in == [] and not Path("reports").exists()


def test_a_run_returns_its_results_and_resumes_after_an_interrupt(stand_in, capsys, no_figures):
    stand_in.until = 1
    with pytest.raises(KeyboardInterrupt):
        harness.run(suite())
    stand_in.until = 0
    results = harness.run(suite())
    assert len(stand_in) == 2 and len({trial.id for trial in stand_in}) == 2
    assert results.ok and set(results.statuses.values()) == {"ok"} and results.folder == Path("reports/tiny")
    assert results._repr_markdown_() == shown(results.folder / "table.md")
    assert repr(results) == "<Results of tiny, profile quick, on cpu, in reports/tiny: 2 trials: 2 ok>"
    assert results.table.equals(harness.load_results(results.folder))
    capsys.readouterr()
    again = harness.run(suite(), quiet=True)
    assert again.ok and len(stand_in) == 2 and capsys.readouterr() == ("", "")
    assert harness.report("reports/tiny").statuses == results.statuses
    (merged,) = harness.merge(["reports/tiny"], "merged")
    assert merged.statuses == results.statuses and merged.folder == Path("merged/tiny")
    assert harness.compare("reports/tiny", merged.folder).counts["same"] == 2
    with pytest.raises(UserError, match=r"margin -1\.0: expected a positive number"):
        results.comparisons(margin=-1.0)


def test_quiet_runs_in_two_threads_leave_standard_output_as_it_is(stand_in, no_figures, capsys):
    before = sys.stdout, sys.stderr
    runs = [
        threading.Thread(target=harness.run, args=(suite(),), kwargs={"out": str(n), "quiet": True}) for n in (1, 2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    print("still there")
    assert (sys.stdout, sys.stderr) == before and capsys.readouterr() == ("still there\n", "")
    assert len(stand_in) == 4


def test_asking_for_the_functions_imports_no_torch():
    code = "import sys, harness; harness.UserError; dir(harness); heavy = 'torch pandas numpy matplotlib'.split()"
    code += "; print([name for name in heavy if name in sys.modules]); harness.plan; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nFalse\n"


USED = "import torch\nx = torch.randn(300, 300, requires_grad=True)\n(x @ x).sum().backward()\nimport harness\n"
RUN = "results = harness.run({suite!r}, out={out!r})\n"


@pytest.mark.system
def test_a_plain_script_runs_a_suite_after_it_has_used_torch(tmp_path):
    """The script has no `if __name__ == "__main__"`, and a trial's process would start it again."""
    script = tmp_path / "script.py"
    script.write_text(USED + RUN.format(suite=suite(), out=str(tmp_path)) + "print('ok' if results.ok else results)\n")
    done = subprocess.run([sys.executable, script], cwd=PROJECT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "ok", done.stdout + done.stderr
    assert done.stdout.count("2 trials: 2 to run") == 1


@pytest.mark.system
def test_a_notebook_runs_a_suite_and_shows_its_tables(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [USED, RUN.format(suite=suite(), out=str(tmp_path)), "results"]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbclient.NotebookClient(notebook, timeout=250, resources={"metadata": {"path": PROJECT}}).execute()
    _, ran, last = notebook.cells
    assert last.outputs[0].data["text/markdown"] == shown(tmp_path / "tiny" / "table.md")
    streams = [output.name for output in ran.outputs if output.output_type == "stream"]
    assert "stderr" not in streams, "notebooks show errors as alarms"
