"""Fixtures that speed up tests of many commands."""

import pytest

from harness.core.provenance.sources import Sources


@pytest.fixture(scope="package")
def parsed_sources():
    return Sources()


@pytest.fixture
def fast_commands(parsed_sources, no_figures, monkeypatch):
    """Parse the source files once for all tests, and draw no figure."""
    for user in ("core.provenance.sources", "execution.outcome"):  # commands import it late
        monkeypatch.setattr(f"harness.{user}.Sources", lambda: parsed_sources)


@pytest.fixture
def stand_in(stand_in, fast_commands):
    return stand_in
