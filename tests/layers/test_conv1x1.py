import pytest
import torch

from layers import free_parameters
from layers.conv1x1 import Conv1x1, random_orthogonal
from layers.linalg.householder import product_of_reflections
from layers.orthogonal import Orthogonal
from layers.svd import SVD

EVERY = ["plu", "qr", "dense"]


@pytest.mark.parametrize("c", [1, 4, 12])
def test_counts(c):
    plu, qr, dense = (Conv1x1((c, 6), parameterisation=name) for name in EVERY)
    assert sum(p.numel() for p in plu.parameters()) == sum(p.numel() for p in qr.parameters()) == 2 * c * c + c
    assert free_parameters(plu) == c * c
    assert free_parameters(qr) == c * c + c * (c + 1) // 2
    assert sum(p.numel() for p in dense.parameters()) == free_parameters(dense) == c * c


@pytest.mark.parametrize("shape", [(12, 1), (64, 2, 2)])
def test_few_rows_are_multiplied_by_the_factors(shape, monkeypatch, perturbed):
    """Values and gradients are those of W, which is not formed; with more rows than channels it is."""
    layer = perturbed(Conv1x1, shape, 0.1, parameterisation="plu")
    x = torch.randn(8, *shape, dtype=torch.float64, requires_grad=True)
    probe = torch.randn_like(x)
    inputs = (x, layer.lower, layer.upper, layer.log_s)
    weight = layer.matrix().expand(8, -1, -1)
    inverse = layer.inverse_matrix().expand(8, -1, -1)
    monkeypatch.setattr(layer, "_matrix_and_log_det", None)
    monkeypatch.setattr(layer, "inverse_matrix", None)
    for result, matrix in ((layer(x)[0], weight), (layer.inverse(x), inverse)):
        expected = (matrix @ x.flatten(2)).view_as(x)
        torch.testing.assert_close(result, expected)
        assert result.is_contiguous()
        gradients = (torch.autograd.grad((y * probe).sum(), inputs) for y in (result, expected))
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs)
    for call in (layer, layer.inverse):
        with pytest.raises(TypeError, match="NoneType"):
            call(x.repeat(5, *[1] * len(shape)))
    assert layer(x[:0])[0].shape == layer.inverse(x[:0]).shape == (0, *shape)


@pytest.mark.parametrize("parameterisation", EVERY)
def test_the_initial_matrix_is_the_sampled_one(parameterisation):
    torch.manual_seed(0)
    layer = Conv1x1((8, 3), parameterisation=parameterisation)
    torch.manual_seed(0)
    torch.testing.assert_close(layer.matrix(), random_orthogonal(8).float())
    assert all(parameter.is_contiguous() for parameter in layer.parameters())


@pytest.mark.parametrize(
    ("layer_class", "options"),
    [
        *((Conv1x1, {"parameterisation": name}) for name in EVERY),
        *((Orthogonal, {"parameterisation": name}) for name in ("householder", "cayley", "exponential")),
        (SVD, {}),
    ],
)
def test_a_learned_matrix_may_start_as_a_permutation(layer_class, options):
    torch.manual_seed(0)
    layer = layer_class((8, 3), initialisation="permutation", **options)
    torch.manual_seed(0)
    start = torch.eye(8)[torch.randperm(8)]
    x = torch.randn(4, 8, 3)
    y, log_det = layer(x)
    torch.testing.assert_close(y, start @ x, atol=5e-6, rtol=0)
    ((y * torch.randn_like(y)).sum() + log_det.sum()).backward()
    gradients = [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients) and any(map(torch.any, gradients))
    with pytest.raises(ValueError, match=r"'identity'.*orthogonal.*permutation"):
        layer_class((8, 3), initialisation="identity")


def test_the_initial_matrix_is_haar_distributed():
    """Under Haar the trace has mean 0 and variance 1; QR without its signs has mean far below."""
    torch.manual_seed(0)
    traces = torch.stack([random_orthogonal(3).trace() for _ in range(2000)])
    assert traces.mean().abs() < 0.1
    assert (traces.var() - 1).abs() < 0.15


def reflection(v):
    """Return I - 2 v v^T / v^T v, entry by entry."""
    return torch.eye(len(v), dtype=v.dtype) - 2 * v[:, None] * v[None, :] / sum(entry * entry for entry in v)


def test_qr_is_the_product_of_its_definition(perturbed):
    layer = perturbed(Conv1x1, (4, 3), 0.1, parameterisation="qr")
    expected = torch.eye(4, dtype=torch.float64)
    for v in layer.reflections:
        expected = expected @ reflection(v)
    expected = expected @ (layer.upper.triu(1) + torch.diag(layer.s))
    torch.testing.assert_close(layer.matrix(), expected)
    torch.testing.assert_close(torch.linalg.slogdet(expected)[1], layer.s.abs().log().sum())


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-12, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reflections_of_any_length(length, dtype):
    """For a tiny or huge v_2 only its direction matters, a zero v_2 has no effect; gradients stay finite."""
    torch.manual_seed(0)
    vectors = torch.randn(4, 5, dtype=dtype)
    direction = vectors[1].clone()
    vectors[1] *= length
    vectors.requires_grad_()
    product = product_of_reflections(vectors)
    others = reflection(vectors[0]) @ (reflection(direction) if length else torch.eye(5, dtype=dtype))
    expected = others @ reflection(vectors[2]) @ reflection(vectors[3])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(product, expected, atol=20 * eps, rtol=0)
    torch.testing.assert_close(product @ product.T, torch.eye(5, dtype=dtype), atol=20 * eps, rtol=0)
    product.square()[0, 0].backward()
    assert vectors.grad.isfinite().all()
