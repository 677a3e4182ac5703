"""Examinations of small layers, compared with an enumeration of all cases, and of their conformance.

Sound layers conform, and each kind of fault is seen where it shows.
"""

import itertools
import math

import pytest
import torch

from harness.cli.parser import main
from harness.core.settings import LayerRef
from harness.kinds.claims.judges import conformance
from harness.kinds.examination.conformance import run as run_conformance
from harness.kinds.examination.examinations import run as run_examination
from harness.kinds.examination.report import command
from harness.kinds.examination.trial import ConformanceTrial, ExaminationTrial
from harness.reporting.frame import Results
from layers.butterfly import Butterfly


def trial(examine, shape, mixer="none", layer="butterfly", **options):
    label = "x".join(map(str, shape))
    ref = LayerRef(row=layer, layer=layer, options=tuple(sorted(options.items())))
    return ExaminationTrial(
        suite="tiny", profile="quick", label=label, shape=shape, layer=ref, mixer=mixer, examine=examine
    )


def examined(*args, **options):
    record = run_examination(trial(*args, **options), None, None, lambda done, text: None)
    assert record.status == "ok", record.reason
    return record.rows[0]


def test_mixing_classes_are_residues_which_a_1x1_joins_if_its_channels_are_in_different_ones():
    """D = 12 = 3 * 4 in the order (c, t): two levels pair entries 6 and 3 apart."""
    row = examined("mixing", (3, 4), levels=2, initialisation="rotation")
    assert (row["classes"], row["sizes"], row["density"]) == (3, "4 + 4 + 4", pytest.approx(1 / 3))
    kept = sum(
        all(before % 3 == after % 3 for before, after in enumerate(order)) for order in itertools.permutations(range(6))
    )
    row = examined("mixing", (3, 2), levels=1, initialisation="rotation")
    assert row["log10_permutations"] == pytest.approx(math.log10(kept / math.factorial(6)))
    options = {"levels": [2, 1], "partition": [8, 4], "initialisation": "rotation"}
    assert examined("mixing", (2, 6), **options)["sizes"] == "4 + 4 + 2 + 2", "residues of two in each part"
    options["levels"] = [3, 2]
    assert examined("mixing", (2, 6), **options)["sizes"] == "8 + 4"
    assert examined("mixing", (2, 6), "dense", **options)["classes"] == 1
    # In channels_last order 8 entries are four whole positions, and a 1x1 of two channels stays within a position.
    assert examined("mixing", (2, 6), "dense", **options, flatten="channels_last")["sizes"] == "8 + 4"
    assert examined("mixing", (1, 12), "dense", **options)["sizes"] == "8 + 4", "a 1x1 of one channel mixes nothing"
    assert examined("mixing", (1, 12), levels=1)["sizes"] == "6 x 2"


def test_permutations_realised_by_2k_minus_1_factors_and_by_one_pass():
    row = examined("permutations", (1, 4), levels=2)
    assert (row["factors"], row["realised"], row["draws"]) == (3, 100, 100)
    reached = set()
    layer = Butterfly((1, 4), levels=2)
    for swaps in itertools.product((0.0, 1.0), repeat=4):
        swap = torch.tensor(swaps)
        with torch.no_grad():
            layer.weight.copy_(torch.stack((torch.stack((1 - swap, swap)), torch.stack((swap, 1 - swap)))))
            reached.add(tuple(layer(torch.arange(4.0).reshape(1, 1, 4))[0].flatten().tolist()))
    assert row["log10_one_pass"] == pytest.approx(math.log10(len(reached) / 24))


@pytest.mark.parametrize(("shape", "mixer"), [((3, 4), "none"), ((1, 4), "dense")])
def test_permutations_are_unsupported_outside_the_claim(shape, mixer):
    record = run_examination(trial("permutations", shape, mixer, levels=2), None, None, lambda done, text: None)
    assert record.status == "unsupported" and "permutations" in record.reason


def test_lu_factors_of_blocks_give_the_determinant_for_1x1_blocks_only():
    row = examined("block_determinant", (1, 2), levels=1, initialisation="rotation")
    assert row["block_size"] == 1 and row["layer_error"] < 1e-12 and row["blocks_error"] < 1e-12
    row = examined("block_determinant", (2, 2), levels=1, initialisation="rotation", block_size=2)
    assert row["block_size"] == 2 and row["layer_error"] < 1e-12 and row["blocks_error"] > 0.1


