"""Build the model of a trial: a layer, or the shared backbone around it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial

import torch

from flows import Backbone, Flow, UnsupportedEvent, backbones, seeded
from flows.baselines import build_baseline
from harness.core.discovery import class_in
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


def backbone_of(flow: FlowSettings) -> type[Backbone]:
    """Return the class of the backbone."""
    return class_in(backbones, flow.backbone, Backbone)  # type: ignore[type-abstract]


def layer_shapes(shape: tuple[int, ...], flow: FlowSettings) -> list[tuple[int, ...]]:
    """Return the event shapes that a layer meets in the backbone; raise UnsupportedEvent if it cannot serve `shape`."""
    return backbone_of(flow).layer_shapes(shape, flow.levels)


def build_flow(
    shape: tuple[int, ...], layer: LayerRef, flow: FlowSettings, seed: int, permute: int | None = None
) -> Flow:
    """Build the flow of a row: a baseline, or the backbone around a layer.

    There is a mixer where the row keeps it, and in a backbone that has mixers (`Backbone.mixed`) beside each layer that
    is no 1x1 convolution itself. A baseline derives its size from levels, steps and width, and documents how.

    The flow of an oracle starts with the inverse of the data's permutation, whose seed is `permute`.

    Raises:
        UnsupportedShape: the layer cannot serve a level.
        UnsupportedEvent: the backbone cannot serve the shape, or the data of an oracle have no permutation.
        UserError: the layer does not exist.
    """
    if layer.baseline:
        return build_baseline(layer.layer, shape, flow.levels, flow.steps, flow.width, seed, dict(layer.options))
    backbone, cls, mixer, order = backbone_of(flow), resolve_layer(layer.layer), None, None
    if flow.mixer != "none" and (layer.keep_mixer or (backbone.mixed and not cls.replaces_mixer)):
        mixer = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", flow.mixer),))
    if (fault := layer.oracle_fault(permute)) is not None:
        raise UnsupportedEvent(fault)
    if layer.oracle and permute is not None:
        order = torch.from_numpy(permutation(math.prod(shape), permute)).argsort()
    make, make_mixer = partial(make_layer, layer), None if mixer is None else partial(make_layer, mixer)
    settings = {name: getattr(flow, name) for name in backbone.settings()}
    return backbone(shape, make, make_mixer, seed=seed, order=order, **settings)
