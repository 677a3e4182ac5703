"""Tune the settings of density trials: the space and its candidates, the choice, and their description."""
