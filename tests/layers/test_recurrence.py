"""The linear recurrence in both directions of time: its definition, its bound, long sequences, and its two scans."""

import copy
from pathlib import Path
from types import ModuleType

import pytest
import torch
from compared import at_most_twice, follows

from layers import recurrence
from layers.recurrence import LARGEST_NORM, LARGEST_POLE, OneWay, Recurrence, scan

LONG = 5000


def definition(x, system, states, backwards):
    """Return y and the states before each position, one step after the other."""
    h, ys, befores = x.new_zeros(len(x), states), [], []
    places = range(x.shape[2])[:: -1 if backwards else 1]
    for place in places:
        befores.append(h)
        result = torch.cat([h, x[..., place]], 1) @ system.T
        h, y = result[:, :states], result[:, states:]
        ys.append(y)
    return tuple(torch.stack(values[:: -1 if backwards else 1], 2) for values in (ys, befores))


def compiled(x, system, states, backwards):
    return torch.ops.invertbench.recurrence(x, system, states, backwards)


def stable(states, outputs, inputs, dtype=torch.float64):
    """Return a system whose state neither vanishes at once nor grows."""
    torch.manual_seed(0)
    system = torch.randn(states + outputs, states + inputs, dtype=dtype)
    system[:states, :states] = 0.98 * torch.linalg.qr(system[:states, :states])[0]  # so that memories are long
    return system


# One position, one block, a block and a position, many blocks in two levels; lanes of one, some and several vectors.
@pytest.mark.parametrize("length", [1, 2, 40, 41, 999])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.usefixtures("compiled")
def test_both_scans_follow_the_definition(length, backwards, case):
    for states, outputs, inputs in [(1, 1, 1), (3, 3, 3), (8, 2, 5), (5, 19, 2)]:
        system = stable(states, outputs, inputs)
        for events in (0, 1, 3, 18):
            with case(states=states, outputs=outputs, inputs=inputs, events=events):
                x = torch.randn(events, inputs, length, dtype=torch.float64)
                expected = definition(x, system, states, backwards) if events else (x.new_zeros(0, outputs, length),)
                close = {"rtol": 1e-10, "atol": 1e-10}
                torch.testing.assert_close(scan(x, system, states, backwards), expected[0], **close)
                y, before = compiled(x, system, states, backwards)
                torch.testing.assert_close((y, before)[: len(expected)], expected, **close)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 30.0, 1e4])
@torch.no_grad()
def test_both_radii_are_bounded_for_all_weights(scale, perturbed):
    for states in (1, 8, 40):
        layer = perturbed(OneWay, (3, 7), scale, states=states, backwards=False)
        layer.poles[:1] = 1e9
        transition, inputs = layer._bounded()
        assert float(transition.diagonal().abs().max()) <= LARGEST_POLE
        inverse = transition - inputs @ layer.outputs
        assert float(torch.linalg.matrix_norm(inverse, ord=2)) <= LARGEST_NORM * (1 + 1e-12)
        assert inputs.isfinite().all() and (inputs != 0).all()


def test_the_layer_looks_back_first_and_then_ahead(perturbed):
    layer = perturbed(Recurrence, (3, 9), 0.2, states=4)
    first, second = (part.dense().view(3, 9, 3, 9).permute(0, 2, 1, 3) for part in layer)
    ahead = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert not first[..., ahead].any() and first[..., ahead.T].all()
    assert not second[..., ahead.T].any() and second[..., ahead].all()
    follows(layer, layer.dense())


def test_weights_within_the_bound_are_not_changed():
    layer = OneWay((3, 7), 8, False)
    assert torch.equal(layer._bounded()[1], layer.inputs)


@pytest.mark.parametrize("scale", [0.1, 1.0])
@torch.no_grad()
def test_long_sequences_are_exact_in_single_precision(scale, path, perturbed):
    """Round trips, values and log-det at 5,000 positions, over which the bound keeps W well conditioned."""
    exact = perturbed(Recurrence, (4, LONG), scale / 4)
    layer = copy.deepcopy(exact).float()
    x = torch.randn(2, 4, LONG)
    y, log_det = layer(x)
    true, true_log_det = exact(x.double())
    assert float((y - true).norm() / true.norm()) < 1e-6
    torch.testing.assert_close(log_det.double(), true_log_det, rtol=1e-6, atol=1e-3)
    assert float((layer.inverse(y) - x).norm() / x.norm()) < 1e-4
    assert float((layer(layer.inverse(x))[0] - x).norm() / x.norm()) < 1e-4


