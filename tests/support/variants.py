"""Variants of a layer, of a flow or of a part of it, mostly with one fault each."""


def variant(base, **members):
    """Return a class that differs from `base` by these members."""
    return type("Variant", (base,), {"__module__": base.__module__, **members})


def output(base, change):
    """Return a variant whose forward returns `change(self, x, y, log_det)`."""
    return variant(base, forward=lambda self, x: change(self, x, *base.forward(self, x)))


def started(base, change, **members):
    """Return a variant on which `change` is called at the end of construction."""

    def __init__(self, shape):
        base.__init__(self, shape)
        change(self)

    return variant(base, __init__=__init__, **members)
