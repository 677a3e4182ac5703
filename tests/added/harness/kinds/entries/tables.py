from harness.reporting.tables.rendering import Table


def tables(results):
    header = ["dataset", "layer", "entries"]
    rows = results.frame[header].astype(str).itertuples(index=False, name=None)
    return [Table("entries", "Entries of an event.", tuple(header), tuple(rows))]
