"""Suite files with random faults: a message and an exit code, no traceback and no files."""

import random
from pathlib import Path

import pytest

from harness.cli.parser import main

SUITE = """\
# Every key of a suite once.
suite: mutant
kind: density
title: A suite for mutation
question: >
  Does every fault of it end in a message?
unsupported: true
timeout: 30 min
memory: 4GiB
flow: {levels: 1, steps: 1, width: 4, coupling: auto, mixer: plu}
training: {learning_rate: 1e-3, steps: 2, batch_size: 8, evaluate_every: 1, ema: all, ema_decay: 0.9}
tuning:
  candidates: 2
  seed: 100
  steps: 1
  space: {training.learning_rate: {low: 5.0e-4, high: 5.0e-2, scale: log}, training.clip_norm: [null, 1.0]}
layers:
  conv1x1: {options: {parameterisation: dense}, tune: false}
  emerging: {tune: {kernel_size: [3, 5]}}
  butterfly: {options: {levels: 3}, flow: {width: 5}, training: {learning_rate: 0.01}}
published:
  source: A Paper (2022)
  measure: bits_per_dim
  values: {MAF: {digits: 4.31}}
profiles:
  smoke: &small
    seeds: 1
    datasets: {digits: {}}
  quick:
    seeds: [0, 3]
    threads: 1
    layers: {butterfly: {options: {levels: 2}}}
    datasets:
      digits: {training: {steps: 3}}
      shuffled: {data: digits, permute: 7}
      waveforms: {options: {length: 128}, layers: {emerging: {tune: {kernel_size: [3, 7]}}}}
    timing: {batch: 4, rounds: 3}
"""

ODD = ["", "null", "~", "[]", "{}", "-1", "0", "1e999", ".nan", ".inf", "yes", "10:30", "0x1F", "1_000", "'", '"', "\t"]
ODD += ["*nowhere", "&anchor x", "!!python/name:os.system", "<<: *small", "? a", "|", ">", "%", "@", "`", "\x00"]
ODD += ["99999999999999999999", "3.5", "[1, [2, [3]]]", "{a: {b: c}}", "é", "\x85", "\U0001f600"]
MARKS = ":,{}[]&*#?|-<>=!%@'\"\n \\"


def mutate(text, generator):
    """Return the text with one to three faults, each a small slip or a bad value."""
    for _ in range(generator.randint(1, 3)):
        lines = text.split("\n")
        at = generator.randrange(len(text)) if text else 0
        line, place = generator.randrange(len(lines)), generator.randrange(len(lines))
        before, now, after = lines[:line], lines[line], lines[line + 1 :]
        key, colon, _ = now.partition(":")
        slips = (
            text[:at] + text[at + generator.randint(1, 5) :],
            text[:at] + generator.choice(MARKS) + text[at:],
            text[:at] + chr(generator.randrange(1, 0x2FF)) + text[at + 1 :],
            "\n".join([*before, f"{key}{colon} {generator.choice(ODD)}", *after]),
            "\n".join([*lines[:place], now, *lines[place:]]),
            "\n".join([*before, *after]),
            "\n".join([*before, " " * generator.randrange(6) + now.lstrip(), *after]),
            text[:at],
        )
        text = generator.choice(slips)
    return text


@pytest.mark.parametrize("seed", range(100))
def test_a_mutated_suite_is_valid_or_refused_with_a_message(tmp_path, monkeypatch, capsys, fast_commands, seed):
    def ran(trials, *_, **__):
        raise KeyboardInterrupt  # the mutant is a valid suite: its trials need not run

    monkeypatch.setattr("harness.execution.local.supervisor.run_trials", ran)
    monkeypatch.chdir(tmp_path)
    text = mutate(SUITE, random.Random(seed))
    Path("mutant.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    codes = {verb: main([verb, "mutant.yaml"]) for verb in ("validate", "plan", "run")}
    _, error = capsys.readouterr()
    assert "Traceback" not in error
    assert codes["validate"] in (0, 2) and codes["plan"] in (0, 2) and codes["run"] in (2, 3, 130), text
    if codes["run"] != 130:
        assert error
        assert [path.name for path in tmp_path.iterdir()] == ["mutant.yaml"], "a refused command writes nothing"
    if codes["plan"] == 2:
        assert codes["run"] == 2, "a suite that cannot be planned cannot run"


def test_the_suite_without_mutation_is_valid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mutant.yaml").write_text(SUITE)
    assert main(["validate", "mutant.yaml"]) == 0, capsys.readouterr().err
