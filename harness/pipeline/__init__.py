"""Turn splits into prepared minibatches, and settings into flows."""
