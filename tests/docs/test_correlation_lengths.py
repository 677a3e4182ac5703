"""The script that prints how far the samples of recordings depend on each other."""

import numpy as np


def test_lengths_of_an_autoregressive_process_and_of_a_sine(load_script):
    script = load_script("extensions/correlation_lengths.py")
    generator, length = np.random.default_rng(0), 256
    process = np.zeros((2000, 1, length))
    process[..., 0] = generator.normal(size=(2000, 1)) / np.sqrt(1 - 0.9**2)
    for t in range(1, length):
        process[..., t] = 0.9 * process[..., t - 1] + generator.normal(size=(2000, 1))
    assert np.allclose(script.correlations(5 + 3 * process)[:20], 0.9 ** np.arange(20), atol=0.03)
    assert script.lengths(process) == (10, 15), "0.9^10 < 1/e < 0.9^9, and 0.9^15 > 0.2 > 0.9^16"
    phases = generator.uniform(0, 2 * np.pi, (2000, 1, 1))
    sine = np.sin(2 * np.pi * np.arange(length) / 32 + phases)
    assert script.lengths(np.concatenate([sine, 1000 + 7 * sine], axis=1)) == (7, 128), "channels count alike"
