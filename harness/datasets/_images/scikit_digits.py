"""scikit-learn's digits, read when this module is imported: the trials of a run share one import, and with it these."""

import numpy as np
from sklearn.datasets import load_digits

_read = load_digits()
IMAGES: np.ndarray = _read.images.astype(np.uint8)  # (1797, 8, 8)
CLASSES: np.ndarray = _read.target  # (1797,)
for _values in (IMAGES, CLASSES):
    _values.setflags(write=False)
