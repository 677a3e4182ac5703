"""A terminal shows no deprecated function that a library calls itself, and every other warning."""

import warnings

import pytest

import harness.cli.schema
from harness.cli.parser import main
from harness.core.third_party import PEERS
from layers.adapters import LIBRARIES

OLD = "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular\nand will be removed"


@pytest.mark.parametrize(
    ("module", "message", "shown"),
    [
        ("nflows.transforms.lu", OLD, False),
        ("FrEIA.modules", "torch.qr is deprecated", False),
        ("nflows.transforms.lu", "the weights are almost singular", True),
        ("mylayers.nflows", OLD, True),
        ("nflows_of_mine", OLD, True),
    ],
)
def test_only_deprecations_inside_a_library_are_ignored(module, message, shown, monkeypatch):
    def warn(args):
        warnings.warn_explicit(message, UserWarning, "file.py", 80, module)
        return 0

    monkeypatch.setattr(harness.cli.schema, "execute", warn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert main(["schema"]) == 0
        assert len(caught) == shown
        warn(None)
        assert len(caught) == shown + 1, "the filter ends with the command"


def test_every_library_with_an_adapter_is_named():
    adapted = {package for library in LIBRARIES for package in library.packages}
    assert set(PEERS) == adapted - {"torch"}
