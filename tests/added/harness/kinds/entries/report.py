from harness.reporting.report import Report
from harness.reporting.tables.rendering import Table


class EntriesReport(Report, kind="entries"):
    @property
    def tables(self):
        header = ["dataset", "layer", "entries"]
        rows = self.results.frame[header].astype(str).itertuples(index=False, name=None)
        return [Table("entries", "Entries of an event.", tuple(header), tuple(rows))]
