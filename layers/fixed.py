"""Controls: maps that learn nothing, such as a random permutation of all entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from layers.base import InvertibleLinear, check_choice
from layers.linalg.mixing import mix_channels
from layers.linalg.plu import log_abs_det, random_rotations
from layers.linalg.transforms import dct, dct_matrix, inverse_dct
from layers.linalg.whitening import whitening_matrix

Map = Literal["permutation", "reverse", "turn", "dct", "rotation", "whitening"]


class Fixed(InvertibleLinear, name="fixed"):
    r"""A fixed map without parameters, to compare with a learned layer of the same reach; no bias.

    ``map="permutation"``: y = x[p] over all D entries, with p drawn uniformly. ``map="reverse"``: the channels in
    reverse order, at every position alike. ``map="turn"``: the positions in reverse order, every channel alike.
    ``map="dct"``: the orthonormal cosine transform (DCT-II) of each channel over its positions.

    Two are a c x c matrix W at every position, y[:, p] = W x[:, p]. ``map="rotation"``: W is orthogonal with
    determinant 1, drawn uniformly (Haar). ``map="whitening"``: W is the identity until `initialise` fits it to the
    first minibatch of training (`layers.linalg.whitening`), so that the channels of the whole data are nearly
    uncorrelated and of variance 1; the mean stays. Where couplings start as the identity, a second one in a flow meets
    white data and is nearly diagonal, so that only the first one mixes.

    Determinant: log|det| = 0; for rotation and whitening n log|det W| by one LU decomposition.
    Inverse: the inverse permutation, the transposed transform, or W^-1 at every position.
    Parameters: none; the permutation and W are buffers.
    Singular cases: none.

    Family: controls
    Cost:
        forward: D moves (permutation, reverse, turn), O(D log n) (dct), c^2 n multiply-adds (rotation, whitening)
        inverse: the same; for rotation and whitening after O(c^3) once per call
        log-det: none, it is 0; O(c^3) for rotation and whitening
    Shapes: every (C, L) and (C, H, W)
    Source: fixed permutations: NICE (Dinh et al., 2015), RealNVP (Dinh et al., 2017); DCT: Ahmed et al. (1974);
    whitening: Kessy, Lewin and Strimmer (2018)

    Args:
        map: "permutation", "reverse", "turn", "dct", "rotation" or "whitening".
    """

    order: Tensor
    weight: Tensor
    precision: Tensor

    def __init__(self, shape: tuple[int, ...], *, map: Map = "permutation") -> None:
        super().__init__(shape)
        check_choice("fixed", "map", map, get_args(Map))
        self.map = map
        self.axes = len(self.shape) - 1
        self.turned = (1,) if map == "reverse" else tuple(range(2, 2 + self.axes))
        if map == "permutation":
            self.register_buffer("order", torch.randperm(self.dim))
        if map in ("rotation", "whitening"):
            start = random_rotations(1, self.channels)[0] if map == "rotation" else torch.eye(self.channels)
            self.register_buffer("weight", start.to(torch.get_default_dtype()).contiguous())
        # Without a parameter, the precision of the layer is that of this.
        self.register_buffer("precision", torch.empty(0), persistent=False)

    def initialise(self, x: Tensor) -> None:
        """Fit the whitening to the first minibatch of training."""
        if self.map == "whitening":
            self.weight.copy_(whitening_matrix(x))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Move the entries, transform or mix the channels; see the class for the log-det."""
        match self.map:
            case "permutation":
                y = x.flatten(1)[:, self.order].reshape(x.shape)
            case "dct":
                y = dct(x, self.axes)
            case "rotation" | "whitening":
                y = mix_channels(self.weight, x)
            case _:
                y = x.flip(self.turned)
        return y, self.log_det()

    def log_det(self) -> Tensor:
        """Return 0, or n log|det W|."""
        if self.map in ("rotation", "whitening"):
            return log_abs_det(self.weight, self.positions)
        return self.precision.new_zeros(())

    def inverter(self) -> Callable[[Tensor], Tensor]:
        """Invert W or the permutation once; the callable moves the entries back, or transforms back."""
        if self.map == "permutation":
            order = self.order.argsort()
            return lambda y: y.flatten(1)[:, order].reshape(y.shape)
        if self.map == "dct":
            return partial(inverse_dct, axes=self.axes)
        if self.map in ("rotation", "whitening"):
            return partial(mix_channels, torch.linalg.inv(self.weight))
        return lambda y: y.flip(self.turned)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return a permuted identity, or the Kronecker product of the matrices of the axes."""
        if self.map == "permutation":
            return torch.eye(self.dim, dtype=self.precision.dtype, device=self.precision.device)[self.order]
        matrix = self.weight if self.map in ("rotation", "whitening") else torch.eye(self.channels)
        matrix = (matrix.flip(0) if self.map == "reverse" else matrix).to("cpu", torch.float64)
        for size in self.shape[1:]:
            axis = dct_matrix(size) if self.map == "dct" else torch.eye(size)
            matrix = torch.kron(matrix, (axis.flip(0) if self.map == "turn" else axis).to(matrix))
        return matrix.to(self.precision)
