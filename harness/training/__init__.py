"""Train a flow: updates, precision, CUDA graphs, checkpoints, weights."""
