"""Build the model of a trial: a layer, or the shared backbone around it."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch

from flows import Flow, Glow, UnsupportedEvent, seeded
from flows.baselines import build_baseline
from harness.core.layer_classes import resolve_layer
from harness.core.settings import FlowSettings, LayerRef
from harness.pipeline.pipeline import permutation
from layers import InvertibleLinear


def make_layer(layer: LayerRef, shape: tuple[int, ...], seed: int | None = None) -> InvertibleLinear:
    """Build one layer for events of `shape`; without a seed, torch's generator draws the initial weights.

    Raises:
        UnsupportedShape: the layer cannot serve this shape.
        UserError: the layer does not exist.
    """
    cls = resolve_layer(layer.layer)
    with nullcontext() if seed is None else seeded(seed, layer.row):
        return cls(shape, **dict(layer.options))


def build_flow(
    shape: tuple[int, ...], layer: LayerRef, flow: FlowSettings, seed: int, permute: int | None = None
) -> Flow:
    """Build the flow of a row: a baseline, or the Glow backbone around a layer.

    A layer that is itself the step's 1x1 convolution gets no other one, unless the row keeps the mixer. A baseline
    derives the size of its flow from the same settings, levels, steps and width, and documents how.

    The flow of an oracle starts with the inverse of the data's permutation, whose seed is `permute`.

    Raises:
        UnsupportedShape: the layer cannot serve a level.
        UnsupportedEvent: the backbone cannot serve the shape, or the data of an oracle have no permutation.
        UserError: the layer does not exist.
        MissingLibrary: a baseline's library is not installed.
    """
    if layer.baseline:
        return build_baseline(layer.layer, shape, flow.levels, flow.steps, flow.width, seed, dict(layer.options))
    cls = resolve_layer(layer.layer)
    mixer = None
    if flow.mixer != "none" and (layer.keep_mixer or not cls.replaces_mixer):
        mixer = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", flow.mixer),))
    fault = layer.oracle_fault(permute)
    if fault is not None:
        raise UnsupportedEvent(fault)
    order = None
    if layer.oracle and permute is not None:
        order = torch.from_numpy(permutation(math.prod(shape), permute)).argsort()
    return Glow(
        shape,
        lambda event: make_layer(layer, event),
        None if mixer is None else lambda event: make_layer(mixer, event),
        levels=flow.levels,
        steps=flow.steps,
        width=flow.width,
        coupling=flow.coupling,
        gate=flow.gate,
        prior=flow.prior,
        seed=seed,
        split_step=flow.split_step,
        order=order,
    )
