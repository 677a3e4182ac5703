"""Tables of density suites, one per file."""
