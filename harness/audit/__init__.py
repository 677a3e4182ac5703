"""Check that the likelihood a flow reports is one, on the weights that were evaluated."""
