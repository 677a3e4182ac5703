"""The matrices of trained layers that a trial keeps."""

import numpy as np
import torch

from harness.core.records import MAP
from harness.core.settings import FlowSettings, LayerRef
from harness.evaluation.learned_maps import SIDE, learned_maps, reduced
from harness.pipeline.models import build_flow


def test_a_flow_keeps_the_matrix_of_its_first_layer_and_the_factors_of_a_butterfly():
    ref = LayerRef(row="b", layer="butterfly", options=(("initialisation", "rotation"),))
    flow = build_flow((1, 8, 8), ref, FlowSettings(levels=2, steps=1, width=4), seed=0)
    maps = learned_maps(flow)
    path = f"{MAP}level0/step0/layer"
    assert list(maps) == [path, *(f"{path} {level}: B({level}, 64)" for level in range(1, 7))]
    assert np.allclose(maps[path], flow.levels[0].steps[0].layer.dense(), atol=1e-3)
    flow = build_flow((1, 8, 8), LayerRef(row="p", layer="periodic"), FlowSettings(levels=1, steps=1, width=4), seed=0)
    assert list(learned_maps(flow)) == [path]


def test_the_first_layer_that_is_small_enough_is_kept():
    flow = build_flow((1, 64, 64), LayerRef(row="c", layer="conv1x1"), FlowSettings(levels=3, steps=1, width=4), seed=0)
    maps = learned_maps(flow)
    assert [(name, matrix.shape) for name, matrix in maps.items()] == [(f"{MAP}level2/step0/layer", (SIDE, SIDE))]
    flow = build_flow((1, 64, 64), LayerRef(row="c", layer="conv1x1"), FlowSettings(levels=1, steps=1, width=4), seed=0)
    assert learned_maps(flow) == {}


def test_a_large_matrix_keeps_its_largest_entries_with_their_sign():
    matrix = torch.zeros(300, 300)
    matrix[299, 0], matrix[298, 1], matrix[0, 299] = -2.0, 1.0, torch.inf
    small = reduced(matrix)
    assert small.shape == (100, 100) and small[99, 0] == -2 and np.count_nonzero(small) == 1
    assert np.array_equal(reduced(torch.eye(5)), np.eye(5, dtype=np.float16))
