"""References that are no flows: a Gaussian, and mixtures of Gaussians, with full covariances, by scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flows.density import Density
from flows.protocol import Shape
from flows.shapes import UnsupportedEvent

LARGEST = 1024  # entries of an event: a covariance has their square


class Mixture(Density):
    """p(x) = sum_k w_k N(x; m_k, S_k) on flattened events, with full covariances, by scikit-learn's EM.

    A fit for each number of components, of which the one with the best validation likelihood is kept; k-means gives the
    initial components, and scikit-learn adds 1e-6 to the variances of the flow's input. log p is computed in float64.
    `levels`, `steps` and `width` have no meaning here.

    Args:
        shape: of the events, of at most 1024 entries.
        levels, steps, width: ignored.
        seed: draws the initial components.
        components: the numbers of components to choose from.

    Raises:
        UnsupportedEvent: an event of more entries.
        ValueError: no numbers of components, or one below 1.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        levels: int,
        steps: int,
        width: int,
        seed: int = 0,
        components: Sequence[int] = (1, 2, 4, 8, 16, 32),
    ) -> None:
        super().__init__()
        self.shape, self.dim = tuple(shape), math.prod(shape)
        self.level_shapes = [self.shape]
        if self.dim > LARGEST:
            raise UnsupportedEvent(f"{self.dim} entries in events {self.shape}: a covariance has at most {LARGEST}")
        if not components or min(components) < 1:
            raise ValueError(f"components = {list(components)}: numbers of components, each at least 1")
        self.seed, self.components = seed, sorted(components)
        most = self.components[-1]
        self.logits = nn.Parameter(torch.zeros(most))
        self.means = nn.Parameter(torch.zeros(most, self.dim))
        self.factors = nn.Parameter(torch.eye(self.dim).repeat(most, 1, 1))  # upper triangular, S^-1 = U U^T
        # True for the numbers of the components in use, by which they are counted (`layers.free_parameters`).
        self.register_buffer("logits_mask", torch.ones(most, dtype=torch.bool))
        self.register_buffer("means_mask", torch.ones(most, self.dim, dtype=torch.bool))
        self.register_buffer("factors_mask", torch.ones(most, self.dim, self.dim, dtype=torch.bool).triu())

    @torch.no_grad()
    def fit(self, train: Tensor, validation: Tensor) -> None:
        """Keep the mixture with the best validation likelihood; numbers beyond that of the events are left out."""
        from sklearn.mixture import GaussianMixture

        events, held_out = (values.flatten(1).double().cpu().numpy() for values in (train, validation))
        numbers = [number for number in self.components if number <= len(events)]
        fits = [GaussianMixture(number, random_state=self.seed % 2**32).fit(events) for number in numbers]
        best = max(fits, key=lambda mixture: mixture.score(held_out))
        used = best.n_components
        for name, values in (
            ("logits", torch.as_tensor(best.weights_).log()),
            ("means", torch.as_tensor(best.means_)),
            ("factors", torch.as_tensor(best.precisions_cholesky_)),
        ):
            self.get_parameter(name)[:used] = values.to(self.logits)
            self.get_buffer(f"{name}_mask")[used:] = False

    def log_prob(self, x: Tensor, generator: object = None) -> Tensor:
        """Return log p(x) of shape (N,), in nats."""
        self._check(x, self.shape)
        used = self.get_buffer("logits_mask")
        logits, means, factors = (values[used].double() for values in (self.logits, self.means, self.factors))
        z = x.flatten(1).double() @ factors - (means[:, None] @ factors)  # (components, N, D)
        log_det = factors.diagonal(dim1=1, dim2=2).log().sum(1)
        constants = logits.log_softmax(0) + log_det - self.dim / 2 * math.log(2 * math.pi)
        return (constants[:, None] - z.square().sum(2) / 2).logsumexp(0).to(x.dtype)

    @torch.no_grad()
    def sample(self, n: int, temperature: float = 1.0, generator: torch.Generator | None = None) -> Tensor:
        """Draw n events, shape (n, *shape): components by their weights, and z ~ N(0, temperature^2 I) in each."""
        device = self.logits.device if generator is None else generator.device
        weights = self.logits.masked_fill(~self.get_buffer("logits_mask"), -math.inf).softmax(0).to(device)
        chosen = torch.multinomial(weights, n, replacement=True, generator=generator).to(self.logits.device)
        z = torch.randn(n, self.dim, 1, generator=generator, device=device, dtype=self.logits.dtype).to(chosen.device)
        deviation = torch.linalg.solve_triangular(self.factors[chosen].mT, temperature * z, upper=False)
        return (self.means[chosen] + deviation[..., 0]).reshape(n, *self.shape)


class Gaussian(Mixture):
    """A Gaussian with full covariance, fitted to the training split: `Mixture` of one component.

    `levels`, `steps`, `width` and `seed` have no meaning here.
    """

    def __init__(self, shape: Shape, *, levels: int, steps: int, width: int, seed: int = 0) -> None:
        super().__init__(shape, levels=levels, steps=steps, width=width, seed=seed, components=(1,))
