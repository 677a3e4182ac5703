"""Flows, the shared backbones and the preprocessing of their input; independent of the layers under test."""

from flows.actnorm import ActNorm
from flows.backbone import Backbone
from flows.backbones.autoregressive import Autoregressive
from flows.backbones.glow import Glow
from flows.bijection import Bijection, Dense, Estimated
from flows.couplings import AffineCoupling, MaskedCoupling, make_coupling, make_split_prior
from flows.density import Density
from flows.permutation import Permutation
from flows.preprocess import (
    AffineRange,
    Asinh,
    Logit,
    Preprocessing,
    bits_per_dim,
    dequantise,
    logit_pixels,
    quantise,
    scale_pixels,
    scale_range,
)
from flows.protocol import Flow, seeded
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze

__all__ = [
    "ActNorm",
    "AffineCoupling",
    "AffineRange",
    "Asinh",
    "Autoregressive",
    "Backbone",
    "Bijection",
    "Dense",
    "Density",
    "Estimated",
    "Flow",
    "Glow",
    "Logit",
    "MaskedCoupling",
    "Permutation",
    "Preprocessing",
    "Squeeze",
    "UnsupportedEvent",
    "bits_per_dim",
    "dequantise",
    "level_shapes",
    "logit_pixels",
    "make_coupling",
    "make_split_prior",
    "quantise",
    "scale_pixels",
    "scale_range",
    "seeded",
]
