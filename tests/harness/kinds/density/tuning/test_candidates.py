"""The points from which candidates are drawn."""

from scipy.stats import qmc

from harness.kinds.density.tuning.space import MOST_SETTINGS, sobol_points


def test_candidates_are_the_scrambled_sobol_points_of_scipy():
    """They agree to the last bit: a committed suite has the same candidates with any version of either library."""
    for seed, number in ((0, 2), (106, 4), (100, 7), (12345, 32), (5, 1000)):
        expected = qmc.Sobol(MOST_SETTINGS, rng=seed).random_base2(max(1, (number - 1).bit_length()))[:number]
        assert sobol_points(number, seed) == expected.tolist()
