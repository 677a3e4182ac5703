"""Run trials, each in a separate process under a supervisor, so that a failure affects one trial alone."""
