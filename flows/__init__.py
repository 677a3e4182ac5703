"""The shared Glow backbone and the pre-processing in front of it; knows nothing of the layers it is tested with."""

from flows.actnorm import ActNorm
from flows.couplings import AffineCoupling, make_coupling, make_split_prior
from flows.glow import Glow
from flows.permutation import Permutation
from flows.preprocess import (
    AffineRange,
    Logit,
    Preprocessing,
    bits_per_dim,
    dequantise,
    logit_pixels,
    quantise,
    scale_pixels,
    scale_range,
)
from flows.seeding import seeded
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze

__all__ = [
    "ActNorm",
    "AffineCoupling",
    "AffineRange",
    "Glow",
    "Logit",
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
