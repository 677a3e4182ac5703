"""Choose the linear layers that an audit checks, and the method for each.

Up to D = 4096 the matrix of a layer is formed. Above, that of one layer of each class and shape is, if it is sparse
(`harness.audit.linear`). The others are checked exactly on a smaller event, and at their true shape by a stochastic
estimate (`harness.audit.stochastic_log_det`), as D^3 for D = 12,288 takes half a minute and 3.6 GB.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping

import torch

from harness.evaluation.evaluation import state_of
from harness.timing.operations import perturb
from layers import InvertibleLinear, UnsupportedShape
from layers.linalg.precision import empty_like

DENSE_LIMIT = 4096  # D up to which the matrix of a layer is formed
STAND_IN_LIMIT = 1024  # D of the smaller layer that is checked in its place
WORK_LIMIT = 5e10  # sum of D^3 over the audited layers: seconds on one core

LayerMaker = Callable[[InvertibleLinear, tuple[int, ...]], InvertibleLinear]


def chosen_layers(layers: Mapping[str, InvertibleLinear], seed: int) -> set[str]:
    """Return the paths of the layers to audit: all within the work limit, else a sample.

    The sample always contains the first and the last of each kind at each event shape, then random others as far as
    the limit allows. `layers` are in the order of application.
    """
    chosen = {path for paths in _by_kind(layers) for path in (paths[0], paths[-1])}
    work = sum(_work(layers[path]) for path in chosen)
    others = [path for path in layers if path not in chosen]
    random.Random(seed).shuffle(others)
    for path in others:
        work += _work(layers[path])
        if work > WORK_LIMIT:
            break
        chosen.add(path)
    return chosen


def exact_layers(layers: Mapping[str, InvertibleLinear], seed: int) -> set[str]:
    """Return the paths of the chosen layers whose matrix is formed: above D = 4096, one of each class and shape."""
    large = {path: layer for path, layer in layers.items() if layer.dim > DENSE_LIMIT}
    return layers.keys() - large.keys() | {random.Random(seed).choice(paths) for paths in _by_kind(large)}


def _by_kind(layers: Mapping[str, InvertibleLinear]) -> list[list[str]]:
    """Return the paths of the layers of each class and event shape."""
    groups: dict[object, list[str]] = {}
    for path, layer in layers.items():
        groups.setdefault((type(layer), layer.shape), []).append(path)
    return list(groups.values())


def _work(layer: InvertibleLinear) -> float:
    return float(layer.dim if layer.dim <= DENSE_LIMIT else STAND_IN_LIMIT) ** 3


def smaller(layer: InvertibleLinear, make_layer: LayerMaker | None) -> InvertibleLinear:
    """Return a layer of the same kind and options on a smaller event; raise UnsupportedShape if there is none.

    Weights that do not depend on the size of the event are copied; otherwise those of the smaller layer are
    perturbed from initialisation.
    """
    if make_layer is None:
        raise UnsupportedShape("it cannot be built smaller")
    channels, *spatial = layer.shape
    for halvings in itertools.count(1):
        shape = (channels, *(max(1, size >> halvings) for size in spatial))
        if math.prod(shape) <= STAND_IN_LIMIT or math.prod(shape) == channels:
            break
    try:
        small = make_layer(layer, shape)
    except UnsupportedShape as error:
        raise UnsupportedShape(f"smaller: {error}") from error
    small.train(layer.training)
    small.to(empty_like(layer))
    shapes = [{name: value.shape for name, value in state_of(each).items()} for each in (layer, small)]
    if shapes[0] == shapes[1]:
        small.load_state_dict(layer.state_dict())
    else:
        perturb(small, 0.05, torch.Generator().manual_seed(0))
    return small
