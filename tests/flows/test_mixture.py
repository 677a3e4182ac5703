"""The references that are no flow: their density is that of scipy and scikit-learn, and no map is faked."""

import math

import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from flows import UnsupportedEvent
from flows.baselines import build_baseline
from flows.baselines.mixture import Gaussian, Mixture
from layers import free_parameters

SIZE = {"levels": 1, "steps": 1, "width": 1}


def clusters(count, seed):
    """Return events (count, 3, 1) of two well-separated clusters with correlated entries."""
    drawn = torch.Generator().manual_seed(seed)
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.3, 0.0], [-0.5, 0.2, 0.1]])
    z = torch.randn(count, 3, generator=drawn) @ mixing.T
    centres = torch.tensor([[0.0, 0.0, 0.0], [6.0, 0.0, 3.0]])
    return (z + centres[torch.randint(0, 2, (count,), generator=drawn)])[:, :, None]


def fitted(cls=Mixture, **options):
    density = cls((3, 1), **SIZE, **options)
    density.fit(clusters(2000, 0), clusters(500, 1))
    return density.eval()


def test_a_gaussian_is_that_of_the_sample_mean_and_covariance():
    train, held_out = clusters(2000, 0).flatten(1).double(), clusters(100, 2)
    covariance = train.T.cov(correction=0) + 1e-6 * torch.eye(3)
    expected = multivariate_normal(train.mean(0), covariance).logpdf(held_out.flatten(1))
    torch.testing.assert_close(
        fitted(Gaussian).log_prob(held_out).double(), torch.tensor(expected), rtol=1e-5, atol=1e-5
    )


def test_validation_chooses_the_number_of_components_and_samples_have_the_density():
    density = fitted(components=(1, 2, 8))
    assert int(density.get_buffer("logits_mask").sum()) == 2, "as many as there are clusters"
    assert free_parameters(density) == 2 * (1 + 3 + 6)
    reference = GaussianMixture(2, random_state=0).fit(clusters(2000, 0).flatten(1).double().numpy())
    x = clusters(100, 2)
    expected = torch.tensor(reference.score_samples(x.flatten(1).double().numpy()))
    torch.testing.assert_close(density.log_prob(x).double(), expected, rtol=1e-5, atol=1e-4)
    samples = density.sample(4000, generator=torch.Generator().manual_seed(3))
    assert samples.shape == (4000, 3, 1)
    means, errors = [], []
    for values in (density.log_prob(samples), density.log_prob(clusters(4000, 4))):
        means.append(float(values.mean()))
        errors.append(float(values.std()) / math.sqrt(len(values)))
    assert abs(means[0] - means[1]) < 5 * math.hypot(*errors) + 0.02
    narrow = density.sample(400, temperature=0.01, generator=torch.Generator().manual_seed(3)).flatten(1)
    assert (torch.cdist(narrow, density.means[:2]).amin(1) < 0.1).all(), "near the means at a low temperature"


def test_the_weights_hold_the_density():
    density, other = fitted(), Mixture((3, 1), **SIZE)
    other.load_state_dict(density.state_dict())
    x = clusters(50, 5)
    assert torch.equal(other.log_prob(x), density.log_prob(x))
    torch.testing.assert_close(density.terms(x), (density.log_prob(x), torch.zeros(50)))


def test_no_map_is_faked_and_impossible_events_and_numbers_are_refused():
    density = fitted(Gaussian)
    for call in (density, density.inverse):
        with pytest.raises(TypeError, match="without a map"):
            call(clusters(3, 0))
    with pytest.raises(UnsupportedEvent, match="at most 1024"):
        build_baseline("mixture", (3, 32, 32), 1, 1, 1, 0, {})
    for components in ((), (0, 2)):
        with pytest.raises(ValueError, match="each at least 1"):
            build_baseline("mixture", (3, 1), 1, 1, 1, 0, {"components": components})
