"""Check that the reported likelihood of a flow is valid, on the weights that were evaluated."""
