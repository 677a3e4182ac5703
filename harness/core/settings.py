"""The definition of one trial: frozen, hashable settings, from which its id is derived.

This module does not import torch, so that a plan can be printed without it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from harness.core.run_options import PROJECT

Options = Annotated[
    tuple[tuple[str, Any], ...],
    BeforeValidator(lambda value: tuple(sorted(_frozen(value).items())) if isinstance(value, dict) else value),
    PlainSerializer(dict),
]
"""A mapping of option names to values as a sorted, hashable tuple of pairs; `dict(options)` gives it back."""


def _frozen(value: Any) -> Any:
    """Return a value with lists as tuples, so that options can be hashed."""
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return value


Unit = Literal["bits_per_dim", "nats_per_dim"]
"""The measure of a likelihood: images on a lattice in bits, everything else in nats."""

Accounting = Literal["true", "once_per_sequence"]
"""How a 1x1 convolution's log-determinant enters the loss; `harness.kinds.density.accounting` defines each."""

Progress = Callable[[float, str], None]
"""Callback that receives the completed fraction of a trial (0 to 1) and a short text, e.g. "step 120/300 val 2.31"."""


def silent(fraction: float, text: str) -> None:
    """Report no progress: the default of functions that take a `Progress`."""


Scaling = Literal["scale", "standard", "asinh"]
Preprocessing = Literal["scale", "standard", "asinh", "logit"]


def _scalings(value: Any) -> Any:
    """Return a valid scaling of all channels, a tuple, or a mapping; raise one ValueError for anything else."""
    several = isinstance(value, (list, tuple, Mapping))
    stated = list(value.values() if isinstance(value, Mapping) else value) if several else [value]
    known = get_args(Scaling) if several else get_args(Preprocessing)
    if not stated or any(each not in known for each in stated):
        raise ValueError(
            f"expected {', '.join(get_args(Preprocessing))}; or a list of {', '.join(get_args(Scaling))}, or a mapping "
            f"of names of columns, got {value!r}"
        )
    return tuple(value) if isinstance(value, list) else value


Scalings = Annotated[Preprocessing | tuple[Scaling, ...], BeforeValidator(_scalings)]
"""The scaling of all channels, or one for each."""
StatedScalings = Annotated[Preprocessing | tuple[Scaling, ...] | Mapping[str, Scaling], BeforeValidator(_scalings)]
"""The same as a suite states it: also by the names of columns, of which the others are scaled by their range."""

NO_LOGIT = (
    "preprocessing 'logit' is for images on levels, which bound them; without levels, held-out values are unbounded. "
    "Use 'scale'"
)
"""Error message for `preprocessing: logit` on unbounded data."""

INCEPTION = "inception-v3-compat"
"""torch-fidelity's name of the Inception network that was ported from TensorFlow."""

LEAST_SAMPLES, MOST_SAMPLES = 10, 100_000

Augmentation = Literal["none", "crop_flip", "dihedral_shift"]
"""Augmentations of training images; `harness.pipeline.pipeline.augment` defines each."""


