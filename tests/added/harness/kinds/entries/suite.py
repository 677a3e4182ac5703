from harness.planning.suite_base import Suite


class EntriesSuite(Suite):
    def expand(self, scope, common):
        from harness.kinds.entries.trial import EntriesTrial

        for column, cells in scope.cells.items():
            for cell in cells:
                [shape] = self.event_shapes(scope, cell)
                yield EntriesTrial(**common, label=column, shape=shape, layer=cell.layer)
