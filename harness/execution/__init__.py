"""Run trials: each in its own process under a supervisor, so that a failure affects only its own trial."""
