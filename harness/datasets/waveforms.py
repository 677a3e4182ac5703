"""Windows of generated pulse waveforms, split in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from harness.core.settings import NewSplit, Settings
from harness.datasets._signals.pulse_generator import RATE, simulate
from harness.datasets._signals.windows import described_ring
from harness.datasets._store.selection import split_generator
from harness.datasets._store.store import Store
from harness.datasets.base import Dataset, DatasetInfo, Splits

GAP = round(30 * RATE)  # samples omitted between two splits: several breaths, and many beats


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
        source="harness/datasets/_signals/pulse_generator.py",
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
        return (
            f"data set {self.name}: is generated and has no test split to keep; leave keep_test out"
            if keep_test
            else None
        )

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
