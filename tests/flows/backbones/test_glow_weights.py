import copy

import pytest
import torch

from flows import ActNorm, Glow, seeded

SMALL = {"levels": 2, "steps": 2, "width": 6}
COUPLINGS = ["image", "glow", "sequence", "attention"]


def test_weights_follow_the_seed_and_the_path_alone(channelwise):
    flows = [Glow((2, 4, 4), channelwise, seed=seed, **SMALL).state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(flows[0][name], flows[1][name]) for name in flows[0])
    drawn = [name for name in flows[0] if not torch.equal(flows[0][name], flows[2][name])]
    assert any(".layer." in name for name in drawn) and any(".coupling." in name for name in drawn)
    flow = Glow((2, 4, 4), channelwise, channelwise, split_step=True, **SMALL)
    drawn = [
        parameter.flatten()[:16]
        for name, parameter in flow.named_parameters()
        if name.endswith(("log_s", "first.parametrizations.weight.original1"))
    ]
    assert len(drawn) == 5 * 3
    for index, weight in enumerate(drawn):
        assert not any(torch.equal(weight, previous) for previous in drawn[:index])
    before = torch.random.get_rng_state()
    Glow((2, 4, 4), channelwise, channelwise, coupling="glow", prior="learned", split_step=True, **SMALL)
    assert torch.equal(before, torch.random.get_rng_state())
    before = torch.random.get_rng_state()
    with pytest.raises(KeyError), seeded(0, "a"):
        torch.rand(3)
        raise KeyError
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("shape", "coupling"), [((2, 8, 8), c) for c in COUPLINGS] + [((2, 16), "auto")])
def test_initialise_normalises_what_each_actnorm_sees(shape, coupling, everywhere, channelwise):
    flow = Glow(shape, everywhere, channelwise, coupling=coupling, prior="learned", split_step=True, **SMALL).double()
    x = 4 * torch.randn(64, *shape).double() - 3
    flow.initialise(x)
    seen = 0
    for path, module, value in flow.trace(x):
        if isinstance(module, ActNorm):
            values = module(value)[0].transpose(0, 1).flatten(1)
            torch.testing.assert_close(values.mean(1), torch.zeros(len(values)).double(), rtol=0, atol=1e-9)
            torch.testing.assert_close(values.var(1, correction=0), torch.ones(len(values)).double(), msg=path)
            seen += 1
    assert seen == 5
    for module in flow.modules():
        assert not isinstance(module, ActNorm) or module.initialised
    assert all(parameter.grad is None and parameter.requires_grad for parameter in flow.parameters())


def test_initialise_survives_a_constant_channel_and_a_batch_of_one(channelwise):
    for x in (torch.cat([torch.full((8, 1, 4), 3.0), torch.randn(8, 1, 4)], dim=1), torch.randn(1, 2, 4)):
        flow = Glow((2, 4), channelwise, **SMALL)
        flow.initialise(x)
        assert flow.log_prob(x).isfinite().all()
        torch.testing.assert_close(flow.inverse(flow(x)[0]), x, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_reload_and_copy_give_the_same_model(coupling, channelwise, tmp_path):
    options = {**SMALL, "coupling": coupling, "prior": "learned", "split_step": True}
    flow = Glow((2, 4, 4), channelwise, seed=1, **options)
    x = torch.randn(16, 2, 4, 4)
    flow.initialise(x)
    torch.save(flow.state_dict(), tmp_path / "weights.pt")
    again = Glow((2, 4, 4), channelwise, seed=2, **options)
    assert not torch.equal(again.log_prob(x), flow.log_prob(x))
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(again.log_prob(x), flow.log_prob(x))
    assert all(module.initialised for module in again.modules() if isinstance(module, ActNorm))
    assert torch.equal(copy.deepcopy(flow).log_prob(x), flow.log_prob(x))
