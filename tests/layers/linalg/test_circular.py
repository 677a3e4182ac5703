import torch
import torch.nn.functional as F

from layers.linalg import convolution


def test_derivatives_are_those_of_torchs_padding(monkeypatch):
    monkeypatch.setattr(convolution, "LEAST_ENTRIES", 0)
    torch.manual_seed(0)
    for shape in ((2, 2, 5), (2, 1, 3, 4)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        for before, after in ((0, 0), (1, 2), (3, 0)):

            def wrap(x, before=before, after=after):
                return convolution.wrapped(x, before, after)

            expected = F.pad(x, [before, after] * (x.ndim - 2), mode="circular")
            weights = torch.randn_like(expected)
            assert torch.equal(wrap(x), expected)
            found, reference = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (wrap(x), expected))
            torch.testing.assert_close(found, reference)
            assert torch.autograd.gradcheck(wrap, x, check_forward_ad=True, check_batched_grad=True)
            assert torch.autograd.gradgradcheck(wrap, x)
