"""The wheel holds everything that a run needs, and runs where there is no compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("csrc", "flows", "harness", "layers", "suites")


def run(command, folder, **environment):
    surroundings = {name: value for name, value in os.environ.items() if name not in ("CXX", "PYTHONPATH")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=surroundings | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def tracked():
    """Return the files of the project that git tracks."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, tracked):
    """Build the wheel from a copy of the sources, as pip does: in an environment that it makes for the build."""
    copy, made = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in tracked:
        if name.startswith(PACKAGES) or "/" not in name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, copy], made)
    (wheel,) = made.glob("*.whl")
    return wheel


def test_it_has_every_file_of_the_packages(wheel, tracked):
    assert wheel.name.endswith("-py3-none-any.whl"), "kernels are compiled where they run"
    expected = {name for name in tracked if name.split("/")[0] in PACKAGES and "/" in name}
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == expected


def test_the_smallest_run_without_a_compiler(wheel, tmp_path):
    """In an environment that sees the installed dependencies, but no project."""
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run([sys.executable, "-m", "venv", "--without-pip", environment], tmp_path)
    (site,) = environment.glob("lib/python*/site-packages")
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel],
        tmp_path,
    )
    shared = [path for path in sys.path if "site-packages" in Path(path).parts]
    (site / "dependencies.pth").write_text("\n".join(shared), encoding="utf-8")
    surroundings = {"PATH": str(empty), "INVERTBENCH_CACHE": str(tmp_path / "cache"), "INVERTBENCH_KERNELS": "on"}
    python = environment / "bin" / "python"
    where = run(
        [python, "-c", "import harness, layers; print(harness.__file__, layers.__file__)"], tmp_path, **surroundings
    )
    assert all(path.startswith(str(site)) for path in where.stdout.split())
    done = run([python, "-m", "harness", "run", "quickstart", "--profile", "smoke"], tmp_path, **surroundings)
    report = tmp_path / "reports" / "quickstart"
    assert (report / "index.html").is_file() and list(report.glob("records/*.json"))
    page = (report / "table.md").read_text()
    assert "no C++ compiler" in done.stdout + done.stderr + page