LAYERS = """
import torch
from layers import InvertibleLinear

class Diagonal(InvertibleLinear):
    def __init__(self, shape, twice: bool = False):
        super().__init__(shape)
        self.twice = twice
        self.w = torch.nn.Parameter(torch.zeros(self.dim))
    def forward(self, x):
        return x * self.w.reshape(self.shape).exp(), (1 + self.twice) * self.w.sum()
    def inverse(self, y):
        return y * (-self.w.reshape(self.shape)).exp()

class Unbuilt(Diagonal):
    def __init__(self, shape):
        raise RuntimeError("the function was removed")

class Raising(Diagonal):
    def inverse(self, y):
        raise NotImplementedError("no inverse yet")

class Drifting(Diagonal):
    steps = 0
    def forward(self, x):
        y, log_det = super().forward(x)
        self.steps += self.training and x.shape[0] == 64  # shows after steps of training alone
        return y, log_det + (0.1 if self.steps > 50 else 0.0)
"""


@pytest.fixture
def layers(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(LAYERS)
    return path


def rows(layer, **options):
    ref = LayerRef(row="mine", layer=str(layer), options=tuple(options.items()))
    trial = ConformanceTrial(suite="tiny", profile="quick", label="2x3", shape=(2, 3), layer=ref)
    record = run_conformance(trial, None, None, lambda done, text: None)
    assert record.status == "ok", record.reason
    return {row["weights"]: row for row in record.rows}


@pytest.mark.parametrize("layer", ["conv1x1", "Diagonal"])
def test_a_sound_layer_conforms(layer, layers):
    by_weights = rows(f"{layers}:Diagonal" if layer == "Diagonal" else layer)
    assert [row["conforms"] for row in by_weights.values()] == [True, True], by_weights
    assert max(row["log_det_error"] for row in by_weights.values()) < 1e-4
    assert abs(by_weights["trained"]["log_det"]) > 0.1, "training moved the weights"


def test_each_fault_is_seen_where_it_shows(layers):
    twice = rows(f"{layers}:Diagonal", twice=True)["random"]
    assert twice["log_det"] == pytest.approx(2 * twice["log_det_true"]) and "log-det" in twice["failed_rules"]
    unbuilt = rows(f"{layers}:Unbuilt")["trained"]
    assert not unbuilt["conforms"] and "the function was removed" in unbuilt["finding"]
    reverse = rows("FrEIA.modules:LearnedElementwiseScaling")["trained"]  # the sign of the log-det of its inverse
    assert reverse["reverse_log_det_error"] == pytest.approx(2 * abs(reverse["log_det_true"]), rel=1e-4)
    assert not reverse["conforms"] and reverse["log_det_error"] < 1e-4
    silent = rows("zuko.transforms:PermutationTransform", order="randperm(D)")  # no log-det of the inverse
    assert all(row["conforms"] and "reverse_log_det_error" not in row for row in silent.values()), silent
    drifting = rows(f"{layers}:Drifting")
    assert [row["conforms"] for row in drifting.values()] == [True, False]
    assert drifting["trained"]["log_det_error"] == pytest.approx(0.1, rel=1e-3)
    raising = rows(f"{layers}:Raising")["random"]
    assert not raising["conforms"] and "no inverse yet" in raising["finding"]


def test_the_command_of_a_fault_repeats_its_options():
    ref = LayerRef(row="svd", layer="lib.flows:SVD", options=(("features", "D"), ("using_cache", True), ("n", [1, 2])))
    expected = "python -m harness check-layer lib.flows:SVD --set features=D --set using_cache=true --set 'n=[1, 2]'"
    assert command(ref) == expected


def test_a_report_lists_the_faults(layers, tmp_path, capsys):
    suite = tmp_path / "mine.yaml"
    suite.write_text(
        f"suite: mine\nkind: conformance\ntitle: Mine\nlayers:\n  good: {{layer: '{layers}:Diagonal'}}\n"
        f"  bad: {{layer: '{layers}:Diagonal', options: {{twice: true}}}}\n"
        "profiles:\n  quick:\n    datasets:\n      2x3: {shape: [2, 3]}\n"
    )
    assert main(["run", str(suite), "--out", str(tmp_path / "out")]) == 0, capsys.readouterr()
    table = (tmp_path / "out/mine/table.md").read_text()
    assert "ratio 0.5" in table and "--set twice=true" in table
    assert "| good" in table and table.count("check-layer") == 2, "the caption's, and one command"
    judged = conformance(Results.read(tmp_path / "out/mine"))
    assert judged.holds == "holds in part" and judged.short == "1 of 2 layers have a fault: bad"
