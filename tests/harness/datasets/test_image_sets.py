"""MNIST, CIFAR-10 and torchvision's sets, from small files in their formats; the real digits where they are."""

import bz2
import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing, SuiteError, UserError
from harness.datasets import Store, cifar10, find_dataset, mnist
from harness.planning.settle import load_suite, settle

SMALL = {"validation": 10, "test": 10}
NOWHERE = "http://127.0.0.1:9/"
FASHION = "torchvision:FashionMNIST"
SUITE = """\
suite: fashion
kind: density
layers: {conv1x1: {}}
profiles: {smoke: {datasets: {fashion: {data: "torchvision:FashionMNIST"}}}}
"""


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
    """50 training and 10 test images in MNIST's files; those in `files` are written, the others removed."""

    cls, name, shape, total = mnist.Mnist, "mnist", (1, 28, 28), 60_000
    test_file, unreadable = "t10k-images-idx3-ubyte", "not a whole file of images in MNIST's format"

    def __init__(self, root):
        self.folder = root / "MNIST" / "raw"
        rng = np.random.default_rng(0)
        self.train = rng.integers(0, 256, (50, 1, 28, 28), dtype=np.uint8)
        self.test = rng.integers(0, 256, (10, 1, 28, 28), dtype=np.uint8)
        self.contents = {"train-images-idx3-ubyte": idx(self.train[:, 0]), self.test_file: idx(self.test[:, 0])}

    def write(self, packed=True):
        """Write the files and return the data set with their checksums."""
        self.folder.mkdir(parents=True, exist_ok=True)
        every = self.contents | {f"{name}.gz": gzip.compress(self.contents[name]) for name in self.contents}
        for name, content in every.items():
            if name.endswith(".gz") == packed:
                (self.folder / name).write_bytes(content)
        return self.cls({name: digest(content) for name, content in every.items()}, NOWHERE)

    def place(self, packed):
        """Return the file with the test images, and its place in messages."""
        path = self.folder / (f"{self.test_file}.gz" if packed else self.test_file)
        return path, str(path)