def augmentation_margin(augmentation: Augmentation, shape: tuple[int, ...]) -> int:
    """Return the largest shift of images (C, H, W) in pixels: 4 for a crop, a sixteenth of the side for a shift."""
    return {"none": 0, "crop_flip": 4, "dihedral_shift": max(1, min(shape[1:]) // 16)}[augmentation]


def augmentation_fault(augmentation: Augmentation, shape: tuple[int, ...]) -> str | None:
    """Return the reason why events of this shape do not support the augmentation; None if they do."""
    if augmentation == "none":
        return None
    what = f"augmentation {augmentation!r}"
    if len(shape) != 3:
        return f"{what} moves images, not events of shape {shape}; use augmentation: none"
    height, width = shape[1:]
    if augmentation == "dihedral_shift" and height != width:
        return f"{what} transposes images, which must be square; these are {height} x {width}. Use crop_flip"
    least = augmentation_margin(augmentation, shape) + 1  # it reflects as many pixels less one at the border
    if min(height, width) < least:
        return f"{what} needs images with a side of at least {least}; these are {height} x {width}. Use none"
    return None


class Settings(BaseModel):
    """Base of all parts of a trial: immutable, no unknown keys, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    omitted: ClassVar[tuple[str, ...]] = ()
    """Fields that are left out where they have their default, so that ids of trials without them do not change."""

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        for name in self.omitted:
            if getattr(self, name) == type(self).model_fields[name].default:
                content.pop(name, None)
        return content


_ENTRY = re.compile(r"^    (\w+(?:, \w+)*): ((?:.|\n(?= {8}))*)", re.MULTILINE)


def key_texts(model: type) -> dict[str, str]:
    """Return key -> text of the section "Attributes" in the docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
        for names, text in _ENTRY.findall(section):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the digest at the end of a trial's id, of its settings as `Trial.model_dump(mode="json")`."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _permute(value: Any) -> Any:
    """Return a valid value of `permute`; raise one ValueError, where pydantic has an error for each type."""
    if value != PER_SEED and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(
            f"expected {PER_SEED} (a permutation for each seed) or a whole number of at least 0 (the seed of one "
            f"permutation for all seeds), got {value!r}"
        )
    return value


PER_SEED = "per-seed"
Permute = Annotated[int | Literal["per-seed"], BeforeValidator(_permute)]
"""The seed of one permutation for all trials, or `PER_SEED`: each trial takes its seed."""

Count = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]

if TYPE_CHECKING:
    BackboneName = str
else:  # the files of flows/backbones, without their import, which takes torch
    BackboneName = Literal[tuple(sorted(module.name for module in iter_modules([str(PROJECT / "flows/backbones")])))]

MOST_ENTRIES = 1 << 24
"""Entries of an event. A layer is built on every shape before a run, which takes minutes beyond this."""


def size_fault(shape: tuple[int, ...]) -> str | None:
    """Return the reason why an event of this shape is too large for a suite; None if it is not."""
    entries = math.prod(shape)
    if entries <= MOST_ENTRIES:
        return None
    return f"an event of shape {shape} has {entries:,} entries, and at most {MOST_ENTRIES:,} are allowed"


class FlowSettings(Settings):
    """The shared backbone.

    Attributes:
        backbone: Glow; autoregressive blocks as in TarFlow, with layers under test between them; for tables, couplings
            over columns, or blocks of masked layers.
        levels: number of levels, each of which squeezes the event and, but for the last, splits off half of it;
            autoregressive: of squeezes, which make patches of 2^levels on each axis.
        steps: steps of each level: ActNorm, mixer, layer under test, coupling; autoregressive: blocks, at least 2.
        width: channels of the coupling networks, or of the blocks' transformers.
        turn: autoregressive: reverse the order of the positions after each layer under test.
        coupling: network of the couplings; auto: image or sequence, by the event.
        reach: positions that the couplings of sequences see, with the parameters of those of one position at `width`.
        gate: scale of couplings or blocks: as published for each, or in (0.5, 1.5); of splines, their slopes.
        mixer: the 1x1 convolution before the layer under test; but for Glow, only where a row keeps it.
        prior: standard normal, or with a learned mean and scale.
        split_step: one more full step before each split, as in ButterflyFlow's released image code.
        map: of tables: of each column by those it depends on, affine or a rational-quadratic spline.
        bins: of a spline.
    """

    omitted: ClassVar[tuple[str, ...]] = ("backbone", "gate", "turn", "reach", "map", "bins")

    backbone: BackboneName = "glow"
    levels: Annotated[int, Field(ge=1, le=62, strict=True)] = 2
    steps: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 4
    width: Annotated[int, Field(ge=1, le=65_536, strict=True)] = 64
    coupling: Literal["auto", "image", "glow", "sequence", "attention"] = "auto"
    reach: Literal[1, 3, 9, 27, 81, "all"] = 1
    gate: Literal["published", "bounded"] = "published"
    mixer: Literal["plu", "qr", "dense", "none"] = "plu"
    prior: Literal["standard", "learned"] = "standard"
    split_step: Flag = False
    turn: Flag = True
    map: Literal["affine", "spline"] = "spline"
    bins: Annotated[int, Field(ge=2, le=500, strict=True)] = 8


class SampleSettings(Settings):
    """Number of generated images compared with as many real ones, and the network that extracts their features.

    Attributes:
        count: number of generated images, and of real ones.
        extractor: a name in torch-fidelity's registry; FID in publications uses that of Inception.
    """

    count: Annotated[int, Field(ge=LEAST_SAMPLES, le=MOST_SAMPLES, strict=True)]
    extractor: Annotated[str, Field(min_length=1)] = INCEPTION


class TrainingSettings(Settings):
    """Adam and its schedule, the budget, and the choice of the checkpoint (on the validation split only).

    Attributes:
        steps: the largest number of training steps.
        batch_size: training examples of a step.
        learning_rate: of Adam, after the warm-up.
        warmup: iterations of linear warm-up.
        decay: of the learning rate, per iteration.
        layer_decay: of the rate of the layers under test, per epoch, in place of `decay`; null: they follow the rest.
        ema: the weights that are validated, evaluated and kept: the live ones (none), an average of all of them, or
            (separate) the live backbone with averages of the layers under test, which costs a second pass per step.
        ema_decay: of the averages, per step.
        clip_norm: largest norm of the gradient; null: no limit.
        evaluate_every: steps between two evaluations of the validation split.
        patience: evaluations without improvement before training stops; null: it does not stop early.
        evaluation_batch: examples of a pass in evaluations.
        draws: dequantisation draws per test example.
        samples: of image data, after training: FID, KID, precision and recall (see `harness.evaluation.fidelity`);
            null: not measured.
        accounting: the log-determinant used in training; once_per_sequence reproduces an error of released code, for
            suites that examine it (`harness.kinds.density.accounting`).
        watch: count the steps that take layers under test across a singular matrix (`harness.kinds.density.crossings`).
    """

    omitted: ClassVar[tuple[str, ...]] = ("samples", "accounting", "watch")

    steps: Count = 1000
    batch_size: Count = 128
    learning_rate: Positive = 1e-3
    warmup: Annotated[int, Field(ge=0, strict=True)] = 10
    decay: Annotated[float, Field(gt=0, le=1, strict=True)] = 0.999997
    layer_decay: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    ema: Literal["none", "all", "separate"] = "none"
    ema_decay: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.999
    clip_norm: Positive | None = None
    evaluate_every: Count = 100
    patience: Count | None = None
    evaluation_batch: Count = 256
    draws: Count = 1
    samples: SampleSettings | None = None
    accounting: Accounting = "true"
    watch: Flag = False


class LayerRef(Settings):
    """One row of a table: a registered layer (or FILE.py:CLASS, package.module:CLASS) and its options.

    `source` is a digest of the file of a FILE.py:CLASS, so that a changed file gives a new trial. An oracle row knows
    the permutation of the data: its flow starts with the inverse, and bounds the other rows. `keep_mixer` keeps the
    mixer beside a layer that replaces it (`replaces_mixer`), a control with as many linear layers per step as other
    rows. For a baseline, `layer` names a whole flow (`flows.baselines`) instead of a layer in the backbone.
    """

    omitted: ClassVar[tuple[str, ...]] = ("source", "oracle", "keep_mixer", "baseline")

    row: str  # the label in tables
    layer: str
    options: Options = ()
    source: str | None = None
    oracle: Flag = False
    keep_mixer: Flag = False
    baseline: Flag = False

    def oracle_fault(self, permute: Permute | None) -> str | None:
        """Return the reason why data with this permutation cannot train an oracle; None if they can."""
        if not self.oracle or permute is not None:
            return None
        return f"{self.row}: an oracle knows the permutation of the data, and these have none; give them `permute`"

    @property
    def check_key(self) -> str | None:
        """Return a third-party layer and its options as text, equal for equal layers; None for any other row."""
        return None if self.baseline or ":" not in self.layer else json.dumps([self.layer, dict(self.options)])


@dataclass(frozen=True)
class NewSplit:
    """A split of a data set's events into train, validation and test that is drawn anew.

    Attributes:
        seed: draws it.
        keep_test: the test split stays the data set's; train and validation alone are drawn.
    """

    seed: int
    keep_test: bool = False


class DataRef(Settings):
    """One column of a table: a data set, its options and split, and the map from its raw values to the flow's input.

    `source` is a digest of the file of a FILE.py:CLASS, so that a changed file gives a new trial.
    """

    omitted: ClassVar[tuple[str, ...]] = ("source", "augmentation", "split", "keep_test", "checksum")

    label: str
    name: str  # registered, FILE.py:CLASS as seen from the working directory, or package.module:CLASS
    options: Options = ()
    source: str | None = None
    permute: Permute | None = None  # of all C*H*W entries, the same for every split; None: none
    augmentation: Augmentation = "none"  # of training images, applied before the permutation
    preprocessing: Scalings = "scale"
    dequantise: Flag = True
    allow_unbounded: Flag = False  # acknowledges that raw lattice values admit any density
    split: Annotated[int, Field(ge=0, strict=True)] | None = None  # the seed of a new split; None: the data set's
    keep_test: Flag = False  # whether a new split keeps the test split of the data set
    checksum: str | None = None  # of the arrays, once they exist; None: of this project, generated or installed

    @property
    def arrays(self) -> DataRef:
        """The data set, its options and its split alone: equal for columns that read the same arrays."""
        kept = ("name", "source", "options", "split", "keep_test")
        return DataRef(label="", **{name: getattr(self, name) for name in kept})

    @property
    def new_split(self) -> NewSplit | None:
        """The new split of the events; None for the data set's split."""
        return None if self.split is None else NewSplit(self.split, self.keep_test)

    def permutation_seed(self, seed: int | None = None) -> int | None:
        """Return the seed of the permutation in a trial of this seed; None without a permutation.

        Raises:
            ValueError: the permutation is that of the trial's seed, which is not given.
        """
        if not isinstance(self.permute, str):
            return self.permute
        if seed is None:
            raise ValueError(f"{self.label}: permute: {self.permute} depends on the seed of a trial; give that seed")
        return seed
