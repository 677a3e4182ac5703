"""Move training images at random."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.core.settings import Augmentation, augmentation_margin


def augment(values: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Move every image of a batch at random, all its channels alike.

    - "crop_flip": the usual one for CIFAR-10 and ImageNet. Reflect-pad by 4 pixels, crop at random to the former
      size (81 positions, equally likely), mirror left and right with probability 1/2.
    - "dihedral_shift": for images without a preferred orientation, such as of the sky. Shift by up to a sixteenth of
      the side (4 pixels at 64 x 64; at least 1) along each axis, with reflection at the border, then apply one of
      the 8 symmetries of the square: mirrored left and right, top and bottom, transposed, each with probability 1/2.

    Reflection is about the outermost pixels, which do not repeat: a b c d enters as c b | a b c d | c b.

    Args:
        values: (N, C, H, W) of any dtype, with a shape that `augmentation_fault` accepts.
        augmentation: one of those above, or "none", which returns the values unchanged.
        generator: draws the moves, on the device of the values.

    Returns:
        Images of the same shape and dtype; entry (i, j) of each is an entry of the same image and channel.
    """
    if augmentation == "none":
        return values
    count, _, height, width = values.shape
    margin, device = augmentation_margin(augmentation, values.shape[1:]), values.device
    shifts = torch.randint(-margin, margin + 1, (2, count, 1), generator=generator, device=device)
    coins = torch.rand(3, count, 1, generator=generator, device=device) < 0.5
    rows = _reflected(shifts[0] + torch.arange(height, device=device), height)
    columns = _reflected(shifts[1] + torch.arange(width, device=device), width)
    columns = torch.where(coins[0], columns.flip(1), columns)
    if augmentation == "dihedral_shift":
        rows = torch.where(coins[1], rows.flip(1), rows)
    places = rows[:, :, None] * width + columns[:, None, :]  # (N, H, W), indices into the flattened image
    if augmentation == "dihedral_shift":
        places = torch.where(coins[2][:, :, None], places.mT, places)
    pixels = values.flatten(2)
    return pixels.gather(2, places.reshape(count, 1, -1).expand_as(pixels)).reshape(values.shape)


def _reflected(places: Tensor, size: int) -> Tensor:
    """Return whole numbers within one size of 0..size-1, reflected into it about 0 and about size - 1."""
    return (size - 1) - ((size - 1) - places.abs()).abs()
