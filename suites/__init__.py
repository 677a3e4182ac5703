"""The suites that come with invertbench: *.yaml, one per table or figure, and quickstart."""
