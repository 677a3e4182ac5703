"""Train a flow: updates, checkpoints, weights."""
