# ruff: noqa: I001  (ruff takes this folder for the root of the package)
from harness.kinds.entries.trial import EntriesTrial
from harness.planning.suite import Suite


class EntriesSuite(Suite, kind="entries"):
    def expand(self, scope, common, data):
        for column, cells in scope.cells.items():
            for cell in cells:
                [shape] = cell.event_shapes
                yield EntriesTrial(**common, label=column, shape=shape, layer=cell.layer)
