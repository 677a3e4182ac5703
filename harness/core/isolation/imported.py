"""Imported by the fork server for its effect, after the modules that trials need."""

from harness.core.isolation.importing import end_imports

end_imports()
