"""The direction of imports is the architecture: csrc <- layers <- harness, layers.kernels.load <- flows <- harness."""

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
        "layers.kernels.load",
        "torch",
    },  # the one loader of csrc; what a flow is built around, it is given
    "flows/baselines": {"flows", "torch", "zuko"},
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
        "rich",
        "sklearn",
        "filelock",
        "jinja2",
        "PIL",
        "scipy",
        "statsmodels",
        "wfdb",
        "pooch",
        "requests",
        "torchvision",
        "torch_fidelity",
        "submitit",
    },
}


def imported(path: Path) -> set[str]:
    """Dotted names of the modules, and of the names in them, that a file imports, wherever in the file."""
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


# Inside the harness, from what is used to what uses it; a part imports only parts above it.
HARNESS = [
    {"errors"},
    {"conditions", "machine", "checkpoint_files", "isolation"},
    {"settings", "layer_files", "measures"},
    {"records", "datasets", "kernel_sources"},
    {"sources"},
    {"planning", "trials"},
    {"checking", "reporting", "progress", "listing"},
    {"execution"},
    {"commands"},
    {"cli"},
    {"__main__"},
]


def test_the_harness_is_a_chain_of_arrows():
    rank = {part: number for number, parts in enumerate(HARNESS) for part in parts}
    for file in sorted((ROOT / "harness").rglob("*.py")):
        part = file.relative_to(ROOT / "harness").parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "harness":
                continue
            below = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            for used in below:
                assert used == part or rank[used] < rank[part], f"{file.relative_to(ROOT)}:{node.lineno} uses {used}"


def test_no_file_is_two_ideas():
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            assert lines <= 400, f"{file.relative_to(ROOT)} has {lines} lines: more than one idea; split it"


def test_every_package_is_installed():
    """Packages are found by their __init__.py: modules in a folder without one would be missing from a wheel."""
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            assert (file.parent / "__init__.py").is_file(), f"{file.parent.relative_to(ROOT)}/__init__.py is missing"