@pytest.mark.usefixtures("compiled")
class TestCompiled:
    """`invertbench::recurrence`, beyond the values that are compared above."""

    def test_derivatives(self, check_derivatives):
        for backwards in (False, True):
            x = torch.randn(2, 2, 5, dtype=torch.float64)
            check_derivatives(lambda x, system, back=backwards: compiled(x, system, 3, back), x, stable(3, 3, 2))

    def test_operands_may_be_views(self):
        system, x = stable(3, 2, 2), torch.randn(5, 2, 40, dtype=torch.float64)
        views = x.permute(2, 0, 1).contiguous().permute(1, 2, 0), system.T.contiguous().T
        assert torch.equal(compiled(*views, 3, True)[0], compiled(x, system, 3, True)[0])

    def test_an_event_depends_neither_on_its_batch_nor_on_threads(self, same_by_threads):
        system, x = stable(8, 3, 3, torch.float32), torch.randn(67, 3, 500)
        whole = compiled(x, system, 8, False)[0]
        for start, stop in ((0, 1), (66, 67), (10, 17), (20, 53)):
            assert torch.equal(compiled(x[start:stop], system, 8, False)[0], whole[start:stop])
        same_by_threads(lambda: compiled(x, system, 8, False)[0])

    def test_values_that_are_not_finite_stay_in_their_event_and_its_future(self):
        system, x = stable(3, 2, 2), torch.randn(4, 2, 40, dtype=torch.float64)
        expected = compiled(x, system, 3, False)[0]
        x[1, 0, 20] = torch.nan
        y = compiled(x, system, 3, False)[0]
        assert torch.equal(y[[0, 2, 3]], expected[[0, 2, 3]]) and torch.equal(y[1, :, :20], expected[1, :, :20])
        assert y[1, :, 20:].isnan().all()

    def test_error_is_no_more_than_twice_that_of_plain_torch(self):
        for length in (40, LONG):
            system, x = stable(8, 4, 4, torch.float32), torch.randn(8, 4, length)
            true = scan(x.double(), system.double(), 8, False)
            at_most_twice([compiled(x, system, 8, False)[0]], [scan(x, system, 8, False)], [true])

    def test_opcheck(self):
        operands = torch.randn(2, 2, 9, dtype=torch.float64, requires_grad=True), stable(3, 2, 2).requires_grad_()
        torch.library.opcheck(
            torch.ops.invertbench.recurrence.default,
            (*operands, 3, True),
            test_utils=("test_schema", "test_autograd_registration"),  # it has no shapes for torch.compile
        )

    @pytest.mark.parametrize("states", [-1, 2, 6])
    def test_systems_that_do_not_fit_are_refused(self, states):
        with pytest.raises(ValueError, match=r"expected \(states \+ outputs, states \+ C\) for \(N, C, T\)"):
            compiled(torch.zeros(2, 2, 9), torch.zeros(5, 5), states, False)

    def test_the_layer_uses_it(self):
        layer, y = Recurrence((3, 50)), torch.randn(2, 3, 50)
        with torch.profiler.profile() as profile:
            layer.inverse(layer(y)[0])
        calls = {event.key: event.count for event in profile.key_averages()}
        assert calls["invertbench::recurrence"] == 4


FAULTS = {
    "the carried state is dropped": ("y = y + starts.mT @ from_start.T", "y = y"),
    "a block ends one position early": ("powers[size - 1 - place]", "powers[(size - 2 - place).clamp(min=0)]"),
    "a block starts one position late": ("outputs @ powers[place]", "outputs @ powers[place + 1]"),
    "states decay over a block by a step too few": ("[powers[size], identity]", "[powers[size - 1], identity]"),
    "blocks are carried forward in time alone": ("between, states, backwards)", "between, states, False)"),
    "positions of a block run forward alone": ("place.flip(0) if backwards else place", "place"),
    "an output sees its own state": ("powers[: size - 1] @ inputs", "powers[1:size] @ inputs"),
    "padding is at the end alone": ("(padding, 0) if backwards else (0, padding)", "(0, padding)"),
}


def planted(right, wrong):
    """Return the module of the layer with a fault."""
    source = Path(recurrence.__file__).read_text()
    assert right in source
    module = ModuleType("planted")
    # Without its name the class is not registered.
    exec(source.replace(right, wrong).replace(', name="recurrence"', ""), vars(module))
    return module


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_scan_differ_from_the_definition(fault):
    system, x = stable(4, 2, 2), torch.randn(2, 2, 999, dtype=torch.float64)
    module = planted(*FAULTS[fault])
    differs = [
        not torch.allclose(module.scan(x, system, 4, backwards), definition(x, system, 4, backwards)[0], atol=1e-6)
        for backwards in (False, True)
    ]
    assert any(differs)


LOG_DET = "return log_abs_det(self.weight, self.positions)"
LAYER_FAULTS = {
    "one direction twice": ("for backwards in (False, True)", "for backwards in (False, False)", "map"),
    "the directions in the other order": ("for backwards in (False, True)", "for backwards in (True, False)", "map"),
    "log-det of one position": (LOG_DET, "return log_abs_det(self.weight, 1)", "log-det"),
    "log-det of one direction": (LOG_DET, LOG_DET + " * self.backwards", "log-det"),
    "inverse with the radius of A": ("transition - inputs @ outputs,", "transition,", "inverse"),
    "inverse in the other direction": ("inputs @ inverse, -outputs,", "inputs @ inverse, outputs,", "inverse"),
}


@pytest.mark.parametrize("fault", LAYER_FAULTS)
def test_faults_of_the_layer_are_found(fault, perturbed):
    right, wrong, what = LAYER_FAULTS[fault]
    correct = perturbed(Recurrence, (3, 60), 0.2, states=4)
    faulty = planted(right, wrong).Recurrence((3, 60), states=4).double()
    faulty.load_state_dict(correct.state_dict())
    x, matrix = torch.randn(2, 3, 60, dtype=torch.float64), correct.dense()
    y, log_det = faulty(x)
    agrees = {
        "map": torch.allclose(y.flatten(1), x.flatten(1) @ matrix.T),
        "log-det": torch.allclose(log_det, torch.linalg.slogdet(matrix).logabsdet),
        "inverse": torch.allclose(faulty.inverse(y), x),
    }
    assert [name for name, same in agrees.items() if not same] == [what]
