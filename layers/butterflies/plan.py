"""Derive the plan of a butterfly from its options: the factors on D entries, or the reason why there are none.

Levels are bound by the number of units: entries, or blocks of C consecutive entries in a block-wise butterfly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layers.base import UnsupportedShape, check_choice, check_whole
from layers.butterflies.pairs import ButterflyPart, ButterflyPlan, most_levels


def make_plan(
    dim: int,
    *,
    levels: Any = None,
    order: str = "ascending",
    bi_direction: bool = False,
    shared: bool = False,
    partition: Sequence[int] | None = None,
    block_size: int = 1,
    full_depth_at: int | None = None,
    capped: bool = False,
) -> ButterflyPlan:
    """Return the factors on `dim` entries; options and exceptions are those of `layers.butterfly.Butterfly`.

    The sizes of the plan's parts are numbers of blocks.
    """
    check_choice("butterfly", "order", order, ("ascending", "descending"))
    for name, flag in (("bi_direction", bi_direction), ("shared", shared), ("capped", capped)):
        check_choice("butterfly", name, flag, (True, False))
    explicit = _is_sequence(levels) and (partition is None or any(map(_is_sequence, levels)))
    if explicit:
        unused = {
            "order": order != "ascending",
            "bi_direction": bi_direction,
            "capped": capped,
            "full_depth_at": full_depth_at is not None,
        }
        for name in (name for name, chosen in unused.items() if chosen):
            raise ValueError(
                f"butterfly: levels = {levels!r} is an explicit sequence, to which {name} does not apply; "
                "write the whole sequence out, or give the number of levels"
            )
    check_whole("butterfly", "block_size", block_size)
    halvings = _halvings(dim, full_depth_at)
    sizes = _part_sizes(dim, partition, halvings, block_size)
    if explicit:
        sequences = _explicit_sequences(levels, sizes, partition is not None, block_size)
    else:
        counts = _counts(levels, sizes, partition is not None, halvings, capped, block_size)
        sequences = [_sequence(count, order, bi_direction) for count in counts]
    return ButterflyPlan(tuple(map(ButterflyPart, sizes, sequences)), shared)


def _sequence(count: int, order: str, bi_direction: bool) -> tuple[int, ...]:
    """Return levels 1..count in the order of application."""
    levels = tuple(range(1, count + 1))
    if order == "descending":
        levels = levels[::-1]
    return levels + levels[::-1] if bi_direction else levels


def _halvings(dim: int, full_depth_at: int | None) -> int:
    """Return s with dim = full_depth_at / 2^s; 0 if there is no full_depth_at."""
    if full_depth_at is None:
        return 0
    check_whole("butterfly", "full_depth_at", full_depth_at)
    ratio, rest = divmod(full_depth_at, dim)
    if rest or ratio & (ratio - 1):
        raise UnsupportedShape(
            f"butterfly: D = {dim} is not full_depth_at = {full_depth_at} divided by a power of two; "
            "set full_depth_at to the D that the first scale's layer sees"
        )
    return ratio.bit_length() - 1


def _part_sizes(dim: int, partition: Sequence[int] | None, halvings: int, block_size: int) -> list[int]:
    """Return the sizes, in blocks, of the parts on `dim` entries."""
    if dim % block_size:
        divisor = max(size for size in range(1, block_size) if dim % size == 0)
        raise UnsupportedShape(
            f"butterfly: D = {dim} is not divisible by block_size = {block_size}; "
            f"use one that divides it, such as block_size: {divisor}"
        )
    if partition is None:
        return [dim // block_size]
    if not _is_sequence(partition):
        raise ValueError(f"butterfly: partition = {partition!r} is not a list of sizes; use one such as [512, 256]")
    for size in partition:
        check_whole("butterfly", "a size in partition", size)
    full = dim << halvings
    if sum(partition) != full:
        raise ValueError(
            f"butterfly: partition = {list(partition)} sums to {sum(partition)}, but D = {full}; "
            f"use sizes that sum to it, such as {binary_parts(full, block_size)}"
        )
    unit = block_size << halvings
    for size in partition:
        if size % unit:
            blocks = f" and block_size = {block_size}" if block_size > 1 else ""
            raise UnsupportedShape(
                f"butterfly: part {size} of the partition cannot be divided by {unit} for D = {dim}{blocks}; "
                f"use sizes that are multiples of {unit}"
            )
    return [size // unit for size in partition]


def _explicit_sequences(levels: Any, sizes: list[int], partitioned: bool, block_size: int) -> list[tuple[int, ...]]:
    """Return explicit levels, checked, for every part."""
    if not partitioned and any(map(_is_sequence, levels)):
        raise ValueError(
            f"butterfly: levels = {levels!r} has one list per part, but there is no partition; "
            "give a partition, or one plain list"
        )
    sequences = list(levels) if partitioned else [levels]
    if not all(map(_is_sequence, sequences)):
        raise ValueError(f"butterfly: levels = {levels!r} mixes counts and lists; use one kind for all parts")
    _check_length(levels, sequences, sizes)
    for size, sequence in zip(sizes, sequences, strict=True):
        for level in sequence:
            check_whole("butterfly", "a level", level)
        most = most_levels(size)
        deepest = max(sequence, default=0)
        if deepest > most:
            hint = f"Use levels from 1 to {most}" if most else "Use an empty list"
            raise UnsupportedShape(f"{_too_deep(size, sizes, block_size)}; asked for level {deepest}. {hint}")
    return [tuple(sequence) for sequence in sequences]


def _counts(
    levels: Any, sizes: list[int], partitioned: bool, halvings: int, capped: bool, block_size: int
) -> list[int]:
    """Return the number of levels of every part."""
    if levels is None:
        return [most_levels(size) for size in sizes]
    asked = list(levels) if _is_sequence(levels) else [levels] * len(sizes)
    for count in asked:
        check_whole("butterfly", "a number of levels", count, 0)
    _check_length(levels, asked, sizes)
    possible = [most_levels(size) for size in sizes]
    counts = [max(count - halvings, 0) for count in asked]
    if capped:
        return list(map(min, counts, possible))
    for size, count, full, most in zip(sizes, counts, asked, possible, strict=True):
        if count > most:
            at_full_depth = f" ({full} at D = {block_size * sum(sizes) << halvings})" if halvings else ""
            raise UnsupportedShape(
                f"{_too_deep(size, sizes, block_size)}; asked for {count}{at_full_depth}. "
                f"Use {_fewer_levels(asked, sizes, partitioned, halvings, block_size)}"
            )
    return counts


def _too_deep(size: int, sizes: list[int], block_size: int) -> str:
    """Return the value and the rule that a level breaks."""
    most = most_levels(size)
    entries = size * block_size
    what = f"D = {entries}" if len(sizes) == 1 else f"part {entries} of the partition"
    blocks = f", as {size} blocks of {block_size}," if block_size > 1 else ""
    return f"butterfly: {what}{blocks} has power-of-two part {2**most}, so at most {most} level{'s' * (most != 1)}"


def _fewer_levels(asked: list[int], sizes: list[int], partitioned: bool, halvings: int, block_size: int) -> str:
    """Return options that work in place of too many levels, as written at full depth."""
    if not partitioned:
        parts = binary_parts(sum(sizes) << halvings)
        if len(parts) > 1:
            levels = [min(asked[0], most_levels(part)) for part in parts]
            return f"partition: {[block_size * part for part in parts]} with levels: {levels}"
        return f"levels: {most_levels(parts[0])} or capped: true"
    fewer = [min(count, most_levels(size) + halvings) for count, size in zip(asked, sizes, strict=True)]
    return f"levels: {fewer} or capped: true"


def binary_parts(dim: int, block_size: int = 1) -> list[int]:
    """Return the powers of two, times `block_size`, that sum to `dim`, largest first: 784 -> [512, 256, 16]."""
    blocks = dim // block_size
    return [block_size << bit for bit in reversed(range(blocks.bit_length())) if blocks >> bit & 1]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _check_length(levels: Any, entries: Sequence[Any], sizes: list[int]) -> None:
    if len(entries) != len(sizes):
        raise ValueError(
            f"butterfly: levels = {levels!r} has {len(entries)} entries for {len(sizes)} parts; give one for each part"
        )
