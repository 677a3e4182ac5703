"""The measures of a candidate: those of a density trial that need no test split."""

from harness.kinds.density.result import MEASURES as OF_DENSITY

NAMES = (
    *("parameters", "masked_free", "learning_rate", "options", "unit", "validation", "standard_error"),
    *("inverse_error", "logdet_error", "condition", "floor", "below_floor", "audit", "audit_reason", "audit_seconds"),
    *("steps", "passes", "best_step", "stopped_early", "train_seconds"),
)

MEASURES = {name: OF_DENSITY[name] for name in NAMES}
"""Name -> pandas type of every measure."""
