"""Build the model of a trial: a layer, or the shared backbone around it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from flows import Autoregressive, Flow, Glow, UnsupportedEvent, level_shapes, patch_shapes, seeded
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


def layer_shapes(shape: tuple[int, ...], flow: FlowSettings) -> list[tuple[int, ...]]:
    """Return the event shapes that a layer meets in the backbone; raise UnsupportedEvent if it cannot serve `shape`."""
    if flow.backbone == "autoregressive":
        return patch_shapes(shape, flow.levels)[-1:]
    return level_shapes(shape, flow.levels)


def build_flow(
    shape: tuple[int, ...], layer: LayerRef, flow: FlowSettings, seed: int, permute: int | None = None
) -> Flow:
    """Build the flow of a row: a baseline, or the backbone around a layer.

    In Glow, a layer that is itself the step's 1x1 convolution gets no other one, unless the row keeps the mixer;
    between autoregressive blocks there is a mixer only if the row keeps it. A baseline derives its size from levels,
    steps and width, and documents how.

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
    mixed = layer.keep_mixer or (flow.backbone == "glow" and not cls.replaces_mixer)
    if flow.mixer != "none" and mixed:
        mixer = LayerRef(row="mixer", layer="conv1x1", options=(("parameterisation", flow.mixer),))
    fault = layer.oracle_fault(permute)
    if fault is not None:
        raise UnsupportedEvent(fault)
    order = None
    if layer.oracle and permute is not None:
        order = torch.from_numpy(permutation(math.prod(shape), permute)).argsort()
    make, make_mixer = partial(make_layer, layer), None if mixer is None else partial(make_layer, mixer)
    common: dict[str, Any] = {name: getattr(flow, name) for name in ("levels", "steps", "width", "gate")}
    common |= {"seed": seed, "order": order}
    if flow.backbone == "autoregressive":
        return Autoregressive(shape, make, make_mixer, turn=flow.turn, **common)
    return Glow(
        shape,
        make,
        make_mixer,
        coupling=flow.coupling,
        prior=flow.prior,
        split_step=flow.split_step,
        **common,
    )
