import pytest
import torch

from layers import LAYERS
from layers.chain import Chain

SHAPE = (3, 2, 4)
NAMES = ("conv1x1", "butterfly", "periodic")


@pytest.fixture
def chain(perturbed):
    return perturbed(Chain, SHAPE, 0.1, layers=[LAYERS[name](SHAPE) for name in NAMES])


def test_a_chain_is_the_product_of_its_layers_and_lists_their_factors_and_remarks(chain):
    first, second, third = (layer.dense() for layer in chain)
    torch.testing.assert_close(chain.dense(), third @ second @ first)
    x = torch.randn(5, *SHAPE, dtype=torch.float64)
    y, log_det = chain(x)
    offset = chain(torch.zeros_like(x[:1]))[0]  # the periodic convolution has a bias
    torch.testing.assert_close((y - offset).flatten(1), x.flatten(1) @ chain.dense().T)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(chain.dense())[1])
    for inverse in (chain.inverse, chain.inverter()):
        torch.testing.assert_close(inverse(y), x)
    assert torch.autograd.gradcheck(chain.inverse, (y[:1].detach().requires_grad_(),))
    assert [name for name, _ in chain.factors()] == [name for name, _ in chain.layers[1].factors()]
    assert chain.remark is None
    cut = LAYERS["butterfly"]((1, 37))
    assert cut.remark and Chain((1, 37), [LAYERS["fixed"]((1, 37)), cut]).remark == cut.remark
    with pytest.raises(ValueError, match=r"layer fixed is for events \(2, 4\), the chain for \(4, 2\)"):
        Chain((4, 2), [LAYERS["fixed"]((2, 4))])


def test_a_chain_initialises_each_layer_on_what_arrives_at_it():
    seen = []

    class Gain(LAYERS["fixed"]):
        def forward(self, x):
            return 2 * x, self.dim * x.new_tensor(2.0).log()

        def initialise(self, x):
            seen.append(x)

    x = torch.randn(5, *SHAPE)
    Chain(SHAPE, [Gain(SHAPE), Gain(SHAPE)]).initialise(x)
    assert [torch.equal(events, scale * x) for events, scale in zip(seen, (1, 2), strict=True)] == [True, True]
