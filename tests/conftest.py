"""Options and fixtures shared by all tests."""

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

# The tests' tensors are small, so a second thread does not pay. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from layers import LAYERS, InvertibleLinear, UnsupportedShape
from layers.kernels import load as kernels
from layers.kernels.build import cache_folder

# Tests use a temporary cache instead of the user's.
_CACHE = tempfile.TemporaryDirectory(prefix="invertbench-test-cache-")
_KERNELS = cache_folder()
os.environ["INVERTBENCH_CACHE"] = _CACHE.name
# Except for compiled kernels: a build takes a minute, and its name contains everything it depends on.
with contextlib.suppress(OSError):
    _KERNELS.mkdir(parents=True, exist_ok=True)
    (Path(_CACHE.name) / "kernels").symlink_to(_KERNELS)

# A background job of a shell ignores SIGINT, one of nohup SIGHUP, and the processes that tests start inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-system", action="store_true", help="a skipped test that carries the marker `system` fails"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Without --benchmark-only the benchmarks' bodies run once, untimed: they are tests of the code they time.
    if not config.getoption("benchmark_only", default=False):
        config.option.benchmark_disable = True
    else:
        config.option.reportchars = ""  # thousands of lines about skipped tests would hide the table


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and thousands of tests stay; without this, each collection of garbage examines them


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and item.config.getoption("--require-system") and "system" in item.keywords:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped under --require-system: {reason}"


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of real data, $INVERTBENCH_DATA or ../shared/data next to the project, or skip the test."""
    root = Path(os.environ.get("INVERTBENCH_DATA") or BESIDE)
    if not root.is_dir():
        pytest.skip(f"real data: {root} is not there; set $INVERTBENCH_DATA to a data root")
    return root


@pytest.fixture(scope="session")
def case() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """Return a context manager that adds the case of a loop to a failure: `with case(shape=shape): ...`."""

    @contextlib.contextmanager
    def named(**values: object):
        try:
            yield
        except BaseException as error:
            error.add_note("case: " + ", ".join(f"{name} = {value}" for name, value in values.items()))
            raise

    return named


@pytest.fixture(scope="module")
def compiled() -> None:
    """Skip the test where there are no compiled kernels."""
    if not kernels.load():
        pytest.skip(f"no compiled kernels: {kernels.backend().reason}")


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the compiled operators that serve a processor alone, and with plain PyTorch."""
    if request.param == "plain":
        monkeypatch.setattr(kernels, "serve_on_processor", lambda *tensors: False)
    else:
        request.getfixturevalue("compiled")
    return str(request.param)


@pytest.fixture(scope="session")
def same_by_threads() -> Callable[..., None]:
    """Return a function that compares the results of another one for several numbers of torch's threads, bit by bit."""

    def compare(function: Callable[[], Any], numbers: Iterable[int] = (1, 2, 3), tolerance: float = 0.0) -> None:
        before, results = torch.get_num_threads(), []
        try:
            for number in numbers:
                torch.set_num_threads(number)
                results.append(function())
        finally:
            torch.set_num_threads(before)
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=tolerance, atol=tolerance)

    return compare


@pytest.fixture(scope="session")
def check_derivatives() -> Callable[..., None]:
    """Return a function that checks first and second derivatives, and the first ones computed with a graph."""

    def check(function: Callable[..., Any], *operands: torch.Tensor) -> None:
        leaves = tuple(operand.detach().requires_grad_() for operand in operands)
        assert torch.autograd.gradcheck(function, leaves)
        assert torch.autograd.gradgradcheck(function, leaves)
        outputs = function(*leaves)
        loss = sum(y.square().sum() for y in (outputs if isinstance(outputs, tuple) else (outputs,)))
        gradients = (
            torch.autograd.grad(loss, leaves, create_graph=graph, retain_graph=True) for graph in (False, True)
        )
        torch.testing.assert_close(*gradients)

    return check


@pytest.fixture(scope="session")
def build_layer() -> Callable[..., InvertibleLinear]:
    """Return a function that builds a registered layer, and skips the test if the layer refuses the shape.

    Refusing a shape is allowed; any other error fails the test.
    """

    def build(name: str, shape: tuple[int, ...], **options: object) -> InvertibleLinear:
        try:
            return LAYERS[name](shape, **options)
        except UnsupportedShape as error:
            pytest.skip(f"refused: {error}")

    return build
