"""Leases of cores and GPUs: threads never exceed the cores, and GPUs are never shared."""

import pytest

from harness.core.provenance.environment import usable_gpus
from harness.execution.local.slots import Slots, at_once


def test_concurrent_trials_have_at_most_one_thread_per_core(trial):
    slots = Slots(cores=4)
    first = slots.lease(trial(threads=3))
    assert slots.lease(trial(threads=2)) is None
    second = slots.lease(trial(threads=1))
    assert first and second and slots.lease(trial()) is None
    slots.give_back(first)
    assert slots.lease(trial(threads=3)) is not None
    slots = Slots(cores=2)
    large = slots.lease(trial(threads=8))
    assert large and slots.lease(trial()) is None, "a trial with more threads than cores runs alone"
    slots.give_back(large)
    assert slots.lease(trial()) and slots.lease(trial(threads=8)) is None


def test_jobs_are_an_upper_bound(trial):
    slots = Slots(jobs=2, cores=8)
    assert slots.lease(trial()) and slots.lease(trial()) and slots.lease(trial()) is None
    cases = ((1, None), (3, None), (1, 3))
    assert [at_once([trial(threads=threads)] * 9, Slots(jobs, cores=8)) for threads, jobs in cases] == [8, 2, 3]
    assert at_once([], slots) == 1 and at_once([trial(threads=99)], slots) == 1


def test_a_gpu_runs_one_trial_at_a_time(trial):
    slots = Slots(cores=8, gpus=("0", "1"))
    leases = [slots.lease(trial(device="cuda")) for _ in range(3)]
    assert [lease and lease.gpu for lease in leases] == ["0", "1", None]
    assert slots.lease(trial()).gpu is None, "a trial on the CPU needs none"
    slots.give_back(leases[0])
    assert slots.lease(trial(device="cuda")).gpu == "0"
    assert at_once([trial(device="cuda")] * 5, Slots(cores=8, gpus=("0", "1"))) == 2


@pytest.mark.parametrize(
    ("named", "gpus"), [("3,1", ("3", "1")), ("GPU-a, MIG-b", ("GPU-a", "MIG-b")), ("", ()), ("-1", ())]
)
def test_only_visible_gpus_are_leased(monkeypatch, named, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert usable_gpus() == gpus
