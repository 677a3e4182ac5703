import pytest
import torch
from compared import follows

from harness.checking.check_layer import run_check
from harness.checking.layer_case import LayerCase
from layers.sinkhorn import Sinkhorn


@pytest.mark.parametrize("over", ["entries", "channels", "positions"])
def test_each_mode_has_the_log_det_of_the_map_that_it_applies(over, perturbed):
    layer = perturbed(Sinkhorn, (3, 2, 2), over=over).train()
    follows(layer, layer.dense())
    assert layer.log_det() < -0.1
    x = torch.randn(2, 3, 2, 2, dtype=torch.float64)
    y, log_det = layer.eval()(x)
    hard = layer.dense()
    assert torch.equal(hard.sum(0), torch.ones(12)) and torch.equal(hard.sum(1), torch.ones(12))
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(y.flatten(1), x.flatten(1) @ hard.T) and log_det == 0
    assert torch.equal(layer.inverse(y), x)


def test_sharp_logits_are_the_permutation_and_the_limit_is_doubly_stochastic(perturbed):
    layer = Sinkhorn((1, 7)).double()
    torch.manual_seed(1)
    order = torch.randperm(7)
    with torch.no_grad():
        layer.logits.copy_(5 * torch.eye(7)[order])
    x = torch.randn(3, 1, 7, dtype=torch.float64)
    assert torch.equal(layer.permutation(), order)
    torch.testing.assert_close(layer.train()(x)[0], x[:, :, order])
    assert torch.equal(layer.eval()(x)[0], x[:, :, order])
    matrix = perturbed(Sinkhorn, (1, 6), iterations=200).relaxed()
    torch.testing.assert_close(matrix.sum(0), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(matrix.sum(1), torch.ones(6, dtype=torch.float64))
    rows = perturbed(Sinkhorn, (1, 6), iterations=1).relaxed()
    torch.testing.assert_close(rows.sum(1), torch.ones(6, dtype=torch.float64))
    assert (rows.sum(0) - 1).abs().max() > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_entry_is_assigned_first(seed):
    """Equal to one entry at a time, including ties, although a round assigns several entries."""
    torch.manual_seed(seed)
    layer = Sinkhorn((1, 9)).double()
    with torch.no_grad():
        layer.logits.copy_(torch.randint(0, 3 if seed else 1, (9, 9)) * 0.01)
        layer.logits.add_(torch.randn(9, 9) * 0.1 * (seed > 2))
    chosen = layer.permutation()
    assert torch.equal(chosen.sort().values, torch.arange(9))
    if seed > 2:  # without ties the greedy choice is unique
        left, slow = layer.relaxed().detach().clone(), torch.zeros(9, dtype=torch.long)
        for _ in range(9):
            row, column = divmod(int(left.argmax()), 9)
            slow[row] = column
            left[row], left[:, column] = -1, -1
        assert torch.equal(chosen, slow)


class ClaimsTheOther(Sinkhorn):
    """Return in training the log-det of the map of eval(), which is no likelihood."""

    def forward(self, x):
        y, log_det = super().forward(x)
        return y, 0 * log_det


class ForgetsToHarden(Sinkhorn):
    """Keep the relaxed map in eval(), with the log-det of a permutation."""

    def forward(self, x):
        log_det = super().forward(x)[1]
        mode = self.training
        y = self.train()(x)[0] if not mode else super().forward(x)[0]
        self.train(mode)
        return y, log_det


@pytest.mark.parametrize("mutant", [ClaimsTheOther, ForgetsToHarden])
def test_the_log_det_of_the_wrong_mode_is_detected(mutant):
    modes = [mode for mode in (True, False) if run_check("log-det", LayerCase(mutant, (2, 3), training=mode))]
    assert modes == [mutant is ClaimsTheOther]
