"""Saved weights: loading restores the flow, and damaged or foreign files are errors."""

import pytest
import torch
from toys import density_trial

from harness.core.errors import UserError
from harness.core.settings import FlowSettings
from harness.kinds.density.weights import load_flow, save_flow, weights_path, write_weights
from harness.pipeline.models import build_flow

SHAPE = (2, 4, 4)


def trial(layer="butterfly", seed=0):
    return density_trial(layer, flow={"levels": 2}, seed=seed)


@pytest.fixture
def saved(tmp_path):
    """Return (trial, flow, file of its weights)."""
    planned = trial()
    flow = build_flow(SHAPE, planned.layer, planned.flow, planned.seed)
    x = torch.randn(8, *SHAPE, generator=torch.Generator().manual_seed(0))
    flow.initialise(x)
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(0.1)
    return planned, flow, save_flow(flow, planned, tmp_path, {})


def test_loading_restores_the_saved_flow(saved, tmp_path):
    planned, flow, path = saved
    assert path == weights_path(planned, tmp_path) == tmp_path / "weights" / f"{planned.id}.pt"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again = load_flow(planned, path)
    assert not again.training  # evaluation mode
    assert all(torch.equal(a, b) for a, b in zip(flow.state_dict().values(), again.state_dict().values(), strict=True))
    x = torch.randn(3, *SHAPE)
    assert torch.equal(flow.log_prob(x), again.log_prob(x))


@pytest.mark.parametrize("reach", [9, "all"])
def test_couplings_that_are_narrower_for_their_reach_are_restored(reach, tmp_path):
    flow = FlowSettings(levels=1, steps=1, width=32, coupling="sequence", reach=reach)
    planned = trial("conv1x1").model_copy(update={"flow": flow})
    built = build_flow((2, 64), planned.layer, planned.flow, planned.seed)
    again = load_flow(planned, save_flow(built, planned, tmp_path, {}))
    assert all(map(torch.equal, built.state_dict().values(), again.state_dict().values()))


@pytest.mark.parametrize("damage", ["cut", "start", "bit", "empty", "text", "other", "pickle"])
def test_a_damaged_file_is_one_message(saved, damage):
    planned, _, path = saved
    content = path.read_bytes()
    if damage == "other":
        write_weights(path, {"anything": 1})
    elif damage == "pickle":
        code = {"trial": planned.id, "shape": SHAPE, "changes": {}, "values": None, "state": trial}
        write_weights(path, code)  # it must not run
    else:
        parts = {"cut": content[: len(content) // 2], "start": b"x" * 64 + content[64:], "empty": b"", "text": b"hello"}
        middle = len(content) // 2  # in the numbers of a weight, which zipfile would let pass
        parts["bit"] = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes(parts[damage])
    with pytest.raises(UserError) as caught:
        load_flow(planned, path)
    message = str(caught.value)
    assert str(path) in message and "run the suite again" in message and "\n" not in message


def test_weights_of_another_trial_or_that_do_not_fit_or_are_missing_are_refused(saved, tmp_path):
    planned, flow, path = saved
    with pytest.raises(UserError, match=f"weights of trial {planned.id}, not of"):
        load_flow(trial(seed=1), path)
    state = flow.state_dict()
    state.popitem()
    write_weights(path, {"trial": planned.id, "shape": SHAPE, "changes": {}, "values": None, "state": state})
    with pytest.raises(UserError, match="do not fit"):
        load_flow(planned, path)
    with pytest.raises(UserError, match="no such file"):
        load_flow(trial(), tmp_path / "none.pt")
