import torch

from layers.scale import Scale


def test_each_entry_has_a_scale_of_its_own_and_none_is_mixed():
    layer = Scale((2, 3)).double()
    with torch.no_grad():
        layer.log_scale += torch.arange(6.0).reshape(2, 3)
    y, log_det = layer(torch.ones(1, 2, 3, dtype=torch.float64))
    powers = [1, 2.718281828459045, 7.38905609893065, 20.085536923187668, 54.598150033144236, 148.4131591025766]
    scales = torch.tensor(powers, dtype=torch.float64)
    torch.testing.assert_close(y.flatten(), scales)
    assert log_det == 15
    torch.testing.assert_close(layer.dense(), scales.diag())


def test_it_starts_as_the_identity():
    x = torch.randn(2, 3, 4, 4)
    y, log_det = Scale((3, 4, 4))(x)
    assert torch.equal(y, x) and log_det == 0
