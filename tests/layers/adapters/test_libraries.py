"""Layers of other libraries obey the rules without a line of code, and their faults are found."""

import warnings

import numpy as np
import pytest
import torch

from harness.checking.check_layer import CHECKS, construct, run_check
from harness.checking.layer_case import LayerCase
from harness.checking.report import Remark
from harness.core.errors import UserError
from harness.core.layer_classes import check_options, resolve_layer
from layers import UnsupportedShape, free_parameters, layer_options
from layers.adapters import LIBRARIES, hide_deprecations

IMAGE, ODD, VECTOR = (2, 2, 3), (3, 5), (5, 1)
IN_FLOAT32 = ("training-step", "updates", "memory")

# (spec, options, shapes that it serves)
SOUND = [
    ("nflows.transforms:LULinear", {"features": "D"}, {IMAGE, ODD, VECTOR}),
    ("nflows.transforms:OneByOneConvolution", {"num_channels": "C"}, {IMAGE}),
    ("normflows.flows:InvertibleAffine", {"num_channels": "D"}, {IMAGE, ODD, VECTOR}),
    ("normflows.flows:AffineConstFlow", {"shape": ["D"]}, {IMAGE, ODD, VECTOR}),
    ("FrEIA.modules:HouseholderPerm", {"n_reflections": 2}, {IMAGE, ODD, VECTOR}),
    ("FrEIA.modules:IRevNetDownsampling", {}, set()),
    ("FrEIA.modules:PermuteRandom", {"seed": 3}, {IMAGE, ODD, VECTOR}),
    ("zuko.transforms:LULinearTransform", {"LU": "eye(D)"}, {IMAGE, ODD, VECTOR}),
    ("pyro.distributions.transforms:HaarTransform", {"dim": -2}, {ODD, VECTOR}),
    ("pyro.distributions.transforms:Permute", {"permutation": "randperm(D)"}, {IMAGE, ODD, VECTOR}),
    ("torch.distributions:AffineTransform", {"loc": 1, "scale": "2 * ones(D)"}, {IMAGE, ODD, VECTOR}),
]

# (spec, options, rule, part of the message)
FAULTY = [
    ("FrEIA.modules:OrthogonalTransform", {}, "log-det", "but slogdet of the map is"),
    ("FrEIA.modules:LearnedElementwiseScaling", {}, "reverse-log-det", "the sign is wrong"),
    ("nflows.transforms:LULinear", {"features": "D", "using_cache": True}, "weight-updates", "still uses the old"),
    ("normflows.flows:Permute", {"num_channels": "D"}, "log-det-form", "log-det is torch.float32"),
    ("pyro.distributions.transforms:Householder", {"input_dim": "D"}, "weight-updates", "y still uses the old"),
    ("pyro.distributions.transforms:permute", {"input_dim": "D"}, "reload", "y differs after reload"),
    ("torch.distributions:AffineTransform", {"loc": 0, "scale": "ones(1)", "event_dim": 1}, "log-det", "but slogdet"),
]

