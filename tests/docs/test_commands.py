"""The commands and Python examples of README.md, CONTRIBUTING.md and docs/ run; the profile is smoke."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.parser import PROGRAM, make_parser
from harness.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("_build", "generated")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not set(path.relative_to(ROOT).parts) & set(BUILT)
}
NOT_RUN = (
    "docs/how-to/libraries.md",  # shows layers that fail; tests/docs/test_libraries_page.py checks by which rules
    "docs/developer/robustness.md",  # damages runs; its table says which tests do
)
PYTHON = ("README.md", "docs/layers.md", "docs/tutorials/write-a-layer.md")  # others have separate tests

ROOMS, SOURCES = ("csrc", "flows", "harness", "layers", "suites", "tests"), (".cpp", ".cu", ".h", ".py", ".yaml")

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`(python -m harness [^`]+)`")
INDENTED = re.compile(rf"^    ({PROGRAM} .*)", re.M)
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z0-9]*\b(?!=)|\*")  # DIR, ROOT; a pattern of files
ELSEWHERE = ("--executor slurm", "/shared/", "--cluster address=")  # a cluster


def blocks(text, language):
    return [code for name, code in FENCED.findall(text) if name == language]


def commands(text):
    """Return the command lines of a page, as lists of words without the program, in its blocks and in its sentences."""
    text = text.replace("\\\n", " ")
    lines = [line for block in blocks(text, "") for line in block.splitlines()]
    lines = [part.strip() for line in lines for part in line.partition("#")[0].split("&&")]
    lines += [line.partition(" #")[0] for line in INDENTED.findall(text)]
    in_blocks = [shlex.split(line)[3:] for line in lines if line.startswith(PROGRAM)]
    return in_blocks, [shlex.split(line.partition(">")[0])[3:] for line in INLINE.findall(text)]


def test_every_command_can_be_parsed():
    seen = 0
    for name, text in PAGES.items():
        for words in (words for block in commands(text) for words in block):
            if words[0] == "COMMAND":
                continue
            try:
                make_parser().parse_args(words)
            except UserError:
                pytest.fail(f"{name}: {shlex.join(words)}")
            seen += 1
    assert seen > 40


def test_every_file_of_the_project_that_is_named_exists():
    """Examine the files that pages name, and the pages that source names."""
    named = {path for text in PAGES.values() for path in re.findall(r"\b(?:tests|examples|suites)/[\w/.-]+\.\w+", text)}
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in SOURCES]
    named |= {path for file in sources for path in re.findall(r"\bdocs/[\w/.-]+\.md", file.read_text())}
    assert len(named) > 20 and not sorted(path for path in named if not (ROOT / path).exists())


@pytest.mark.parametrize("name", PYTHON)
def test_python_examples_run(name):
    pytest.importorskip("nflows")
    names = {}
    for code in blocks(PAGES[name], "python"):
        exec(compile(code, name, "exec"), names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the examples and suites of the project, and the report and the table that the pages name."""
    folder = tmp_path_factory.mktemp("clone")
    rows = [f"{row * 0.37 % 1:.3g},{row * 0.61 % 1:.3g}" for row in range(300)]
    (folder / "measured.csv").write_text("\n".join(["width,height", *rows]))
    for part in ("examples", "suites"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copytree(ROOT / "reports" / "tuned-2core-epyc", folder / "reports" / "tuned-2core-epyc")
    return folder


@pytest.fixture(scope="module")
def done():
    """Return the set of command lines that have run, so that none runs twice."""
    return set()


@pytest.mark.system
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if commands(text)[0] and name not in NOT_RUN])
def test_commands_run(name, folder, done, monkeypatch):
    """Run the commands in the blocks of a page in order, with the suites and files that it makes."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    text = PAGES[name]
    for suite in blocks(text, "yaml"):
        if suite.startswith("suite:"):
            Path(f"{suite.split()[1]}.yaml").write_text(suite)
    if name.endswith("your-data.md"):
        for code in blocks(text, "python"):
            exec(compile(code, name, "exec"), {})
    lines = commands(text)[0]
    if name == "README.md":
        Path("mine.py").write_text(next(code for code in blocks(text, "python") if "class Scale" in code))
        lines += [words for words in commands(text)[1] if "mine.py:Scale" in words]
    for words in lines:
        if words[0] in ("run", "replicate") and "--profile" not in words:
            words = [*words, "--profile", "smoke"]
        line = re.sub(r"^run suites/(\w+)\.yaml", r"run \1", shlex.join(words))  # a file and a name of one suite
        if line not in done and not PLACEHOLDER.search(line) and not any(part in line for part in ELSEWHERE):
            command = [sys.executable, "-m", "harness", *words]
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert ended.returncode == 0, f"{line}\n{ended.stdout}"
            done.add(line)
