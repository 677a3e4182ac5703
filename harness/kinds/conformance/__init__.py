"""Conformance: whether a layer, of any library, is what its log-det and its inverse say, before and after training."""
