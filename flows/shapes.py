"""The event shapes that the multi-scale backbone supports, and the shape at each of its levels."""

from __future__ import annotations

import math


class UnsupportedEvent(ValueError):
    """The backbone cannot serve this event shape; the message names the value, the rule and a hint."""


def level_shapes(shape: tuple[int, ...], levels: int, *, split: bool = True) -> list[tuple[int, ...]]:
    """Return the event shape inside each level.

    A level squeezes every spatial axis by 2, which multiplies the channels by 2 (sequences) or 4 (images);
    all but the last then factor out half of the channels. A vector, an event of one position, is not squeezed and has
    one level.

    Args:
        shape: (C, L) or (C, H, W).
        levels: number of levels, at least 1.
        split: whether half of the channels is factored out between levels.

    Returns:
        One shape per level, after its squeeze: (3, 32, 32) with 3 levels gives
        [(12, 16, 16), (24, 8, 8), (48, 4, 4)].

    Raises:
        UnsupportedEvent: not an event shape, one entry, no level, or a spatial axis that 2^levels does not divide.
    """
    shape = tuple(shape)
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in shape)
    if len(shape) not in (2, 3) or not whole:
        raise UnsupportedEvent(
            f"event shape {shape}: use (channels, length) or (channels, height, width), positive whole numbers"
        )
    if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
        raise UnsupportedEvent(f"levels = {levels!r}: the flow needs a whole number of levels, at least 1")
    if math.prod(shape) == 1:
        raise UnsupportedEvent(f"event shape {shape}: one entry has no other to depend on; use two or more")
    if math.prod(shape[1:]) == 1:
        if levels > 1:
            raise UnsupportedEvent(
                f"event shape {shape} with levels = {levels}: an event of one position cannot be halved; use levels = 1"
            )
        return [shape]
    possible = min(_halvings(size) for size in shape[1:])
    if levels > possible:
        fewer = f"use at most {possible} level{'s' * (possible > 1)}" if possible else "pad the data to even lengths"
        raise UnsupportedEvent(
            f"event shape {shape} with levels = {levels}: each level halves every spatial axis, so 2^levels must "
            f"divide {' and '.join(map(str, shape[1:]))}; {fewer}"
        )
    channels, spatial = shape[0], shape[1:]
    shapes = []
    for _ in range(levels):
        channels, spatial = channels * 2 ** len(spatial), tuple(size // 2 for size in spatial)
        shapes.append((channels, *spatial))
        channels = channels // 2 if split else channels
    return shapes


def _halvings(size: int) -> int:
    return (size & -size).bit_length() - 1


def images_only(name: str, shape: tuple[int, ...]) -> None:
    """Raise UnsupportedEvent unless the events are images (C, H, W)."""
    if len(shape) != 3:
        raise UnsupportedEvent(f"{name}: events {shape} are not images (channels, height, width), which it is made for")
