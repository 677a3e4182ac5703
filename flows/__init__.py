"""Flows, the shared backbones and the preprocessing of their input; independent of the layers under test."""

from flows.actnorm import ActNorm
from flows.backbone import Backbone
from flows.backbones.autoregressive import Autoregressive
from flows.backbones.glow import Glow
from flows.contraction import Contraction
from flows.couplings import AffineCoupling, MaskedCoupling, make_coupling, make_split_prior
from flows.density import Density
from flows.permutation import Permutation
from flows.protocol import Dense, Flow, seeded
from flows.shapes import UnsupportedEvent, level_shapes
from flows.squeeze import Squeeze

__all__ = [
    "ActNorm",
    "AffineCoupling",
    "Autoregressive",
    "Backbone",
    "Contraction",
    "Dense",
    "Density",
    "Flow",
    "Glow",
    "MaskedCoupling",
    "Permutation",
    "Squeeze",
    "UnsupportedEvent",
    "level_shapes",
    "make_coupling",
    "make_split_prior",
    "seeded",
]
