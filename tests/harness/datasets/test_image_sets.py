"""MNIST and CIFAR-10, from small files in their formats; the real digits where they are."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing
from harness.datasets import Store, find_dataset, published_files
from harness.datasets.published_files import BATCHES, CIFAR10, MNIST, Pinned

SMALL = {"validation": 10, "test": 10}
NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def root(store):
    return store.root


def digest(content):
    return hashlib.sha256(content).hexdigest()


def events(values):
    return {event.tobytes() for event in values}


def idx(values):
    """Return the IDX file of an array of bytes: magic number (type and axes), sizes, values."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


class FakeMnist:
    """50 training and 10 test images in MNIST's files."""

    cls, name, shape, total = published_files.Mnist, "mnist", (1, 28, 28), 60_000

    def __init__(self, root):
        self.root, rng = root, np.random.default_rng(0)
        self.train = rng.integers(0, 256, (50, *self.shape), dtype=np.uint8)
        self.test = rng.integers(0, 256, (10, *self.shape), dtype=np.uint8)
        self.contents = self.packed(self.train, self.test)

    def packed(self, train, test):
        """Return the contents of the published files, by their places in the data root."""
        contents = [gzip.compress(idx(values[:, 0])) for values in (train, test)]
        return {file.place: content for file, content in zip(MNIST, contents, strict=True)}

    def write(self, url=NOWHERE):
        """Write the files and return the data set with their checksums."""
        for place, content in self.contents.items():
            (self.root / place).parent.mkdir(parents=True, exist_ok=True)
            (self.root / place).write_bytes(content)
        return self.cls([Pinned(place, url, digest(content)) for place, content in self.contents.items()])


class FakeCifar10(FakeMnist):
    """50 training and 10 test images in CIFAR-10's archive."""

    cls, name, shape, total = published_files.Cifar10, "cifar10", (3, 32, 32), 50_000

    def packed(self, train, test):
        return self.archive([batch(images) for images in (*np.split(train, 5), test)])

    def archive(self, batches):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, data in zip(BATCHES, batches, strict=False):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return {CIFAR10[0].place: content.getvalue()}


def batch(images):
    return pickle.dumps({"data": images.reshape(len(images), -1), "labels": [0] * len(images)}, protocol=2)


PRESETS = pytest.mark.parametrize("preset", [FakeMnist, FakeCifar10])


# Sets with pinned files


@PRESETS
def test_the_images_are_those_of_the_files_and_sizes_are_cut_from_one_prepared_copy(preset, store, root):
    fake = preset(root)
    dataset = fake.write()
    before = sorted(root.rglob("*"))
    dataset.check(store, SMALL)
    whole = dataset.load(store, SMALL)
    assert [part.shape for part in whole.parts().values()] == [(count, *fake.shape) for count in (40, 10, 10)]
    assert events(whole.train) | events(whole.validation) == events(fake.train)
    assert events(whole.test) == events(fake.test) and (whole.test != fake.test).any(), "in a seeded order"
    assert whole.levels == 256 and whole.train.dtype == np.uint8 and not whole.train.flags.writeable
    some = dataset.load(store, {"validation": 10, "train": 25, "test": 5})
    np.testing.assert_array_equal(some.validation, whole.validation)
    np.testing.assert_array_equal(some.train, whole.train[:25])
    np.testing.assert_array_equal(some.test, whole.test[:5])
    assert some.checksum == whole.checksum
    with pytest.raises(DataError, match=f"{fake.name}: 40 images are there for train beside validation; 41 asked for"):
        dataset.load(store, SMALL | {"train": 41})
    assert len([path for path in (store.cache / "prepared").iterdir() if path.is_dir()]) == 1
    assert sorted(root.rglob("*")) == before, "a root may be read-only"


