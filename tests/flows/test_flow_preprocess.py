import math

import pytest
import torch

from flows.preprocess import AffineRange, Asinh, Preprocessing, dequantise, logit_pixels, scale_pixels

LOW, HIGH = torch.tensor([-300, 0]), torch.tensor([711, 3])


def ranged(low, high):
    """Return the scaling of the cells of whole numbers from low to high."""
    return Preprocessing(AffineRange(torch.as_tensor(low), torch.as_tensor(high) + 1))


CASES = [
    (scale_pixels(256), 0, 256),
    (scale_pixels(17), 0, 17),
    (logit_pixels(256), 0, 256),
    (logit_pixels(17, margin=0.05), 0, 17),
    (ranged(LOW, HIGH), 0, 4),
    (Preprocessing(Asinh(LOW.double(), HIGH.double() + 1)), -900, 900),
    (Preprocessing(Asinh(LOW.double(), HIGH.double() + 1, torch.tensor([False, True]))), -9, 9),
]


@pytest.mark.parametrize(("preprocessing", "low", "high"), CASES)
@pytest.mark.parametrize("spatial", [(5,), (2, 3)])
def test_log_det_equals_that_of_the_jacobian(preprocessing, low, high, spatial):
    v = low + (high - low) * torch.rand(3, 2, *spatial, dtype=torch.float64)
    x, log_det = preprocessing(v)
    assert x.shape == v.shape and log_det.shape == (3,) and log_det.dtype == torch.float64
    torch.testing.assert_close(preprocessing.inverse(x), v)
    for event, claimed in zip(v, log_det, strict=True):
        jacobian = torch.func.jacrev(lambda e: preprocessing(e[None])[0][0].flatten())(event)
        true = torch.linalg.slogdet(jacobian.reshape(event.numel(), event.numel())).logabsdet
        torch.testing.assert_close(claimed, true, rtol=1e-12, atol=1e-10)


def test_scaling_and_logit_are_their_closed_forms():
    x, log_det = scale_pixels(256)(torch.tensor([[[0.0, 128.0, 256.0]]]))
    assert x.tolist() == [[[-1.0, 0.0, 1.0]]]
    assert log_det.item() == pytest.approx(-3 * math.log(128), rel=1e-14)
    ends, log_det = ranged(LOW, HIGH)(torch.tensor([[[-300.0, 712.0], [0.0, 4.0]]]))
    assert ends.tolist() == [[[-1.0, 1.0], [-1.0, 1.0]]]
    assert log_det.item() == pytest.approx(2 * math.log(2 / 1012) + 2 * math.log(2 / 4), rel=1e-14)
    v = torch.tensor([[[0.0, 0.25, 128.0, 255.75, 256.0]]], dtype=torch.float64)
    x, log_det = logit_pixels(256)(v)
    p = 1e-6 + (1 - 2e-6) * v / 256
    torch.testing.assert_close(x, torch.logit(p), rtol=1e-9, atol=1e-12)
    expected = (math.log((1 - 2e-6) / 256) - p.log() - (1 - p).log()).sum()
    torch.testing.assert_close(log_det[0], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(x, -x.flip(-1), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("v", [0.0, 1e-7, 1e-3, 0.5, 255.5, 255.99998, 256.0])
def test_logit_in_float32_has_the_jacobian_of_float64(v):
    v = torch.tensor([[[v]]], dtype=torch.float32)
    x, log_det = logit_pixels(256)(v)
    exact, exact_log_det = logit_pixels(256)(v.double())
    assert x.dtype == torch.float32 and log_det.dtype == torch.float64
    assert torch.equal(log_det, exact_log_det)
    torch.testing.assert_close(x.double(), exact, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(logit_pixels(256).inverse(x), v, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("preprocessing", [case[0] for case in CASES])
def test_lattice_values_are_restored_from_cell_centres(preprocessing):
    values = torch.randint(4, (16, 2, 5)).float()
    x, _ = preprocessing(values + 0.5)
    assert torch.equal(preprocessing.inverse(x).floor(), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [-2048, -1, 0, 255, 4095])
def test_dequantised_values_never_leave_their_cell(dtype, base):
    values = torch.full((200_000,), base)
    v = dequantise(values, torch.Generator().manual_seed(0), dtype)
    assert v.dtype == dtype
    assert torch.equal(v.floor(), values.to(dtype))
    assert (v - base).mean().item() == pytest.approx(0.5, abs=0.01)
    assert (v - base).std().item() == pytest.approx(12**-0.5, abs=0.01)


def test_dequantise_at_the_last_noise_value(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda size, **kind: torch.full(size, 1 - 2**-24, dtype=kind["dtype"]))
    v = dequantise(torch.tensor([0, 1, 255, -1, -256]))
    assert v.floor().tolist() == [0, 1, 255, -1, -256]


def test_state_holds_the_ranges_and_survives_a_change_of_dtype():
    preprocessing = ranged(LOW, HIGH)
    again = ranged(LOW - 1, HIGH + 1)
    again.load_state_dict(preprocessing.state_dict())
    v = 4 * torch.rand(2, 2, 3).double()
    assert torch.equal(again(v)[0], preprocessing(v)[0])
    third = scale_pixels(17)
    exact = third(v)
    assert torch.equal(third.float()(v)[1], exact[1])


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: scale_pixels(0), ["0.0 to 0.0", "low below high"]),
        (lambda: logit_pixels(0), ["levels = 0", "at least 2"]),
        (lambda: logit_pixels(256, margin=0.0), ["margin = 0.0", "1e-6"]),
        (lambda: logit_pixels(256, margin=0.5), ["margin = 0.5"]),
        (lambda: ranged([0, 5], [3, 3]), ["[0.0, 5.0]", "low below high"]),
        (lambda: ranged([0], [1, 2]), ["[0.0] to [2.0, 3.0]", "one per channel"]),
        (lambda: ranged([0.0], [math.inf]), ["finite"]),
        (lambda: scale_pixels(256)(torch.zeros(1, 3, 4, dtype=torch.uint8)), ["torch.uint8", "dequantise"]),
    ],
)
def test_refusals(make, parts):
    with pytest.raises(ValueError) as caught:
        make()
    for part in parts:
        assert part in str(caught.value)
