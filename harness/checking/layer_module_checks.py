"""The rules of a layer as a module: construction, state, copies, precisions, modes, batches and messages.

Each rule is a function from a case to the faults it finds, as in `harness.checking.layer_checks`.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from harness.audit.module_state import used
from harness.checking.layer_case import SCALES, LayerCase
from harness.checking.layer_checks import Check, affine, differing, inverse, log_det, results, scaled
from harness.checking.report import Remark
from harness.evaluation.evaluation import state_of
from harness.timing.operations import OperatorWatch, perturb
from layers import InvertibleLinear, layer_options
from layers.adapters import Adapted


def options(case: LayerCase) -> Iterator[str]:
    """Check that every option has a default, which a constructor of another library may lack; remark on type hints."""
    for name, parameter in layer_options(case.cls).items():
        if parameter.annotation is parameter.empty:
            yield Remark(f"option {name!r} has no type hint, by which suites check its values before a trial")
        if parameter.default is parameter.empty and not issubclass(case.cls, Adapted):
            yield f"option {name!r} has no default"


def real_parameters(case: LayerCase) -> Iterator[str]:
    """Check that no parameter or buffer is complex: a conversion to a real dtype drops its imaginary part."""
    for name, value in state_of(case.cls(case.shape, **case.options)).items():
        if value.is_complex():
            yield (
                f"{name!r} is complex, and .to({case.dtype}) drops its imaginary part: keep "
                "torch.view_as_real of it, with a last axis of two, and apply torch.view_as_complex in forward"
            )


def refusals(case: LayerCase) -> Iterator[str]:
    """Check that construction refuses shapes that are not event shapes."""
    shapes: tuple[Any, ...] = ((), (4,), (2, 3, 4, 5), (0, 4, 4), (4, -1), (2, 2.5))
    for shape in shapes:
        try:
            case.cls(shape, **case.options)
        except ValueError:
            continue
        yield f"shape {shape} is accepted at construction: super().__init__(shape) refuses it"


def seeding(case: LayerCase) -> Iterator[str]:
    """Check that initial weights depend on torch's generator alone, and that no size depends on the draw."""
    constructed = replace(case, initialised=False)
    first, same, other = (state_of(constructed.initial(seed)) for seed in (0, 0, 1))
    for name, value in first.items():
        if name not in same or not torch.equal(value, same[name]):
            yield f"{name!r} differs between two layers of one seed: draw it from torch's global generator"
    if {name: value.shape for name, value in first.items()} != {name: value.shape for name, value in other.items()}:
        yield "names or sizes of parameters and buffers depend on the random draw"


def initialisation(case: LayerCase) -> Iterator[str]:
    """Check that initialise(x) follows from x alone and creates no state, and that a layer works without it.

    That it changes only what is saved is part of `reload`, and the layer that it leaves is that of every other rule.
    """
    constructed = replace(case, initialised=False)
    layer, x, original = constructed.initial(), case.first_batch(), case.first_batch()
    before = state_of(layer)
    with torch.no_grad():
        layer.initialise(x)
    after, again = state_of(layer), state_of(case.initial())
    if not torch.equal(x, original):
        yield "initialise overwrites its input"
    for name in sorted(before.keys() ^ after.keys()):
        yield f"{name!r} appears or vanishes in initialise: create it in __init__"
    for name in sorted(after.keys() & again.keys()):
        if not torch.equal(after[name], again[name]):
            yield f"{name!r} differs between two calls of initialise on the same events: compute it from these alone"
    if any(not torch.equal(before[name], after[name]) for name in before.keys() & after.keys()):
        for check in (affine, log_det, inverse):
            yield from (f"without initialise: {message}" for message in check(constructed))


def unchanged_state(case: LayerCase) -> Iterator[str]:
    """Check that forward and inverse create no parameter or state, overwrite no input, and are deterministic."""
    layer, x = case.perturbed(SCALES[-1]), case.events()
    before, original = state_of(layer), x.clone()
    first = layer(x)[0].detach()
    back = layer.inverse(x).detach()
    after = state_of(layer)
    for name in sorted(before.keys() ^ after.keys()):
        yield f"{name!r} appears or vanishes in forward or inverse: create it in __init__"
    changed = [name for name in sorted(before.keys() & after.keys()) if not torch.equal(before[name], after[name])]
    needed = used(layer, changed, x)
    for name in changed:
        message = f"forward or inverse changes {name!r}"
        yield message if name in needed else Remark(f"{message}, which no result depends on")
    if not torch.equal(x, original):
        yield "forward or inverse overwrites its input"
    elif not torch.equal(first, layer(x)[0].detach()) or not torch.equal(back, layer.inverse(x).detach()):
        yield "two calls on the same input differ"


