"""Install the project on other Pythons, or with the lowest versions that it admits, and run its tests; by hand.

    python tests/versions.py python3.12 python3.13
    python tests/versions.py --lowest python3.11 --tests tests/layers tests/flows

Each interpreter gets a clone of the last commit and a fresh virtual environment, 6 GB that are deleted afterwards.
Prints the lines of docs/developer/versions.md: versions of what breaks often, and the summary of pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WATCHED = ("torch", "torchvision", "numpy", "pandas", "pydantic", "scipy", "matplotlib")


def examine(python: str, resolution: str, paths: list[str]) -> str:
    """Return a line of the table: Python, versions, and the last line that pytest prints."""
    folder = Path(tempfile.mkdtemp(prefix="invertbench-versions-"))
    try:
        clone, venv = folder / "clone", folder / "venv"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "--quiet", "uv"], check=True)
        pip = [str(venv / "bin" / "uv"), "pip"]
        inside = ["--quiet", "--native-tls", "--python", str(venv / "bin" / "python")]
        subprocess.run(
            [*pip, "install", *inside, "--resolution", resolution, "-e", ".[test,dask]"], cwd=clone, check=True
        )
        listed = subprocess.run(
            [*pip, "list", *inside, "--format=json"], check=True, capture_output=True, text=True
        ).stdout
        versions = {package["name"].lower(): package["version"] for package in json.loads(listed)}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(venv / "bin" / "python"), "-m", "pytest", "-n", "2", "--dist", "loadfile", "-q", *paths]
        tests = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
        lines = tests.stdout.strip().splitlines() or [f"pytest ended with {tests.returncode}: {tests.stderr[-500:]}"]
        print("\n".join(line for line in lines if line.startswith(("FAILED", "ERROR"))))
        version = subprocess.run([python, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]
        cells = [version, *(versions.get(name, "-") for name in WATCHED), lines[-1].strip("= ")]
        return f"| {' | '.join(cells)} |"
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Print the table's head, then a line for each interpreter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lowest", action="store_true", help="each dependency at its lower bound")
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="default: all but those marked")
    args = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}\n| Python | {' | '.join(WATCHED)} | tests |\n{'|---' * (len(WATCHED) + 2)}|")
    for python in args.pythons:
        print(examine(python, "lowest-direct" if args.lowest else "highest", args.tests), flush=True)


if __name__ == "__main__":
    main()
