"""Files of torch.save are read only if nothing in them is larger than the file, or of another type."""

import io
import zipfile
from collections import OrderedDict

import pytest
import torch

from harness.training.tensor_files import read_tensors

CONTENT = {"state": OrderedDict(a=torch.arange(10.0), b=torch.tensor(3)), "shape": (1, 2), "n": [1.5, None, "x", True]}


def saved(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def rewritten(change, method=zipfile.ZIP_STORED):
    """Return the file with each member changed: `change(name, content)`."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(CONTENT))) as old, zipfile.ZipFile(new, "w", method) as file:
        for name in old.namelist():
            file.writestr(name, change(name, old.read(name)))
    return new.getvalue()


def in_pickle(before, after):
    def change(name, content):
        assert not name.endswith("data.pkl") or before in content
        return content.replace(before, after, 1) if name.endswith("data.pkl") else content

    return change


def test_tensors_numbers_and_texts_are_read():
    content = read_tensors(saved(CONTENT))
    assert torch.equal(content["state"]["a"], CONTENT["state"]["a"]) and content["n"] == CONTENT["n"]
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimiser.step()
    parts = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "parameter": model.weight}
    assert torch.equal(read_tensors(saved(parts))["parameter"], model.weight)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (rewritten(lambda name, content: content, zipfile.ZIP_DEFLATED), "compressed"),
        (rewritten(in_pickle(b"QK\x00K\n", b"QK\x00J\x00\x00\x00\x40")), "larger than the file"),
        (rewritten(in_pickle(b"K\nt", b"M\xe8\x03t")), "does not match expected size"),
        (
            rewritten(lambda name, content: content[:8] if name.endswith("data/0") else content),
            "does not match expected",
        ),
        (saved({"a": bytearray(10)}), "bytearray"),
        (saved({"a": torch.eye(3).to_sparse()}), "sparse"),
        (saved({"a": torch.Size([1])}), "torch Size"),
        (rewritten(in_pickle(b"ccollections\nOrderedDict", b"cos\nsystem")), "os system"),
        (b"rubbish", "not a zip file"),
        (saved(CONTENT)[:400], "not a zip file"),
    ],
    ids=["bomb", "shape", "claim", "short", "bytearray", "sparse", "size", "code", "rubbish", "cut"],
)
def test_other_content_is_refused_before_it_is_allocated(content, words):
    with pytest.raises(ValueError, match=words):
        read_tensors(content)
