"""CIFAR-10 from artificial files; in particular, no pickle is read before its checksum is verified."""

import hashlib
import io
import os
import pickle
import tarfile

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing, UserError
from harness.datasets import Store, find_dataset
from harness.datasets.cifar10 import ARCHIVE, FOLDER, SUMS, Cifar10

SMALL = {"validation": 10}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def store(root, tmp_path):
    return Store(root, tmp_path / "cache", offline=True)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def events(values):
    return {event.tobytes() for event in values}


class Planted:
    """Make a folder when unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def batch(images):
    return pickle.dumps({"data": images.reshape(len(images), -1), "labels": [0] * len(images)}, protocol=2)


class FakeCifar10:
    """50 training and 10 test images in CIFAR-10's format; `write` writes them and returns the data set."""

    def __init__(self, root):
        self.root = root
        rng = np.random.default_rng(0)
        self.train = rng.integers(0, 256, (50, 3, 32, 32), dtype=np.uint8)
        self.test = rng.integers(0, 256, (10, 3, 32, 32), dtype=np.uint8)
        self.files = {f"data_batch_{n + 1}": batch(self.train[10 * n : 10 * n + 10]) for n in range(5)}
        self.files["test_batch"] = batch(self.test)
        self.expected = dict(self.files)

    def archive(self):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, data in {**self.files, "readme.html": b"<p>"}.items():
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return content.getvalue()

    def write(self, packed=True, archive_sum=None):
        """Write `files` with the checksums of `expected`; that of the archive is `archive_sum` or the correct one."""
        content = self.archive()
        if packed:
            (self.root / ARCHIVE).write_bytes(content)
        else:
            (self.root / FOLDER).mkdir(exist_ok=True)
            for name, data in self.files.items():
                (self.root / FOLDER / name).write_bytes(data)
        sums = {ARCHIVE: archive_sum or digest(content)}
        sums |= {name: digest(data) for name, data in self.expected.items()}
        return Cifar10(sums, "http://127.0.0.1:9/")


@pytest.mark.parametrize("packed", [True, False])
def test_cifar10_from_files_of_the_root_packed_or_not(store, root, packed):
    fake = FakeCifar10(root)
    dataset = fake.write(packed)
    before = sorted(root.rglob("*"))
    dataset.check(store, SMALL)
    splits = dataset.load(store, SMALL)
    assert {part: values.shape for part, values in splits.parts().items()} == {
        "train": (40, 3, 32, 32),
        "validation": (10, 3, 32, 32),
        "test": (10, 3, 32, 32),
    }
    assert events(splits.train) | events(splits.validation) == events(fake.train)
    assert events(splits.test) == events(fake.test)
    assert splits.levels == 256 and splits.train.dtype == np.uint8 and not splits.train.flags.writeable
    assert sorted(root.rglob("*")) == before
    assert [path for path in (store.cache / "prepared").glob("*/*") if path.suffix not in (".npy", ".json")] == []


@pytest.mark.parametrize(
    ("options", "at", "message"),
    [
        ({"validation": 50_000}, "validation", r"cifar10: validation = 50000: both splits are taken from 50000"),
        ({"train": 45_001}, "train", r"cifar10: validation = 5000 and train = 45001: both .* 50000 training"),
        ({"validation": 0}, "validation", r"validation = 0 should be greater .*set apart for validation"),
    ],
)
def test_sizes_beyond_the_data_are_refused(store, options, at, message):
    dataset = find_dataset("cifar10")
    [(option, _)] = dataset.option_errors(options)
    assert option == at
    with pytest.raises(UserError, match=message):
        dataset.load(store, options)
    assert dataset.option_errors({"validation": 49_999}) == []


def test_pinned_checksums_cover_the_files_that_torchvision_reads():
    from torchvision.datasets import CIFAR10

    assert SUMS.keys() == {
        CIFAR10.filename,
        *(name for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list)),
    }
    assert (CIFAR10.filename, CIFAR10.base_folder) == (ARCHIVE, FOLDER)


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch"])
@pytest.mark.parametrize("packed", [True, False])
def test_no_batch_with_another_checksum_is_unpickled(store, root, tmp_path, name, packed):
    fake, harm = FakeCifar10(root), tmp_path / "harm"
    fake.files[name] = pickle.dumps(Planted(harm))
    dataset = fake.write(packed)  # the archive's checksum is correct here
    with pytest.raises(DataError) as caught:
        dataset.check(store, SMALL)
    message = str(caught.value)
    where = f"{root / ARCHIVE}, {name} in it" if packed else root / FOLDER / name
    assert message.startswith(f"cifar10: {where}: the file's SHA-256 is {digest(fake.files[name])}")
    assert digest(fake.expected[name]) in message
    assert not harm.exists()
    fake.expected = dict(fake.files)
    with pytest.raises(DataError, match="not one of CIFAR-10's batches"):
        fake.write(packed).check(store, SMALL)
    assert harm.exists()  # the planted pickle works if its checksum is accepted


def test_no_archive_with_another_checksum_is_unpacked(store, root, tmp_path):
    fake, harm = FakeCifar10(root), tmp_path / "harm"
    right = digest(fake.archive())
    fake.files["data_batch_1"] = pickle.dumps(Planted(harm))
    fake.expected = dict(fake.files)
    dataset = fake.write(archive_sum=right)
    with pytest.raises(DataError) as caught:
        dataset.check(store, SMALL)
    assert str(caught.value).startswith(f"cifar10: {root / ARCHIVE}: the file's SHA-256 is ")
    assert right in str(caught.value) and not harm.exists()


def test_an_archive_that_ends_early_or_lacks_a_file(store, root):
    fake = FakeCifar10(root)
    whole = fake.archive()
    for content in (whole[:-1000], whole[: len(whole) // 2], b"", b"no gzip"):
        dataset = fake.write(archive_sum=digest(content))
        (root / ARCHIVE).write_bytes(content)
        with pytest.raises(DataError, match=rf"^cifar10: {root / ARCHIVE}: not the whole archive \(.*\); get it anew$"):
            dataset.check(store, SMALL)
    del fake.files["test_batch"]
    with pytest.raises(DataError, match=r"not the whole archive \(.*test_batch"):
        fake.write().check(store, SMALL)


def test_a_missing_file_of_the_folder_is_named(store, root):
    fake = FakeCifar10(root)
    dataset = fake.write(packed=False)
    (root / FOLDER / "data_batch_4").unlink()
    with pytest.raises(DataMissing, match=rf"cifar10: {root / FOLDER}/data_batch_4: no such file; unpack {ARCHIVE}"):
        dataset.check(store, SMALL)


def test_batches_with_other_contents_are_refused(store, root):
    fake = FakeCifar10(root)
    fake.files["test_batch"] = pickle.dumps({"data": np.zeros((2, 3072)), "labels": [0, 0]})
    fake.expected = dict(fake.files)
    with pytest.raises(DataError, match=r"the test images are \(3, 32, 32\) of float64; .* \(3, 32, 32\) of uint8"):
        fake.write().check(store, SMALL)
    fake.files["test_batch"] = pickle.dumps([1, 2, 3])
    fake.expected = dict(fake.files)
    with pytest.raises(DataError, match="not one of CIFAR-10's batches"):
        fake.write().check(store, SMALL)


def test_missing_cifar10_is_reported_with_its_source(store):
    with pytest.raises(DataMissing) as caught:
        find_dataset("cifar10").check(store, {})
    message = str(caught.value)
    assert message.startswith(
        f"cifar10: {ARCHIVE} is not there, and offline nothing is fetched. It comes from https://"
    )
    assert "data root" in message and caught.value.exit_code == 3
