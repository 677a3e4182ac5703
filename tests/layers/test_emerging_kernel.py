"""`invertbench::emerging` and `invertbench::emerging_inverse` against plain PyTorch and against the definition."""

import copy

import pytest
import torch
from torch import Tensor

from layers.emerging import Emerging

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("compiled")]

# One channel, one pixel, one row, one column, odd sizes, several blocks of channels, an axis longer than a vector.
SHAPES = [(1, 1, 1), (3, 5, 4), (2, 1, 9), (2, 9, 1), (7, 3, 21), (13, 19, 5), (3, 35, 34), (1, 6), (3, 1), (6, 70)]
TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-5}, torch.float64: {"rtol": 1e-11, "atol": 1e-12}}


def operands(layer: Emerging) -> tuple[Tensor, Tensor, Tensor | None]:
    return layer.weight1, layer.weight2, layer.bias


def inverse(*operands: Tensor | None) -> Tensor:
    return torch.ops.invertbench.emerging_inverse(*operands)


def forward(*operands: Tensor | None, keep: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.invertbench.emerging(*operands, keep)


def both(*operands: Tensor | None) -> tuple[Tensor, ...]:
    """Return y, the log-det and x: of the forward operator and of the inverse one."""
    return (*forward(*operands)[:2], inverse(*operands))


# Rows so short that copies take the place of gaps, with two and three columns of taps, are among them.
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kernel_size", [1, 3, 5, 9])
@pytest.mark.parametrize("shape", [*SHAPES, (7, 8, 8), (5, 4, 4), (2, 3, 2)])
@torch.no_grad()
def test_forward_and_inverse_equal_plain_torch(shape, kernel_size, dtype, gentle, without_kernels):
    layer = gentle(shape, kernel_size, dtype)
    for weight, mask in ((layer.weight1, layer.weight1_mask), (layer.weight2, layer.weight2_mask)):
        weight[~mask] = torch.nan  # masked entries are not read
    for batch in (0, 1, 6, 33):
        x = torch.randn(batch, *shape, dtype=dtype)
        y, log_det, between = forward(x, *operands(layer), keep=True)
        expected, expected_log_det = without_kernels(layer, x)
        torch.testing.assert_close(y, expected, **TOLERANCE[dtype])
        torch.testing.assert_close(log_det, expected_log_det)
        assert torch.equal(forward(x, *operands(layer))[0], y)
        assert torch.equal(forward(x[:1], *operands(layer))[0], y[:1])  # an event does not depend on its batch
        identity = torch.zeros_like(layer.weight2)
        identity.flatten(2)[..., identity[0, 0].numel() // 2].diagonal().fill_(1)
        assert torch.equal(forward(x, layer.weight1, identity, None)[0], between)
        if batch:
            back = inverse(x, *operands(layer))
            assert back.is_contiguous()
            torch.testing.assert_close(back, without_kernels(layer.inverse, x), **TOLERANCE[dtype])
            torch.testing.assert_close(layer(back)[0], x, **TOLERANCE[dtype])


@pytest.mark.parametrize(("shape", "kernel_size"), [((3, 32, 32), 3), ((5, 6, 40), 5), ((4, 256), 51)])
@torch.no_grad()
def test_an_event_does_not_depend_on_its_batch(shape, kernel_size, gentle):
    """A single example is solved along anti-diagonals, several in parallel; the sums have the same order."""
    layer = gentle(shape, kernel_size, torch.float32)
    y = torch.randn(67, *shape)
    together = inverse(y, *operands(layer))
    for start, stop in ((0, 1), (66, 67), (3, 5), (10, 17), (20, 53)):
        assert torch.equal(inverse(y[start:stop], *operands(layer)), together[start:stop])


@pytest.mark.parametrize("batch", [3, 67])
@torch.no_grad()
def test_an_event_does_not_depend_on_threads(batch, same_by_threads, gentle):
    layer = gentle((8, 24, 24), 3, torch.float32)
    y = torch.randn(batch, 8, 24, 24)
    same_by_threads(lambda: inverse(y, *operands(layer)), (1, 2, 5))


@pytest.mark.parametrize(
    ("shape", "kernel_size"), [((3, 32, 32), 3), ((12, 16, 16), 3), ((48, 8, 8), 3), ((4, 512), 51), ((13, 7, 9), 5)]
)
@pytest.mark.parametrize("batch", [1, 32])
@torch.no_grad()
def test_errors_are_no_more_than_twice_those_of_plain_torch(shape, kernel_size, batch, gentle, without_kernels):
    errors = torch.zeros(2, 2, dtype=torch.float64)  # of forward and inverse, compiled and plain
    for seed in range(4):
        layer = gentle(shape, kernel_size, torch.float32, seed=seed)
        x, exact = torch.randn(batch, *shape), copy.deepcopy(layer).double()
        compiled = forward(x, *operands(layer))[0], inverse(x, *operands(layer))
        plain = without_kernels(layer, x)[0], without_kernels(layer.inverse, x)
        truth = without_kernels(exact, x.double())[0], without_kernels(exact.inverse, x.double())
        for sums, *values, true in zip(errors, compiled, plain, truth, strict=True):
            sums += torch.stack([(value - true).square().sum() for value in values])
    assert (errors[:, 0] > 0).all() and (errors[:, 0].sqrt() <= 2 * errors[:, 1].sqrt()).all()


@torch.no_grad()
def test_strides_do_not_matter_and_nan_stays_in_its_example(gentle):
    layer = gentle((6, 5, 8), 3)
    y = torch.randn(9, 6, 5, 8, dtype=torch.float64)
    expected = inverse(y, *operands(layer))
    scattered = torch.randn(18, 7, 5, 16, dtype=torch.float64)[::2, 1:, :, ::2]
    scattered.copy_(y)
    turned = y.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    for same in (y.contiguous(memory_format=torch.channels_last), turned, scattered):
        assert not same.is_contiguous()
        assert torch.equal(inverse(same, *operands(layer)), expected)
    weights = [w.transpose(0, 3).contiguous().transpose(0, 3) for w in (layer.weight1, layer.weight2)]
    assert torch.equal(inverse(y, *weights, torch.stack([layer.bias] * 2, 1)[:, 0]), expected)
    assert torch.equal(inverse(y[:1].expand(4, -1, -1, -1), *operands(layer)), expected[:1].expand(4, -1, -1, -1))
    layer = gentle((3, 8, 8), 3, torch.float32)
    x = torch.randn(3, 3, 8, 8)
    expected = forward(x, *operands(layer))[0]
    x[1] = torch.nan
    outcome = forward(x, *operands(layer))[0]
    assert torch.equal(outcome[[0, 2]], expected[[0, 2]]) and outcome[1].isnan().all()


@pytest.mark.parametrize("batch", [3, 40])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@torch.no_grad()
def test_non_finite_values_stay_in_their_example(batch, bad, gentle):
    layer = gentle((3, 12, 10), 3, torch.float32)
    y = torch.randn(batch, 3, 12, 10)
    expected = inverse(y, *operands(layer))
    y[1, 2, 0, 0] = bad
    outcome = inverse(y, *operands(layer))
    others = torch.arange(batch) != 1
    assert torch.equal(outcome[others], expected[others])
    assert not outcome[1].isfinite().any()  # w2 carries it to the last pixel, w1 from there to the first


@pytest.mark.parametrize("batch", [1, 40])
@torch.no_grad()
def test_non_finite_values_stay_in_their_pixel_without_taps(batch, gentle):
    layer = gentle((2, 9, 11), 1, torch.float32)
    y = torch.randn(batch, 2, 9, 11)
    expected = inverse(y, *operands(layer))
    y[:, 1, 4, 5] = torch.nan
    outcome = inverse(y, *operands(layer))
    assert outcome[:, :, 4, 5].isnan().all()
    outcome[:, :, 4, 5] = expected[:, :, 4, 5]
    assert torch.equal(outcome, expected)


@pytest.mark.parametrize("batch", [1, 40])
@torch.no_grad()
def test_singular_weights_give_no_finite_answer(batch, gentle, without_kernels):
    layer = gentle((3, 6, 6), 3)
    layer.weight2[1, 1, 1, 1] = 0
    y = torch.randn(batch, 3, 6, 6, dtype=torch.float64)
    for x in (inverse(y, *operands(layer)), without_kernels(layer.inverse, y)):
        assert not x.isfinite().flatten(1).all(dim=1).any()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "kernel_size"), [((2, 3, 4), 3), ((3, 2, 2), 5), ((2, 5), 3)])
