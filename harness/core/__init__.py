"""Settings, records, files and errors: imported by every other part of the harness."""
