"""`list layers` shows the fields of the docstrings of layers."""

import pytest

from harness.cli import list as listing
from layers import LAYERS


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_docstring_of_every_layer_has_the_listed_fields(name):
    fields = listing.docstring_fields(LAYERS[name])
    for heading in listing.LAYER_FIELDS:
        assert fields.get(heading), f"{name}: the docstring has no {heading}"


def test_a_page_for_each_layer():
    text = listing.layers()
    pages = dict(page.split(":", 1) for page in text.split("\n\n"))
    assert list(pages) == sorted(LAYERS)
    assert "  family     block-diagonal factors\n  source     Monarch (Dao et al., ICML 2022)\n" in pages["monarch"]
    assert "  log-det    D additions for each factor\n" in pages["monarch"]
    assert pages["finc"].endswith("  options    kernel_size = 3")
    assert all(len(line) <= 118 for page in pages.values() for line in page.splitlines()[1:])


def test_a_field_ends_at_the_next_field_or_at_the_end_of_its_paragraph():
    class Layer:
        """A line.

        Family: tests
        Cost:
            forward: one thing
            and another
            inverse: it
        Singular cases: none
        Source: an author (2020)

        Not a field: text.
        Shapes:
            every one
        """

    fields = listing.docstring_fields(Layer)
    assert fields["Family"] == "tests" and fields["forward"] == "one thing and another"
    assert fields["inverse"] == "it" and fields["Source"] == "an author (2020)" and fields["Shapes"] == "every one"


def test_a_layer_without_a_docstring_is_listed(monkeypatch):
    class Bare(LAYERS["conv1x1"]):
        __doc__ = None

    monkeypatch.setitem(LAYERS, "bare", Bare)
    page = next(page for page in listing.layers().split("\n\n") if page.startswith("bare:"))
    assert "  family     not stated\n" in page
