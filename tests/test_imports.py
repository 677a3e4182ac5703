"""Imports point in one direction: csrc <- layers <- harness, kernels and precision of layers <- flows <- harness."""

import ast
import sys
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"csrc", "flows", "harness", "layers", "suites"}

LIBRARIES = {
    "torch", "numpy", "pandas", "matplotlib", "yaml", "tabulate", "pydantic", "pydantic_core",
    "typing_extensions", "rich", "sklearn", "filelock", "jinja2", "PIL", "scikit_posthocs", "scipy", "wfdb",
    "pooch", "psutil", "requests", "torchvision", "torch_fidelity", "dask", "distributed", "cloudpickle",
}  # fmt: skip
ALLOWED = {
    "layers": {"layers", "csrc", "torch"},
    "flows": {
        "flows",
        "layers.kernels.load",  # the only loader of csrc; a flow receives its layers as arguments
        "layers.base",
        "layers.linalg.precision",
        "torch",
    },
    "flows/baselines": {"flows", "layers.base", "layers.linalg.precision", "sklearn", "torch"},
    "harness": OURS | LIBRARIES,
}


def imported(path: Path) -> set[str]:
    """Return the dotted names of all modules, and names in them, that a file imports."""
    return names_imported(ast.parse(path.read_text(encoding="utf-8")))


def names_imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; name the package"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imports_of_modules(types: bool) -> dict[str, set[str]]:
    """Return each module of ours -> the modules of ours that it imports, also inside functions.

    Args:
        types: whether imports under `if TYPE_CHECKING` count.
    """
    files = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for package in OURS
        for file in (ROOT / package).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if not types:
            tree = WithoutTypes().visit(tree)
        graph[name] = {found for module in names_imported(tree) if (found := owner(module, files)) not in (None, name)}
    return graph


class WithoutTypes(ast.NodeTransformer):
    """Remove `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


def owner(dotted: str, modules: Collection[str]) -> str | None:
    """Return the module that defines `dotted`, a module or a name in one."""
    return next((name for name in (dotted, dotted.rpartition(".")[0]) if name in modules), None)


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
    "core", "datasets", "pipeline", "evaluation", "training", "timing", "audit", "checking", "planning",
    "reporting", "kinds", "execution", "interface", "cli", "__main__",
)  # fmt: skip


def test_harness_packages_import_earlier_ones_only():
    rank = {room: number for number, room in enumerate(ROOMS)}
    for name, modules in imports_of_modules(types=True).items():
        room = name.split(".")[1] if name.startswith("harness.") else None
        for used in (module.split(".")[1] for module in modules if room and module.startswith("harness.")):
            assert used in rank, f"{name} uses {used}, which is no room: see ROOMS"
            assert rank[used] <= rank[room], f"{name} imports {used}, a later room: see ROOMS"


def test_no_modules_import_each_other():
    """Imports inside functions count; those of types alone, which never run, do not."""
    graph = imports_of_modules(types=False)
    order = TopologicalSorter(graph)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(f"modules that import each other: {' -> '.join(reversed(error.args[1]))}")


def test_files_have_at_most_400_lines_and_every_package_is_installed():
    """Packages are found by their __init__.py: modules in a folder without it would be missing from a wheel."""
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            assert lines <= 400, f"{file.relative_to(ROOT)} has {lines} lines: more than one idea; split it"
            assert (file.parent / "__init__.py").is_file(), f"{file.parent.relative_to(ROOT)}/__init__.py is missing"
