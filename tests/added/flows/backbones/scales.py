"""A backbone without couplings: ActNorm and the layer under test, `steps` times, at the shape of the event."""

from flows.actnorm import ActNorm
from flows.backbone import Backbone
from flows.protocol import seeded
from flows.shapes import level_shapes


class Scales(Backbone):
    mixed = False
    capacities = {"steps": "pairs"}  # noqa: RUF012

    def __init__(self, shape, make_layer, make_mixer=None, *, levels, steps, seed=0, order=None):
        super().__init__()
        self.shape, self.dim, self.level_shapes = tuple(shape), shape[0] * shape[1], self.layer_shapes(shape, levels)
        parts = []
        for step in range(steps):
            with seeded(seed, f"step{step}/layer"):
                parts += [(f"step{step}/actnorm", ActNorm(shape[0])), (f"step{step}/layer", make_layer(shape))]
        self.set_levels([parts])

    @classmethod
    def layer_shapes(cls, shape, levels):
        level_shapes(shape, levels)
        return [tuple(shape)]

    @classmethod
    def described(cls, settings):
        return f"{settings.steps} pairs of scales and layers"
