"""Load the layers' kernels for all trials, and build them if necessary; imported for this effect in the fork server."""

from layers.kernels import load as kernels

kernels.load()
