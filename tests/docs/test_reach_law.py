"""The script that prints how far samples depend on each other, and where the leads of the suite `reach` end."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("extensions/reach_law.py")


def test_lengths_of_an_autoregressive_process_and_of_a_sine(script):
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


def test_leads_have_the_sign_of_the_layer_and_end_where_the_last_is_shown(script):
    pairs = pd.DataFrame(
        [
            ("a", "conv1x1-twice", "emerging", 0.5, 0.4, 0.6, True),
            ("a reach 9", "emerging", "conv1x1-twice", -0.2, -0.3, -0.1, True),
            ("a reach all", "emerging", "conv1x1-twice", 0.3, 0.1, 0.5, True),  # behind
            ("a", "periodic", "conv1x1-twice", -0.1, -0.3, 0.1, False),
            ("a", "emerging", "periodic", -0.9, -1.0, -0.8, True),
        ],
        columns=["dataset", "first", "second", "difference", "low", "high", "separated"],
    )
    found = script.leads(pairs)
    assert len(found) == 4 and found["lead"].tolist() == [0.5, 0.2, -0.3, 0.1]
    assert [script.last_shown(found, "a", layer) for layer in script.LAYERS] == ["9", "none", "none"]
    ends, every = script.tables(found, {"a": (7, 70), "b": (1, 1)})
    assert ends.splitlines()[2].split() == ["|", "a", "|", "7", "|", "70", "|", "9", "|", "none", "|", "none", "|"]
    assert "| +0.500 [+0.400, +0.600] | – " in every and "+0.200 [+0.100, +0.300]" in every
    figure = script.law_figure(found, {"a": (7, 70), "b": (1, 1)})
    (panel,) = [axes for axes in figure.axes if axes.get_title() == "a" or axes.get_title(loc="left") == "a"]
    first, last = (line for line in panel.lines if line.get_linestyle() in ("--", ":"))
    assert 1 < first.get_xdata()[0] < 2, "7 samples lie between 6 and 18"
    assert 3 < last.get_xdata()[0] < 4, "70 samples lie between 54 and 162"
