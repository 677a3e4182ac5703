"""MNIST: the real digits if present, and artificial files in the same format."""

import functools
import gzip
import hashlib
import http.server
import shutil
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from harness.core.errors import DataError, DataMissing, UserError
from harness.datasets import Store, find_dataset
from harness.datasets.mnist import SUMS, Mnist

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


def idx(values):
    """Return the IDX file of an array of bytes: magic number (type and axes), sizes, values."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


class FakeMnist:
    """50 training and 20 test images in MNIST's format, packed in `folder`, and the data set that reads them."""

    def __init__(self, root, packed=True):
        rng = np.random.default_rng(0)
        self.train = rng.integers(0, 256, (50, 28, 28), dtype=np.uint8)
        self.test = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8)
        self.folder = root / "MNIST" / "raw"
        self.folder.mkdir(parents=True)
        contents = {
            "train-images-idx3-ubyte": idx(self.train),
            "t10k-images-idx3-ubyte": idx(self.test),
        }
        self.sums = {}
        for name, content in contents.items():
            self.put(name, content)
            self.put(f"{name}.gz", gzip.compress(content))
            (self.folder / (name if packed else f"{name}.gz")).unlink()
        self.dataset = Mnist(self.sums, "http://127.0.0.1:9/")

    def put(self, name, content):
        """Write a file and pin its checksum, whatever its contents."""
        (self.folder / name).write_bytes(content)
        self.sums[name] = digest(content)


def test_the_real_digits(data_root, tmp_path):
    store = Store(data_root, tmp_path, offline=True)
    mnist = find_dataset("mnist")
    mnist.check(store, {})
    splits = mnist.load(store, {})
    assert {part: values.shape for part, values in splits.parts().items()} == {
        "train": (50_000, 1, 28, 28),
        "validation": (10_000, 1, 28, 28),
        "test": (10_000, 1, 28, 28),
    }
    assert splits.levels == 256 and splits.train.dtype == np.uint8 and not splits.train.flags.writeable
    raw = data_root / "MNIST" / "raw"
    for parts, name in ((("train", "validation"), "train"), (("test",), "t10k")):
        with gzip.open(raw / f"{name}-images-idx3-ubyte.gz") as file:
            images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        given = np.concatenate([splits.parts()[part] for part in parts])
        assert sorted(event.tobytes() for event in given) == sorted(event.tobytes() for event in images)
    assert not events(splits.validation) & events(splits.train)
    # The order differs from that of the file and is the same on every machine.
    with gzip.open(raw / "train-images-idx3-ubyte.gz") as file:
        first = file.read(16 + 10_000 * 784)[16:]
    assert 1500 < len(events(splits.validation) & {first[i : i + 784] for i in range(0, len(first), 784)}) < 1850
    assert splits.checksum.startswith("83024f173034")


def test_pinned_checksums_match_torchvisions(data_root):
    from torchvision.datasets import MNIST

    images = [(name, md5) for name, md5 in MNIST.resources if "images" in name]
    for name, md5 in images:
        content = (data_root / "MNIST" / "raw" / name).read_bytes()
        assert hashlib.md5(content).hexdigest() == md5
        assert digest(content) == SUMS[name]
        assert digest(gzip.decompress(content)) == SUMS[name.removesuffix(".gz")]
    assert len(SUMS) == 2 * len(images)


