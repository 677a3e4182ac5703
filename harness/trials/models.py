"""Build what a trial names: a layer, or the shared backbone around it."""

from __future__ import annotations

from flows import Glow, seeded
from harness.layer_files import resolve_layer
from harness.settings import FlowSettings, LayerRef
from layers import InvertibleLinear


def make_layer(layer: LayerRef, shape: tuple[int, ...], seed: int | None = None) -> InvertibleLinear:
    """Build one layer for events of `shape`.

    Args:
        layer: which layer, with which options.
        shape: (C, L) or (C, H, W).
        seed: draws the initial weights; None leaves torch's generator as the caller set it.

    Raises:
        UnsupportedShape: the layer cannot serve this shape.
        UserError: there is no such layer.
    """
    cls = resolve_layer(layer.layer)
    if seed is None:
        return cls(shape, **dict(layer.options))
    with seeded(seed, layer.row):
        return cls(shape, **dict(layer.options))


def build_flow(shape: tuple[int, ...], layer: LayerRef, flow: FlowSettings, seed: int) -> Glow:
    """Build the Glow backbone around a layer; a layer that is itself the step's 1x1 gets none beside it."""
    cls = resolve_layer(layer.layer)
    mixer = None
    if flow.mixer != "none" and not cls.replaces_mixer:
        mixer = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", flow.mixer),))
    return Glow(
        shape,
        lambda event: make_layer(layer, event),
        None if mixer is None else lambda event: make_layer(mixer, event),
        levels=flow.levels,
        steps=flow.steps,
        width=flow.width,
        coupling=flow.coupling,
        prior=flow.prior,
        seed=seed,
        split_step=flow.split_step,
    )
