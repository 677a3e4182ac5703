"""The templates of pages, filled in with everything escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_ENVIRONMENT = Environment(
    loader=PackageLoader("harness.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def rendered_template(name: str, **values: Any) -> str:
    """Return a template with these values in it."""
    return _ENVIRONMENT.get_template(name).render(**values)
