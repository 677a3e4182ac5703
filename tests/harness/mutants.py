"""Real layers with one fault each; loaded by file name, as third-party layers are."""

import torch
from torch import nn

from layers.butterflies.pairs import apply, invert_weight
from layers.butterflies.stages import product_matrix
from layers.butterfly import Butterfly
from layers.conv1x1 import Conv1x1
from layers.emerging import Emerging
from layers.periodic import Periodic
from layers.woodbury import Woodbury


class ForgottenPositions(Conv1x1):
    """Return the log-det of one position instead of all n."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / self.positions


class FrequenciesOnce(Periodic):
    """Count columns of the real FFT that represent two frequencies only once."""

    def log_det(self):
        return torch.linalg.slogdet(self._spectrum()).logabsdet.sum()


class WrongMask(Emerging):
    """Use the upper triangle at the centre tap of w1 instead of the lower."""

    def __init__(self, shape):
        super().__init__(shape)
        self.weight1_mask = self.weight1_mask.transpose(0, 1)

    def forward(self, x):
        return self._by_torch(x)


class TransposedInverse(Conv1x1):
    """Apply W^-T at every position instead of W^-1."""

    def inverse_matrix(self):
        return super().inverse_matrix().T


class SwappedSizes(Woodbury):
    """Exchange the number of positions n and channels c in the log-det."""

    def forward(self, x):
        y, _ = super().forward(x)
        pairs = zip(self, (self.channels, self.positions), strict=True)
        matrices = [(torch.eye(len(factor.v)).to(factor.v) + factor.v @ factor.u, count) for factor, count in pairs]
        return y, sum(count * torch.linalg.slogdet(matrix)[1] for matrix, count in matrices)


class SharedTwice(Butterfly):
    """Count shared diagonals for all l entries of a block, which has only l / 2 pairs."""

    def __init__(self, shape):
        super().__init__(shape, shared=True)

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 2 * log_det


class KeptBias(Periodic):
    """Do not subtract the bias in the inverse."""

    def inverse(self, y):
        return super().inverse(y + self.bias.reshape(-1, *[1] * (len(self.shape) - 1)))


class DenseInLayerOrder(Butterfly):
    """Index dense() in the layer's internal order instead of the event's."""

    def __init__(self, shape):
        super().__init__(shape, flatten="channels_last")

    @torch.no_grad()
    def dense(self):
        return product_matrix(self._chains(), self.sizes, self.weight)


class LostPermutation(Conv1x1):
    """Keep P of the PLU parameterisation as a plain attribute, which a state_dict omits."""

    def __init__(self, shape):
        super().__init__(shape)
        permutation = self.permutation
        del self.permutation
        self.permutation = permutation


class LogDetPerSample(Woodbury):
    """Return one log-det per example of the batch."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det.expand(len(x))


class DetachedLogDet(Emerging):
    """Detach the log-det, so that training ignores it."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det.detach()


class UnreversedInverse(Butterfly):
    """Invert every factor but keep their order."""

    def inverse(self, y):
        entries = apply(invert_weight(self.weight), self._flat(y).flatten(1).T, self.plan)
        return self._unflat(entries.T.contiguous())


class StaleInverse(Conv1x1):
    """Compute W^-1 once and keep it."""

    def inverse_matrix(self):
        if not hasattr(self, "kept"):
            self.kept = super().inverse_matrix().detach()
        return self.kept


class ChunkedLogDet(Conv1x1):
    """Add the log-dets of chunks of 64 events: correct for batches of up to 64."""

    def forward(self, x):
        parts = [super(ChunkedLogDet, self).forward(part) for part in x.split(64)]
        return torch.cat([y for y, _ in parts]), sum(log_det for _, log_det in parts)


class FlatteredLogDet(Conv1x1):
    """Add a quarter of a nat per entry to the log-det in batches above 64."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det + 0.25 * self.dim * (len(x) > 64)


class ShrunkEvents(Conv1x1):
    """Scale all but the first 8 events by 0.1 in batches above 64."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return (torch.cat([y[:8], 0.1 * y[8:]]) if len(x) > 64 else y), log_det


class CentredBatch(Conv1x1):
    """Subtract the mean of the batch in batches above 100."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return (y - y.mean(0) if len(x) > 100 else y), log_det


class HalvedWhenLarge(Conv1x1):
    """Halve the log-det above D = 4096, where no matrix is formed."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det / 2 if self.dim > 4096 else log_det


class WrongWhenLarge(Periodic):
    """Return a log-det that is correct up to D = 64 only."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 0.9 * log_det if self.dim > 64 else log_det


class CachedLogDet(Conv1x1):
    """Return the log-det of the first call in eval() in all later calls there."""

    kept = None

    def forward(self, x):
        y, log_det = super().forward(x)
        if self.training:
            return y, log_det
        if self.kept is None:
            self.kept = log_det.detach()
        return y, self.kept.to(log_det)


class WrongInEval(Conv1x1):
    """Return a different log-det in eval(), where likelihoods are reported."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, log_det if self.training else log_det + 0.1 * self.dim


class AdaptsInEval(Periodic):
    """Change the bias with the data in eval()."""

    def forward(self, x):
        y, log_det = super().forward(x)
        if not self.training:
            with torch.no_grad():
                self.bias.sub_(0.1 * y.mean([0, *range(2, y.ndim)]))
        return y, log_det


class FrozenInEval(Conv1x1):
    """Use the weights of the first call in eval() in all later calls there."""

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
    """Clamp the input of the inverse to [-6, 6]."""

    def inverse(self, y):
        return super().inverse(y.clamp(-6, 6))


class RepeatedInverse(Conv1x1):
    """Return the last input of forward as the inverse."""

    def forward(self, x):
        self.last = x.detach()
        return super().forward(x)

    def inverse(self, y):
        return self.last if self.last.shape == y.shape else super().inverse(y)


class IdleParameters(Conv1x1):
    """Have 10,000 unused parameters."""

    def __init__(self, shape):
        super().__init__(shape)
        self.idle = nn.Parameter(torch.randn(100, 100))


class ParameterInList(Conv1x1):
    """Keep a bias in a plain list, which the module does not register."""

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


class AnomalyMode(Conv1x1):
    """Turn on anomaly mode at the first construction in the process, for all that runs after it."""

    done = False

    def __init__(self, shape):
        super().__init__(shape)
        if not AnomalyMode.done:
            torch.autograd.set_detect_anomaly(True)
            AnomalyMode.done = True
