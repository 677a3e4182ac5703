"""Encode the values of a source as whole numbers 0, 1, 2 ... of lattice steps or keep them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from harness.core.errors import DataError
from harness.core.texts import first_few
from harness.datasets._values.file_options import NOISE, STEP, Noise, Step, Widths
from harness.datasets._values.lattice import EXACT, MOST_LEVELS, Lattice, Survey, find_lattice, stated_lattice

NAMED = 8  # channels that a message names
MOST_WIDTHS = 6  # that a description lists

Kind = Literal["image", "sequence"]
Written = tuple[tuple[float, int], ...]
"""For each channel, the unit of the last decimal of its values, and how many significant digits they have."""

Lattices = Sequence[Lattice | None]
"""The lattice of each channel; None where its values lie on none."""

IDENTITY = Lattice(0.0, 1.0)
NO_LATTICE = "the values lie on no lattice; no noise is added to them"
SMALLEST, LARGEST = 1e-100, 1e100  # largest absolute value of a channel: errors of its square are no underflow
MOST_REPEATED = 0.02  # share of repeated values that values without a lattice may have; float32 makes up to 0.01


@dataclass(frozen=True)
class Encoding:
    """The encoding of the values of every split."""

    name: str  # of the source, for messages
    dtype: np.dtype  # of the result
    lattices: tuple[Lattice, ...] | None = None  # one for each channel; None if the values are off any lattice
    levels: int | None = None  # number of levels of an image's pixels; None for sequences, and without a lattice
    noise: Widths | None = None  # the width of the noise of each channel, if it is stated
    repeated: float = 0.0  # with noise, the share of the values that occur more than once
    digits: tuple[int, ...] | None = None  # the significant digits of each channel, if they state the noise
    lost: int = 0  # channels whose last digits are finer than float32

    def facts(self, kind: Kind) -> dict[str, Any]:
        """Return the facts of `Splits` that follow from the encoding."""
        if self.noise is not None:
            without = [str(number) for number, width in enumerate(self.noise, 1) if width is None]
            return {
                "lattice": False,
                "noise": tuple(width is not None for width in self.noise),
                "digits": self.digits,
                "lattices": tuple(Lattice(0.0, width or 1.0) for width in self.noise),
                "no_floor": f"no noise is added to channel {', '.join(without)}" if without else None,
            }
        if self.lattices is None:
            return {"lattice": False, "no_floor": NO_LATTICE}
        steps = [(lattice.step, "units of the file") for lattice in self.lattices] if kind == "sequence" else None
        return {"lattices": self.lattices, "steps": steps}

    @property
    def noise_text(self) -> str:
        """A clause on stated noise; empty without."""
        if self.noise is None:
            return ""
        texts = dict.fromkeys("none" if width is None else f"{width:.4g}" for width in self.noise)
        there = [width for width in self.noise if width is not None]
        some = f"{min(there):.4g} to {max(there):.4g}" + " (in some channels none)" * ("none" in texts)
        widths = ", ".join(texts) if len(texts) <= MOST_WIDTHS else some
        share = f"; up to {self.repeated:.0%} of the values of a channel occur more than once" * (self.repeated > 0)
        if self.digits is None:
            return f"; uniform noise of the stated width {widths}{share}"
        lost = f"; in {self.lost} columns at least 2^-20 of the range, as float32 holds no less" * (self.lost > 0)
        return f"; uniform noise of the unit of the last digit of each value, at least {widths}{lost}{share}"

    def encode(self, events: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return lattice indices k of events (n, C, *spatial), in `dtype`; the values themselves without a lattice.

        A value that is no lattice point is a DataError, which names the number of its event.
        """
        if self.noise is not None:
            widths = np.array([width or 1.0 for width in self.noise]).reshape(-1, *[1] * (events.ndim - 2))
            return (events.astype(np.float64) / widths).astype(self.dtype)
        if self.lattices is None or (events.dtype.kind in "iu" and set(self.lattices) == {IDENTITY}):
            return events.astype(self.dtype, copy=False)
        k = np.empty(events.shape, dtype=np.int64)
        for channel, lattice in enumerate(self.lattices):
            k[:, channel], off = lattice.index(events[:, channel])
            if off.any():
                first = tuple(np.argwhere(off)[0])
                raise DataError(
                    f"{self.name}: event {numbers[first[0]]}: {events[:, channel][first]:.9g} is not a multiple of the "
                    f"step {lattice.step:g} from {lattice.offset:g}; state the right `step`, with all its digits"
                )
        return k.astype(self.dtype, copy=False)