class Planted:
    """Make a folder when unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@PRESETS
def test_a_file_with_another_checksum_is_refused(preset, store, root):
    fake = preset(root)
    dataset = fake.write()
    place, whole = list(fake.contents.items())[-1]
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        (root / place).write_bytes(content)
        with pytest.raises(DataError) as caught:
            dataset.check(store, SMALL)
        message = str(caught.value)
        assert message.startswith(f"{fake.name}: {root / place}: the file's SHA-256 is {digest(content)}")
        assert digest(whole) in message


def test_no_batch_of_an_archive_with_another_checksum_is_unpickled(store, root, tmp_path):
    fake, harm = FakeCifar10(root), tmp_path / "harm"
    right = fake.write()
    fake.contents = fake.archive([pickle.dumps(Planted(harm))] * len(BATCHES))
    planted = fake.write()
    with pytest.raises(DataError, match="the file's SHA-256 is"):
        right.check(store, SMALL)
    assert not harm.exists()
    with pytest.raises(DataError, match="not of the published form"):
        planted.check(store, SMALL)
    assert harm.exists(), "the planted pickle works if its checksum is accepted"


IMAGES = np.zeros((2, 28, 28), np.uint8)
CUT = gzip.compress(idx(IMAGES))
FORM = r"not of the published form \(.*\); get it anew"
UNREADABLE = {
    "empty": (FakeMnist, gzip.compress(b""), FORM),
    "too short": (FakeMnist, gzip.compress(idx(IMAGES)[:-1]), FORM),
    "floats": (FakeMnist, gzip.compress(idx(IMAGES).replace(b"\x08\x03", b"\x0d\x03", 1)), "begins with 0x00000d03"),
    "another size": (
        FakeMnist,
        gzip.compress(idx(np.zeros((2, 32, 32), np.uint8))),
        r"images of \(1, 32, 32\) of uint8, not",
    ),
    "packed and cut": (FakeMnist, CUT[: len(CUT) // 2], FORM),
    "another pickle": (FakeCifar10, pickle.dumps([1, 2, 3]), FORM),
    "float batches": (FakeCifar10, pickle.dumps({"data": np.zeros((2, 3072))}), "of float64, not"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_files_of_another_form_are_refused(name, store, root):
    preset, content, message = UNREADABLE[name]
    fake = preset(root)
    if preset is FakeCifar10:
        fake.contents = fake.archive([content] * len(BATCHES))
    else:
        fake.contents[MNIST[1].place] = content
    with pytest.raises(DataError, match=f"^{fake.name}: .*{message}"):
        fake.write().check(store, SMALL)


@PRESETS
def test_missing_files_are_reported_with_their_source_and_fetched(preset, store, root, served):
    folder, address, _ = served
    fake = preset(folder)
    dataset = fake.write()
    with pytest.raises(DataMissing) as caught:
        dataset.check(store, SMALL)
    message = str(caught.value)
    assert message.startswith(f"{fake.name}: ") and "is not there, and offline nothing is fetched" in message
    assert f"It comes from {NOWHERE}" in message and "a data root (--data ROOT)" in message
    assert str(store.cache / "downloads" / fake.name) in message and caught.value.exit_code == 3
    below = (folder / next(iter(fake.contents))).parent.relative_to(folder)
    dataset = fake.write(f"{address}{below}/")
    dataset.check(Store(root, store.cache), SMALL)
    for place in (root, None):
        assert events(dataset.load(Store(place, store.cache, offline=True), SMALL).test) == events(fake.test)


def test_the_real_digits(data_root, tmp_path):
    from torchvision import datasets

    store, digits, raw = Store(data_root, tmp_path, offline=True), find_dataset("mnist"), data_root / "MNIST" / "raw"
    for name, md5 in datasets.MNIST.resources:
        if "images" in name:
            content, pinned = (raw / name).read_bytes(), {file.sha256 for file in MNIST}
            assert hashlib.md5(content).hexdigest() == md5 and digest(content) in pinned
    digits.check(store, {})
    splits = digits.load(store, {})
    assert [len(part) for part in splits.parts().values()] == [50_000, 10_000, 10_000]
    for parts, name in ((("train", "validation"), "train"), (("test",), "t10k")):
        content = gzip.decompress((raw / f"{name}-images-idx3-ubyte.gz").read_bytes())
        images = np.frombuffer(content, np.uint8, offset=16).reshape(-1, 784)
        loaded = np.concatenate([splits.parts()[part] for part in parts])
        assert sorted(event.tobytes() for event in loaded) == sorted(event.tobytes() for event in images)
    # The order differs from that of the file and is the same on every machine.
    assert splits.checksum.startswith("83024f173034")
