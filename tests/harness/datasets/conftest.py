import pytest

from harness.datasets import Store


@pytest.fixture
def store(tmp_path):
    """Return an offline store of an empty data root and an empty cache."""
    (tmp_path / "root").mkdir()
    return Store(tmp_path / "root", tmp_path / "cache", offline=True)
