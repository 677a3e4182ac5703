import ast
import re

import pytest

from layers import UnsupportedShape
from layers.butterflies.plan import make_plan


def levels_of(dim, **options):
    return [part.levels for part in make_plan(dim, **options).parts]


@pytest.mark.parametrize(
    ("levels", "counts"),
    [
        ([9, 8, 4], [(9, 8, 4), (8, 7, 3), (7, 6, 2)]),
        ([9, 1, 0], [(9, 1, 0), (8, 0, 0), (7, 0, 0)]),
        (4, [(4, 4, 4), (3, 3, 3), (2, 2, 2)]),
        (None, [(9, 8, 4), (8, 7, 3), (7, 6, 2)]),
    ],
)
def test_depth_falls_per_scale(levels, counts):
    for dim, scale, expected in zip((784, 392, 196), (1, 2, 4), counts, strict=True):
        plan = make_plan(dim, partition=[512, 256, 16], levels=levels, full_depth_at=784)
        assert plan.sizes == [512 // scale, 256 // scale, 16 // scale]
        assert tuple(len(part.levels) for part in plan.parts) == expected


def test_levels_none_takes_all_capped_those_there_are_and_lists_may_be_tuples():
    assert levels_of(24) == [(1, 2, 3)]
    assert levels_of(7) == levels_of(1) == [()]
    assert levels_of(14, partition=[8, 6]) == [(1, 2, 3), (1,)]
    assert levels_of(7, partition=[8, 6], full_depth_at=14) == [(1, 2), ()]
    assert levels_of(24, levels=10, capped=True) == [(1, 2, 3)]
    assert levels_of(24, levels=2, capped=True) == [(1, 2)]
    assert levels_of(12, partition=[8, 4], levels=3, capped=True) == [(1, 2, 3), (1, 2)]
    assert levels_of(24, levels=3, full_depth_at=48, capped=True) == [(1, 2)]
    assert levels_of(12, partition=(8, 4), levels=((1, 2), (1,))) == [(1, 2), (1,)]


REFUSED = [
    (784, {"levels": 9}, "butterfly: D = 784 has power-of-two part 16, so at most 4 levels; asked for 9. Use"),
    (16, {"levels": 9}, "butterfly: D = 16 has power-of-two part 16, so at most 4 levels; asked for 9. Use levels: 4"),
    (392, {"levels": 9, "full_depth_at": 784}, "butterfly: D = 392 has power-of-two part 8, so at most 3 levels"),
    (784, {"levels": 9, "partition": [512, 256, 16]}, "butterfly: part 256 of the partition has power-of-two part"),
    (392, {"levels": 9, "partition": [512, 256, 16], "full_depth_at": 784}, "part 128 of the partition has"),
    (28, {"levels": [1, 5]}, "butterfly: D = 28 has power-of-two part 4, so at most 2 levels; asked for level 5. Use"),
    (6, {"levels": 2}, "so at most 1 level; asked for 2. Use partition: [4, 2] with levels: [2, 1]"),
    (5, {"levels": [1]}, "so at most 0 levels; asked for level 1. Use an empty list"),
    (20, {"full_depth_at": 30}, "D = 20 is not full_depth_at = 30 divided by a power of two"),
    (20, {"full_depth_at": 10}, "D = 20 is not full_depth_at = 10 divided by a power of two"),
    (4, {"full_depth_at": 8, "partition": [5, 3]}, "part 5 of the partition cannot be divided by 2"),
    (784, {"levels": 12}, "Use partition: [512, 256, 16] with levels: [9, 8, 4]"),
    (8, {"levels": 9, "full_depth_at": 32}, "asked for 7 (9 at D = 32). Use levels: 5 or capped: true"),
    (3, {"levels": 1}, "Use partition: [2, 1] with levels: [1, 0]"),
    (64, {"block_size": 3}, "D = 64 is not divisible by block_size = 3; use one that divides it, such as block_size"),
    (48, {"block_size": 3, "partition": [32, 16]}, "part 32 of the partition cannot be divided by 3 for D = 48 and"),
    (48, {"block_size": 3, "partition": [63, 33], "full_depth_at": 96, "levels": 1}, "part 63 of the partition"),
    (48, {"block_size": 3, "levels": 5}, "D = 48, as 16 blocks of 3, has power-of-two part 16, so at most 4 levels"),
    (36, {"block_size": 3, "levels": 3}, "D = 36, as 12 blocks of 3, has power-of-two part 4, so at most 2 levels"),
    (36, {"block_size": 3, "levels": [1, 3]}, "at most 2 levels; asked for level 3. Use levels from 1 to 2"),
]


@pytest.mark.parametrize(("dim", "options", "message"), REFUSED)
def test_refuses_a_shape_and_suggests_what_is_accepted(dim, options, message):
    with pytest.raises(UnsupportedShape, match=re.escape(message)) as caught:
        make_plan(dim, **options)
    hints = re.findall(r"(partition|levels): (\[.*?\]|\d+)", str(caught.value))
    assert hints or "Use partition" not in str(caught.value)
    if hints:
        make_plan(dim, **(options | {name: ast.literal_eval(value) for name, value in hints}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": -1}, "a number of levels = -1 is not allowed; use a whole number from 0 up"),
        ({"levels": 2.0}, "a number of levels = 2.0 is not allowed"),
        ({"levels": True}, "a number of levels = True is not allowed"),
        ({"levels": [0]}, "a level = 0 is not allowed; use a whole number from 1 up"),
        ({"levels": [[1]]}, "there is no partition"),
        ({"levels": [1, [1]], "partition": [8, 8]}, "mixes counts and lists"),
        ({"levels": [1], "partition": [8, 8]}, "has 1 entries for 2 parts"),
        ({"levels": [[1]], "partition": [8, 8]}, "has 1 entries for 2 parts"),
        ({"partition": [8, 4]}, "partition = [8, 4] sums to 12, but D = 16; use sizes that sum to it, such as [16]"),
        ({"partition": [16, 0]}, "a size in partition = 0 is not allowed"),
        ({"partition": 16}, "partition = 16 is not a list of sizes"),
        ({"levels": [1], "order": "descending"}, "to which order does not apply"),
        ({"levels": [1], "bi_direction": True}, "to which bi_direction does not apply"),
        ({"levels": [1], "capped": True}, "to which capped does not apply"),
        ({"levels": [1], "full_depth_at": 16}, "to which full_depth_at does not apply"),
        ({"full_depth_at": 0}, "full_depth_at = 0 is not allowed"),
        ({"order": "up"}, "order = 'up' is unknown; use one of 'ascending', 'descending'"),
        ({"shared": "yes"}, "shared = 'yes' is unknown; use one of True, False"),
    ],
)
def test_refuses_an_option(options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make_plan(16, **options)
    assert not isinstance(caught.value, UnsupportedShape)