WRONG_SIGN = """
from nflows.transforms import LULinear

class WrongSign(LULinear):
    def forward(self, inputs, context=None):
        outputs, log_det = super().forward(inputs)
        return outputs, -log_det

class LastEvent(LULinear):
    def forward(self, inputs, context=None):
        outputs, log_det = super().forward(inputs)
        return outputs, log_det + (torch.arange(len(inputs)) == len(inputs) - 1)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("spec", "options", "served"), SOUND, ids=lambda value: value if isinstance(value, str) else ""
)
def test_right_layers_pass_on_every_shape_that_they_serve(spec, options, served):
    """Every rule runs on the last of the shapes, and the inverse and the log-det on all."""
    cls = resolve_layer(spec)
    assert {shape for shape in (IMAGE, ODD, VECTOR) if construct(cls, shape, options)[0] is None} == served
    for shape in served:
        for rule in [*CHECKS] if shape == max(served) else ("log-det", "inverse"):
            dtype = torch.float32 if rule in IN_FLOAT32 else torch.float64
            if rule != "large-events":
                messages = run_check(rule, LayerCase(cls, shape, dtype, options))
                assert [text for text in messages if not isinstance(text, Remark)] == [], (rule, shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("spec", "options", "rule", "message"), FAULTY, ids=lambda value: str(value)[:50])
def test_faults_of_libraries_are_found(spec, options, rule, message):
    case = LayerCase(resolve_layer(spec), (3, 4), options=options, training=False, dtype=torch.float32)
    case = case if rule == "weight-updates" else LayerCase(case.cls, case.shape, options=options)
    assert message in "\n".join(run_check(rule, case))


@pytest.mark.filterwarnings("ignore")
def test_planted_faults_in_a_file_with_a_class_of_a_library_are_found(tmp_path):
    (tmp_path / "planted.py").write_text("import torch\n" + WRONG_SIGN)
    for name, rule, message in [
        ("WrongSign", "log-det", "the sign is wrong"),
        ("WrongSign", "log-det-form", ""),
        ("LastEvent", "log-det", "but slogdet of the map is"),
    ]:
        case = LayerCase(resolve_layer(f"planted.py:{name}", tmp_path), ODD, options={"features": "D"})
        faults = run_check(rule, case)
        assert (message in "\n".join(faults)) if message else faults == []


def test_options_are_those_of_the_library():
    cls = resolve_layer("nflows.transforms:LULinear")
    assert list(layer_options(cls)) == ["features", "using_cache", "identity_init", "eps"]
    assert layer_options(cls)["eps"].default == 1e-3
    for options, message in [
        ({"features": "D", "feature": 3}, "'feature' is unknown (did you mean features"),
        ({"features": "2 * E"}, "'E' is unknown; use numbers, the event's sizes D, C, H, W, L"),
        ({}, "'features' has no default: give it a value, such as features=D;"),
    ]:
        with pytest.raises(UserError, match=message.replace("(", r"\(")):
            check_options(cls, options)
    assert resolve_layer("nflows.transforms.lu:LULinear") is cls
    with pytest.raises(UserError, match=r"no class 'LULiner' \(did you mean LULinear"):
        resolve_layer("nflows.transforms:LULiner")
    with pytest.raises(UnsupportedShape, match=r"\(3, 5\) are refused .*Inputs must be a 4D tensor"):
        resolve_layer("nflows.transforms:OneByOneConvolution")(ODD, num_channels="C")


@pytest.mark.filterwarnings("ignore")
def test_construction_follows_torchs_generator_alone():
    cls = resolve_layer("FrEIA.modules:PermuteRandom")
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    layers = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        layers.append(cls((64, 1)).kept.perm.tolist())
    assert layers[0] == layers[1] != layers[2]
    assert free_parameters(cls((64, 1))) == 0
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_tensors_of_a_transform_are_parameters_or_buffers_and_the_version_is_in_the_remark():
    layer = resolve_layer("zuko.transforms:RotationTransform")((2, 2, 2), A="0.1 * randn(D, D)")
    assert [name for name, _ in layer.named_parameters()] == ["held.A"]
    assert layer.remark.startswith("zuko 1.") and layer.remark.endswith("on the event as a vector")
    order = resolve_layer("zuko.transforms:PermutationTransform")((3, 4), order="randperm(D)")
    assert list(order.state_dict()) == ["held.order"] and not list(order.parameters())
    assert resolve_layer("pyro.distributions.transforms:Householder")((4, 1), input_dim="D").remark.startswith(
        "pyro-ppl"
    )


OLD = "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular\nand will be removed"


@pytest.mark.parametrize(
    ("module", "message", "shown"),
    [
        *((f"{package}.inner", OLD, package == "torch") for library in LIBRARIES for package in library.packages),
        ("nflows.transforms.lu", "the weights are almost singular", True),
        ("mylayers.nflows", OLD, True),
        ("nflows_of_mine", OLD, True),
    ],
)
def test_only_deprecations_inside_a_library_are_ignored(module, message, shown):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hide_deprecations()
        warnings.warn_explicit(message, UserWarning, "file.py", 80, module)
    assert len(caught) == shown
