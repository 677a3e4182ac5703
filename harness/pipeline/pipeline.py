"""Convert integer values to the flow's input and back: augmentation, dequantisation, preprocessing, permutation."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flows.preprocess import (
    AffineRange,
    Asinh,
    Preprocessing,
    bits_per_dim,
    dequantise,
    logit_pixels,
    scale_pixels,
)
from harness.core.errors import UserError
from harness.core.settings import DataRef, Unit
from harness.datasets._values.lattice import Lattice
from harness.datasets.base import Splits
from harness.pipeline.augmentation import augment
from harness.pipeline.overlap import digests

Split = Literal["train", "validation", "test"]

PART = 1 << 16  # events whose noise is measured at once
IQR = 1.349  # interquartile range of a standard normal variable
STATISTICS = 1 << 22  # training values of which mean, deviation and quartiles are taken, of evenly spaced events

RESIDENT_BYTES = 512 * 2**20
"""Bytes up to which a split is copied to a CUDA device once; CIFAR-10 has 154 MB, ImageNet at 32 x 32 3.9 GB."""


@dataclass(frozen=True)
class ValueRange:
    """The facts about the training data on which the pre-processing depends, as plain numbers and texts."""

    dtype: str  # numpy's name of the type of the values
    levels: int | None  # this, `lattice` and `lattices` are those of the splits
    lattice: bool
    low: list[float]  # the extreme values of each channel; those of an image are its levels
    high: list[float]
    lattices: tuple[Lattice, ...] | None
    noise: tuple[bool, ...] | None = None
    mean: list[float] | None = None  # this, deviation, median and interquartile range of each channel, where needed
    deviation: list[float] | None = None
    median: list[float] | None = None
    spread: list[float] | None = None
    digits: tuple[int, ...] | None = None  # see `Splits`

    @classmethod
    def of(cls, splits: Splits, statistics: bool = False) -> ValueRange:
        """Return the range of the training split, and its `statistics` if they are needed."""
        axes = (0, *range(2, splits.train.ndim))
        if splits.levels is not None:
            low, high = [0.0] * splits.shape[0], [splits.levels - 1.0] * splits.shape[0]
        else:
            low, high = splits.train.min(axes).tolist(), splits.train.max(axes).tolist()
        lattices = None
        if splits.lattices is not None:  # of third-party code, perhaps in numbers of numpy, which no weights file holds
            lattices = tuple(Lattice(*map(float, astuple(lattice))) for lattice in splits.lattices)
        of_channels: dict[str, list[float]] = {}
        if statistics:
            some = np.moveaxis(splits.train[:: math.ceil(splits.train.size / STATISTICS)], 1, 0)
            values = some.reshape(splits.shape[0], -1).astype(np.float64)
            lower, median, upper = np.percentile(values, [25, 50, 75], axis=1)
            of_channels = {"mean": values.mean(1).tolist(), "deviation": values.std(1).tolist()}
            of_channels |= {"median": median.tolist(), "spread": (upper - lower).tolist()}
        kind, noise = splits.train.dtype.name, splits.noise
        return cls(kind, splits.levels, splits.lattice, low, high, lattices, noise, digits=splits.digits, **of_channels)

    def as_splits(self, shape: tuple[int, ...]) -> Splits:
        """Return splits of two events, of the low and of the high values, which have the same pre-processing."""
        extremes = np.array([self.low, self.high], self.dtype).reshape(2, shape[0], *[1] * (len(shape) - 1))
        events = np.broadcast_to(extremes, (2, *shape))
        names = ("levels", "lattice", "lattices", "noise", "digits")
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        return Splits(events, events, events, description="the range of the training split", **facts)


def permutation(dim: int, seed: int) -> np.ndarray:
    """Return a permutation p of 0..dim-1, int64, a function of (dim, seed) alone: entry i of the result is p[i]."""
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(dim), kind="stable")


class Pipeline:
    """The data set of a trial, in batches on the trial's device.

    The flow's input is x = P g(v + u): v is a value (in training one that `augment` has moved), u uniform noise over
    the cell of the value, g the preprocessing, P one permutation of all C*H*W entries for every split (none without
    `data.permute`). P keeps the scale of each entry, so a permuted data set keeps its units and its floor. g scales
    linearly to [-1, 1), images by their number of levels and sequences by each channel's range in the **training**
    split (held-out values may be outside), or is the logit for images.

    Two measures of one likelihood p(v + u), both free of the choice of g:

        bits_per_dim = -log2 p(v + u) / D, with one level as the unit of length,
        nats_per_dim = -log p(v + u) / D + mean_d log s_d, with [-1, 1) as the range of each channel;

    s_d is the size of a cell in the linear scaling, so that under the linear scaling nats_per_dim is the
    flow's -log p(x) / D. As E_u[-log p(v + u)] >= 0 for every density p and value v, no likelihood of dequantised
    data has expected bits_per_dim below 0 or nats_per_dim below mean_d log s_d: the resolution floor.

    Args:
        splits: the data.
        data: provides permutation, augmentation, preprocessing, and whether to dequantise.
        dtype: of the flow's input.
        device: device of the batches; see `SplitValues` for the device of the values themselves.
        seed: seed of the trial, which also draws the permutation of data with `permute: per-seed`.
        values: the range and statistics of the training split; None: those of `splits`.

    Attributes:
        shape: the event shape (C, *spatial).
        dim: D, the number of entries of an event.
        unit: the measure that is reported, "bits_per_dim" for images and "nats_per_dim" for sequences.
        levels: number of levels of an image's pixels; None for sequences.
        preprocessing: g, a module on the device.
        permutation: p as a tensor (D,), or None.
        log_step: mean_d log s_d.
        values: the range of the training split.
        log_widths: those of the splits.
        has_noise: whether noise is added to the values, or was before.

    Raises:
        UserError: logit preprocessing of sequences, or an augmentation that the event shape does not support.
    """

    def __init__(
        self,
        splits: Splits,
        data: DataRef,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        values: ValueRange | None = None,
    ) -> None:
        several = data.preprocessing if isinstance(data.preprocessing, tuple) else (data.preprocessing,)
        self._scalings = np.array(several if len(several) > 1 else several * splits.shape[0])
        bounded = not {*several} & {"standard", "asinh"}
        if splits.levels is not None and (len(several) > 1 or not bounded):
            raise UserError(
                f"{data.label}: {', '.join(several)!r} is for values without levels; use 'scale' or 'logit'"
            )
        if len(self._scalings) != splits.shape[0]:
            raise UserError(f"{data.label}: {len(several)} scalings for {splits.shape[0]} channels; state one for each")
        self.shape = splits.shape
        self.device = torch.device(device)
        self.dim = math.prod(self.shape)
        self.unit: Unit = splits.unit
        self.levels = splits.levels
        self.dtype = dtype
        self.lattice = splits.lattice
        cells = torch.tensor(splits.noisy, dtype=torch.float64)
        self.dequantises = any(splits.noisy) and data.dequantise
        self._has_noise = cells.bool().reshape(-1, *[1] * (len(self.shape) - 1)).to(self.device)
        self.log_widths = splits.log_widths
        self.has_noise = self.dequantises or splits.log_widths is not None
        self._has_floor = all(splits.noisy) and splits.no_floor is None
        self._log_units = sum(math.log(abs(lattice.step)) for lattice in splits.lattices or ())
        self._digits: Tensor | None = None
        if splits.digits is not None and splits.lattices is not None:
            steps = [lattice.step for lattice in splits.lattices]
            self._digits = torch.tensor([splits.digits, steps], dtype=torch.float64, device=self.device)
        self._augmentation = data.augmentation
        self._kind = splits.train.dtype
        self._raw = {name: SplitValues(values, self.device) for name, values in splits.parts().items()}
        self.values = values or ValueRange.of(splits, not bounded and splits.levels is None)
        if splits.levels is not None:
            self.log_step = math.log(2 / splits.levels)
            self._bounds: tuple[float, float] = (0, splits.levels - 1)
            preprocessing = (scale_pixels if data.preprocessing == "scale" else logit_pixels)(splits.levels)
        else:
            low, high = torch.from_numpy(np.array([self.values.low, self.values.high], self.values.dtype)).double()
            if splits.digits is not None:
                cells = cells * self._widths(high)
            self.log_step = (2 / (high + cells - low)).log().mean().item()
            kind = np.iinfo(splits.train.dtype) if splits.lattice else np.finfo(splits.train.dtype)
            self._bounds = (kind.min, kind.max)
            preprocessing = self._scaling(data, low, high, cells)
        self.preprocessing = preprocessing.to(self.device)
        self.permutation: Tensor | None = None
        order_seed = data.permutation_seed(seed)
        if order_seed is not None:
            self.permutation = torch.from_numpy(permutation(self.dim, order_seed)).to(self.device)
            self._undo = self.permutation.argsort()

    def _scaling(self, data: DataRef, low: Tensor, high: Tensor, cells: Tensor) -> Preprocessing:
        """Return g of values without levels, from the statistics of training; a channel of one value keeps its cell."""
        ranged, bent = (torch.from_numpy(self._scalings == name) for name in ("scale", "asinh"))
        if ranged.all():
            return Preprocessing(AffineRange(low, high + cells))
        if self.values.mean is None:
            raise UserError(f"{data.label}: the weights are of a version without `preprocessing: {data.preprocessing}`")
        mean, deviation, median, spread = (
            torch.tensor(each, dtype=torch.float64)
            for each in (self.values.mean, self.values.deviation, self.values.median, self.values.spread)
        )
        deviation = torch.where(deviation > 0, deviation, 1.0)
        center, scale = median + cells / 2, torch.where(spread > 0, spread / IQR, deviation)
        low = torch.where(ranged, low, mean + cells / 2 - deviation)
        high = torch.where(ranged, high + cells, mean + cells / 2 + deviation)
        if not bent.any():
            return Preprocessing(AffineRange(low, high))
        center, scale = torch.where(bent, center, (low + high) / 2), torch.where(bent, scale, (high - low) / 2)
        return Preprocessing(Asinh(center, scale, bent))

    def raw(self, split: Split) -> SplitValues:
        """Return the unprocessed values of a split, integers if they are on a lattice, to take batches of."""
        return self._raw[split]

    def augment(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Return training values (N, *shape), each moved at random by `augment` if the data set asks for it."""
        return augment(values, self._augmentation, generator)

    def prepare(self, values: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Convert values to the flow's input, with fresh noise.

        Args:
            values: values of `raw`, (N, *shape).
            generator: draws the noise, on any device; None uses the global one.

        Returns:
            x of shape (N, *shape) in the pipeline's dtype, and log|det dx/dv| of shape (N,) in float64.
        """
        # In float64 whatever the dtype of x, so that one generator gives a flow and its float64 copy the same input.
        v = values.double()
        if self.dequantises:
            noisy = dequantise(values, generator, torch.float64)
            if self._digits is not None:
                noisy = v + (noisy - v) * self._widths(values)
            v = torch.where(self._has_noise, noisy, v)
        x, log_det = self.preprocessing(v)
        return self._reorder(x.to(self.dtype), self.permutation), log_det

    def _widths(self, values: Tensor) -> Tensor:
        """Return the width of the noise of entries (N, C, *spatial) or (C,): the unit of the last digit, at least 1."""
        assert self._digits is not None
        digits, step = self._digits.to(values.device).view(2, -1, *[1] * max(0, values.ndim - 2))
        exponent = (values.double().abs() * step * (1 + 1e-9)).log10().floor()  # 1000 is one of four digits
        return torch.clamp(10 ** (exponent - digits + 1) / step, min=1)

    def to_data(self, x: Tensor) -> np.ndarray:
        """Return the values (N, *shape) whose cells contain x: on the lattice, within the range of levels or type."""
        undo = None if self.permutation is None else self._undo
        v = self.preprocessing.inverse(self._reorder(x.detach().double(), undo))
        if self.lattice:
            v = v.floor()
        v = v.nan_to_num().clamp(*self._bounds)
        return v.cpu().numpy().astype(self._kind)

    @staticmethod
    def _reorder(values: Tensor, order: Tensor | None) -> Tensor:
        return values if order is None else values.flatten(1)[:, order].reshape(values.shape)

    def measures(self, log_prob: Tensor, log_det: Tensor) -> dict[Unit, Tensor]:
        """Return both measures of each sample, (N,) in float64.

        `log_prob` is the flow's log-density of its input in nats, `log_det` as `prepare` returned it, both (N,).
        """
        raw = log_prob.double() + log_det.double()
        return {"bits_per_dim": bits_per_dim(raw, self.dim), "nats_per_dim": self.log_step - raw / self.dim}

    def nats_per_event(self, nats_per_dim: float) -> float | None:
        """Return -log p of vectors in the units of the source, from its nats_per_dim; None for other events.

        It is free of the training range: with the step t_d of entry d, D (nats_per_dim - log_step) + sum_d log t_d.
        """
        if self.levels is not None or self.shape[1:] != (1,):
            return None
        return self.dim * (nats_per_dim - self.log_step) + self._log_units

    def floor(self, split: Split = "test") -> float | None:
        """Return the resolution floor in `unit`; None if unknown: off a lattice, nothing bounds a density.

        Where each value has a width of its own, it is that of the values of a split: the entropy of its noise.
        """
        if self.log_widths is not None:
            return self.log_step + self.log_widths[list(self._raw).index(split)]
        if not self._has_floor:
            return None
        if self._digits is not None:
            values = self._raw[split]
            begins = range(0, len(values), PART)
            logs = [self._widths(values[begin : begin + PART]).log().flatten(1).mean(1) for begin in begins]
            return self.log_step + float(torch.cat(logs).mean())
        return 0.0 if self.unit == "bits_per_dim" else self.log_step


class SplitValues:
    """Raw values (N, *shape), possibly many times the memory; `values[chosen]` is a batch on the device.

    On the host the array stays in place, such as in a memory-mapped file, and batches are copies. On a CUDA device a
    small split is resident; from a larger one each batch is gathered into page-locked memory and sent from there, and
    the host does not wait for its arrival.

    Args:
        values: integers or floating point; may be read-only.
        device: device of the batches.
        resident_bytes: the largest split that is copied to a CUDA device.
    """

    def __init__(
        self, values: np.ndarray, device: torch.device | str = "cpu", resident_bytes: int = RESIDENT_BYTES
    ) -> None:
        self.device = torch.device(device)
        self._values = np.asarray(values)  # a plain array, whose slices are not memory maps
        self._dtype = torch.from_numpy(np.empty(0, self._values.dtype.newbyteorder("="))).dtype
        self._resident: Tensor | None = None
        if self.device.type == "cuda" and self._values.nbytes <= resident_bytes:
            self._resident = self._send(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def groups(self) -> Tensor:
        """The number of each event's group of equal events, (N,) on the CPU."""
        return torch.from_numpy(np.unique(np.array(digests(self._values)), return_inverse=True)[1])

    def __getitem__(self, chosen: slice | Tensor) -> Tensor:
        """Return the events of a range, or of a tensor of indices on the CPU, in their order; a copy, on the device."""
        if self._resident is None:
            # Not numpy.take, because it first copies the whole of a non-contiguous array.
            return self._send(self._values[chosen if isinstance(chosen, slice) else chosen.numpy()])
        if isinstance(chosen, slice):
            return self._resident[chosen].clone()
        return self._resident[chosen.pin_memory().to(self.device, non_blocking=True)]

    def _send(self, part: np.ndarray) -> Tensor:
        # torch.from_numpy would share memory that may be read-only, and warn about it.
        held = torch.empty(part.shape, dtype=self._dtype, pin_memory=self.device.type == "cuda")
        np.copyto(held.numpy(), part)
        # torch's allocator does not reuse page-locked memory before the copy is complete.
        return held.to(self.device, non_blocking=True)
