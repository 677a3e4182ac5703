from harness.kinds.density.tuning.strategy import MOST_SETTINGS, Strategy


class Corners(Strategy):
    """Take the low and the high end of every setting in turn."""

    def points(self, number, seed):
        return [[0.999 * (index % 2)] * MOST_SETTINGS for index in range(number)]
