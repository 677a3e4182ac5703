"""Three small tables of measurements that come with scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from harness.core.settings import Settings
from harness.datasets._store.selection import by_shares
from harness.datasets._store.store import Store
from harness.datasets._values.encoding import choose_encoding, written_digits
from harness.datasets._values.file_options import LAST_DIGIT, WIDTH_OR_DIGIT, Noise
from harness.datasets._values.lattice import Survey
from harness.datasets.base import Dataset, DatasetInfo, Splits

SHARES = (0.6, 0.2, 0.2)
TABLES = {"breast_cancer": (569, 30), "diabetes": (442, 10), "wine": (178, 13)}  # rows and columns


class TableOptions(Settings):
    """The choice of the table."""

    table: Literal["breast_cancer", "diabetes", "wine"] = Field(
        description="breast_cancer (569 x 30), diabetes (442 x 10) or wine (178 x 13)"
    )
    noise: Noise = Field(LAST_DIGIT, description=WIDTH_OR_DIGIT)


class SklearnTables(Dataset, name="sklearn_tables"):
    """A table of scikit-learn's, a row a vector, without the classes or targets."""

    info = DatasetInfo(
        title="Small tables of measurements of scikit-learn (real)",
        kind="sequence",
        what=(
            "rows as vectors (D, 1), without classes and targets: 30 features of cell nuclei of 569 breast masses, "
            "ten measurements of 442 people with diabetes (one column is their sex, as 1 or 2), or a chemical "
            "analysis of 178 wines. Split by a fixed seed into 0.6, 0.2 and 0.2"
        ),
        size="comes with scikit-learn",
        licence="CC BY 4.0 (breast cancer, wine); diabetes: none stated",
        source=(
            "UCI Machine Learning Repository, https://doi.org/10.24432/C5DW2B and https://doi.org/10.24432/C5PC7J; "
            "B. Efron et al. (2004), Least Angle Regression, Annals of Statistics 32, 407"
        ),
        how_to_get="nothing to do",
    )
    options_model = TableOptions
    imports = ("sklearn.datasets",)

    def shape(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return (columns, 1)."""
        return (TABLES[self.parse(options).table][1], 1)

    def split_fault(self, options: Mapping[str, Any], keep_test: bool = False) -> None:
        """Return None: any row may be in any split."""

    def load(self, store: Store, options: Mapping[str, Any]) -> Splits:
        """Return the splits, in units of the noise of each column."""
        from sklearn import datasets

        chosen: TableOptions = self.parse(options)
        table = chosen.table
        scaled = {"scaled": False} if table == "diabetes" else {}
        values = getattr(datasets, f"load_{table}")(**scaled).data
        written = tuple(map(written_digits, values.T)) if chosen.noise == LAST_DIGIT else None
        survey = Survey.of(values[:, :, None])
        encoding = choose_encoding(self.name, survey, "sequence", None, chosen.noise, written=written)
        facts: dict[str, Any] = encoding.facts("sequence")
        for split, numbers in by_shares(self.name, len(values), SHARES, shuffled=True).items():
            facts[split] = encoding.encode(values[numbers][:, :, None], numbers)
        rows = f"{len(values)} rows of {values.shape[1]} columns, shuffled by a fixed seed"
        text = f"scikit-learn's {table} (real): {rows}{encoding.noise_text}"
        return Splits(levels=None, description=text, **facts)