def test_gradients(shape, kernel_size, bias, gentle, without_kernels):
    layer = gentle(shape, kernel_size, bias=bias)
    x = torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)
    inputs = [x, *(p for p in operands(layer) if p is not None)]

    def call(*inputs):
        return both(*inputs, *[None] * (not bias))

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)
    weights = torch.randn_like(x)
    results = [(y * weights).sum() + log_det for y, log_det in (layer(x), without_kernels(layer, x))]
    torch.testing.assert_close(*(torch.autograd.grad(result, inputs) for result in results))


@pytest.mark.parametrize("shape", [(7, 9, 12), (4, 40)])
def test_gradients_are_those_of_plain_torch(shape, gentle, without_kernels):
    layer = gentle(shape, 5)
    y = torch.randn(20, *shape, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(20, *shape, dtype=torch.float64)
    leaves = [y, *layer.parameters()]
    expected = torch.autograd.grad((without_kernels(layer.inverse, y) * weights).sum(), leaves)
    for chosen in (slice(None), slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4)):
        gradients = torch.autograd.grad((layer.inverse(y) * weights).sum(), leaves[chosen])
        torch.testing.assert_close(gradients, expected[chosen])


@pytest.mark.parametrize(("shape", "bias"), [((3, 5, 4), True), ((3, 5, 4), False), ((2, 9), True)])
@pytest.mark.parametrize("grad", [True, False])
def test_opcheck(shape, bias, grad, gentle):
    layer = gentle(shape, 3, bias=bias).requires_grad_(grad)
    x = torch.randn(3, *shape, dtype=torch.float64, requires_grad=grad)
    torch.library.opcheck(torch.ops.invertbench.emerging_inverse.default, (x, *operands(layer)))
    torch.library.opcheck(torch.ops.invertbench.emerging.default, (x, *operands(layer), not grad))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda y, w1, w2, b: (y[0], w1, w2, b), ValueError, r"weight1 of shape \[3, 3, 3, 3\] does not fit y of"),
        (lambda y, w1, w2, b: (y[0, 0], w1, w2, b), ValueError, r"y of shape \[4, 5\] is not a batch"),
        (lambda y, w1, w2, b: (y.half(), w1.half(), w2.half(), b), TypeError, "y is Half; use float32 or float64"),
        (lambda y, w1, w2, b: (y.float(), w1, w2, b), TypeError, "weight1 is Double on .* and y Float on "),
        (lambda y, w1, w2, b: (y, w1, w2, b.float()), TypeError, "bias is Float"),
        (lambda y, w1, w2, b: (y, w1[:2], w2, b), ValueError, r"weight1 of shape \[2, 3, 3, 3\] does not fit y"),
        (lambda y, w1, w2, b: (y, w1, w2[:, :, :1], b), ValueError, r"weight2 of shape \[3, 3, 1, 3\] does not fit"),
        (lambda y, w1, w2, b: (y, w1[..., :2], w2[..., :2], b), ValueError, "odd k and l"),
        (lambda y, w1, w2, b: (y, w1, w2, b[:2]), ValueError, r"bias of shape \[2\] does not fit"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operands_that_do_not_fit_are_refused(change, error, message, device, gentle):
    layer = gentle((3, 4, 5), 3).requires_grad_(False)
    wrong = change(torch.randn(2, 3, 4, 5, dtype=torch.float64), *operands(layer))
    with pytest.raises(error, match=f"emerging_inverse: .*{message}"):
        inverse(*(tensor.to(device) for tensor in wrong))


def test_the_layer_uses_the_compiled_kernel_if_applicable(gentle):
    layer = gentle((3, 6, 5), 3)
    y = torch.randn(2, 3, 6, 5, dtype=torch.float64)
    with torch.profiler.profile() as profile:
        layer.inverse(y)
        layer.inverter()(y)
    calls = {event.key: event.count for event in profile.key_averages()}
    assert calls["invertbench::emerging_inverse"] >= 2
    assert "aten::baddbmm" not in calls
