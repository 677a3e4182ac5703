"""The paper profiles follow ButterflyFlow's table of architectures (Meng et al., ICML 2022, appendix)."""

from functools import cache

import pytest

from harness.planning.settle import load_suite, settle

# suite, data set: levels, steps, coupling channels, butterfly levels, bi-direction, average, gamma, initialisation
TABLE = {
    ("density", "cifar10"): (3, 32, 512, 1, False, "none", None, "identity"),
    ("density", "imagenet32"): (3, 32, 512, 1, False, "none", None, "identity"),
    ("density", "mnist"): (2, 20, 512, 1, False, "none", None, "identity"),
    ("permuted", "permuted-cifar10"): (3, 32, 512, 10, False, "separate", 0.99, "rotation"),
    ("permuted", "permuted-imagenet32"): (3, 32, 512, 10, True, "separate", 0.99, "rotation"),
    ("permuted", "permuted-mnist"): (2, 20, 512, (9, 8, 4), True, "separate", 0.996, "identity"),
    ("galaxy", "galaxy"): (2, 8, 512, 2, False, "separate", 0.996, "identity"),
    **{("mimic", f"patient {number}"): (2, 2, 16, 10, False, "none", None, "rotation") for number in (1, 2, 3)},
}
DIM = {"cifar10": 3072, "imagenet32": 3072, "mnist": 784, "galaxy": 12288, "mimic": 2048}
BATCH = {"galaxy": 64, "mimic": 1024}
AUGMENTATION = {"cifar10": "crop_flip", "imagenet32": "crop_flip", "galaxy": "dihedral_shift"}


@cache  # planning takes seconds
def plan(suite):
    return settle(load_suite(suite), "paper", "cpu", seeds=1).plan()[0]


def trials(suite, column):
    return {trial.layer.row: trial for trial in plan(suite).trials if trial.data.label == column}


@pytest.mark.parametrize(("suite", "column"), TABLE)
def test_the_butterfly_has_the_published_architecture(suite, column):
    trial = trials(suite, column)["butterfly"]
    flow, training, options = trial.flow, trial.training, dict(trial.layer.options)
    assert (
        flow.levels,
        flow.steps,
        flow.width,
        options["levels"],
        options.get("bi_direction", False),
        training.ema,
        training.layer_decay,
        options.get("initialisation", "identity"),
    ) == TABLE[suite, column]
    assert options["full_depth_at"] == DIM[trial.data.name]
    assert options.get("shared", False) == (suite == "mimic")
    assert options.get("partition") == ((512, 256, 16) if column == "permuted-mnist" else None)
    assert (trial.data.permute is not None) == (suite == "permuted")
    assert trial.data.preprocessing == ("logit" if trial.data.name == "mnist" else "scale")


@pytest.mark.parametrize(("suite", "column"), TABLE)
def test_training_and_backbone_of_every_row(suite, column):
    rows = trials(suite, column)
    for row, trial in rows.items():
        training = trial.training
        assert training.batch_size == BATCH.get(trial.data.name, 128)
        assert trial.data.augmentation == AUGMENTATION.get(trial.data.name, "none")
        assert training.learning_rate == (1e-4 if suite == "mimic" else 1e-3)
        assert (training.warmup, training.decay, training.ema_decay) == (10, 0.999997, 0.999)
        if not row.startswith("butterfly"):  # published averages are for butterfly layers only
            assert (training.ema, training.layer_decay) == ("none", None)
            width = {"maf": 1024, "realnvp": 64, "idensenet": 172}  # baselines: from their own papers
            assert trial.flow.width == (64 if suite == "mimic" else width.get(row, 512))
        assert trial.flow.split_step == (suite != "mimic")
        assert trial.flow.mixer == ("plu" if suite == "mimic" else "dense")
    assert dict(rows["conv1x1"].layer.options)["parameterisation"] == rows["conv1x1"].flow.mixer
    oracle = rows.get("oracle")
    assert (oracle is not None) == (suite == "permuted")
    if oracle is not None:  # except for the permutation it equals the first row
        glow = rows["conv1x1"]
        same = oracle.layer.model_copy(update={"oracle": False, "row": glow.layer.row})
        assert oracle.layer.oracle and oracle.model_copy(update={"layer": same}) == glow
