import math

import pytest
import torch
from compared import follows

from layers.conv_exponential import ConvExponential, terms


def heavy(shape, **options):
    """Return a layer whose kernel is far beyond its bound."""
    torch.manual_seed(0)
    layer = ConvExponential(shape, **options).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn_like(layer.weight))
    return layer


@pytest.mark.parametrize(("shape", "bound"), [((3, 5, 4), 2.0), ((2, 9), 4.0), ((1, 1, 1), 0.5)])
def test_at_the_bound_series_and_trace_are_exact(shape, bound):
    layer = heavy(shape, bound=bound)
    follows(layer, layer.dense(), 1e-12)
    assert torch.linalg.cond(layer.dense()) <= math.exp(2 * bound) * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 32)])
def test_the_norm_is_within_the_bound_and_not_far_below(shape):
    layer = heavy(shape, bound=1.0)
    generator = layer.dense()
    values = torch.linalg.eigvals(generator).log()  # of M: exp is one to one there
    largest = values.abs().max()
    assert 0.1 < largest <= 1


def test_a_kernel_within_the_bound_is_unchanged_and_wrong_bounds_are_refused():
    layer = ConvExponential((3, 5, 5))
    assert torch.equal(layer.kernel(), layer.weight)
    with torch.no_grad():
        layer.weight.zero_()
    x = torch.randn(2, 3, 5, 5, requires_grad=True)
    y, log_det = layer(x)
    (y.sum() + log_det).backward()
    assert torch.equal(y, x) and layer.weight.grad.isfinite().all()
    for bound in (0.0, -1.0, 16.5, 1e4, math.inf, math.nan):
        with pytest.raises(ValueError, match="bound"):
            ConvExponential((1, 4), bound=bound)


@pytest.mark.parametrize("bound", [0.1, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_terms_is_the_smallest_sufficient_one(bound, dtype):
    eps = torch.finfo(dtype).eps
    count = terms(bound, eps)
    rest = sum(bound**i / math.factorial(i) for i in range(count + 1, count + 60))
    assert rest <= eps * math.exp(-bound)
    assert bound ** (count - 1) / math.factorial(count - 1) > eps * math.exp(-bound)
