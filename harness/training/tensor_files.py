"""Read what `torch.save` wrote, once its form, types and sizes are checked: nothing is allocated that is not there.

torch's reader runs no code of a file (`weights_only`), but it unpacks compressed members to any size, and calls
functions that allocate what a file asks for, such as bytearray(10**10).
"""

from __future__ import annotations

import io
import pickletools
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from harness.core.records import LONGEST_REASON
from harness.core.texts import message_of

LARGEST_PICKLE = 1 << 26  # bytes of names, numbers and shapes beside the values

_TYPES = re.compile(r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w+Storage")
_LOOKUPS = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "BYTEARRAY8", "NEXT_BUFFER"}


def read_tensors(content: bytes) -> Any:
    """Return the content of `torch.save` of tensors, numbers and texts in dicts, lists and tuples, on the CPU.

    Raises:
        ValueError: it is damaged, or holds objects of other types, or tensors that are larger than the file.
    """
    try:
        _check_members(content)
        for tensor in _tensors(torch.load(io.BytesIO(content), map_location="meta", weights_only=True)):
            if tensor.layout != torch.strided or tensor.numel() * tensor.itemsize > len(content):
                raise ValueError(f"a tensor of shape {tuple(tensor.shape)}, larger than the file")
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile, pickletools and torch raise many kinds on a damaged file
        text = message_of(error, LONGEST_REASON) or type(error).__name__
        raise ValueError(text.splitlines()[0]) from error


def _check_members(content: bytes) -> None:
    """Raise ValueError for compressed members, for members that share bytes, and for objects of other types."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, as torch.save never does")
        if sum(member.file_size for member in members) > len(content):
            raise ValueError("it announces more bytes than it has")
        pickles = [member for member in members if member.filename.endswith(".pkl")]
        if len(pickles) != 1 or pickles[0].file_size > LARGEST_PICKLE:
            raise ValueError(f"it has {len(pickles)} pickles, where one of at most {LARGEST_PICKLE:,} bytes is read")
        for code, argument, _ in pickletools.genops(archive.read(pickles[0])):
            if code.name in _LOOKUPS or (code.name == "GLOBAL" and _TYPES.fullmatch(str(argument)) is None):
                raise ValueError(f"it holds {argument or code.name}, which is no tensor, number or text")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)