def pixels(name: str, channels: int) -> Encoding:
    """Return the encoding that leaves 8-bit pixels unchanged."""
    return Encoding(name, np.dtype(np.uint8), (IDENTITY,) * channels, 256)


def choose_encoding(
    name: str,
    survey: Survey,
    kind: Kind,
    step: Step,
    noise: Noise = None,
    labels: Sequence[str] = (),
    written: Written | None = None,
) -> Encoding:
    """Return the encoding of values from their survey.

    Images have one lattice for all channels unless floating-point values were scaled channel by channel; sequences
    have one for each channel. Integers have the greatest common divisor of their differences as step; of
    floating-point values the coarsest lattice that holds all of them is found.

    Args:
        name: of the source, for messages.
        survey: of all values of all splits.
        kind: of the data.
        step: one number or one for each channel; else as above.
        noise: the width of uniform noise for all channels or for each, in the units of the values; None in the list: no
            noise on that channel. None: lattices as above.
        labels: names of the channels, for messages.
        written: where the noise is that of the last digit of each value, those of the channels.

    Raises:
        DataError: the values contradict the options, or are off any lattice and yet repeat.
    """
    integers, channels = survey.dtype.kind in "iu", len(survey.low)
    tabular = bool(labels)  # numbers are written
    labels = list(labels) or [f"channel {channel}" for channel in range(channels)]
    for option, stated, rule in (("step", step, STEP), ("noise", noise, NOISE)):
        if isinstance(stated, tuple) and len(stated) not in (1, channels):
            counts = f"{len(stated)} are stated for {channels} channels"
            raise DataError(f"{name}: {option} should be {rule}; {counts}")
    most = np.maximum(np.abs(survey.low), np.abs(survey.high))
    if integers and most.max() >= EXACT:
        raise DataError(
            f"{name}: integers from {survey.low.min():.0f} to {survey.high.max():.0f}; at most 2^53 fit, subtract "
            "an offset"
        )
    for channel in np.flatnonzero((most > 0) & ((most < SMALLEST) | (most > LARGEST)) & (not integers)):
        raise DataError(
            f"{name}: the largest absolute value of {labels[channel]} is {most[channel]:g}; it must be between "
            f"{SMALLEST:g} and {LARGEST:g}: give the values in another unit"
        )
    of_image = kind == "image" and written is None and not isinstance(noise, tuple)
    detected = _detected(survey, of_image)
    if written is not None:
        return _of_last_digits(name, survey, written, detected, labels)
    if isinstance(noise, tuple):
        return _noisy(name, survey, noise, detected, labels)
    if isinstance(step, tuple):
        detected = _stated(name, step, survey, of_image, detected, labels)
    if None in detected:
        _refuse_atoms(name, survey, detected, labels, tabular)
        return Encoding(name, np.dtype(np.float64 if survey.dtype.itemsize == 8 else np.float32))
    lattices = tuple(cast("Sequence[Lattice]", detected))
    together = of_image and len({*lattices}) == 1
    points = [None if isinstance(step, tuple) else survey.distinct(None if together else at) for at in range(channels)]
    lattices = tuple(
        lattice.counted_from_zero(low, high, MOST_LEVELS if of_image else None, some)
        for lattice, some, low, high in zip(lattices, points, *_ranges(survey, together), strict=True)
    )
    ends = [lattice.index(np.array(pair))[0] for lattice, *pair in zip(lattices, survey.low, survey.high, strict=True)]
    first, last = int(np.min(ends)), int(np.max(ends))
    if kind == "sequence":
        signed = np.min_scalar_type(-max(abs(first), abs(last)) - 1)
        return Encoding(name, np.result_type(np.int16, signed), lattices)
    if not 2 <= last + 1 <= MOST_LEVELS:
        raise DataError(
            f"{name}: the values span {last + 1} levels of step {lattices[0].step:g}; images have 2 to {MOST_LEVELS}. "
            "State `step`, or kind: sequence"
        )
    pixel = np.uint8 if last < 1 << 8 else np.int16 if last < 1 << 15 else np.int32
    return Encoding(name, np.dtype(pixel), lattices, last + 1)


