"""One matrix for the channels of every position: the compiled product equals its formula."""

from functools import partial

import pytest
import torch
from compared import agree, check_errors, results

from layers.kernels import load as kernels
from layers.linalg.mixing import mix_channels

pytestmark = pytest.mark.usefixtures("way")


def formula(weight, x):
    return torch.einsum("oc,nc...->no...", weight, x)


def test_sizes(case):
    for outputs, inputs in ((1, 1), (2, 3), (4, 4), (5, 9), (12, 12), (13, 12)):
        for events, *spatial in ((0, 20), (1, 16), (2, 17), (3, 4, 9), (70, 100), (1, 5), (2, 1)):
            with case(matrix=(outputs, inputs), events=events, spatial=spatial):
                x = torch.randn(events, inputs, *spatial, dtype=torch.float64)
                agree(mix_channels, formula, [torch.randn(outputs, inputs, dtype=torch.float64), x])


def test_operands_may_be_views():
    weight, x = torch.randn(5, 5, dtype=torch.float64), torch.randn(4, 5, 33, dtype=torch.float64)
    wide = torch.randn(4, 33, 10, dtype=torch.float64)
    for view in (wide.mT[:, ::2], wide.mT[:, 5:], x.flip(0)[1:]):
        agree(mix_channels, formula, [weight.T, view])
    seed = torch.randn(1, 1, 1, dtype=torch.float64).expand(4, 5, 33)
    agree(mix_channels, formula, [weight[:, :4], x[:, 1:]], seeds=[seed])
    agree(mix_channels, formula, [weight, x], seeds=[torch.randn(4, 33, 5, dtype=torch.float64).mT])


def test_second_derivatives_and_transforms(check_derivatives):
    weight, x = torch.randn(3, 2, dtype=torch.float64), torch.randn(2, 2, 16, dtype=torch.float64)
    check_derivatives(mix_channels, weight, x)
    operands = torch.randn(3, 2, dtype=torch.float64), torch.randn(2, 2, 16, dtype=torch.float64)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(*(transform(f, argnums=(0, 1))(*operands) for f in (mix_channels, formula)))


def test_the_operator_runs_where_it_is_faster(monkeypatch, way):
    called = []
    real = torch.ops.invertbench.mix_channels if kernels.load() else None
    monkeypatch.setattr(torch.ops.invertbench, "mix_channels", lambda *call: called.append(1) or real(*call))
    for channels, positions, dtype in ((12, 16, torch.float32), (13, 16, torch.float32), (4, 15, torch.float32)):
        mix_channels(torch.randn(channels, channels, dtype=dtype), torch.randn(2, channels, positions, dtype=dtype))
    assert len(called) == (way == "compiled")


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_error_in_single_precision(way):
    check_errors(mix_channels, formula, [torch.randn(4, 4), torch.randn(300, 4, 600)])


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_the_same_for_any_number_of_threads(way, same_by_threads):
    operands = torch.randn(4, 4), torch.randn(300, 4, 600)
    same_by_threads(lambda: results(mix_channels, operands))


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    mix = partial(torch.ops.invertbench.mix_channels, torch.randn(2, 3, 16))
    for weight, error in (
        (torch.randn(3, 2), ValueError),
        (torch.randn(3), ValueError),
        (torch.eye(3).double(), TypeError),
    ):
        with pytest.raises(error, match="mix_channels"):
            mix(weight)
    with pytest.raises(ValueError, match="places"):
        torch.ops.invertbench.mix_channels(torch.randn(2, 3, 1), torch.eye(3))
