"""The points from which candidates are drawn."""

import hashlib
import json

import pytest

from harness.kinds.density.tuning.strategy import MOST_SETTINGS, strategy


def test_committed_suites_keep_their_candidates():
    """The points are those of every version of scipy so far: another sequence would give all tuned trials new ids."""
    points = strategy("sobol").points(32, 106)
    assert len(points) == 32 and {len(point) for point in points} == {MOST_SETTINGS}
    assert points[:5] == strategy("sobol").points(5, 106), "more candidates begin with the fewer"
    assert hashlib.sha256(json.dumps(points).encode()).hexdigest()[:16] == "2aeea8e80ffe73d8"


def test_an_unknown_strategy_is_named_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"no strategy 'sobel'; .*sobol"):
        strategy("sobel")
