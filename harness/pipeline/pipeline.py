"""Convert integer values to the flow's input and back: augmentation, dequantisation, preprocessing, permutation."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from flows.preprocess import AffineRange, Asinh, Preprocessing, bits_per_dim, dequantise, logit_pixels, scale_pixels
from harness.core.errors import UserError
from harness.core.settings import Augmentation, DataRef, Unit, augmentation_margin
from harness.datasets._values.lattice import Lattice
from harness.datasets.base import Splits
from harness.pipeline.duplicates import digests

Split = Literal["train", "validation", "test"]

IQR = 1.349  # interquartile range of a standard normal variable
FACTS = ("levels", "lattice", "lattices", "noise", "digits")  # of splits, on which the pre-processing depends
STATISTICS = 1 << 22  # training values of which mean, deviation and quartiles are taken, of evenly spaced events


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
    def of(cls, splits: Splits) -> ValueRange:
        """Return the range of the training split, and its statistics unless the values have levels."""
        numbers = {"low": np.zeros(splits.shape[0]), "high": np.full(splits.shape[0], (splits.levels or 1) - 1.0)}
        if splits.levels is None:
            axes = (0, *range(2, splits.train.ndim))
            some = np.moveaxis(splits.train[:: math.ceil(splits.train.size / STATISTICS)], 1, 0)
            some = some.reshape(splits.shape[0], -1).astype(np.float64)
            lower, median, upper = np.percentile(some, [25, 50, 75], axis=1)
            numbers = {"low": splits.train.min(axes), "high": splits.train.max(axes), "median": median}
            numbers |= {"spread": upper - lower, "mean": some.mean(1), "deviation": some.std(1)}
        facts: dict[str, Any] = {name: getattr(splits, name) for name in FACTS}
        facts |= {name: each.tolist() for name, each in numbers.items()}
        if splits.lattices is not None:  # of third-party code, perhaps in numbers of numpy, which no weights file holds
            facts["lattices"] = tuple(Lattice(*map(float, astuple(lattice))) for lattice in splits.lattices)
        return cls(splits.train.dtype.name, **facts)

    def as_splits(self, shape: tuple[int, ...]) -> Splits:
        """Return splits of two events, of the low and of the high values, which have the same pre-processing."""
        extremes = np.array([self.low, self.high], self.dtype).reshape(2, shape[0], *[1] * (len(shape) - 1))
        events = np.broadcast_to(extremes, (2, *shape))
        facts: dict[str, Any] = {name: getattr(self, name) for name in FACTS}
        return Splits(events, events, events, description="the range of the training split", **facts)


def permutation(dim: int, seed: int) -> np.ndarray:
    """Return a permutation p of 0..dim-1, int64, a function of (dim, seed) alone: entry i of the result is p[i]."""
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(dim), kind="stable")


def augment(values: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Move every image of a batch at random, all its channels alike.

    - "crop_flip": the usual one for CIFAR-10 and ImageNet. Reflect-pad by 4 pixels, crop at random to the former
      size (81 positions, equally likely), mirror left and right with probability 1/2.
    - "dihedral_shift": for images without a preferred orientation, such as of the sky. Shift by up to a sixteenth of
      the side (4 pixels at 64 x 64; at least 1) along each axis, with reflection at the border, then apply one of
      the 8 symmetries of the square: mirrored left and right, top and bottom, transposed, each with probability 1/2.

    Reflection is about the outermost pixels, which do not repeat: a b c d enters as c b | a b c d | c b.

    Args:
        values: (N, C, H, W) of any dtype, with a shape that `augmentation_fault` accepts.
        augmentation: one of those above, or "none", which returns the values unchanged.
        generator: draws the moves, on the device of the values.

    Returns:
        Images of the same shape and dtype; entry (i, j) of each is an entry of the same image and channel.
    """
    if augmentation == "none":
        return values
    count, channels, height, width = values.shape
    margin, device = augmentation_margin(augmentation, values.shape[1:]), values.device
    shifts = torch.randint(-margin, margin + 1, (2, count, 1), generator=generator, device=device)
    coins = torch.rand(3, count, 1, generator=generator, device=device) < 0.5
    rows, columns = (
        (size - 1) - ((size - 1) - (shift + torch.arange(size, device=device)).abs()).abs()  # reflected about both ends
        for shift, size in zip(shifts, (height, width), strict=True)
    )
    columns = torch.where(coins[0], columns.flip(1), columns)
    if augmentation == "dihedral_shift":
        rows = torch.where(coins[1], rows.flip(1), rows)
    places = rows[:, :, None] * width + columns[:, None, :]  # (N, H, W), indices into the flattened image
    if augmentation == "dihedral_shift":
        places = torch.where(coins[2][:, :, None], places.mT, places)
    return values.flatten(2).gather(2, places.reshape(count, 1, -1).expand(-1, channels, -1)).reshape(values.shape)


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

    s_d is the size of a cell in the linear scaling, under which nats_per_dim is the flow's -log p(x) / D.

    Args:
        splits, data: the data; their permutation, augmentation and preprocessing, and whether to dequantise.
        dtype, device: of the flow's input; see `SplitValues` for the device of the values themselves.
        seed: seed of the trial, which also draws the permutation of data with `permute: per-seed`.
        values: the range and statistics of the training split; None: those of `splits`.

    Attributes:
        splits, shape, dim: the data, the event shape (C, *spatial), and D, the number of its entries.
        unit: the measure that is reported, "bits_per_dim" for images and "nats_per_dim" for sequences.
        levels: number of levels of an image's pixels; None for sequences.
        preprocessing, permutation: g, a module on the device, and p as a tensor (D,), or None.
        values, log_step: the range of the training split, and mean_d log s_d.
        has_noise: whether noise is added to the values, or was before.

    Raises:
        UserError: the preprocessing is not one for these values and channels.
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
        channels = splits.shape[0]
        scalings = data.preprocessing if isinstance(data.preprocessing, tuple) else (data.preprocessing,) * channels
        possible = ("scale", "standard", "asinh") if splits.levels is None else ("scale", "logit")
        if len(scalings) != channels or not {*scalings} <= {*possible}:
            rule = f"state one of {possible} for all, or for each of {channels} channels"
            raise UserError(f"{data.label}: preprocessing {scalings} of values with levels = {splits.levels}; {rule}")
        self.splits, self._augmentation = splits, data.augmentation
        self.shape, self.unit, self.levels, self.lattice = splits.shape, splits.unit, splits.levels, splits.lattice
        self.dim = math.prod(self.shape)
        self.device, self.dtype = torch.device(device), dtype
        cells = torch.tensor(splits.noisy, dtype=torch.float64)
        self.dequantises = any(splits.noisy) and data.dequantise
        self._has_noise = cells.bool().reshape(-1, *[1] * (len(self.shape) - 1)).to(self.device)
        self.has_noise = self.dequantises or splits.log_widths is not None
        self._digits: Tensor | None = None
        if splits.digits is not None:
            steps = [lattice.step for lattice in splits.lattices or ()]
            self._digits = torch.tensor([splits.digits, steps], dtype=torch.float64, device=self.device)
        self._raw = {name: SplitValues(values, self.device) for name, values in splits.parts().items()}
        self.values = values or ValueRange.of(splits)
        if splits.levels is not None:
            self.log_step = math.log(2 / splits.levels)
            preprocessing = (logit_pixels if "logit" in scalings else scale_pixels)(splits.levels)
        else:
            low, high = torch.from_numpy(np.array([self.values.low, self.values.high], self.values.dtype)).double()
            if splits.digits is not None:
                cells = cells * self.widths(high)
            self.log_step = (2 / (high + cells - low)).log().mean().item()
            preprocessing = self._scaling(np.array(scalings), low, high, cells)
        self.preprocessing = preprocessing.to(self.device)
        self.permutation: Tensor | None = None
        if (order_seed := data.permutation_seed(seed)) is not None:
            self.permutation = torch.from_numpy(permutation(self.dim, order_seed)).to(self.device)

    def _scaling(self, names: np.ndarray, low: Tensor, high: Tensor, cells: Tensor) -> Preprocessing:
        """Return g of values without levels, from the statistics of training; a channel of one value keeps its cell."""
        ranged, bent = (torch.from_numpy(names == name) for name in ("scale", "asinh"))
        if ranged.all():
            return Preprocessing(AffineRange(low, high + cells))
        facts = [self.values.mean, self.values.deviation, self.values.median, self.values.spread]
        mean, deviation, median, spread = torch.tensor(facts, dtype=torch.float64)
        deviation = torch.where(deviation > 0, deviation, 1.0)
        low = torch.where(ranged, low, mean + cells / 2 - deviation)
        high = torch.where(ranged, high + cells, mean + cells / 2 + deviation)
        if not bent.any():
            return Preprocessing(AffineRange(low, high))
        center = torch.where(bent, median + cells / 2, (low + high) / 2)
        scale = torch.where(bent, torch.where(spread > 0, spread / IQR, deviation), (high - low) / 2)
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
                noisy = v + (noisy - v) * self.widths(values)
            v = torch.where(self._has_noise, noisy, v)
        x, log_det = self.preprocessing(v)
        return self._reorder(x.to(self.dtype), self.permutation), log_det

    def widths(self, values: Tensor) -> Tensor:
        """Return the width of the noise of entries (N, C, *spatial) or (C,): the unit of the last digit, at least 1."""
        assert self._digits is not None
        digits, step = self._digits.to(values.device).view(2, -1, *[1] * max(0, values.ndim - 2))
        exponent = (values.double().abs() * step * (1 + 1e-9)).log10().floor()  # 1000 is one of four digits
        return torch.clamp(10 ** (exponent - digits + 1) / step, min=1)

    def to_data(self, x: Tensor) -> np.ndarray:
        """Return the values (N, *shape) whose cells contain x: on the lattice, within the range of levels or type."""
        undo = None if self.permutation is None else self.permutation.argsort()
        v = self.preprocessing.inverse(self._reorder(x.detach().double(), undo))
        kind = self.splits.train.dtype
        limits = np.iinfo(kind) if self.lattice else np.finfo(kind)
        low, high = (limits.min, limits.max) if self.levels is None else (0, self.levels - 1)
        v = v.floor() if self.lattice else v
        return v.nan_to_num().clamp(low, high).cpu().numpy().astype(kind)

    @staticmethod
    def _reorder(values: Tensor, order: Tensor | None) -> Tensor:
        return values if order is None else values.flatten(1)[:, order].reshape(values.shape)

    def measures(self, log_prob: Tensor, log_det: Tensor) -> dict[Unit, Tensor]:
        """Return both measures of each sample, (N,) in float64.

        `log_prob` is the flow's log-density of its input in nats, `log_det` as `prepare` returned it, both (N,).
        """
        raw = log_prob.double() + log_det.double()
        return {"bits_per_dim": bits_per_dim(raw, self.dim), "nats_per_dim": self.log_step - raw / self.dim}


