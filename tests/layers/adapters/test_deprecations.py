"""Deprecated functions that a library calls itself are not reported, and every other warning is."""

import warnings

import pytest

from layers.adapters import LIBRARIES, hide_deprecations

OLD = "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular\nand will be removed"


@pytest.mark.parametrize(
    ("module", "message", "shown"),
    [
        *((f"{package}.inner", OLD, package == "torch") for library in LIBRARIES for package in library.packages),
        ("nflows.transforms.lu", "the weights are almost singular", True),
        ("mylayers.nflows", OLD, True),
        ("nflows_of_mine", OLD, True),
    ],
)
def test_only_deprecations_inside_a_library_are_ignored(module, message, shown):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hide_deprecations()
        warnings.warn_explicit(message, UserWarning, "file.py", 80, module)
    assert len(caught) == shown
