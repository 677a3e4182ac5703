"""`list layers` shows the fields of the docstrings of layers."""

import inspect

import pytest

from harness.cli import list as listing
from layers import LAYERS, layer_options


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_docstring_of_every_layer_has_the_listed_fields(name):
    fields = listing.docstring_fields(inspect.cleandoc(LAYERS[name].__doc__ or ""))
    for heading in listing.LAYER_FIELDS:
        assert fields.get(heading), f"{name}: the docstring has no {heading}"


def test_a_page_for_each_layer():
    text = listing.layers()
    pages = dict(page.split(":", 1) for page in text.split("\n\n"))
    assert list(pages) == sorted(LAYERS)
    for name, cls in LAYERS.items():
        options = [f"{option.name} = {option.default!r}" for option in layer_options(cls).values()]
        printed = " ".join(pages[name].partition("  options")[2].split())
        assert printed == ("; ".join(options) or "none"), name
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

    fields = listing.docstring_fields(inspect.cleandoc(Layer.__doc__))
    assert fields["Family"] == "tests" and fields["forward"] == "one thing and another"
    assert fields["inverse"] == "it" and fields["Source"] == "an author (2020)" and fields["Shapes"] == "every one"
