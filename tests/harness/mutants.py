"""Real layers with one fault each, of the kinds that layers have had; loaded by file name, as a user's would be."""

import torch
from torch import nn

from layers.butterflies.pairs import apply, dense, invert_weight
from layers.butterfly import Butterfly
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
        pairs = zip(self, (self.channels, self.positions), strict=True)
        return y, sum(k * torch.linalg.slogdet(torch.eye(len(one.v)).to(one.v) + one.v @ one.u)[1] for one, k in pairs)


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
        return super().inverse(y + self.bias.reshape(-1, *[1] * (len(self.shape) - 1)))


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
        entries = apply(invert_weight(self.weight), self._flat(y).flatten(1).T, self.plan)
        return self._unflat(entries.T.contiguous())


class StaleInverse(Conv1x1):
    """W^-1 computed once and kept."""

    def inverse_matrix(self):
        if not hasattr(self, "kept"):
            self.kept = super().inverse_matrix().detach()
        return self.kept


class ChunkedLogDet(Conv1x1):
    """The log-dets of chunks of 64 events added up: right in any batch of up to 64."""

    def forward(self, x):
        parts = [super(ChunkedLogDet, self).forward(part) for part in x.split(64)]
        return torch.cat([y for y, _ in parts]), sum(log_det for _, log_det in parts)


class FlatteredLogDet(Conv1x1):
    """A log-det that is too large by a quarter of a nat per entry in batches above 64."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 0.25 * self.dim * (len(x) > 64)


class ShrunkEvents(Conv1x1):
    """All but the first 8 events a tenth as large in batches above 64."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return (torch.cat([y[:8], 0.1 * y[8:]]) if len(x) > 64 else y), log_det


class CentredBatch(Conv1x1):
    """The mean of the batch subtracted in batches above 100."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return (y - y.mean(0) if len(x) > 100 else y), log_det


class HalvedWhenLarge(Conv1x1):
    """Half of the log-det above D = 4096, where no matrix is formed."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / 2 if self.dim > 4096 else log_det


class WrongWhenLarge(Periodic):
    """A log-det that is right up to D = 64 only."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 0.9 * log_det if self.dim > 64 else log_det


class CachedLogDet(Conv1x1):
    """The log-det of the first call in eval(), kept for all later ones there."""

    kept = None

    def forward(self, x):
        y, log_det = super().forward(x)
        if self.training:
            return y, log_det
        if self.kept is None:
            self.kept = log_det.detach()
        return y, self.kept.to(log_det)


class WrongInEval(Conv1x1):
    """Another log-det in eval(), where everything is reported."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det if self.training else log_det + 0.1 * self.dim


class AdaptsInEval(Periodic):
    """A bias that follows the data in eval()."""

    def forward(self, x):
        y, log_det = super().forward(x)
        if not self.training:
            with torch.no_grad():
                self.bias.sub_(0.1 * y.mean([0, *range(2, y.ndim)]))
        return y, log_det


class FrozenInEval(Conv1x1):
    """The weights of the first call in eval(), used there for ever."""

    kept = None

    def _matrix(self, x):
        if self.training:
            return super().matrix()
        if self.kept is None:
            self.kept = super().matrix().detach()
        return self.kept.to(x)

    def forward(self, x):
        w = self._matrix(x)
        y = torch.einsum("oc,ncp->nop", w, x.flatten(2)).reshape(x.shape)
        return y, self.positions * torch.linalg.slogdet(w).logabsdet

    def inverse(self, y):
        return torch.linalg.solve(self._matrix(y), y.flatten(2)).reshape(y.shape)


class ClampedInverse(Conv1x1):
    """An inverse that clamps what it is given to [-6, 6]."""

    def inverse(self, y):
        return super().inverse(y.clamp(-6, 6))


class RepeatedInverse(Conv1x1):
    """An inverse that gives back what forward was last called with."""

    def forward(self, x):
        self.last = x.detach()
        return super().forward(x)

    def inverse(self, y):
        return self.last if self.last.shape == y.shape else super().inverse(y)


class IdleParameters(Conv1x1):
    """10,000 parameters that nothing uses."""

    def __init__(self, shape):
        super().__init__(shape)
        self.idle = nn.Parameter(torch.randn(100, 100))


class ParameterInList(Conv1x1):
    """A bias in a plain list, where the module does not see it."""

    def __init__(self, shape):
        super().__init__(shape)
        self.hidden = [nn.Parameter(torch.randn(self.channels))]

    def _offset(self, y):
        return self.hidden[0].to(y).reshape(-1, *[1] * (len(self.shape) - 1))

    def forward(self, x):
        y, log_det = super().forward(x)
        return y + self._offset(y), log_det

    def inverse(self, y):
        return super().inverse(y - self._offset(y))