def _detected(survey: Survey, together: bool) -> Lattices:
    """Return the lattice of each channel; one for all channels if `together`, unless floats are on none."""
    channels = range(len(survey.low))
    if survey.dtype.kind in "iu":
        lows, steps = survey.low, survey.divisor
        if together:
            step = int(np.gcd.reduce([*steps, *(lows - lows[0]).astype(np.int64)]))
            lows, steps = np.full_like(lows, lows.min()), np.full_like(steps, step)
        return [Lattice(float(low), float(step or 1)) for low, step in zip(lows, steps, strict=True)]
    if together and (points := survey.distinct()) is not None:
        common = find_lattice(points, survey.dtype, survey.count * len(channels))
        if common is not None:
            return [common for _ in channels]
    parts = [survey.distinct(channel) for channel in channels]
    return [None if part is None else find_lattice(part, survey.dtype, survey.count) for part in parts]


def _ranges(survey: Survey, together: bool) -> tuple[list[float], list[float]]:
    """Return the smallest and largest value of each channel, or those of all channels for each."""
    low, high = (survey.low.min(), survey.high.max()) if together else (survey.low, survey.high)
    return np.broadcast_to(low, len(survey.low)).tolist(), np.broadcast_to(high, len(survey.high)).tolist()


def _noisy(name: str, survey: Survey, noise: Widths, detected: Lattices, labels: Sequence[str]) -> Encoding:
    """Return the encoding of values in units of the stated widths of their noise."""
    widths = noise * (len(survey.low) if len(noise) == 1 else 1)
    channels = zip(labels, widths, detected, survey.low, survey.high, survey.least, strict=True)
    for label, width, lattice, low, high, least in channels:
        if width is not None and lattice is not None and low < high and width < 0.999 * lattice.step:
            raise DataError(
                f"{name}: noise = {width:g} is narrower than the step {lattice.step:g} of the lattice on which the "
                f"values of {label} lie, so a density could still grow on single values; state at least the step"
            )
        if width is not None and width < least:
            raise DataError(
                f"{name}: noise = {width:g} is lost in float32 of the scaled values of {label}, which range from "
                f"{low:g} to {high:g}; state at least {least:.2g}, 2^-20 of the range"
            )
    noisy = [channel for channel, width in enumerate(widths) if survey.dtype.kind == "f" and width is not None]
    repeated = max((survey.repeated(channel)[0] for channel in noisy), default=0.0)
    return Encoding(name, np.dtype(np.float64), noise=widths, repeated=repeated)


def _of_last_digits(name: str, survey: Survey, written: Written, detected: Lattices, labels: Sequence[str]) -> Encoding:
    """Return the encoding of values in units of the finest noise of their channel.

    That is the unit of the last decimal, but at least the step of a lattice that holds all values, and the least that
    float32 holds.
    """
    steps = [
        unit if lattice is None or low == high else max(unit, lattice.step)
        for (unit, _), lattice, low, high in zip(written, detected, survey.low, survey.high, strict=True)
    ]
    encoding = _noisy(name, survey, tuple(np.maximum(steps, survey.least).tolist()), detected, labels)
    return replace(encoding, digits=tuple(digits for _, digits in written), lost=int((steps < survey.least).sum()))