def test_a_warm_load_of_mnist_imports_no_torch(data_root, tmp_path):
    find_dataset("mnist").check(Store(data_root, tmp_path), {})
    code = (
        "import sys; from pathlib import Path; from harness.datasets import Store, find_dataset; "
        f"find_dataset('mnist').load(Store(Path({str(data_root)!r}), Path({str(tmp_path)!r}), True), {{}}); "
        "print([m for m in ('torch', 'torchvision', 'pooch', 'requests', 'filelock', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_from_files_of_the_root_packed_or_not(store, root, packed):
    fake = FakeMnist(root, packed)
    before = sorted(path for path in root.rglob("*"))
    splits = fake.dataset.load(store, SMALL)
    assert events(splits.train) | events(splits.validation) == events(fake.train)
    assert events(splits.test) == events(fake.test)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (40, 10, 20)
    assert sorted(path for path in root.rglob("*")) == before  # a root may be read-only
    assert splits.checksum == fake.dataset.load(store, SMALL).checksum


def test_sizes_are_cut_from_one_prepared_copy(store, root):
    fake = FakeMnist(root)
    whole = fake.dataset.load(store, {"validation": 10})
    some = fake.dataset.load(store, {"validation": 10, "train": 25, "test": 5})
    less = fake.dataset.load(store, {"validation": 10, "train": 5, "test": 2})
    np.testing.assert_array_equal(some.validation, whole.validation)
    np.testing.assert_array_equal(some.train, whole.train[:25])
    np.testing.assert_array_equal(less.train, whole.train[:5])
    np.testing.assert_array_equal(less.test, whole.test[:2])
    assert not events(some.train) & events(some.validation)
    assert len([path for path in (store.cache / "prepared").iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    ("options", "at", "message"),
    [
        ({"validation": 60_000}, "validation", r"mnist: validation = 60000: both splits are taken from 60000"),
        ({"train": 50_001}, "train", r"mnist: validation = 10000 and train = 50001: both splits are taken"),
        ({"test": 10_001}, "test", r"mnist: test = 10001 should be less than or equal to 10000; it is the number"),
        ({"train": "all"}, "train", r"train = 'all' should be a valid integer"),
    ],
)
def test_sizes_beyond_the_data_are_refused(store, options, at, message):
    dataset = find_dataset("mnist")
    [(option, _)] = dataset.option_errors(options)
    assert option == at
    with pytest.raises(UserError, match=message):
        dataset.load(store, options)
    assert dataset.option_errors({"validation": 1, "train": 59_999}) == []


def test_the_old_processed_files_of_torchvision_are_not_read(store, root):
    """torchvision prefers MNIST/processed/*.pt, which have no known checksum."""
    fake = FakeMnist(root)
    processed = root / "MNIST" / "processed"
    processed.mkdir()
    for name in ("training.pt", "test.pt"):
        (processed / name).write_bytes(b"not what you think")
    assert events(fake.dataset.load(store, SMALL).test) == events(fake.test)


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_of_mnist_with_a_wrong_checksum_is_refused(store, root, packed):
    fake = FakeMnist(root, packed)
    file = fake.folder / ("t10k-images-idx3-ubyte.gz" if packed else "t10k-images-idx3-ubyte")
    whole = file.read_bytes()
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(content)
        with pytest.raises(DataError) as caught:
            fake.dataset.check(store, SMALL)
        message = str(caught.value)
        assert message.startswith(f"mnist: {file}: ") and digest(content) in message and digest(whole) in message
    file.write_bytes(whole)
    fake.dataset.check(store, SMALL)


@pytest.mark.parametrize("kept", [0, 1, 10, 0.5, -1])
def test_a_truncated_gzip_file_is_refused(store, root, kept):
    """The checksum matches, so that unpacking fails."""
    fake = FakeMnist(root)
    name = "train-images-idx3-ubyte.gz"
    whole = (fake.folder / name).read_bytes()
    fake.put(name, whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(DataError, match=rf"^mnist: .*/{name}: not a whole file of images in MNIST's format.*$"):
        fake.dataset.check(store, SMALL)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08\x03\0\0",
        idx(np.zeros((2, 28, 28), np.uint8))[:-1],
        idx(np.zeros((2, 28, 28), np.uint8)).replace(b"\x08\x03", b"\x0d\x03", 1),
        idx(np.zeros((2, 32, 32), np.uint8)),
    ],
    ids=["empty", "short header", "short", "floats", "size"],
)
def test_files_that_are_not_idx_images_are_refused(store, root, content):
    fake = FakeMnist(root, packed=False)
    fake.put("t10k-images-idx3-ubyte", content)
    with pytest.raises(DataError, match=r"^mnist: .*MNIST/raw.*"):
        fake.dataset.check(store, SMALL)


def test_missing_mnist_is_reported_with_its_source(store, root):
    fake = FakeMnist(root)
    (fake.folder / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataMissing) as caught:
        fake.dataset.check(store, SMALL)
    message = str(caught.value)
    assert message.startswith("mnist: t10k-images-idx3-ubyte.gz is not there, and offline nothing is fetched")
    assert "http://127.0.0.1:9/t10k-images-idx3-ubyte.gz" in message and "MNIST/raw/ of a data root" in message
    place = store.cache / "downloads" / "mnist"
    assert str(place / "t10k-images-idx3-ubyte.gz") in message
    shutil.rmtree(root / "MNIST")
    fake = FakeMnist(root.parent / "elsewhere")
    shutil.move(fake.folder, place)
    assert events(fake.dataset.load(store, SMALL).test) == events(fake.test)


def test_mnist_is_fetched_where_the_root_has_none(root, tmp_path):
    fake = FakeMnist(tmp_path / "there")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=fake.folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        dataset = Mnist(fake.sums, f"http://127.0.0.1:{server.server_port}/")
        dataset.check(Store(root, tmp_path / "cache"), SMALL)
        server.shutdown()
        thread.join()
    for place in (root, None):
        splits = dataset.load(Store(place, tmp_path / "cache", offline=True), SMALL)
        assert events(splits.test) == events(fake.test)