class SplitValues:
    """Raw values (N, *shape), possibly many times the memory; `values[chosen]` is a batch on the device.

    The array stays in place, such as in a memory-mapped file, and batches are copies. For a CUDA device each batch is
    gathered into page-locked memory and sent from there, and the host does not wait for its arrival.

    Args:
        values: integers or floating point; may be read-only.
        device: device of the batches.
    """

    def __init__(self, values: np.ndarray, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._values = np.asarray(values)  # a plain array, whose slices are not memory maps

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def groups(self) -> Tensor:
        """The number of each event's group of equal events, (N,) on the CPU."""
        return torch.from_numpy(np.unique(np.array(digests(self._values)), return_inverse=True)[1])

    def __getitem__(self, chosen: slice | Tensor) -> Tensor:
        """Return the events of a range, or of a tensor of indices on the CPU, in their order; a copy, on the device."""
        # Not numpy.take, because it first copies the whole of a non-contiguous array.
        part = self._values[chosen if isinstance(chosen, slice) else chosen.numpy()]
        # torch.from_numpy shares memory, which may be read-only: of a copy, in the byte order of the machine.
        held = torch.from_numpy(np.array(part, part.dtype.newbyteorder("="), order="C"))
        # torch's allocator does not reuse page-locked memory before the copy is complete.
        return (held.pin_memory() if self.device.type == "cuda" else held).to(self.device, non_blocking=True)
