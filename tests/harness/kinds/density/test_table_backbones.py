"""Tables: trials in their backbones are audited without exceptions, depth is tuned, and the truth is found again."""

import math

import pytest
import torch
from toys import density_trial, run_quietly

from flows.backbones.columns import ColumnCoupling
from flows.baselines import build_baseline
from flows.masked import MaskedBlock
from harness.core.settings import DataRef, FlowSettings, TrainingSettings
from harness.datasets import Store, find_dataset
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.trial import Tuning
from harness.kinds.density.weights import load_flow, weights_path
from harness.pipeline.models import backbone_of
from harness.pipeline.pipeline import Pipeline
from harness.planning.settle import load_suite, settle
from harness.training.training import fit

WINE = DataRef(label="wine", name="sklearn_tables", options={"table": "wine"}, preprocessing="standard")


def trial(**flow):
    training = {"steps": 30, "batch_size": 32, "evaluate_every": 10, "learning_rate": 5e-3}
    return density_trial(data=WINE, flow={"steps": 2, "width": 8} | flow, training=training)


@pytest.mark.parametrize("backbone", ["columns", "masked"])
@pytest.mark.parametrize("name", ["affine", "spline"])
def test_a_trial_on_a_table_passes_its_audit_and_a_wrong_log_det_fails(backbone, name, tmp_path, monkeypatch):
    made = trial(backbone=backbone, map=name, gate="bounded")
    record = run_quietly(made, tmp_path)
    (row,) = record.rows
    assert (record.status, row["audit"]) == ("ok", "passed"), record.audit["reasons"]
    assert row["inverse_error"] < 1e-4 and record.audit["stepped_layers"] == record.audit["linear_layers"] == 2
    assert row["best_step"] == 30, "it learns"
    assert load_flow(made, weights_path(made, tmp_path)).dim == 13
    block = {"columns": ColumnCoupling, "masked": MaskedBlock}[backbone]
    forward = block.forward

    def forgetful(self, x):
        y, log_det = forward(self, x)
        return y, 0.99 * log_det

    monkeypatch.setattr(block, "forward", forgetful)
    record = run_quietly(made, tmp_path)
    assert record.rows[0]["audit"] == "failed" and any("block: log-det is" in text for text in record.audit["reasons"])


def test_captions_and_controls_of_the_backbones():
    texts = {
        "columns": "1 coupling over columns of width 8, splines of 4 bins",
        "masked": "1 masked block of width 8, splines of 4 bins",
    }
    for name, text in texts.items():
        settings = FlowSettings(backbone=name, steps=1, width=8, bins=4)
        backbone = backbone_of(settings)
        assert backbone.described(settings) == text
        bounded = settings.model_copy(update={"gate": "bounded", "map": "affine"})
        assert backbone.described(bounded).endswith("affine maps, scales bounded to (0.5, 1.5)")
        assert backbone.control("fixed", {"map": "permutation"}, False) == "a random permutation alone"
        assert backbone.control("fixed", {"map": "turn"}, False) is backbone.control("scale", {}, False) is None
    plain = FlowSettings(backbone="columns").model_dump(mode="json")
    assert {"map", "bins"}.isdisjoint(plain), "ids of trials of other backbones stay"


def test_the_depth_is_a_setting_of_the_tuning():
    changes = ({"training.learning_rate": 1e-3, "flow.steps": 3}, {"training.learning_rate": 1e-2, "flow.steps": 1})
    tuning = Tuning(seed=5, steps=2, candidates=tuple(tuple(sorted(each.items())) for each in changes))
    tuned = trial(backbone="columns")._with(tuning=tuning)
    assert [candidate.flow.steps for candidate in tuned.candidates] == [3, 1]
    settled = tuned.settled(changes[0])
    assert (settled.flow.steps, settled.training.learning_rate, settled.tuning) == (3, 1e-3, None)
    assert settled.flow.width == tuned.flow.width


def test_the_suite_of_tables_compares_its_rows_on_equal_terms():
    plan = settle(load_suite("tables"), "local", "cpu", settings=["repetitions.number=1"]).plan()[0]
    assert len(plan.columns) == 9 and len(plan.rows) == 17
    trials = [made for made in plan.trials if made.kind == "density"]
    layers = [made for made in trials if not made.layer.baseline]
    assert len({(len(made.tuning.candidates), made.tuning.strategy) for made in layers}) == 1, "tuned alike"
    for column in plan.columns:
        here = [made for made in layers if made.data.label == column]
        assert len({made.training for made in here}) == len({made.flow for made in here}) == 1
        depths = {dict(changes)["flow.steps"] for made in here for changes in made.tuning.candidates}
        assert depths == {1, 2, 4, 8}, "each depth is tried"
        shared = {tuple(dict(c)["training.learning_rate"] for c in made.tuning.candidates) for made in here}
        assert len(shared) == 1


def test_a_gaussian_has_the_entropy_of_a_gaussian_posterior(data_root):
    """The posterior of sbibm's task gaussian_linear is N(m, 0.05 I): the chain from the file to nats is right."""
    options = {"file": "tables/posterior-gaussian.csv", "columns": 10, "shuffle": True}
    data = DataRef(label="posterior", name="csv", options=options, preprocessing="standard")
    splits = find_dataset("csv").loaded(Store.at(data_root, offline=True), options)
    pipeline = Pipeline(splits, data)
    flow = build_baseline("gaussian", pipeline.shape, 1, 1, 1, 0, {})
    fit(flow, pipeline, TrainingSettings(steps=1), 0, lambda done, text: None)
    evaluation = evaluate(flow, pipeline, "test", 1, 256, 0)
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.05)
    lost = evaluation.nats_per_dim - pipeline.log_step - entropy
    expected = (10 + 10 * 11 / 2) / (2 * len(splits.train)) / 10  # of a fit: half a nat for each parameter and event
    assert abs(lost - expected) < 4 * evaluation.standard_error
    assert evaluation.standard_error < 0.01, "a wrong unit would show"


@pytest.mark.parametrize(("table", "columns"), [("wine", 13), ("diabetes", 10), ("breast_cancer", 30)])
def test_tables_of_scikit_learn_have_the_rows_of_the_package_and_noise_for_each_column(table, columns):
    from sklearn import datasets

    splits = find_dataset("sklearn_tables").loaded(Store.at(None), {"table": table})
    source = getattr(datasets, f"load_{table}")(**({"scaled": False} if table == "diabetes" else {})).data
    rows = torch.tensor(source).sort(dim=0).values
    steps = torch.tensor([lattice.step for lattice in splits.lattices], dtype=torch.float64)
    parts = torch.cat([torch.tensor(part[:, :, 0]) for part in splits.parts().values()])
    torch.testing.assert_close((parts * steps).sort(dim=0).values, rows, rtol=1e-12, atol=1e-12)
    assert splits.shape == (columns, 1) and splits.noisy == (True,) * columns and splits.digits is not None
    assert abs(len(splits.test) - 0.2 * len(source)) < 1
