"""Imports point in one direction: csrc <- layers <- harness, kernels and precision of layers <- flows <- harness."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"csrc", "flows", "harness", "layers", "suites"}

ALLOWED = {
    "layers": {"layers", "csrc", "torch"},
    "flows": {
        "flows",
        "layers.kernels.load",  # the only loader of csrc; a flow receives its layers as arguments
        "layers.linalg.precision",
        "torch",
    },
    "flows/baselines": {"flows", "layers.linalg.precision", "torch", "zuko"},
    "harness": OURS
    | {
        "torch",
        "numpy",
        "pandas",
        "matplotlib",
        "yaml",
        "tabulate",
        "pydantic",
        "pydantic_core",
        "typing_extensions",
        "rich",
        "sklearn",
        "filelock",
        "jinja2",
        "PIL",
        "scipy",
        "wfdb",
        "pooch",
        "requests",
        "torchvision",
        "torch_fidelity",
        "submitit",
    },
}


def imported(path: Path) -> set[str]:
    """Return the dotted names of all modules, and names in them, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; name the package"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_point_one_way(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    if folder == "flows":
        files = [file for file in files if "baselines" not in file.parts]
    allowed = ALLOWED[folder] | set(sys.stdlib_module_names)
    for file in files:
        foreign = [name for name in imported(file) if not any(f"{name}.".startswith(f"{one}.") for one in allowed)]
        assert not foreign, (
            f"{file.relative_to(ROOT)} imports {sorted(foreign)}; {folder}/ may use {sorted(ALLOWED[folder])}"
        )


# Packages of the harness in order; each imports only itself and earlier ones.
ROOMS = (
    "core",
    "datasets",
    "pipeline",
    "evaluation",
    "training",
    "timing",
    "audit",
    "checking",
    "planning",
    "reporting",
    "kinds",
    "execution",
    "cli",
    "__main__",
)

# Files that still import a later room, by the reason; the list only shrinks.
UPWARD = {
    "types alone, of what a registered kind is asked for": {
        "core/kinds.py": {"training", "planning", "reporting"},
    },
}


def test_harness_packages_import_earlier_ones_only():
    rank = {room: number for number, room in enumerate(ROOMS)}
    upward: dict[str, set[str]] = {}
    for file in sorted((ROOT / "harness").rglob("*.py")):
        path = file.relative_to(ROOT / "harness")
        room = path.parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "harness":
                modules = [node.module] if "." in node.module else [f"harness.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names if alias.name.startswith("harness.")]
            else:
                continue
            for used in (module.split(".")[1] for module in modules):
                assert used in rank, f"harness/{path}:{node.lineno} uses {used}, which is no room: see ROOMS"
                if rank[used] > rank[room]:
                    upward.setdefault(path.as_posix(), set()).add(used)
    assert upward == {file: used for files in UPWARD.values() for file, used in files.items()}, (
        "a room imports only rooms before it in ROOMS, but for the files of UPWARD, which lists no others"
    )


def test_files_have_at_most_400_lines():
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            assert lines <= 400, f"{file.relative_to(ROOT)} has {lines} lines: more than one idea; split it"


def test_every_package_is_installed():
    """Packages are found by their __init__.py: modules in a folder without it would be missing from a wheel."""
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            assert (file.parent / "__init__.py").is_file(), f"{file.parent.relative_to(ROOT)}/__init__.py is missing"
