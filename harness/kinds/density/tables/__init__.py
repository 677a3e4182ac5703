"""Tables of density suites, one per file; `likelihoods` has the first and the order of the others."""