def _stated(
    name: str, steps: tuple[float, ...], survey: Survey, together: bool, detected: Lattices, labels: Sequence[str]
) -> Lattices:
    """Return the lattice of each channel, through its smallest value, or through the smallest of all if `together`."""
    lattices = []
    steps = steps * (len(survey.low) if len(steps) == 1 else 1)
    channels = zip(steps, *_ranges(survey, together), detected, survey.least, labels, strict=True)
    for step, low, high, common, least, label in channels:
        lattice = stated_lattice(step, low, high, survey.dtype)
        if lattice is None or step < least:
            raise DataError(
                f"{name}: noise over the step {step:g} is lost in the rounding of the values of {label}, which range "
                f"from {low:g} to {high:g}; in place of `step` state `noise`, at least {least:.2g}"
            )
        if common is not None and common.step > 1.5 * step:  # noise over smaller cells would leave gaps
            raise DataError(
                f"{name}: step = {step:g} is finer than the values of {label}, which all lie on a lattice of "
                f"step {common.step:g}; state that, or step: detect"
            )
        lattices.append(lattice)
    return lattices


def _refuse_atoms(name: str, survey: Survey, detected: Lattices, labels: Sequence[str], tabular: bool) -> None:
    """Raise DataError if a channel is constant or on a lattice and others are not, or values off a lattice repeat."""
    widths = [
        float(f"{survey.usual_gap(at) if lattice is None else lattice.step:g}") for at, lattice in enumerate(detected)
    ]
    clauses, codes = list[str](), set[float]()
    for channel, (label, lattice) in enumerate(zip(labels, detected, strict=True)):
        share, commonest, of_commonest = survey.repeated(channel) if survey.dtype.kind == "f" else (0.0, 0.0, 0.0)
        if survey.low[channel] == survey.high[channel]:
            raise DataError(f"{name}: {label} has the one value {survey.low[channel] + 0.0:g}; leave it out")
        if lattice is not None:
            clauses.append(f"{label} lies on a lattice of step {lattice.step:g} and others on none")
        elif share > MOST_REPEATED:
            shares = f"{share:.0%}; {of_commonest:.0%} are {commonest:g}"
            clauses.append(f"values occur more than once in {label} ({shares})")
            codes |= {commonest} if tabular and is_code(commonest) else set()
    if not clauses:
        return
    hint: dict[str, Any] = {"noise": "last_digit" if tabular else widths[0] if len(widths) == 1 else widths}
    missing = "a commonest value may stand for a missing one, to be left out"
    if codes:
        hint = {"missing": sorted(codes)}
        missing = f"missing: {hint['missing']} leaves out rows with what may stand for a missing value"
    texts = [f"{width:g}" for width in widths[:NAMED]] + ["..."] * (len(widths) > NAMED)
    proposed = texts[0] if len(widths) == 1 else f"[{', '.join(texts)}]"
    raise DataError(
        f"{name}: {first_few(clauses)}, and no lattice of at most {MOST_LEVELS:,} points holds all "
        "values (they are padded, clipped, of few digits, or were converted in several ways): a density on them can "
        "grow without bound. State the width of noise that bounds it, such as "
        f"{'noise: last_digit, or ' * tabular}noise: {proposed}, or `step` if there is one; {missing}",
        hint,
    )


def is_code(value: float) -> bool:
    """Return whether a value looks like one that stands for a missing value: -9, -99, -999.9, 9999."""
    return re.fullmatch(r"-9+(\.9+)?|9{3,}(\.9+)?", f"{value:.10g}") is not None


def written_digits(values: np.ndarray) -> tuple[float, int]:
    """Return the unit of the last decimal of numbers as they are written, and how many significant digits they have.

    Trailing zeros count for a number if others have digits there: of 5, 5.1 and 12.3 the unit is 0.1, and of 1.234,
    12.34 and 5 there are four digits. At most 15 digits are counted.
    """
    finest, most = -400, 1
    for value in np.unique(np.abs(values)).tolist():
        if value:
            digits, _, exponent = f"{value:.14e}".partition("e")
            count = len(digits.rstrip("0")) - 1
            finest, most = max(finest, count - 1 - int(exponent)), max(most, count)
    return float(f"1e{-finest}") if finest > -400 else 1.0, most
