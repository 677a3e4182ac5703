"""Generated pulse waveforms: photoplethysmogram (PPG) and arterial blood pressure (ABP) of simulated patients.

Each heart beat adds one pulse, a sum of two-sided Gaussians, to either channel:

    s(t) = sum_k a_k sum_j w_j g_j((t - t_k) / sqrt(d_k)),   g_j(u) = exp(-(u - m_j)^2 / (2 v_j^2)),

with v_j one width before the peak m_j and another after it, t_k the onset of beat k and d_k its length in seconds
(the shape stretches with the square root of the beat, as the QT interval does in Bazett's formula). Onsets,
heights and baselines follow breathing (respiratory sinus arrhythmia, pulse-pressure variation, baseline wander),
the 0.1 Hz Mayer wave and slow drifts. The PPG, taken further from the heart, comes later than the ABP. Both
channels carry sensor noise and are read by a 10-bit converter.

Nothing here is patient data. The ranges are those of adults at rest; the shapes only resemble real ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.core.settings import NewSplit, Settings
from harness.datasets._signals.windows import described_ring
from harness.datasets._store.selection import split_generator
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

RATE = 125.0  # samples per second
GAP = round(30 * RATE)  # samples omitted between two splits: several breaths, and many beats
LEVELS = 1024  # of the 10-bit converter
ABP_STEP = 0.25  # mmHg per converter unit; unit 0 is 0 mmHg
PPG, ABP = 0, 1  # channels

_GRID_STEP = 0.25  # seconds between the points at which the slow drivers are drawn
_MARGIN = 4.0  # seconds simulated before and after the recording, so that its ends see whole pulses
_NEIGHBOURS = (-3, -2, -1, 0, 1)  # beats, from the one under way, whose pulses reach a sample

# Per pulse component: peak and widths before and after it, in seconds for a beat of one second.
_ABP_PEAKS = ((0.13, 0.045, 0.12), (0.28, 0.07, 0.09), (0.43, 0.03, 0.20))  # systolic, reflected, dicrotic
_PPG_PEAKS = ((0.17, 0.065, 0.13), (0.43, 0.09, 0.17))  # systolic, diastolic

Shape = Sequence[tuple[tuple[float, float, float], float]]
"""The components of a pulse: of each the peak and widths, and its weight."""


class WaveformOptions(Settings):
    """The amount of generated data, and its seed."""

    length: Annotated[int, Field(ge=16, le=65_536, strict=True)] = Field(
        256, description="the number of samples of a window, at 125 Hz"
    )
    windows: Annotated[int, Field(ge=10, le=100_000, strict=True)] = Field(
        500, description="the number of windows of each patient: the last tenth is test, the tenth before it validation"
    )
    patients: Annotated[int, Field(ge=1, le=64, strict=True)] = Field(
        4, description="the number of simulated patients, each with other rates, pressures and pulse shapes"
    )
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="the seed of the generator")


class Waveforms(Dataset, name="waveforms"):
    """PPG and ABP of simulated patients: generated, not patient data."""

    info = DatasetInfo(
        title="PPG/ABP-like pulse waveforms (generated, not patient data)",
        kind="sequence",
        what=(
            "windows of two channels, PPG and ABP, of simulated patients at 125 Hz: heart-rate and amplitude "
            "variability, breathing, pulse transit delay, sensor noise, 10-bit converter. Each patient's recording "
            "is split in time: train, 30 s left out, validation, 30 s left out, test"
        ),
        size="generated when needed",
        licence="none needed: generated, not patient data",
        source="harness/datasets/waveforms.py",
        how_to_get="nothing to do",
    )
    options_model = WaveformOptions

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (2, length)."""
        return (2, self.parse(options).length)

    def channels(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Return PPG and ABP."""
        return ("PPG", "ABP")

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> str | None:
        """Return that the generator has no test split to keep, if asked for it."""
        fault = f"data set {self.name}: is generated and has no test split to keep; leave keep_test out"
        return fault if keep_test else None

    def load(self, store: Store, options: Mapping[str, Any], new: NewSplit | None = None) -> Splits:
        """Return the splits, int16 converter units; windows do not overlap.

        For a new split each patient's recording is closed to a ring and rotated. It is longer by a third gap, between
        the end of test and the begin of train. Its end and begin meet where a window begins, so that no window crosses
        the place.
        """
        chosen: WaveformOptions = self.parse(options)
        held_out = chosen.windows // 10
        counts = (chosen.windows - 2 * held_out, held_out, held_out)
        parts: tuple[list[np.ndarray], ...] = ([], [], [])
        for patient in range(chosen.patients):
            rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([chosen.seed, patient])))
            samples = chosen.windows * chosen.length + (2 if new is None else 3) * GAP
            recording, _ = simulate(rng, samples)
            if new is not None:
                number = int(split_generator(new.seed, patient).integers(chosen.windows))
                gaps = (number >= counts[0]) + (number >= counts[0] + held_out)
                recording = np.roll(recording, number * chosen.length + gaps * GAP, axis=1)
            start = 0
            for part, count in zip(parts, counts, strict=True):
                stop = start + count * chosen.length
                part.append(recording[:, start:stop].reshape(2, count, chosen.length).swapaxes(0, 1))
                start = stop + GAP
        train, validation, test = (np.concatenate(part) for part in parts)
        return Splits(
            train=train,
            validation=validation,
            test=test,
            levels=None,
            description=(
                f"generated PPG/ABP-like waveforms, not patient data: {chosen.patients} simulated patients, "
                f"windows of {chosen.length} samples at 125 Hz, 10-bit units, split in time"
                + ("" if new is None else f"; {described_ring(new)}")
            ),
        )


def simulate(rng: np.random.Generator, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw one patient and record `samples` samples at 125 Hz; the result depends on the generator's state alone.

    Returns:
        Converter units 0..1023, int16 (2, samples) of PPG and ABP, and the onsets of the beats in the ABP, in seconds
        from the first sample, of which a few are outside the recording.
    """
    end = samples / RATE + 2 * _MARGIN
    grid = np.arange(0.0, end + 1.0, _GRID_STEP)

    breath = 2 * np.pi * np.cumsum(rng.uniform(0.2, 0.3) * np.exp(0.06 * _drift(rng, len(grid), 10.0))) * _GRID_STEP
    mayer = 2 * np.pi * np.cumsum(0.1 * np.exp(0.1 * _drift(rng, len(grid), 20.0))) * _GRID_STEP
    pressure = 4.0 * _drift(rng, len(grid), 120.0) + 2.0 * np.sin(mayer)  # mmHg
    perfusion = 0.1 * _drift(rng, len(grid), 60.0)
    wander = 12.0 * _drift(rng, len(grid), 20.0)

    tempo = 0.03 * np.sin(breath) + 0.015 * np.sin(mayer + 1.0) + 0.04 * _drift(rng, len(grid), 90.0)
    onsets, lengths = _beats(rng, rng.uniform(1.0, 1.5), tempo, end)
    filling = 0.3 * (np.roll(lengths, 1) / lengths.mean() - 1.0)  # a longer pause fills the heart
    breath_at = np.interp(onsets, grid, breath)
    abp_heights = 1.0 + filling + 0.05 * np.sin(breath_at - 0.8) + 0.02 * rng.standard_normal(len(onsets))
    ppg_heights = np.exp(np.interp(onsets, grid, perfusion)) * abp_heights
    ppg_heights *= 1.0 + 0.02 * rng.standard_normal(len(onsets))
    delays = rng.uniform(0.08, 0.14) - 0.001 * np.interp(onsets, grid, pressure)  # pressure speeds the wave up

    abp_weights = (1.0, rng.uniform(0.25, 0.45), rng.uniform(0.3, 0.45))
    ppg_weights = (1.0, rng.uniform(0.35, 0.55))
    times = _MARGIN + np.arange(samples) / RATE
    breath_now = np.interp(times, grid, breath)
    abp = _pulses(times, onsets, lengths, abp_heights, [*zip(_ABP_PEAKS, abp_weights, strict=True)])
    ppg = _pulses(times, onsets + delays, lengths, ppg_heights, [*zip(_PPG_PEAKS, ppg_weights, strict=True)])

    abp = rng.uniform(62.0, 80.0) + rng.uniform(38.0, 55.0) * abp + 2.5 * np.sin(breath_now)
    abp += np.interp(times, grid, pressure) + 0.25 * rng.standard_normal(samples)
    ppg = rng.uniform(220.0, 300.0) + rng.uniform(280.0, 400.0) * ppg + 25.0 * np.sin(breath_now + 0.5)
    ppg += np.interp(times, grid, wander) + 1.5 * rng.standard_normal(samples)

    adc = np.clip(np.floor(np.stack([ppg, abp / ABP_STEP])), 0, LEVELS - 1)
    return adc.astype(np.int16), onsets - _MARGIN


def _drift(rng: np.random.Generator, points: int, time_constant: float) -> np.ndarray:
    """Return a stationary Ornstein-Uhlenbeck process of unit variance on the grid of slow drivers."""
    keep = math.exp(-_GRID_STEP / time_constant)
    noise = rng.standard_normal(points)
    noise[1:] *= math.sqrt(1.0 - keep * keep)
    values = noise.tolist()
    for i in range(1, points):
        values[i] += keep * values[i - 1]
    return np.array(values)


def _beats(rng: np.random.Generator, rate: float, tempo: np.ndarray, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Return onsets and lengths of the beats in [0, end): each lasts exp(tempo + jitter) / rate seconds."""
    onsets, lengths, time = [], [], 0.0
    while time < end:
        length = math.exp(tempo[int(time / _GRID_STEP)] + 0.006 * rng.standard_normal()) / rate
        onsets.append(time)
        lengths.append(length)
        time += length
    return np.array(onsets), np.array(lengths)


def _pulses(
    times: np.ndarray, onsets: np.ndarray, lengths: np.ndarray, heights: np.ndarray, shape: Shape
) -> np.ndarray:
    """Return the pulse train at `times`, scaled so that with even beats of height 1 it runs from 0 to 1."""
    length = float(lengths.mean())
    even = np.arange(8) * length
    cycle = _train(4 * length + np.arange(256) / 256 * length, even, np.full(8, length), np.ones(8), shape)
    low, high = cycle.min(), cycle.max()
    return (_train(times, onsets, lengths, heights, shape) - low) / (high - low)


def _train(times: np.ndarray, onsets: np.ndarray, lengths: np.ndarray, heights: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the sum s(t) of the module's formula; each sample takes the pulses of the beats around it."""
    under_way = np.searchsorted(onsets, times, side="right") - 1
    total = np.zeros_like(times)
    for neighbour in _NEIGHBOURS:
        beat = np.clip(under_way + neighbour, 0, len(onsets) - 1)
        since = (times - onsets[beat]) / np.sqrt(lengths[beat])
        for (peak, before, after), weight in shape:
            width = np.where(since < peak, before, after)
            total += weight * heights[beat] * np.exp(-0.5 * ((since - peak) / width) ** 2)
    return total
