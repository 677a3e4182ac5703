"""Arrays of records are checked before they are unpacked."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.records import unpacked_arrays

PATH = Path("records/a.npz")


def packed(**arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def header(shape, dtype="|u1", values=b""):
    """Return an .npy file that announces a shape."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": dtype, "fortran_order": False, "shape": shape})
    return content.getvalue() + values


def archive(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return content.getvalue()


def test_arrays_are_unpacked_as_numpy_does():
    arrays = {"data": np.arange(6, dtype="u1").reshape(2, 3), "map a 1: b": np.eye(2, dtype="f2"), "n": np.array(3)}
    arrays["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    unpacked = unpacked_arrays(packed(**arrays), PATH)
    assert unpacked.keys() == arrays.keys()
    assert all(
        (unpacked[name] == array).all() and unpacked[name].dtype == array.dtype for name, array in arrays.items()
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (packed(bomb=np.zeros(3 << 28, "u1")), "they would take"),
        (archive(huge=header((10**12,), "<f8")), ""),
        (archive(huge=header((10**30, 10**30), "<f8")), ""),
        (archive(short=header((4,), values=b"abc")), ""),
        (archive(objects=header((1,), "|O", b"12345678")), "pickle|object|Object"),
        (archive(texts=header((1,), "<U2", b"12345678")), "no array of numbers"),
        (archive(axes=header((1,) * 9, values=b"a")), "no array of numbers"),
        (archive(long=header((1,), "|u1").replace(b"shape", b"sh" + b" " * 200 + b"ape")), ""),
        (archive(none=b""), ""),
        (b"rubbish", "not a zip file"),
    ],
    ids=["bomb", "huge", "overflow", "short", "objects", "texts", "axes", "header", "none", "rubbish"],
)
def test_what_cannot_be_arrays_of_a_record_is_one_message(content, words):
    with pytest.raises(UserError, match=rf"records/a\.npz: damaged arrays \(.*({words})") as caught:
        unpacked_arrays(content, PATH)
    assert "\n" not in str(caught.value)
