"""Minibatches of data larger than memory: correct, without a copy of or a pass over all of it."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.pipeline.pipeline import SplitValues

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def mapped(tmp_path):
    """Return (values, the same values memory-mapped read-only)."""
    values = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), dtype=np.uint8)
    np.save(tmp_path / "values.npy", values)
    return values, np.load(tmp_path / "values.npy", mmap_mode="r")


@pytest.mark.parametrize(
    "view",
    [lambda a: a, lambda a: a[10:40], lambda a: a[::-2], lambda a: a.transpose(0, 2, 3, 1), lambda a: a.astype(">i2")],
)
def test_batches_follow_the_requested_order(mapped, view):
    values, file = view(mapped[0]), view(mapped[1])
    chosen = torch.tensor([7, 3, 3, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns about tensors on read-only memory
        held = SplitValues(file)
        assert len(held) == len(values)
        for part in (slice(None), slice(4, 9), slice(len(values) - 2, len(values) + 5), slice(0, 0)):
            np.testing.assert_array_equal(held[part].numpy(), values[part])
        np.testing.assert_array_equal(held[chosen].numpy(), values[chosen.numpy()])
    assert held[chosen].is_contiguous()
    assert held[chosen].dtype == (torch.int16 if values.dtype == ">i2" else torch.uint8)
    held[slice(None)].fill_(0)
    np.testing.assert_array_equal(file, values)


CHILD = """
import itertools, json, math, sys
from pathlib import Path

import numpy as np
import torch

from harness.datasets.base import Splits
from harness.core.settings import DataRef
from harness.evaluation.evaluation import evaluate
from harness.pipeline.pipeline import Pipeline
from harness.training.training import TrainingBatches


def resident(kind):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) // 1024


class Normal(torch.nn.Module):
    def terms(self, x):
        peak.append(resident("RssAnon"))
        return -0.5 * (x.square() + math.log(2 * math.pi)).flatten(1).sum(1), x.new_zeros(len(x))


values = np.load(sys.argv[1], mmap_mode="r")
splits = Splits(values, values[:64], values, levels=256, description="")
data = DataRef(label="large", name="large", augmentation="crop_flip", permute=0)
torch.rand(3).sort(), torch.randperm(len(values))  # exclude what torch allocates at first use
first, peak = {kind: resident(kind) for kind in ("RssAnon", "RssFile")}, []
pipeline = Pipeline(splits, data)
built = resident("RssFile") - first["RssFile"]
seen = 0
for x, _ in TrainingBatches(pipeline, 256, 0):
    peak.append(resident("RssAnon"))
    seen += len(x)
    if seen >= len(values):
        break
points = evaluate(Normal(), pipeline, "test", 1, 256, 0).values.numel()
print(json.dumps({
    "built": built, "private": max(peak) - first["RssAnon"], "seen": seen, "points": points,
    "mapped": resident("RssFile") - first["RssFile"],
}))
"""


@pytest.mark.system  # too long for the default run: 17 s of processor time
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc/self/status to read memory from")
def test_200_mb_are_trained_on_and_evaluated_in_a_fraction_of_the_memory(tmp_path):
    path = tmp_path / "large.npy"
    count = 200 * 2**20 // 3072
    values = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(count, 3, 32, 32))
    values[::1000] = 7
    values.flush()
    del values
    # glibc then returns large blocks to the system at once: otherwise fragmentation is 100 to 135 MB, at random.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", CHILD, str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "not even a warning"
    facts = json.loads(done.stdout)
    assert facts["seen"] >= count and facts["points"] == count
    assert facts["mapped"] > 150, "the file was read where it lies"
    assert facts["built"] < 20, "nothing is read before the first batch"
    # Some minibatches in float64, and fragmentation; a copy of the data would take 200 more.
    assert facts["private"] < 130


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_batches_are_equal(mapped):
    values, file = mapped
    held = SplitValues(file, "cuda")
    for _ in range(20):  # page-locked buffers come back
        chosen = torch.randint(0, len(values), (8,))
        batch = held[chosen]
        assert batch.device.type == "cuda"
        np.testing.assert_array_equal(batch.cpu().numpy(), values[chosen.numpy()])
    np.testing.assert_array_equal(held[3:9].cpu().numpy(), values[3:9])