def modes(case: LayerCase) -> Iterator[str]:
    """Check that grad mode and no_grad agree, as do train() and eval() unless the layer hardens; y has a graph."""
    layer, x = case.build(), case.events().requires_grad_()
    y, log_det = layer(x)
    if not y.requires_grad:
        yield "y carries no gradient in grad mode"
    first = {"y": y, "log-det": scaled(log_det), "inverse": layer.inverse(x)}
    variants = {"under no_grad": results(layer, x)}
    if not case.cls.hardens:
        variants["after eval()"] = results(layer.eval(), x)
        variants["after train()"] = results(layer.train(), x)
        variants["in eval() from the start"] = results(case.build().eval(), x)
    for what, values in variants.items():
        for part, error in differing(first, values, case.tolerance()):
            yield f"{part} differs by {error:.2g} (relative) {what}"


def masks(case: LayerCase) -> Iterator[str]:
    """Check that entries hidden by a ``<name>_mask`` buffer do not affect the map, and receive no gradient."""
    yield from mask_faults(case.build(), case.events(), case.tolerance())


def mask_faults(layer: InvertibleLinear, x: Tensor, tolerance: float) -> Iterator[str]:
    """Yield each fault of the masks of a layer, whose hidden entries are changed."""
    buffers = dict(layer.named_buffers())
    masked = {name: value for name, value in layer.named_parameters() if f"{name}_mask" in buffers}
    before = results(layer, x) if masked else {}
    for name, parameter in masked.items():
        mask = buffers[f"{name}_mask"]
        if mask.dtype != torch.bool:
            yield f"'{name}_mask' is {mask.dtype}, not boolean"
            continue
        hidden = ~mask.expand_as(parameter)
        y, log_det = layer(x)
        weights = torch.linspace(1, 2, y.numel(), dtype=y.dtype, device=y.device).reshape(y.shape)
        gradient = torch.autograd.grad((y * weights).sum() + log_det.sum(), parameter, allow_unused=True)[0]
        if gradient is not None and gradient[hidden].any():
            yield f"entries of {name!r} that its mask hides receive a gradient"
        with torch.no_grad():
            parameter[hidden] += 1
        for what, _ in differing(before, results(layer, x), tolerance):
            yield f"entries of {name!r} that its mask hides change {what}"


def reload(case: LayerCase) -> Iterator[str]:
    """Check that a state_dict, saved and loaded into a new layer of another seed, gives the same map."""
    layer, other, x = case.build(), replace(case, initialised=False).initial(seed=7), case.events()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, map_location=case.device, weights_only=True))
    plain = [name for name, value in vars(layer).items() if isinstance(value, Tensor)]
    hint = f"; plain tensor attributes are lost: {', '.join(plain)}" if plain else ""
    for what, error in differing(results(layer, x), results(other, x), case.tolerance()):
        yield f"{what} differs after reload by {error:.2g} (relative): keep it as a parameter or buffer{hint}"


def copies(case: LayerCase) -> Iterator[str]:
    """Check that a deep copy gives the same map and shares no weights."""
    layer, x = case.build(), case.events()
    before, twin = results(layer, x), copy.deepcopy(layer)
    for what, error in differing(before, results(twin, x), case.tolerance()):
        yield f"{what} of a deep copy differs by {error:.2g} (relative)"
    perturb(twin, 0.1, torch.Generator().manual_seed(5))
    for what, error in differing(results(case.copy(twin), x), results(twin, x), case.tolerance()):
        yield (
            f"{what} of a deep copy with other weights differs by {error:.2g} (relative) from that of a new layer with "
            "its state: the copy refers to the original, as a function made in __init__ does"
        )
    if any(differing(before, results(layer, x), 0.0)):
        yield "a deep copy shares state with the original: changing one changes the other"


def precision(case: LayerCase) -> Iterator[str]:
    """Check that .double() and .float() convert the whole layer."""
    layer, x = case.build(), case.events()
    before = results(layer, x)
    target = torch.float32 if case.dtype == torch.float64 else torch.float64
    after = results(layer.to(target), x.to(target))
    for what, value in after.items():
        if value.dtype != target:
            yield f"{what} is {value.dtype} after a change to {target}: a constant was left behind"
    for what, error in differing(before, after, case.tolerance(torch.float32)):
        yield f"{what} differs by {error:.2g} (relative) after a change to {target}"


MANY = 300  # events: larger than any batch size at which a map might change
FEW = 12


