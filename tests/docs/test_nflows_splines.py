"""The script that trains nflows' own Neural Spline Flow beside ours."""

import torch

from harness.core.settings import DataRef
from harness.datasets import Store, find_dataset
from harness.pipeline.pipeline import Pipeline


def test_the_flows_differ_in_masks_norm_and_start_alone(load_script, tmp_path):
    script = load_script("extensions/nflows_splines.py")
    splits = find_dataset("sklearn_tables").loaded(Store.at(tmp_path), {"table": "wine"})
    data = DataRef(name="sklearn_tables", label="wine", preprocessing="standard", options={"table": "wine"})
    pipeline = Pipeline(splits, data, seed=0)
    values = script.compare(pipeline, seeds=1, steps=2)
    assert list(values) == ["nflows' NSF", "ours, from a permutation", "ours, from an orthogonal matrix"]
    assert torch.tensor([each for (each,) in values.values()]).isfinite().all()
    flows = {name: build() for name, build in script.models(12, 0).items()}
    networks = {
        name: sorted(parameter.shape for part, parameter in flow.named_parameters() if "net" in part)
        for name, flow in flows.items()
    }
    assert len({str(shapes) for shapes in networks.values()}) == 1, "networks of the same sizes"
    x = torch.randn(64, 12, 1)
    start = script._log_prob(flows["ours, from a permutation"], x)
    torch.testing.assert_close(start, torch.distributions.Normal(0, 1).log_prob(x).sum((1, 2)))
