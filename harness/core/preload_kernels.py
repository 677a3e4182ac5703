"""Imported for its effect, in the fork server: the layers' kernels are loaded, and built if need be, for all trials."""

from layers.kernels import load as kernels

kernels.load()
