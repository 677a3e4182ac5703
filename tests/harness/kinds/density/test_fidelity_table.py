"""Samples that are compared with real images: asked of data sets of images alone."""

import pytest
from toys import write_suite

from harness.core.errors import SuiteError
from harness.core.settings import SampleSettings
from harness.planning.settle import load_suite, settle

SUITE = """
suite: compared
kind: density
title: Compared
layers: {conv1x1: {}}
profiles:
  quick:
    training: {samples: {count: 64}}
    datasets: {digits: {}, WAVES}
"""


def test_samples_of_sequences_are_refused_at_their_setting(tmp_path):
    with pytest.raises(SuiteError, match=r":9:\d+: waveforms: training.samples compares images"):
        load_suite(write_suite(tmp_path, SUITE, "WAVES", "waveforms: {}"))
    suite = load_suite(write_suite(tmp_path, SUITE, "WAVES", "waveforms: {training: {samples: null}}"))
    plan = settle(suite, "quick", "cpu", settings=["datasets.digits.training.samples.count=32"]).plan()[0]
    assert [trial.training.samples for trial in plan.trials] == [SampleSettings(count=32), None]
    with pytest.raises(SuiteError, match=r"--set training.samples.count=32: waveforms"):
        settle(suite, "quick", "cpu", settings=["training.samples.count=32"]).plan()
