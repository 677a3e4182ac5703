"""Examinations of small layers, compared with an enumeration of all cases."""

import itertools
import math

import pytest
import torch

from harness.core.settings import LayerRef
from harness.kinds.examination.examinations import run as run_examination
from harness.kinds.examination.trial import ExaminationTrial
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
