"""Encode the values of a source as whole numbers 0, 1, 2 ... of lattice steps or keep them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from harness.core.errors import DataError
from harness.datasets._values.lattice import EXACT, MOST_LEVELS, Lattice, find_lattice, stated_lattice
from harness.datasets._values.survey import FINEST, Survey

NAMED = 8  # channels that a message names

Kind = Literal["image", "sequence"]
Step = tuple[float, ...] | Literal["detect"] | None
Noise = tuple[float | None, ...] | None
Written = tuple[tuple[float, int], ...]
"""For each channel, the unit of the last decimal of its values, and how many significant digits they have."""

IDENTITY = Lattice(0.0, 1.0)
SMALLEST, LARGEST = 1e-100, 1e100  # largest absolute value of a channel: errors of its square are no underflow
MOST_REPEATED = 0.02  # share of repeated values that values without a lattice may have; float32 makes up to 0.01


@dataclass(frozen=True)
class Encoding:
    """The encoding of the values of every split."""

    name: str  # of the source, for messages
    lattices: tuple[Lattice, ...] | None  # one for each channel; None if the values are off any lattice
    levels: int | None  # number of levels of an image's pixels; None for sequences, and without a lattice
    dtype: np.dtype  # of the result
    finer: str | None = None  # why there are no lattices, if the values are on too fine ones
    noise: Noise = None  # the width of the noise of each channel, if it is stated
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
            why = f"the values lie on no lattice{self.finer or ''}; no noise is added to them"
            return {"lattice": False, "no_floor": why}
        steps = [(lattice.step, "units of the file") for lattice in self.lattices] if kind == "sequence" else None
        return {"lattices": self.lattices, "steps": steps}

    def encode(self, events: np.ndarray, part: str, first: int) -> np.ndarray:
        """Return lattice indices k of events (n, C, *spatial), in `dtype`; the values themselves without a lattice.

        A value that is no lattice point, or beyond the levels, is a DataError; it names the array, `part`, and the
        event's index there, of which `first` is the first.
        """
        if self.noise is not None:
            widths = np.array([width or 1.0 for width in self.noise]).reshape(-1, *[1] * (events.ndim - 2))
            return (events.astype(np.float64) / widths).astype(self.dtype)
        if self.lattices is None:
            return events.astype(self.dtype, copy=False)
        k = events
        if events.dtype.kind == "f" or set(self.lattices) != {IDENTITY}:
            k = np.empty(events.shape, dtype=np.int64)
            for channel, lattice in enumerate(self.lattices):
                k[:, channel], off = lattice.index(events[:, channel])
                if off.any():
                    at, value = _first(off, events[:, channel])
                    raise DataError(
                        f"{self.name}: {part}, event {first + at}: {value:.9g} is not a multiple of the step "
                        f"{lattice.step:g} from {lattice.offset:g}; state the right `step`, with all its digits"
                    )
        if self.levels is not None and not (events.dtype == np.uint8 and k is events and self.levels >= 256):
            beyond = (k < 0) | (k >= self.levels)
            if beyond.any():
                at, value = _first(beyond, events)
                raise DataError(
                    f"{self.name}: {part}, event {first + at}: the value {value:g} is beyond the {self.levels} levels "
                    f"0..{self.levels - 1} of step {self.lattices[0].step:g}; state the right `levels` or `step`"
                )
        return k.astype(self.dtype, copy=False)


def identity(name: str, levels: int, channels: int) -> Encoding:
    """Return the encoding that leaves pixels 0..levels-1 unchanged."""
    return Encoding(name, (IDENTITY,) * channels, levels, _pixel_type(levels))


def choose_encoding(
    name: str,
    survey: Survey,
    kind: Kind,
    step: Step,
    levels: int | None,
    noise: Noise | Literal["last_digit"] = None,
    labels: Sequence[str] = (),
    written: Written | None = None,
) -> Encoding:
    """Return the encoding of values from their survey.

    Images have one lattice for all channels, unless floating-point values were scaled channel by channel; sequences
    have one for each channel. Integers have step 1 if they are 8-bit pixels or `levels` is stated, else the greatest
    common divisor of their differences; of floating-point values the coarsest lattice that holds all of them is found.

    Args:
        name: of the source, for messages.
        survey: of all values of all splits.
        kind: of the data.
        step: one number or one for each channel; "detect" searches for one where it would be 1; None: as above.
        levels: of images; None: as many as occur.
        noise: the width of uniform noise for all channels or for each, in the units of the values; None in the list: no
            noise on that channel. None: lattices as above.
        labels: names of the channels, for messages.
        written: where the noise is that of the last digit of each value, those of the channels.

    Raises:
        DataError: the values contradict the options, or are off any lattice and yet repeat.
    """
    integers = survey.dtype.kind in "iu"
    tabular = bool(labels)  # numbers are written
    labels = list(labels) or [f"channel {channel}" for channel in range(len(survey.low))]
    if integers and max(abs(survey.low.min()), abs(survey.high.max())) >= EXACT:
        raise DataError(
            f"{name}: integers from {survey.low.min():.0f} to {survey.high.max():.0f}; at most 2^53 fit, subtract "
            "an offset"
        )
    if not integers:  # float64 has no room for the errors of larger and of smaller values
        for channel, most in enumerate(np.maximum(np.abs(survey.low), np.abs(survey.high))):
            if most and not SMALLEST <= most <= LARGEST:
                raise DataError(
                    f"{name}: the largest absolute value of {labels[channel]} is {most:g}; it must be between "
                    f"{SMALLEST:g} and {LARGEST:g}: give the values in another unit"
                )
    if written is not None:
        return _of_last_digits(name, survey, written)
    if isinstance(noise, tuple):
        return _noisy(name, survey, noise, labels)
    plain = kind == "image" and integers and step is None and (survey.dtype == np.uint8 or levels is not None)
    detected: Sequence[Lattice | None]
    if plain:
        detected = [IDENTITY] * len(survey.low)
    else:
        detected = _of_integers(survey, kind) if integers else _of_floats(survey, kind)
    if isinstance(step, tuple):
        detected = _stated(name, step, survey, kind, detected, labels)
    if None in detected:
        _refuse_atoms(name, survey, detected, levels, labels, tabular)
        kept = np.dtype(np.float64 if survey.dtype.itemsize == 8 else np.float32)
        return Encoding(name, None, None, kept, _too_fine(survey, detected, labels))
    lattices = tuple(cast("Sequence[Lattice]", detected))
    if not plain:
        lattices = _counted(lattices, survey, kind, levels)
    ends = [lattice.index(np.array(pair))[0] for lattice, *pair in zip(lattices, survey.low, survey.high, strict=True)]
    first, last = int(np.min(ends)), int(np.max(ends))
    if kind == "sequence":
        signed = np.min_scalar_type(-max(abs(first), abs(last)) - 1)
        return Encoding(name, lattices, None, np.result_type(np.int16, signed))
    if levels is None:
        levels = 256 if plain else last + 1
    if not 2 <= levels <= MOST_LEVELS:
        raise DataError(
            f"{name}: the values span {levels} levels of step {lattices[0].step:g}; images have 2 to {MOST_LEVELS}. "
            "State `levels` and `step`, or kind: sequence"
        )
    return Encoding(name, lattices, levels, _pixel_type(levels))


def _noisy(name: str, survey: Survey, noise: tuple[float | None, ...], labels: Sequence[str]) -> Encoding:
    """Return the encoding of values in units of the stated widths of their noise.

    Raises:
        DataError: a width leaves gaps between the values of a lattice, or is lost in float32.
    """
    widths = noise * (len(survey.low) if len(noise) == 1 else 1)
    lattices = _of_integers(survey, "sequence") if survey.dtype.kind in "iu" else _of_floats(survey, "sequence")
    for label, width, lattice, low, high in zip(labels, widths, lattices, survey.low, survey.high, strict=True):
        if width is None:
            continue
        if lattice is not None and low < high and width < 0.999 * lattice.step:
            raise DataError(
                f"{name}: noise = {width:g} is narrower than the step {lattice.step:g} of the lattice on which the "
                f"values of {label} lie, so a density could still grow on single values; state at least the step"
            )
        if width < FINEST * (high - low):
            raise DataError(
                f"{name}: noise = {width:g} is lost in float32 of the scaled values of {label}, which range from "
                f"{low:g} to {high:g}; state at least {FINEST * (high - low):.2g}, 2^-20 of the range"
            )
    return Encoding(name, None, None, np.dtype(np.float64), noise=widths, repeated=_repeated(survey, widths))


def _repeated(survey: Survey, widths: tuple[float | None, ...]) -> float:
    """Return the largest share of repeated values of a channel with noise."""
    floats = survey.dtype.kind == "f"
    shares = [survey.repeated(channel)[0] for channel, width in enumerate(widths) if floats and width is not None]
    return max(shares, default=0.0)


def _of_last_digits(name: str, survey: Survey, written: Written) -> Encoding:
    """Return the encoding of values in units of the finest noise of their channel.

    That is the unit of the last decimal, but at least the step of a lattice that holds all values, and the least that
    float32 holds.
    """
    lattices = _of_integers(survey, "sequence") if survey.dtype.kind in "iu" else _of_floats(survey, "sequence")
    steps = [
        unit if lattice is None or low == high else max(unit, lattice.step)
        for (unit, _), lattice, low, high in zip(written, lattices, survey.low, survey.high, strict=True)
    ]
    least = FINEST * (survey.high - survey.low)
    widths = tuple(float(max(step, finest)) for step, finest in zip(steps, least, strict=True))
    return Encoding(
        name,
        None,
        None,
        np.dtype(np.float64),
        noise=widths,
        repeated=_repeated(survey, widths),
        digits=tuple(digits for _, digits in written),
        lost=int((np.array(steps) < least).sum()),
    )


def _stated(
    name: str,
    steps: tuple[float, ...],
    survey: Survey,
    kind: Kind,
    detected: Sequence[Lattice | None],
    labels: Sequence[str],
) -> list[Lattice]:
    """Return the lattice of each channel, through its smallest value; of an image, through the smallest of all."""
    lattices = []
    steps = steps * (len(survey.low) if len(steps) == 1 else 1)
    for channel, (step, low, high) in enumerate(zip(steps, *_ranges(survey, kind), strict=True)):
        lattice, common = stated_lattice(step, low, high, survey.dtype), detected[channel]
        if lattice is None:
            raise DataError(
                f"{name}: step = {step:g} is lost in the rounding of {survey.dtype} values up to "
                f"{max(abs(low), abs(high)):g}; give the values in float64"
            )
        if common is not None and common.step > 1.5 * step:  # noise over smaller cells would leave gaps
            raise DataError(
                f"{name}: step = {step:g} is finer than the values of {labels[channel]}, which all lie on a lattice of "
                f"step {common.step:g}; state that, or step: detect"
            )
        if step < FINEST * (survey.high[channel] - survey.low[channel]):
            raise DataError(
                f"{name}: noise over the step {step:g} is lost in float32 of the scaled values of {labels[channel]}, "
                f"which range from {survey.low[channel]:g} to {survey.high[channel]:g}; in place of `step` state "
                f"`noise`, at least {FINEST * (survey.high[channel] - survey.low[channel]):.2g}"
            )
        lattices.append(lattice)
    return lattices


def _of_integers(survey: Survey, kind: Kind) -> list[Lattice]:
    """Return, for integers, the lattice of each channel of a sequence, or one for all channels of an image."""
    if kind == "sequence":
        return [Lattice(low, float(step or 1)) for low, step in zip(survey.low, survey.divisor, strict=True)]
    offsets = (survey.low - survey.low[0]).astype(np.int64)
    divisor = int(np.gcd.reduce([*survey.divisor, *offsets]))
    return [Lattice(float(survey.low.min()), float(divisor or 1))] * len(survey.low)


def _of_floats(survey: Survey, kind: Kind) -> list[Lattice | None]:
    """Return, for floats, the lattice of each channel, or one for all channels of an image if there is one."""
    channels = len(survey.low)
    if kind == "image":
        points = survey.distinct()
        common = None if points is None else find_lattice(points, survey.dtype, survey.count * channels)
        if common is not None:
            return [common] * channels
    parts = [survey.distinct(channel) for channel in range(channels)]
    return [None if part is None else find_lattice(part, survey.dtype, survey.count) for part in parts]


def _ranges(survey: Survey, kind: Kind) -> tuple[list[float], list[float]]:
    """Return the smallest and largest value of each channel of a sequence, or over all channels of an image."""
    if kind == "sequence":
        return survey.low.tolist(), survey.high.tolist()
    channels = len(survey.low)
    return [float(survey.low.min())] * channels, [float(survey.high.max())] * channels


def _counted(lattices: tuple[Lattice, ...], survey: Survey, kind: Kind, levels: int | None) -> tuple[Lattice, ...]:
    """Return lattices counted from 0, or from the smallest value of the channels that share one."""
    most = None if kind == "sequence" else levels or MOST_LEVELS
    shared = kind == "image" and len(set(lattices)) == 1
    lows, highs = _ranges(survey, "image" if shared else "sequence")
    return tuple(
        lattice.counted_from_zero(low, high, most) for lattice, low, high in zip(lattices, lows, highs, strict=True)
    )


def _too_fine(survey: Survey, detected: Sequence[Lattice | None], labels: Sequence[str]) -> str:
    """Return that channels without a lattice are on one of more points than are searched for; empty if none is."""
    for channel, lattice in enumerate(detected):
        points = survey.distinct(channel) if lattice is None else None
        finer = None if points is None else find_lattice(points, survey.dtype, survey.count, math.inf)
        if finer is not None:
            levels = round((survey.high[channel] - survey.low[channel]) / finer.step) + 1
            return (
                f" of at most {MOST_LEVELS:,} points ({labels[channel]} has a step of {finer.step:.6g} and {levels:,} "
                "points, which must be stated as `step` if they are a lattice)"
            )
    return ""


def _refuse_atoms(
    name: str,
    survey: Survey,
    detected: Sequence[Lattice | None],
    levels: int | None,
    labels: Sequence[str],
    tabular: bool,
) -> None:
    """Raise DataError if values without a lattice are not continuous either, or were stated to have levels."""
    if levels is not None:
        raise DataError(f"{name}: {levels} levels are stated, and no lattice holds all values; state `step`, if any")
    last_digit = "noise: last_digit, or " * tabular
    repeats = {
        label: survey.repeated(channel) if survey.dtype.kind == "f" and detected[channel] is None else (0.0, 0.0, 0.0)
        for channel, label in enumerate(labels)
    }
    named = [
        f"{label} ({share:.0%}; {of_commonest:.0%} are {commonest:g})"
        for label, (share, commonest, of_commonest) in repeats.items()
        if share > MOST_REPEATED
    ]
    widths = _proposed(survey, detected)
    hint: dict[str, Any] = {"noise": "last_digit" if tabular else widths[0] if len(widths) == 1 else widths}
    missing = "a commonest value may stand for a missing one, to be left out"
    if codes := [value for share, value, _ in repeats.values() if share > MOST_REPEATED and is_code(value)] * tabular:
        hint = {"missing": sorted({*codes})}
        missing = f"missing: {hint['missing']} leaves out rows with what may stand for a missing value"
    for channel, lattice in enumerate(detected):
        low, high = survey.low[channel], survey.high[channel]
        if low == high:
            raise DataError(f"{name}: {labels[channel]} has the one value {low + 0.0:g}; leave it out, or state `step`")
        if lattice is not None:
            finer = _too_fine(survey, detected, labels) or " that was found"
            raise DataError(
                f"{name}: {labels[channel]} lies on a lattice of step {lattice.step:g} and others on none{finer}; "
                f"state {last_digit}`step` or `noise`, one for each channel, such as noise: "
                f"{_listed(widths)}"
                + f"; values occur more than once in {', '.join(named[:NAMED])}: {missing}"
                * bool(named),
                hint,
            )
    if named:
        more = f" and {len(named) - NAMED} more" * (len(named) > NAMED)
        raise DataError(
            f"{name}: values occur more than once in {', '.join(named[:NAMED])}{more}, and no lattice"
            f"{_too_fine(survey, detected, labels)} holds all of them (values are padded, clipped, of few digits, or "
            "were converted in several ways): a density on them can grow without bound. State the width of noise that "
            f"bounds it, such as {last_digit}noise: {_listed(widths)}, or `step` if there is one; {missing}",
            hint,
        )


def is_code(value: float) -> bool:
    """Return whether a value looks like one that stands for a missing value: -9, -99, -999.9, 9999."""
    return re.fullmatch(r"-9+(\.9+)?|9{3,}(\.9+)?", f"{value:.10g}") is not None


def _proposed(survey: Survey, detected: Sequence[Lattice | None]) -> list[float]:
    """Return a width of noise for each channel: the step of its lattice, or the usual gap between its values."""
    widths = [survey.usual_gap(at) if lattice is None else lattice.step for at, lattice in enumerate(detected)]
    return [float(f"{width:g}") for width in widths]


def _listed(widths: Sequence[float]) -> str:
    texts = [f"{width:g}" for width in widths]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts[:NAMED])}{', ...' * (len(texts) > NAMED)}]"


def _pixel_type(levels: int) -> np.dtype:
    return np.dtype(np.uint8 if levels <= 256 else np.int16 if levels <= 1 << 15 else np.int32)


def _first(where: np.ndarray, values: np.ndarray) -> tuple[int, float]:
    """Return the index of the first event with a fault, and the faulty value."""
    index = tuple(np.argwhere(where)[0])
    return int(index[0]), float(values[index])
