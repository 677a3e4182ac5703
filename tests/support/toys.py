"""Small trials, data, suites and tables, which the tests of several folders share."""

import re

import numpy as np
import torch

from harness.audit.audit import audit
from harness.core.settings import DataRef, FlowSettings, LayerRef, TrainingSettings
from harness.datasets.base import Splits
from harness.evaluation.evaluation import evaluate
from harness.kinds.density.run import run as run_density
from harness.kinds.density.trial import DensityTrial
from harness.pipeline.pipeline import Pipeline
from harness.reporting.report import ReportedResults

ROWS = FIRST, SECOND, THIRD = "conv1x1", "my_layer & co", "<script>"  # of the runs of tests/harness/conftest.py


def density_trial(layer="conv1x1", data="toy", flow=(), training=(), **fields):
    """Return a density trial; a text names a layer or a data set without options."""
    return DensityTrial(
        **{"suite": "toy", "profile": "smoke", "seed": 0} | fields,
        data=DataRef(label=data, name=data) if isinstance(data, str) else data,
        layer=LayerRef(row=layer, layer=layer) if isinstance(layer, str) else layer,
        flow=FlowSettings(**{"levels": 1, "steps": 1, "width": 4} | dict(flow)),
        training=TrainingSettings(**dict(training)),
    )


def run_quietly(trial, out):
    """Return the record of a density trial that runs here."""
    return run_density(trial, None, out, lambda done, text: None)


def toy_splits(shape=(1, 4, 4), levels=5, sizes=(40, 12, 12)):
    """Return splits of uniform whole numbers below `levels`."""
    draw = np.random.default_rng(0)
    parts = [draw.integers(0, levels, (n, *shape), dtype=np.int16) for n in sizes]
    return Splits(*parts, levels=levels, description="random")


def toy_pipeline(shape=(1, 4, 4), levels=5, sizes=(40, 12, 12), **settings):
    return Pipeline(toy_splits(shape, levels, sizes), DataRef(label="toy", name="toy", **settings))


def initialised(flow, data, noise=0.0):
    """Return the flow, initialised on the training split, with noise on its weights."""
    flow.initialise(data.prepare(data.raw("train")[:], torch.Generator().manual_seed(0))[0])
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(noise * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return flow


def audited(flow, data, batch=4):
    """Return the audit of an evaluation on the test split."""
    return audit(flow, data, evaluate(flow, data, "test", 1, batch, 0))


def write_suite(folder, text, old="", new=""):
    """Write a suite to the file of its name, with one text replaced, and return the path."""
    assert old in text
    text = text.replace(old, new) if old else text
    path = folder / f"{re.search(r'^suite: (.+)', text, re.M)[1]}.yaml"
    path.write_text(text)
    return path


def tables_of(run):
    """Return the tables of the report of a run, (plan, records)."""
    return ReportedResults.of(*run).report.tables


def grid(table):
    """Return {row label: {column header: cell}}."""
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}


def events(*parts):
    """Return the bytes of all events of some splits, in order."""
    return sorted(event.tobytes() for part in parts for event in part)