class FakeCifar10(FakeMnist):
    """50 training and 10 test images in CIFAR-10's files."""

    cls, name, shape, total = cifar10.Cifar10, "cifar10", (3, 32, 32), 50_000
    test_file, unreadable = "test_batch", "not one of CIFAR-10's batches"

    def __init__(self, root):
        self.root, self.folder = root, root / cifar10.FOLDER
        rng = np.random.default_rng(0)
        self.train = rng.integers(0, 256, (50, 3, 32, 32), dtype=np.uint8)
        self.test = rng.integers(0, 256, (10, 3, 32, 32), dtype=np.uint8)
        parts = {f"data_batch_{n + 1}": part for n, part in enumerate(np.split(self.train, 5))}
        self.contents = {name: self.batch(part) for name, part in (parts | {self.test_file: self.test}).items()}

    def batch(self, images):
        return pickle.dumps({"data": images.reshape(len(images), -1), "labels": [0] * len(images)}, protocol=2)

    def archive(self):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, data in self.contents.items():
                member = tarfile.TarInfo(f"{cifar10.FOLDER}/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return content.getvalue()

    def write(self, packed=True):
        content = self.archive()
        files = {self.root / cifar10.ARCHIVE: content}
        if not packed:
            self.folder.mkdir(exist_ok=True)
            files = {self.folder / name: data for name, data in self.contents.items()}
        for path, data in files.items():
            path.write_bytes(data)
        sums = {cifar10.ARCHIVE: content} | self.contents
        return self.cls({name: digest(data) for name, data in sums.items()}, NOWHERE)

    def place(self, packed):
        path = self.root / cifar10.ARCHIVE if packed else self.folder / self.test_file
        return path, str(path)


PRESETS = pytest.mark.parametrize("preset", [FakeMnist, FakeCifar10])
PACKED = pytest.mark.parametrize("packed", [True, False])


# Sets with pinned files


@PRESETS
@PACKED
def test_the_images_are_those_of_the_files_and_sizes_are_cut_from_one_prepared_copy(preset, packed, store, root):
    fake = preset(root)
    dataset = fake.write(packed)
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
    assert len([path for path in (store.cache / "prepared").iterdir() if path.is_dir()]) == 1
    assert sorted(root.rglob("*")) == before, "a root may be read-only"


@PRESETS
def test_sizes_beyond_the_data_are_refused(preset, store):
    dataset, total = find_dataset(preset.name), preset.total
    held_out = dataset.parse({}).validation
    for options, at, rule in (
        ({"validation": total}, "validation", f"should be at most {total - 1}, as train and validation share {total}"),
        ({"train": total - held_out + 1}, "train", f"should be at most {total - held_out}, as train and validation"),
        ({"test": 10_001}, "test", "should be at most 10000; it is the number of test images"),
        ({"validation": 0}, "validation", "should be greater .*set apart for validation"),
        ({"train": "all"}, "train", "should be a valid integer"),
    ):
        assert [option for option, _ in dataset.option_errors(options)] == [at]
        with pytest.raises(UserError, match=f"{preset.name}: {at} = .* {rule}"):
            dataset.load(store, options)
    assert dataset.option_errors({"validation": 1, "train": total - 1}) == []


@PRESETS
@PACKED
def test_a_file_with_another_checksum_is_refused(preset, packed, store, root):
    fake = preset(root)
    dataset = fake.write(packed)
    path, place = fake.place(packed)
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            dataset.check(store, SMALL)
        message = str(caught.value)
        assert message.startswith(f"{fake.name}: {place}: the file's SHA-256 is {digest(content)}")
        assert digest(whole) in message
    path.write_bytes(whole)
    dataset.check(store, SMALL)


class Planted:
    """Make a folder when unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


@PACKED
def test_no_batch_with_another_checksum_is_unpickled(packed, store, root, tmp_path):
    fake, harm = FakeCifar10(root), tmp_path / "harm"
    right = fake.write(packed)._sums
    fake.contents["data_batch_3"] = pickle.dumps(Planted(harm))
    planted = fake.write(packed)._sums
    for sums in (right, right | {cifar10.ARCHIVE: planted[cifar10.ARCHIVE]}):  # the archive's is right in the second
        with pytest.raises(DataError, match="the file's SHA-256 is"):
            fake.cls(sums, NOWHERE).check(store, SMALL)
        assert not harm.exists()
    with pytest.raises(DataError, match="not one of CIFAR-10's batches"):
        fake.cls(planted, NOWHERE).check(store, SMALL)
    assert harm.exists(), "the planted pickle works if its checksum is accepted"


IMAGES = np.zeros((2, 28, 28), np.uint8)
UNREADABLE = {
    "empty": (FakeMnist, b"", "not a whole file"),
    "a short header": (FakeMnist, b"\0\0\x08\x03\0\0", "not a whole file"),
    "too short": (FakeMnist, idx(IMAGES)[:-1], "not a whole file"),
    "floats": (FakeMnist, idx(IMAGES).replace(b"\x08\x03", b"\x0d\x03", 1), "not a whole file"),
    "another size": (FakeMnist, idx(np.zeros((2, 32, 32), np.uint8)), r"should be \(1, 28, 28\) of uint8"),
    "another pickle": (FakeCifar10, pickle.dumps([1, 2, 3]), "not one of CIFAR-10's batches"),
    "float batches": (FakeCifar10, pickle.dumps({"data": np.zeros((2, 3072))}), r"should be \(3, 32, 32\) of uint8"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_files_of_another_form_are_refused(name, store, root):
    preset, content, message = UNREADABLE[name]
    fake = preset(root)
    fake.contents[fake.test_file] = content
    with pytest.raises(DataError, match=f"^{fake.name}: .*{message}"):
        fake.write(packed=False).check(store, SMALL)


@PRESETS
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_packed_files_that_end_early_are_refused_although_their_checksum_is_right(preset, kept, store, root):
    fake = preset(root)
    sums = dict(fake.write()._sums)
    path, place = fake.place(packed=True)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    sums[path.name] = digest(path.read_bytes())
    with pytest.raises(DataError, match=rf"^{fake.name}: {place}: not (a|the) whole .*; get it anew"):
        fake.cls(sums, NOWHERE).check(store, SMALL)


def test_an_archive_or_a_folder_without_a_batch_is_refused(store, root):
    fake = FakeCifar10(root)
    whole = fake.write(packed=False)
    (fake.folder / "data_batch_4").unlink()
    with pytest.raises(DataMissing, match=rf"cifar10: {fake.folder}/data_batch_4: no such file; unpack"):
        whole.check(store, SMALL)
    del fake.contents["test_batch"]
    sums = whole._sums | fake.write()._sums
    with pytest.raises(DataError, match=r"not the whole archive \(.*test_batch"):
        fake.cls(sums, NOWHERE).check(store, SMALL)


@PRESETS
def test_missing_files_are_reported_with_their_source_and_fetched(preset, store, root, served):
    folder, address, _ = served
    fake = preset(folder)
    dataset = fake.write()
    below = fake.place(packed=True)[0].parent.relative_to(folder)
    with pytest.raises(DataMissing) as caught:
        dataset.check(store, SMALL)
    message = str(caught.value)
    assert message.startswith(f"{fake.name}: ") and "is not there, and offline nothing is fetched" in message
    assert f"It comes from {NOWHERE}" in message and "a data root (--data ROOT)" in message
    assert str(store.cache / "downloads" / fake.name) in message and caught.value.exit_code == 3
    dataset = fake.cls(dataset._sums, f"{address}{below}/")
    dataset.check(Store(root, store.cache), SMALL)
    for place in (root, None):
        assert events(dataset.load(Store(place, store.cache, offline=True), SMALL).test) == events(fake.test)


def test_pinned_checksums_cover_the_files_that_torchvision_reads():
    from torchvision.datasets import CIFAR10

    names = {CIFAR10.filename, *(name for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list))}
    assert cifar10.SUMS.keys() == names
    assert (CIFAR10.filename, CIFAR10.base_folder) == (cifar10.ARCHIVE, cifar10.FOLDER)


def test_the_real_digits(data_root, tmp_path):
    from torchvision.datasets import MNIST

    store, digits, raw = Store(data_root, tmp_path, offline=True), find_dataset("mnist"), data_root / "MNIST" / "raw"
    for name, md5 in MNIST.resources:
        if "images" in name:
            content = (raw / name).read_bytes()
            assert hashlib.md5(content).hexdigest() == md5 and digest(content) == mnist.SUMS[name]
            assert digest(gzip.decompress(content)) == mnist.SUMS[name.removesuffix(".gz")]
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


# Sets that torchvision reads


@pytest.fixture
def fashion(store):
    """Return the images of a small FashionMNIST, which is written to the root."""
    raw = store.root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    images = {part: rng.integers(0, 256, (count, 28, 28), np.uint8) for part, count in (("train", 40), ("t10k", 12))}
    for part, values in images.items():
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(values))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(len(values), dtype=np.uint8) % 10))
    return images


def test_torchvisions_images_are_those_of_the_files(store, fashion):
    dataset = find_dataset(FASHION)
    dataset.check(store, {})
    splits = dataset.load(store, {})
    assert (splits.shape, splits.levels, splits.unit) == ((1, 28, 28), 256, "bits_per_dim")
    assert [len(part) for part in splits.parts().values()] == [36, 4, 12]
    assert events(splits.train) | events(splits.validation) == events(fashion["train"])
    assert events(splits.test) == events(fashion["t10k"])
    few = dataset.load(store, {"validation": 10, "train": 5, "test": 3})
    assert [len(part) for part in few.parts().values()] == [5, 10, 3]
    for options in ({"validation": 40}, {"train": 37}, {"test": 13}):
        with pytest.raises(DataError, match=r"torchvision:FashionMNIST: (train|test) holds"):
            dataset.load(store, options)
    path = store.root / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    path.write_bytes(idx(255 - fashion["t10k"]))
    assert dataset.load(store, {}).checksum != splits.checksum, "changed files are read again"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"torchvision:FashionMNIST: .*torchvision cannot read it"):
        dataset.check(store, {})


def test_a_torchvision_set_in_the_root_itself(store):
    rows = np.random.default_rng(0).integers(-1, 2, (20, 256))
    lines = "\n".join(f"{row[0] + 2} " + " ".join(f"{i + 1}:{value}" for i, value in enumerate(row)) for row in rows)
    for name in ("usps.bz2", "usps.t.bz2"):
        (store.root / name).write_bytes(bz2.compress(lines.encode()))
    splits = find_dataset("torchvision:USPS").load(store, {})
    assert splits.shape == (1, 16, 16) and events(splits.test) == events(((rows + 1) / 2 * 255).astype(np.uint8))


def test_a_missing_or_unknown_torchvision_set_is_refused(tmp_path):
    for root in (None, tmp_path):
        with pytest.raises(DataMissing, match=r"FashionMNIST\(ROOT, download=True\) puts the files into a data root"):
            find_dataset(FASHION).check(Store(root, tmp_path), {})
    for name, hint in (("FashonMNIST", "did you mean FashionMNIST"), ("VOCDetection", "give others as a folder")):
        with pytest.raises(UserError, match=hint):
            find_dataset(f"torchvision:{name}")
    path = tmp_path / "fashion.yaml"
    for name in ("torchvision:COCO", "torchvision"):
        path.write_text(SUITE.replace(FASHION, name))
        with pytest.raises(SuiteError, match=r"fashion\.yaml:4:\d+: .*torchvision"):
            load_suite(path)


def test_a_suite_names_a_torchvision_set_as_a_data_set_of_this_project(tmp_path):
    (tmp_path / "fashion.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "fashion.yaml")
    assert suite.third_party == [], "nothing is imported on trial"
    [trial] = settle(suite, "smoke", "cpu").plan()[0].trials
    assert (trial.data.name, trial.data.source) == (FASHION, None)