def batches(case: LayerCase) -> Iterator[str]:
    """Check that events are independent: size, order and memory order of a batch change neither results nor log-det."""
    layer, x = case.build(), case.events(max((MANY, *case.batches)))
    expected = results(layer, x)
    few = x[: MANY : MANY // FEW]
    backwards = results(layer, x.flip(0))
    backwards = {what: value if what == "log-det" else value.flip(0) for what, value in backwards.items()}
    strided = x.transpose(1, -1).contiguous().transpose(1, -1)
    variants: dict[str, tuple[slice, dict[str, Tensor]]] = {
        "one by one": (slice(0, MANY, MANY // FEW), _split(layer, few, 1)),
        "by sevens": (slice(0, MANY), _split(layer, x[:MANY], 7)),
        "in reverse order": (slice(None), backwards),
        "in other memory order": (slice(None), results(layer, strided)),
        "as every second of a batch": (slice(0, FEW), results(layer, x[:FEW].repeat_interleave(2, dim=0)[::2])),
    }
    variants |= {f"by {size}": (slice(None), _split(layer, x, size)) for size in case.batches if size < len(x)}
    for what, (places, variant) in variants.items():
        alike = {part: expected[part][places] for part in ("y", "inverse")} | {"log-det": expected["log-det"]}
        for part, error in differing(alike, variant, case.tolerance()):
            yield f"{part} of events {what} differs by {error:.2g} (relative) from that in a batch of {len(x)}"


def _split(layer: InvertibleLinear, x: Tensor, size: int) -> dict[str, Tensor]:
    """Return the results of a batch in parts; for the log-dets the one that differs most from their mean."""
    parts = [results(layer, part) for part in x.split(size)]
    log_dets = torch.stack([part["log-det"] for part in parts])
    together = {what: torch.cat([part[what] for part in parts]) for what in ("y", "inverse")}
    return together | {"log-det": log_dets[(log_dets - log_dets.mean(0)).abs().amax(1).argmax()]}


def unused_parameters(case: LayerCase) -> Iterator[str]:
    """Check that every trained parameter affects y or the log-det.

    If only some entries of a parameter do not, that is a remark: a kernel may well be larger than a small event. Events
    with one channel or one position in a row are skipped, as a correct layer may not need all of its weights there.
    """
    layer, x = case.build(), case.events(FEW)
    named = {name: value for name, value in layer.named_parameters() if value.requires_grad}
    if min(case.shape) == 1 or not case.training or not named:
        return
    y, log_det = layer(x)
    # Weights that differ between entries: the gradients of a plain sum may cancel.
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64).to(y)
    output = (y * weights).sum() + 0.7 * log_det.sum()
    if not output.requires_grad:
        gradients: tuple[Tensor | None, ...] = (None,) * len(named)
    else:
        gradients = torch.autograd.grad(output, list(named.values()), allow_unused=True)
    buffers = dict(layer.named_buffers())
    for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
        idle = torch.ones_like(parameter, dtype=torch.bool) if gradient is None else gradient == 0
        mask = buffers.get(f"{name}_mask")
        free = torch.ones_like(idle) if mask is None else mask.bool().expand_as(idle)
        count, total = int((idle & free).sum()), int(free.sum())
        if not count:
            continue
        message = f"{count:,} of {total:,} entries of {name!r} receive no gradient from y or the log-det"
        if count == total:
            yield f"{message}, yet count as parameters: leave {name!r} out or freeze it"
        else:
            yield Remark(f"{message}; a boolean buffer '{name}_mask' takes them out of the count")


def registered(case: LayerCase) -> Iterator[str]:
    """Check that every tensor used by the map is a parameter or a buffer, or computed from those and x."""
    layer, x = case.build(), case.events()
    made, strangers = set(map(_storage, (x, *layer.parameters(), *layer.buffers()))), dict[int, Tensor]()
    kept: list[Tensor] = []  # a freed storage could be reused

    def see(_: Any, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        for tensor in inputs:
            if tensor.ndim and _storage(tensor) not in made:
                strangers.setdefault(_storage(tensor), tensor)
        made.update(map(_storage, outputs))
        kept.extend(outputs)

    with OperatorWatch(see):
        layer(x)
        layer.inverse(x)
    for tensor in strangers.values():
        what = f"a tensor of shape {tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.requires_grad:
            yield (
                f"the map uses {what} that requires a gradient and is not among the module's parameters, so it is "
                "neither trained, counted nor saved: make it a separate attribute, or use nn.ParameterList"
            )
        else:
            yield Remark(f"the map uses {what} that is not registered, so .to() and a state_dict leave it out")


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def wrong_input(case: LayerCase) -> Iterator[str]:
    """Check that input of another shape raises a ValueError that names the shapes."""
    layer = case.build()
    c, *spatial = case.shape
    longer = (*case.shape[:-1], case.shape[-1] + 1)
    events = {(c + 1, *spatial), (1, *spatial), longer, (*case.shape, 1), (layer.dim,), case.shape[::-1]} - {case.shape}
    wrong = [case.shape, *((2, *event) for event in sorted(events))]  # the first has no batch
    for shape, method in product(wrong, (layer.forward, layer.inverse)):
        called = f"{method.__name__} of input {shape} where events are {case.shape}"
        try:
            method(torch.zeros(shape, dtype=case.dtype, device=case.device))
        except ValueError as error:
            if not any(", ".join(map(str, named)) in str(error) for named in (shape, case.shape)):
                yield f"{called} raises a message that names no shape: {error}"
        except Exception as error:
            yield f"{called} raises {type(error).__name__} ({error}): leave check_event to the base class"
        else:
            yield f"{called} is accepted: leave check_event to the base class"


CHECKS: tuple[Check, ...] = (
    options,
    real_parameters,
    refusals,
    seeding,
    initialisation,
    unchanged_state,
    modes,
    masks,
    reload,
    copies,
    precision,
    unused_parameters,
    registered,
    wrong_input,
)
