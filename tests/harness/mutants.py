"""Real layers with one fault each, of the kinds that layers have had; loaded by file name, as a user's would be."""

import torch

from layers.butterfly import Butterfly
from layers.butterfly_factors import apply, dense, invert_weight
from layers.conv1x1 import Conv1x1
from layers.emerging import Emerging
from layers.periodic import Periodic
from layers.woodbury import Woodbury


class ForgottenPositions(Conv1x1):
    """The log-det of one position, not of all n."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / self.positions


class FrequenciesOnce(Periodic):
    """The columns of a real FFT that stand for two frequencies, counted once."""

    def _log_det(self, spectrum):
        return torch.linalg.slogdet(spectrum).logabsdet.sum()


class WrongMask(Emerging):
    """The upper triangle at the centre tap of w1, where the solve expects the lower."""

    def __init__(self, shape):
        super().__init__(shape)
        self.weight1_mask = self.weight1_mask.transpose(0, 1)


class TransposedInverse(Conv1x1):
    """W^-T at every position in place of W^-1."""

    def inverse_matrix(self):
        return super().inverse_matrix().T


class SwappedSizes(Woodbury):
    """Channels counted n times fewer and positions c times more: n and c exchanged in the log-det."""

    def forward(self, x):
        y, _ = super().forward(x)
        pairs = ((self.u_channels, self.v_channels, self.channels), (self.u_space, self.v_space, self.positions))
        return y, sum(k * torch.linalg.slogdet(torch.eye(len(v)).to(v) + v @ u)[1] for u, v, k in pairs)


class SharedTwice(Butterfly):
    """Shared diagonals count for all l entries of a block, where a block has l / 2 pairs."""

    def __init__(self, shape):
        super().__init__(shape, shared=True)

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 2 * log_det


class KeptBias(Periodic):
    """The inverse does not take the bias off."""

    def inverse(self, y):
        self.check_event(y)
        return super().inverse(y + self.bias.reshape(-1, *[1] * (len(self.shape) - 1)))

    def inverter(self):
        return self.inverse


class DenseInLayerOrder(Butterfly):
    """dense() indexed in the layer's own order, not in that of the event."""

    def __init__(self, shape):
        super().__init__(shape, flatten="channels_last")

    @torch.no_grad()
    def dense(self):
        return dense(self.weight, self.plan)


class LostPermutation(Conv1x1):
    """P of the PLU parameterisation as a plain attribute, which a state_dict leaves out."""

    def __init__(self, shape):
        super().__init__(shape)
        permutation = self.permutation
        del self.permutation
        self.permutation = permutation


class LogDetPerSample(Woodbury):
    """The log-det once per sample of the batch."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det.expand(len(x))


class DetachedLogDet(Emerging):
    """A log-det that training cannot see."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det.detach()


class UnreversedInverse(Butterfly):
    """Every factor inverted, and the first still applied first."""

    def inverse(self, y):
        self.check_event(y)
        return self._events(apply(invert_weight(self.weight), self._entries(y), self.plan))

    def inverter(self):
        return self.inverse


class StaleInverse(Conv1x1):
    """W^-1 computed once and kept."""

    def inverse_matrix(self):
        if not hasattr(self, "kept"):
            self.kept = super().inverse_matrix().detach()
        return self.kept
